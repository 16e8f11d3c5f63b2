//! Lines for units in use, held to a naive model, and on several threads.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use super::*;

fn queueing(max: u32, queue: u32) -> Table {
    let second = Duration::from_secs(1);
    let bound = Concurrency {
        max,
        retry_after: second,
        queue,
        max_wait: second,
    };
    Table::new("test", Algorithm::Concurrency(bound), 1, OnFull::Forget)
}

fn acquire(table: &Table, cost: u32) -> Option<Permit> {
    let nothing = Charge::new(table, key(7), 0);
    Charge {
        demand: Demand::of(cost),
        ..nothing
    }
    .acquire()
}

/// Counts the wake-ups of a waiter.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A request that has its units, or waits for them.
struct Request {
    permit: Permit,
    woken: Arc<Woken>,
    units: u32,
    /// By the model.
    taken: bool,
    waited: bool,
}

impl Request {
    fn is_taken(&self) -> bool {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.permit
            .poll_acquired(&mut Context::from_waker(&waker))
            .is_ready()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(u32),
    Leave(usize),
    Bound(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..5_u32).prop_map(Step::Enter),
        3 => any::<usize>().prop_map(Step::Leave),
        1 => (0..7_u32).prop_map(Step::Bound),
    ];
    prop::collection::vec(step, 1..60)
}

/// A plain model of units in use and waiters.
struct Model {
    max: u32,
    queue: usize,
}

impl Model {
    fn taken(requests: &[Request]) -> u32 {
        let taken = requests.iter().filter(|one| one.taken);
        taken.map(|one| one.units).sum()
    }

    /// True if a request takes its units at once; `None` if it is refused.
    fn enter(&self, requests: &[Request], units: u32) -> Option<bool> {
        let mut waiting = requests.iter().filter(|one| !one.taken);
        let count = waiting.clone().count();
        let behind = waiting.any(|one| one.units <= self.max);
        if !behind && Self::taken(requests) + units <= self.max {
            Some(true)
        } else {
            (count < self.queue).then_some(false)
        }
    }

    fn advance(&self, requests: &mut [Request]) {
        loop {
            let free = self.max.saturating_sub(Self::taken(requests));
            let mut waiting = requests.iter_mut().filter(|one| !one.taken);
            match waiting.find(|one| one.units <= self.max) {
                Some(next) if next.units <= free => next.taken = true,
                _ => return,
            }
        }
    }
}

proptest! {
    #[test]
    fn queues_match_the_model(steps in steps(), max in 0..6_u32, queue in 1..6_u32) {
        let mut table = Arc::new(queueing(max, queue));
        let mut model = Model { max, queue: queue as usize };
        let mut requests: Vec<Request> = Vec::new();
        for step in steps {
            match step {
                Step::Enter(units) => {
                    let expected = model.enter(&requests, units);
                    let permit = acquire(&table, units);
                    prop_assert_eq!(permit.as_ref().map(|permit| !permit.has_to_wait()), expected);
                    if let (Some(permit), Some(taken)) = (permit, expected) {
                        let (woken, waited) = (Arc::default(), !taken);
                        requests.push(Request { permit, woken, units, taken, waited });
                    }
                }
                Step::Leave(_) if requests.is_empty() => {}
                Step::Leave(index) => {
                    drop(requests.remove(index % requests.len()));
                    model.advance(&mut requests);
                }
                Step::Bound(max) => {
                    let next = Arc::new(queueing(max, queue).sharing_permits_of(&table));
                    table.migrate_to(Arc::clone(&next), NOW);
                    (table, model.max) = (next, max);
                    model.advance(&mut requests);
                }
            }
            for one in &requests {
                prop_assert_eq!(one.is_taken(), one.taken);
                let woken = one.woken.0.load(Ordering::Relaxed);
                prop_assert_eq!(woken, usize::from(one.taken && one.waited), "woken once, and in turn");
            }
            prop_assert_eq!(table.in_use(), Some(Model::taken(&requests).into()));
            // No request overtakes waiters, whatever its cost.
            let free = model.enter(&requests, 1) == Some(true);
            prop_assert_eq!(table.peek(key(7), 1, NOW).is_admitted(), free);
        }
        requests.clear();
        prop_assert_eq!((table.in_use(), table.live(NOW)), (Some(0), 0));
    }
}

#[test]
fn on_several_threads_every_waiter_gets_its_turn_within_the_bound() {
    const MAX: u32 = 3;
    const TASKS: u32 = 40;
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 20;
    let table = Arc::new(queueing(MAX, TASKS * THREADS));
    let served = Arc::new(AtomicUsize::new(0));
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (table, served, inside) = (table.clone(), served.clone(), inside.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                let tasks = tokio::task::LocalSet::new();
                for _ in 0..TASKS {
                    let (table, served, inside) = (table.clone(), served.clone(), inside.clone());
                    tasks.spawn_local(async move {
                        for _ in 0..ROUNDS {
                            let permit = acquire(&table, 1).expect("the queue is long enough");
                            permit.acquired().await;
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < MAX as usize);
                            tokio::task::yield_now().await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                            served.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
                runtime.expect("a runtime").block_on(tasks);
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("nobody panics");
    }
    let all = (TASKS * THREADS * ROUNDS) as usize;
    assert_eq!(served.load(Ordering::SeqCst), all);
    assert_eq!((table.in_use(), table.live(NOW)), (Some(0), 0));
}

#[test]
fn a_waiter_that_leaves_unaware_of_its_turn_passes_it_on() {
    let table = queueing(1, 5);
    let holder = acquire(&table, 1).expect("it is free");
    let [first, second] = [(); 2].map(|()| acquire(&table, 1).expect("a place"));
    drop(holder);
    drop(first);
    let waker = Waker::noop();
    assert!(
        second
            .poll_acquired(&mut Context::from_waker(waker))
            .is_ready()
    );
    assert_eq!(table.in_use(), Some(1));
    drop(second);
    assert_eq!(table.in_use(), Some(0));
}

#[test]
fn a_turn_goes_from_one_request_to_the_next_and_the_queue_is_bounded() {
    let turns = Turns::default();
    let [key, other] = [1, 2].map(Fingerprint::from_bits);
    let first = turns.take(key, 2).expect("the turn");
    let [second, third] = [(); 2].map(|()| turns.take(key, 2).expect("a place"));
    assert!(turns.take(key, 2).is_none());
    assert!(!turns.is_taken(other) && turns.take(other, 0).is_some());
    let waits = || [&first, &second, &third].map(Permit::is_waiting);
    assert_eq!(waits(), [false, true, true]);
    drop(second);
    assert!(third.is_waiting());
    drop(first);
    assert!(!third.is_waiting() && turns.is_taken(key));
    drop(third);
    assert!(!turns.is_taken(key));
}
