mod queue;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::algorithms::Gcra;
use crate::memory::charge::tests::charge_with_shadow;
use crate::memory::table::TableCensus;
use crate::{Algorithm, Charge, Demand, OnFull, Outcome, Quota, Table, Timestamp, charge_all};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn at_most(max: u32) -> Table {
    let bound = Concurrency::new(max, Duration::from_secs(1));
    Table::new("test", Algorithm::Concurrency(bound), 1, OnFull::Forget)
}

fn hourly(limit: u32) -> Table {
    let quota = Quota::new(limit, Duration::from_hours(1)).unwrap();
    let gcra = Algorithm::Gcra(Gcra::new(quota, limit).unwrap());
    Table::new("test", gcra, 64, OnFull::Forget)
}

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

/// Keys that have a bucket of the table each: none is forgotten.
fn apart(number: u64) -> u64 {
    number << 60
}

fn charge(table: &Table, bits: u64, cost: u32) -> Charge<'_> {
    let key = key(bits);
    Charge::new(table, key, cost)
}

/// What gives back what all of these take; `None` where one refuses.
fn take(charges: &[Charge<'_>]) -> Option<Vec<Permit>> {
    let admitted = charge_all(charges, NOW).is_admitted();
    admitted.then(|| charges.iter().filter_map(Charge::permit).collect())
}

fn remaining(table: &Table, bits: u64) -> u32 {
    table.peek(key(bits), 0, NOW).remaining.try_into().unwrap()
}

#[test]
fn a_dropped_permit_returns_its_units_even_in_a_panic() {
    let table = at_most(3);
    let first = take(&[charge(&table, 7, 2)]).expect("it is free");
    assert_eq!((table.in_use(), remaining(&table, 7)), (Some(2), 1));
    assert!(take(&[charge(&table, 7, 2)]).is_none());
    assert!(take(&[charge(&table, 8, 3)]).is_some(), "another key");
    drop(first);
    assert_eq!((table.in_use(), table.live(NOW)), (Some(0), 0));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _held = take(&[charge(&table, 7, 3)]).expect("it is free");
        panic!("of no concern");
    }));
    assert!(panicked.is_err());
    assert_eq!(remaining(&table, 7), 3);
}

#[test]
fn a_census_counts_keys_near_the_bound() {
    let table = at_most(10);
    let held = take(&[charge(&table, 7, 7), charge(&table, 8, 8)]).expect("both are free");
    let census = table.census(NOW);
    assert_eq!((census.keys, census.near, census.bytes), (2, 1, 0));
    drop(held);
    assert_eq!(table.census(NOW), TableCensus::default());
}

#[test]
fn a_cost_of_zero_takes_no_unit() {
    let table = at_most(1);
    let held = take(&[charge(&table, 7, 0)]).expect("nothing is asked");
    assert_eq!((table.in_use(), table.live(NOW)), (Some(0), 0));
    drop(held);
    let one = take(&[charge(&table, 7, 1)]).expect("it is free");
    drop(take(&[charge(&table, 7, 0)]));
    assert_eq!(table.in_use(), Some(1));
    drop(one);
}

#[test]
fn a_refusal_by_either_kind_of_policy_charges_none() {
    let (bound, quota) = (at_most(1), hourly(2));
    for flip in [false, true] {
        let mut charges = [charge(&bound, 7, 1), charge(&quota, 7, 1)];
        if flip {
            charges.reverse();
        }
        let held = take(&charges).expect("both are free");
        let left = remaining(&quota, 7);
        let refused = charge_all(&charges, NOW);
        assert!(!refused.is_admitted());
        let [of_bound, of_quota] = if flip { [1, 0] } else { [0, 1] };
        assert!(!refused.decisions[of_bound].is_admitted());
        assert_eq!(
            refused.decisions[of_quota].remaining,
            left.into(),
            "not charged"
        );
        assert_eq!(remaining(&quota, 7), left);
        drop(held);
    }
    assert_eq!(remaining(&quota, 7), 0);
    let refused = charge_all(&[charge(&bound, 7, 1), charge(&quota, 7, 1)], NOW);
    assert_eq!(refused.deciding, 1);
    assert_eq!(refused.decisions[0].remaining, 1, "not taken");
    assert_eq!(bound.in_use(), Some(0));
}

#[test]
fn a_shadowed_policy_takes_only_units_that_it_would_admit() {
    let (bound, quota) = (at_most(1), hourly(9));
    let charges = [charge(&quota, 7, 1), charge(&bound, 7, 1)];
    let first = charge_with_shadow(&charges, 1, NOW);
    assert!(
        first
            .decisions
            .iter()
            .all(|decision| decision.is_admitted())
    );
    let held = charges[1].permit();
    let second = charge_with_shadow(&charges, 1, NOW);
    assert!(second.is_admitted());
    assert!(matches!(
        second.decisions[1].outcome,
        Outcome::Refuse { .. }
    ));
    assert_eq!((bound.in_use(), remaining(&quota, 7)), (Some(1), 7));
    drop(held);
}

