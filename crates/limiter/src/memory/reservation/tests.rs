use std::time::Duration;

use super::*;
use crate::algorithms::{
    FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters, SlidingLog,
    SlidingWindow, Start,
};
use crate::memory::slab::Slab;
use crate::{Algorithm, Ask, OnFull, Quota, Role, Verdict};

const NOW: Timestamp = Timestamp::from_micros(3_600_000_000);
const HOUR: Duration = Duration::from_hours(1);

fn quota(limit: u32, window: Duration) -> Quota {
    Quota::new(limit, window).unwrap()
}

fn gcra(limit: u32) -> Algorithm {
    Algorithm::Gcra(Gcra::new(quota(limit, HOUR), limit).unwrap())
}

fn fixed(limit: u32) -> Algorithm {
    Algorithm::FixedWindow(FixedWindow::new(quota(limit, HOUR), Start::EPOCH))
}

fn sliding(limit: u32, window: Duration) -> Algorithm {
    Algorithm::SlidingWindow(SlidingWindow::new(quota(limit, window), OldestPart::Whole))
}

fn log(limit: u32, window: Duration) -> Algorithm {
    Algorithm::SlidingLog(SlidingLog::new(quota(limit, window)).unwrap())
}

fn counters(limit: u32, parts: u32) -> Algorithm {
    let window = SlidingCounters::new(quota(limit, HOUR), parts, OldestPart::Weighted);
    Algorithm::SlidingCounters(window.unwrap())
}

fn leaky(queue: u32) -> Algorithm {
    let line = LeakyBucket::new(quota(20, HOUR), queue, HOUR, 0);
    Algorithm::LeakyBucket(line.unwrap())
}

fn refilled(capacity: u32) -> Algorithm {
    Algorithm::IntervalRefill(IntervalRefill::new(capacity, 1, HOUR).unwrap())
}

fn table(algorithm: Algorithm) -> Arc<Table> {
    Arc::new(Table::new("test", algorithm, 64, OnFull::Forget))
}

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

/// Reserves; `None` where it is refused.
fn reserve(table: &Arc<Table>, bits: u64, cost: u32) -> Option<Reservation> {
    reserve_at(table, bits, cost, NOW)
}

fn reserve_at(table: &Arc<Table>, bits: u64, cost: u32, now: Timestamp) -> Option<Reservation> {
    let (verdict, mut made) = charge_and_reserve(&[(table, bits, cost)], 1, now);
    assert_eq!(verdict.is_admitted(), made.len() == 1);
    made.pop().map(|(_, reservation)| reservation)
}

fn used(table: &Table, bits: u64) -> u32 {
    let peek = table.peek(key(bits), 0, NOW);
    (peek.capacity - peek.remaining).try_into().unwrap()
}

/// As a reload does.
fn replace(old: &Arc<Table>, algorithm: Algorithm) -> Arc<Table> {
    let new = Table::new("test", algorithm, 128, OnFull::Forget);
    let new = Arc::new(new.sharing_permits_of(old));
    old.migrate_to(Arc::clone(&new), NOW);
    new
}

#[test]
fn a_charge_becomes_what_it_should_have_been_or_stands() {
    for algorithm in [
        gcra(20),
        refilled(20),
        fixed(20),
        sliding(20, HOUR),
        counters(20, 60),
        log(20, HOUR),
    ] {
        let table = table(algorithm);
        let [less, more, dropped] = [5, 5, 5].map(|cost| reserve(&table, 7, cost).unwrap());
        assert_eq!(used(&table, 7), 15);
        less.settle(2, NOW);
        assert_eq!(used(&table, 7), 12);
        more.settle(8, NOW);
        assert_eq!(used(&table, 7), 15);
        drop(dropped);
        assert_eq!(used(&table, 7), 15);
        let beyond = reserve(&table, 7, 5).unwrap();
        assert!(reserve(&table, 7, 1).is_none());
        beyond.settle(4_000_000, NOW);
        assert!(reserve(&table, 7, 1).is_none());
        assert_eq!(used(&table, 8), 0, "of nobody else");
        assert_eq!(table.unsettled().unwrap().census(1).0, 0);
    }
}

#[test]
fn reservations_are_all_or_nothing() {
    let (wide, narrow) = (table(gcra(9)), table(fixed(1)));
    let charges = [(&wide, 7, 3), (&narrow, 7, 1)];
    let reserve = |binding| charge_and_reserve(&charges, binding, NOW);
    let (verdict, made) = reserve(2);
    assert!(verdict.is_admitted());
    assert_eq!(made.len(), 2);
    let (refused, none) = reserve(2);
    assert!(!refused.is_admitted() && none.is_empty());
    assert_eq!((used(&wide, 7), used(&narrow, 7)), (3, 1));
    // One that only watches settles what it admitted.
    let (watched, some) = reserve(1);
    assert!(watched.is_admitted());
    assert_eq!(
        some.iter().map(|(place, _)| *place).collect::<Vec<_>>(),
        [0]
    );
}

