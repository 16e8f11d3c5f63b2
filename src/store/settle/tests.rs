use std::time::Duration;

use super::*;
use crate::limiter::{Algorithm, FixedWindow, Gcra, Oldest, Quota, SlidingWindow, Start};
use crate::store::{Charge, OnFull, charge_all, charge_watched};

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
    Algorithm::SlidingWindow(SlidingWindow::new(quota(limit, window), Oldest::Whole))
}

fn table(algorithm: Algorithm) -> Arc<Table> {
    Arc::new(Table::new("test", algorithm, 64, OnFull::Forget).settling())
}

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

/// Reserves; `None` where it is refused.
fn reserve(table: &Arc<Table>, bits: u64, cost: u32) -> Option<Reservation> {
    let charge = Charge {
        table,
        key: key(bits),
        cost,
        window_end: None,
    };
    let settled = Settled {
        index: 0,
        table,
        key: key(bits),
        cost,
    };
    let (verdict, mut made) = charge_reserving(&[settled], NOW, || charge_all(&[charge], NOW));
    assert_eq!(verdict.is_admitted(), made.len() == 1);
    made.pop().map(|(_, reservation)| reservation)
}

fn used(table: &Table, bits: u64) -> u32 {
    let peek = table.peek(key(bits), 0, NOW);
    peek.capacity - peek.remaining
}

/// As a reload does.
fn replace(old: &Arc<Table>, algorithm: Algorithm) -> Arc<Table> {
    let new = Table::new("test", algorithm, 128, OnFull::Forget).settling();
    let new = Arc::new(new.in_place_of(old));
    old.replaced_by(Arc::clone(&new), NOW);
    new
}

#[test]
fn a_charge_becomes_what_it_should_have_been_or_stands() {
    for algorithm in [gcra(20), fixed(20), sliding(20, HOUR)] {
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
        assert_eq!(table.unsettled().unwrap().keys(), 0);
    }
}

#[test]
fn all_or_nothing_holds_for_what_is_reserved() {
    let (wide, narrow) = (table(gcra(9)), table(fixed(1)));
    let charge = |table, cost| Charge {
        table,
        key: key(7),
        cost,
        window_end: None,
    };
    let charges = [charge(&*wide, 3), charge(&*narrow, 1)];
    let settled = [(0, &wide, 3), (1, &narrow, 1)].map(|(index, table, cost)| Settled {
        index,
        table,
        key: key(7),
        cost,
    });
    let reserve =
        |binding| charge_reserving(&settled, NOW, || charge_watched(&charges, binding, NOW));
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
fn what_is_in_flight_at_a_reload_is_settled_where_its_bucket_has_gone() {
    for (from, to) in [
        (gcra(10), gcra(20)),
        (gcra(20), gcra(10)),
        (fixed(10), fixed(20)),
        (fixed(20), fixed(10)),
        (sliding(10, HOUR), sliding(20, HOUR)),
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
fn what_a_reload_has_forgotten_or_moved_to_other_windows_is_not_given_back() {
    let old = table(gcra(10));
    let held = reserve(&old, 7, 6).unwrap();
    let new = replace(&old, fixed(10));
    let own = reserve(&new, 7, 3).unwrap();
    held.settle(0, NOW);
    assert_eq!(used(&new, 7), 3, "another algorithm starts anew");
    drop(own);

    let old = table(sliding(10, HOUR));
    let held = reserve(&old, 7, 6).unwrap();
    let new = replace(&old, sliding(10, Duration::from_mins(7)));
    let before = used(&new, 7);
    held.settle(6, NOW);
    assert_eq!(used(&new, 7), before);
}

#[test]
fn threads_that_settle_leave_what_they_took() {
    const EACH: u64 = 4_000;
    for algorithm in [gcra(1_000_000), fixed(1_000_000), sliding(1_000_000, HOUR)] {
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
