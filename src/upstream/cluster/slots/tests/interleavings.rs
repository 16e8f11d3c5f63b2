//! All orders of the steps of a few requests that arrive, end and leave on threads of their own. A
//! step is what no other thread can see half of.

use std::sync::atomic::Ordering::SeqCst;

use super::*;

/// A request on a thread of its own.
enum Actor<'c> {
    /// It takes a slot, or enters the queue, or looks for slots.
    Arriving(Option<PendingRequest<'c>>),
    /// It has a slot, or waits for one.
    Arrived(Option<PendingRequest<'c>>, Option<Slot>),
    /// It no longer counts, and passes its slot on.
    Ending(Arc<Host>, bool),
    Gone,
}

impl<'c> Actor<'c> {
    fn arriving() -> Self {
        Self::Arriving(None)
    }

    /// A request in flight, which the caller counts.
    fn ending(host: &Arc<Host>) -> Self {
        assert_eq!(host.in_flight.fetch_add(1, SeqCst), 0);
        Self::Ending(Arc::clone(host), false)
    }

    fn step(&mut self, cluster: &'c Arc<Cluster>) {
        *self = match std::mem::replace(self, Self::Gone) {
            Self::Arriving(None) => match take(cluster, &[]) {
                Some(slot) => Self::Arrived(None, Some(slot)),
                None => Self::Arriving(cluster.pending.enter(claim(cluster, &[]), 100)),
            },
            Self::Arriving(pending) => {
                cluster.offer_slots();
                Self::Arrived(pending, None)
            }
            Self::Ending(host, false) => {
                host.in_flight.fetch_sub(1, SeqCst);
                Self::Ending(host, true)
            }
            Self::Ending(host, true) => {
                cluster.pending.offer(&host);
                Self::Gone
            }
            arrived => arrived,
        };
    }

    fn has_slot(&mut self) -> bool {
        if let Self::Arrived(Some(pending), slot @ None) = self {
            *slot = assigned(pending);
        }
        matches!(self, Self::Arrived(_, Some(_)))
    }
}

/// Calls `run` with each order in which actors with so many steps may take them.
fn each_order(left: &mut [usize], order: &mut Vec<usize>, run: &mut impl FnMut(&[usize])) {
    if left.iter().all(|steps| *steps == 0) {
        return run(order);
    }
    for actor in 0..left.len() {
        if left[actor] > 0 {
            left[actor] -= 1;
            order.push(actor);
            each_order(left, order, run);
            order.pop();
            left[actor] += 1;
        }
    }
}

fn expect_no_host_beyond(max: usize, cluster: &Cluster) {
    let in_flight = in_flight(cluster);
    assert!(in_flight.iter().all(|one| *one <= max), "{in_flight:?}");
}

#[test]
fn no_slot_is_lost_between_those_that_end_and_those_that_arrive() {
    for (ending, arriving) in [(1, 3), (2, 2)] {
        let cluster = cluster(ending, Some(bound(1)), None);
        let hosts: Vec<_> = (0..ending).map(|number| host(&cluster, number)).collect();
        let actors = ending + arriving;
        each_order(&mut vec![2; actors], &mut Vec::new(), &mut |order| {
            let all_ending = hosts.iter().map(Actor::ending);
            let all_arriving = (0..arriving).map(|_| Actor::arriving());
            let mut all: Vec<_> = all_ending.chain(all_arriving).collect();
            for &actor in order {
                all[actor].step(&cluster);
                expect_no_host_beyond(1, &cluster);
            }
            let mut left = arriving;
            while left > 0 {
                let served: Vec<_> = (0..actors).filter(|&one| all[one].has_slot()).collect();
                assert_eq!(served.len(), left.min(ending), "{order:?}");
                left -= served.len();
                // Their slots pass to those that wait.
                served.into_iter().for_each(|one| all[one] = Actor::Gone);
            }
        });
    }
}

#[test]
fn no_slot_is_lost_when_one_that_waits_leaves() {
    let cluster = cluster(1, Some(bound(1)), None);
    let only = host(&cluster, 0);
    each_order(&mut [2, 1, 2], &mut Vec::new(), &mut |order| {
        let mut ending = Actor::ending(&only);
        let mut leaving = Some(wait(&cluster, &[]));
        let mut arriving = Actor::arriving();
        for actor in order {
            match actor {
                0 => ending.step(&cluster),
                1 => drop(leaving.take()),
                _ => arriving.step(&cluster),
            }
            expect_no_host_beyond(1, &cluster);
        }
        assert!(arriving.has_slot(), "{order:?}");
    });
}