#[test]
fn a_charge_in_flight_at_a_reload_is_settled_in_the_new_table() {
    for (from, to) in [
        (gcra(10), gcra(20)),
        (gcra(20), gcra(10)),
        (fixed(10), fixed(20)),
        (fixed(20), fixed(10)),
        (sliding(10, HOUR), sliding(20, HOUR)),
        (counters(10, 60), counters(20, 60)),
        (counters(20, 60), counters(10, 60)),
        (log(10, HOUR), log(20, HOUR)),
        (log(20, HOUR), log(10, HOUR)),
    ] {
        let old = table(from);
        let [less, more] = [6, 2].map(|cost| reserve(&old, 7, cost).unwrap());
        let middle = replace(&old, to.clone());
        let new = replace(&middle, to);
        let own = reserve(&new, 7, 1).unwrap();
        less.settle(1, NOW);
        assert_eq!(used(&new, 7), 1 + 2 + 1);
        more.settle(3, NOW);
        assert_eq!(used(&new, 7), 1 + 3 + 1);
        own.settle(0, NOW);
        assert_eq!(used(&new, 7), 1 + 3);
    }
}

#[test]
fn a_charge_that_a_reload_dropped_or_moved_to_other_windows_is_not_given_back() {
    let old = table(gcra(10));
    let held = reserve(&old, 7, 6).unwrap();
    let new = replace(&old, fixed(10));
    let own = reserve(&new, 7, 3).unwrap();
    held.settle(0, NOW);
    assert_eq!(used(&new, 7), 3, "another algorithm starts anew");
    drop(own);

    for (from, to) in [
        (sliding(10, HOUR), counters(10, 60)),
        (counters(10, 60), counters(10, 30)),
        (counters(10, 60), sliding(10, HOUR)),
        (log(10, HOUR), log(10, Duration::from_mins(7))),
    ] {
        let old = table(from);
        let held = reserve(&old, 7, 6).unwrap();
        let new = replace(&old, to);
        let before = used(&new, 7);
        held.settle(0, NOW);
        assert_eq!(used(&new, 7), before);
    }
}

/// A table with room for one ring, which every other key takes from the one before: counters are
/// wide, so that a ring has few chunks.
fn narrow(algorithm: Algorithm, on_full: OnFull) -> Arc<Table> {
    let algorithm = algorithm.with_wide_counters();
    Arc::new(Table::with_rings("test", algorithm, 64, 0, on_full))
}

#[test]
fn an_evicted_charge_is_not_taken_from_later_ones() {
    for algorithm in [counters(20, 60), log(20, HOUR)] {
        let table = narrow(algorithm, OnFull::Forget);
        let forgotten = reserve(&table, 7, 5).unwrap();
        reserve(&table, u64::MAX / 2, 20).unwrap().give_back(NOW);
        assert_eq!((used(&table, 7), table.evictions()), (0, 1));
        let again = reserve(&table, 7, 4).unwrap();
        assert_eq!(used(&table, 7), 4);
        forgotten.settle(0, NOW);
        assert_eq!(used(&table, 7), 4, "that was another's");
        again.settle(1, NOW);
        assert_eq!(used(&table, 7), 1);
    }
    // A forced charge also starts a bucket anew.
    for algorithm in [counters(20, 60), log(20, HOUR)] {
        let table = narrow(algorithm, OnFull::Forget);
        let [forgotten, owing] = [5, 4].map(|cost| reserve(&table, 7, cost).unwrap());
        reserve(&table, u64::MAX / 2, 20).unwrap().give_back(NOW);
        owing.settle(6, NOW);
        assert_eq!(used(&table, 7), 2);
        forgotten.give_back(NOW);
        assert_eq!(used(&table, 7), 2);
    }
}

#[test]
fn an_unrecorded_charge_is_not_given_back() {
    // Rings of several chunks, of which all but one ring's are taken: nobody else has one that
    // could be given up.
    let table = narrow(log(1_000, HOUR), OnFull::Forget);
    let other = narrow(counters(1_000, 60), OnFull::Forget);
    for table in [&table, &other] {
        let held = table.bucket_of(key(u64::MAX / 2)).unwrap();
        drop(reserve(table, u64::MAX / 2, 1_000).unwrap());
        let slots = held.lock();
        // Its bucket is locked, so that it is not asked to make room.
        let unrecorded: Vec<_> = (0..40).map(|_| reserve(table, 7, 20).unwrap()).collect();
        drop(slots);
        assert!(table.unrecorded() > 0);
        let kept = used(table, 7);
        let recorded = 40 - table.unrecorded() as u32;
        assert_eq!(kept, 20 * recorded);
        for reservation in unrecorded
            .into_iter()
            .rev()
            .take(table.unrecorded() as usize)
        {
            reservation.give_back(NOW);
        }
        assert_eq!(used(table, 7), kept);
    }
}