#[test]
fn another_bound_counts_units_already_in_use() {
    let before = at_most(2);
    let held: Vec<_> = (0..2)
        .filter_map(|_| take(&[charge(&before, 7, 1)]))
        .collect();
    let after = at_most(3).sharing_permits_of(&before);
    assert_eq!(remaining(&after, 7), 1);
    let last = take(&[charge(&after, 7, 1)]).expect("there is one more");
    let lower = at_most(1).sharing_permits_of(&after);
    assert_eq!((remaining(&lower, 7), lower.in_use()), (0, Some(3)));
    drop(before);
    drop(held);
    assert!(take(&[charge(&lower, 7, 1)]).is_none(), "one is in use");
    drop(last);
    assert!(take(&[charge(&lower, 7, 1)]).is_some());
    assert!(lower.can_succeed(&after) && !hourly(1).can_succeed(&lower));
}

#[test]
fn threads_never_have_more_in_use_than_the_bound_and_leave_nothing() {
    const MAX: u32 = 5;
    let (bound, quota) = (at_most(MAX), hourly(u32::MAX));
    let (most, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 1..=8 {
            let (bound, quota, most, admitted) = (&bound, &quota, &most, &admitted);
            scope.spawn(move || {
                let mut held = Vec::new();
                for step in 0..20_000_u64 {
                    let mut charges = [charge(bound, 7, 1), charge(quota, apart(thread), 1)];
                    if step % 2 == 0 {
                        charges.reverse();
                    }
                    if let Some(permits) = take(&charges) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                        held.push(permits);
                    }
                    most.fetch_max(bound.in_use().unwrap(), Ordering::Relaxed);
                    if step % 3 == 0 {
                        held.pop();
                    }
                }
            });
        }
    });
    assert_eq!(bound.in_use(), Some(0));
    assert!(most.load(Ordering::Relaxed) <= u64::from(MAX));
    let spent: u32 = (1..=8)
        .map(|thread| u32::MAX - remaining(&quota, apart(thread)))
        .sum();
    assert_eq!(u64::from(spent), admitted.load(Ordering::Relaxed));
}

/// Something that happens to two bounds and a quota.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request of this key, which takes so many units of each.
    Begin(u64, [u32; 3]),
    /// The end of one of the requests in flight.
    End(usize),
    /// Another bound for the first.
    Reload(u32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (1..4_u64, [0..4_u32, 0..4, 0..4]).prop_map(|(key, costs)| Event::Begin(key, costs)),
        3 => any::<usize>().prop_map(Event::End),
        1 => (0..8_u32).prop_map(Event::Reload),
    ];
    prop::collection::vec(event, 0..60)
}

proptest! {
    #[test]
    fn units_in_use_are_those_of_requests_in_flight(events in events(), second in 0..8_u32) {
        let (mut max, mut first) = (4, at_most(4));
        let (second_table, quota) = (at_most(second), hourly(20));
        let mut spent = [0; 4];
        let mut in_flight: Vec<(u64, [u32; 3], Vec<Permit>)> = Vec::new();
        for event in events {
            match event {
                Event::Begin(key, costs) => {
                    let used = |place: usize| {
                        let same = in_flight.iter().filter(|one| one.0 == key);
                        same.map(|one| one.1[place]).sum::<u32>()
                    };
                    let fits = |cost: u32, used: u32, most: u32| cost == 0 || used + cost <= most;
                    let expected = fits(costs[0], used(0), max)
                        && fits(costs[1], used(1), second)
                        && fits(costs[2], spent[key as usize], 20);
                    let tables = [&first, &second_table, &quota];
                    let charges: Vec<_> = tables.iter().zip(costs)
                        .map(|(table, cost)| charge(table, key, cost)).collect();
                    let permits = take(&charges);
                    prop_assert_eq!(permits.is_some(), expected);
                    if let Some(permits) = permits {
                        spent[key as usize] += costs[2];
                        in_flight.push((key, costs, permits));
                    }
                }
                Event::End(index) if !in_flight.is_empty() => {
                    in_flight.swap_remove(index % in_flight.len());
                }
                Event::End(_) => {}
                Event::Reload(bound) => {
                    max = bound;
                    first = at_most(max).sharing_permits_of(&first);
                }
            }
            let of = |place: usize| in_flight.iter().map(|one| u64::from(one.1[place])).sum::<u64>();
            prop_assert_eq!(first.in_use(), Some(of(0)));
            prop_assert_eq!(second_table.in_use(), Some(of(1)));
        }
        in_flight.clear();
        prop_assert_eq!((first.in_use(), first.live(NOW)), (Some(0), 0));
        prop_assert_eq!((second_table.in_use(), second_table.live(NOW)), (Some(0), 0));
    }
}

impl Permits {
    /// All units in use.
    fn units(&self) -> u64 {
        let units = |shard: &Shard| {
            shard
                .lock()
                .0
                .values()
                .map(|units| units.taken)
                .sum::<u64>()
        };
        self.shards.iter().map(units).sum()
    }
}

impl Table {
    /// The number of units in use; `None` for tables of cells.
    fn in_use(&self) -> Option<u64> {
        self.permits().map(Permits::units)
    }
}