#[test]
fn any_charge_can_be_given_back_at_once() {
    for algorithm in [
        gcra(20),
        refilled(20),
        fixed(20),
        sliding(20, HOUR),
        counters(20, 60),
        log(20, HOUR),
        leaky(19),
    ] {
        // No table that settles.
        let table = Arc::new(Table::new("test", algorithm, 64, OnFull::Forget));
        drop(reserve(&table, 7, 3).unwrap());
        let before = table.peek(key(7), 0, NOW);
        for _ in 0..9 {
            let held = [4, 5].map(|cost| reserve(&table, 7, cost).unwrap());
            held.into_iter().rev().for_each(|one| one.give_back(NOW));
            assert_eq!(table.peek(key(7), 0, NOW), before);
        }
        let [first, behind] = [4, 5].map(|cost| reserve(&table, 7, cost).unwrap());
        first.give_back(NOW);
        behind.give_back(NOW);
        let left = table.peek(key(7), 0, NOW).remaining;
        match table.algorithm() {
            Algorithm::LeakyBucket(_) => assert_eq!(left, before.remaining - 4, "out of turn"),
            _ => assert_eq!(left, before.remaining),
        }
        assert_eq!(table.unsettled().unwrap().census(1).0, 0);
    }
}

#[test]
fn giving_back_takes_no_more_memory_for_rings() {
    for algorithm in [counters(500, 60), log(500, HOUR)] {
        let table = Table::with_rings("test", algorithm, 64, 64 * 1024, OnFull::Forget);
        let table = Arc::new(table);
        for round in 0..500 {
            let now = NOW.saturating_add_micros(round * 1_000_000);
            let held: Vec<_> = (0..9)
                .map(|bits| reserve_at(&table, (bits + 1) << 60, 50, now))
                .collect();
            held.into_iter()
                .flatten()
                .for_each(|one| one.give_back(now));
        }
        let taken = table.rules().slab.map(Slab::taken);
        assert_eq!(taken, Some(0), "nothing is left");
        assert_eq!((table.evictions(), table.unrecorded()), (0, 0));
    }
}

#[test]
fn threads_that_settle_leave_what_they_took() {
    const EACH: u64 = 4_000;
    for algorithm in [
        gcra(1_000_000),
        fixed(1_000_000),
        sliding(1_000_000, HOUR),
        counters(1_000_000, 60),
        log(100_000, HOUR),
    ] {
        let first = table(algorithm.clone());
        let totals: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6_u64)
                .map(|thread| {
                    let table = &first;
                    scope.spawn(move || {
                        let mut held = Vec::new();
                        let mut total = 0;
                        for step in 0..EACH {
                            let made = reserve(table, 7, 4).expect("there is enough");
                            held.push(made);
                            if held.len() > 1 + (thread as usize) {
                                let units = (step % 8) as u32;
                                held.swap_remove(step as usize % held.len())
                                    .settle(units, NOW);
                                total += u64::from(units);
                            }
                        }
                        total + 4 * held.len() as u64
                    })
                })
                .collect();
            let second = replace(&first, algorithm);
            let totals = threads.into_iter().map(|thread| thread.join().unwrap());
            let totals = totals.collect();
            drop(second);
            totals
        });
        assert_eq!(u64::from(used(&first, 7)), totals.iter().sum::<u64>());
    }
}

/// Charges all or none, of which the first `enforced` may refuse, and returns the reservations with
/// the indices of their charges.
fn charge_and_reserve(
    charges: &[(&Arc<Table>, u64, u32)],
    enforced: usize,
    now: Timestamp,
) -> (Verdict, Vec<(usize, Reservation)>) {
    let mut claims = Claims::default();
    for (place, (table, bits, cost)) in charges.iter().enumerate() {
        let role = if place < enforced {
            Role::Refuses
        } else {
            Role::Shadows
        };
        claims.push(role, [Charge::new(table, key(*bits), *cost)]);
    }
    let locks = claims.lock_unsettled(|_| true);
    let mut verdict = Verdict::default();
    let deciding = claims.decide(Ask::Charge, now, &mut verdict);
    let table = |claim: usize| Arc::clone(charges[claim].0);
    let reserved = locks.reserve(&deciding, verdict.is_admitted(), now, false, table);
    (verdict, reserved)
}
