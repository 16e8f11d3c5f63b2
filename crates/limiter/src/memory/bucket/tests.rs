//! One bucket of five entries, seen from outside: evicted keys, and the state of new ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::algorithms::{
    FixedWindow, Gcra, IntervalRefill, OldestPart, SlidingCounters, SlidingLog, SlidingWindow,
    Start,
};
use crate::calendar::{Calendar, Period};
use crate::{Algorithm, Charge, Decision, Fingerprint, Outcome, Quota, Table, charge_all};

const MINUTE: u64 = 60_000_000;

fn quota(limit: u32, window: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(window)).unwrap()
}

fn per_minute(limit: u32) -> Algorithm {
    Algorithm::Gcra(Gcra::new(quota(limit, MINUTE), limit).unwrap())
}

/// A table of one bucket.
fn one_bucket(algorithm: Algorithm, on_full: OnFull) -> Table {
    Table::new("test", algorithm, 3, on_full)
}

fn charge(table: &Table, key: u64, cost: u32, now: u64) -> Decision {
    let key = Fingerprint::from_bits(key);
    charge_all(
        &[Charge::new(table, key, cost)],
        Timestamp::from_micros(now),
    )
    .decisions[0]
}

fn used(table: &Table, key: u64, now: u64) -> u32 {
    let peek = table.peek(Fingerprint::from_bits(key), 0, Timestamp::from_micros(now));
    (peek.capacity - peek.remaining).try_into().unwrap()
}

#[test]
fn the_key_with_the_smallest_use_is_evicted() {
    let table = one_bucket(per_minute(20), OnFull::Forget);
    for (key, cost) in [(1, 5), (2, 9), (3, 2), (4, 20), (5, 7)] {
        charge(&table, key, cost, 0);
    }
    charge(&table, 6, 1, 0);
    assert_eq!(
        [1, 2, 3, 4, 5, 6].map(|key| used(&table, key, 0)),
        [5, 9, 0, 20, 7, 1]
    );
    assert_eq!((table.evictions(), table.unrecorded()), (1, 0));
    charge(&table, 7, 1, 0);
    assert_eq!([6, 7].map(|key| used(&table, key, 0)), [0, 1]);
}

#[test]
fn of_equal_uses_the_earliest_to_recover_is_evicted() {
    let window = FixedWindow::new(quota(20, MINUTE), Start::FirstRequest);
    let table = one_bucket(Algorithm::FixedWindow(window), OnFull::Forget);
    for (key, now) in [(1, 30), (2, 10), (3, 20), (4, 50), (5, 40)] {
        charge(&table, key, 3, now);
    }
    charge(&table, 6, 1, 60);
    assert_eq!(
        [1, 2, 3, 4, 5].map(|key| used(&table, key, 60)),
        [3, 0, 3, 3, 3]
    );
}

#[test]
fn an_entry_that_has_expired_is_free() {
    let table = one_bucket(per_minute(20), OnFull::Forget);
    for key in 1..=5 {
        charge(&table, key, key as u32, 0);
    }
    let once_the_first_is_whole = MINUTE / 20;
    charge(&table, 6, 1, once_the_first_is_whole);
    assert_eq!(used(&table, 2, once_the_first_is_whole), 1);
    assert_eq!(
        (
            table.evictions(),
            table.live(Timestamp::from_micros(once_the_first_is_whole))
        ),
        (0, 5)
    );
}

#[test]
fn a_refused_key_is_never_evicted_and_a_new_one_passes_unrecorded() {
    let table = one_bucket(per_minute(20), OnFull::Forget);
    for key in 1..=5 {
        charge(&table, key, 20, 0);
    }
    for key in 6..100 {
        assert!(charge(&table, key, 1, 0).is_admitted());
    }
    for key in 1..=5 {
        assert!(!charge(&table, key, 1, 0).is_admitted());
    }
    assert_eq!((table.evictions(), table.unrecorded()), (0, 94));
}

#[test]
fn a_strict_new_key_starts_with_the_use_of_the_evicted_one() {
    let table = one_bucket(per_minute(20), OnFull::Strict);
    for (key, cost) in [(1, 5), (2, 9), (3, 2), (4, 20), (5, 7)] {
        charge(&table, key, cost, 0);
    }
    // The two that have used least share an entry from now on.
    assert_eq!(charge(&table, 6, 1, 0).remaining, 20 - 5 - 1);
    assert_eq!([2, 4, 5, 6].map(|key| used(&table, key, 0)), [9, 20, 7, 6]);
    assert_eq!((table.evictions(), table.unrecorded()), (2, 0));
    assert_eq!(table.live(Timestamp::EPOCH), 4);
}

#[test]
fn a_strict_new_key_among_refused_ones_is_refused_and_none_is_evicted() {
    let table = one_bucket(per_minute(20), OnFull::Strict);
    for key in 1..=5 {
        charge(&table, key, 20, 0);
    }
    let refused = charge(&table, 6, 1, 0);
    let retry_at = Some(Timestamp::from_micros(MINUTE / 20));
    assert_eq!(refused.outcome, Outcome::Refuse { retry_at });
    assert_eq!((table.evictions(), table.live(Timestamp::EPOCH)), (0, 5));
}

#[test]
fn a_window_taken_over_half_way_lasts_as_long_as_one_of_its_own() {
    let window = FixedWindow::new(quota(10, MINUTE), Start::FirstRequest);
    let table = one_bucket(Algorithm::FixedWindow(window), OnFull::Strict);
    charge(&table, 1, 5, 0);
    for key in 11..=15 {
        charge(&table, key, 1, 2);
    }
    assert!(charge(&table, 1, 5, MINUTE - 1).is_admitted());
    charge(&table, 16, 1, MINUTE);
    // The first key's entry is gone, and what the others share ends soon.
    assert!(charge(&table, 1, 9, MINUTE + 1).is_admitted());
    assert!(!charge(&table, 1, 10, MINUTE + 2).is_admitted());
}

fn quotas() -> impl Strategy<Value = Quota> {
    (1..=20_u32, 50..=500_u64).prop_map(|(limit, window)| quota(limit, window))
}

/// The algorithms by which buckets that are used alike recover alike.
fn algorithms() -> impl Strategy<Value = Algorithm> {
    let gcra = |(quota, burst)| Algorithm::Gcra(Gcra::new(quota, burst).unwrap());
    let fixed = |quota| Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH));
    let sliding = |oldest| move |quota| Algorithm::SlidingWindow(SlidingWindow::new(quota, oldest));
    prop_oneof![
        (quotas(), 1..=20_u32).prop_map(gcra),
        quotas().prop_map(fixed),
        calendars(),
        quotas().prop_map(sliding(OldestPart::Weighted)),
        quotas().prop_map(sliding(OldestPart::Whole)),
        rings(),
    ]
}

/// Days and months that do not end while anything arrives.
fn calendars() -> impl Strategy<Value = Algorithm> {
    let periods = prop_oneof![Just(Period::Day), Just(Period::Month { anchor: 31 })];
    (1..=20_u32, periods).prop_map(|(limit, period)| {
        let calendar = Calendar::new(period, TimeZone::UTC);
        Algorithm::FixedWindow(FixedWindow::periods(
            limit.into(),
            Arc::new(calendar),
            Start::Calendar,
        ))
    })
}

fn oldest() -> impl Strategy<Value = OldestPart> {
    prop_oneof![
        Just(OldestPart::Weighted),
        Just(OldestPart::Whole),
        Just(OldestPart::Ignored)
    ]
}

/// The algorithms with rings, of one chunk and of several.
fn rings() -> impl Strategy<Value = Algorithm> {
    let parts = prop_oneof![Just(2_u32), Just(5), Just(60)];
    let counters = |(limit, part, parts, oldest)| {
        let quota = quota(limit, part * u64::from(parts));
        Algorithm::SlidingCounters(SlidingCounters::new(quota, parts, oldest).unwrap())
    };
    let log = |quota| Algorithm::SlidingLog(SlidingLog::new(quota).unwrap());
    let many = (20..=60_u32, 50..=500_u64).prop_map(|(limit, window)| quota(limit, window));
    prop_oneof![
        (1..=20_u32, 1..=100_u64, parts, oldest()).prop_map(counters),
        quotas().prop_map(log),
        many.prop_map(log),
    ]
}

/// What buckets of their own would say, that nobody else can touch.
struct Unbounded {
    algorithm: Algorithm,
    tables: HashMap<u64, Table>,
}

impl Unbounded {
    fn new(algorithm: &Algorithm) -> Self {
        Self {
            algorithm: algorithm.clone(),
            tables: HashMap::new(),
        }
    }

    fn charge(&mut self, arrival: &Arrival) -> Decision {
        let new = || one_bucket(self.algorithm.clone(), OnFull::Forget);
        let table = self.tables.entry(arrival.key).or_insert_with(new);
        charge(table, arrival.key, arrival.cost, arrival.now)
    }
}

/// A request: when, whose, how much.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    now: u64,
    key: u64,
    cost: u32,
}

/// Arrivals of a few more keys than a bucket has entries, in the order of time.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gaps = prop_oneof![6 => Just(0_u64), 3 => 0..=30_u64, 1 => 0..=400_u64];
    let costs = prop_oneof![5 => Just(1_u32), 1 => 0..=5_u32];
    // Spread, so that a larger table has the keys in several buckets.
    let keys = (0..9_u64).prop_map(|key| (key + 1) * (u64::MAX / 10));
    prop::collection::vec((gaps, keys, costs), 1..200).prop_map(|steps| {
        let arrive = |now: &mut u64, (gap, key, cost)| {
            *now += gap;
            Some(Arrival {
                now: *now,
                key,
                cost,
            })
        };
        steps.into_iter().scan(1_000_000, arrive).collect()
    })
}

/// The arrivals that a strict table admits, which has a few entries and rings, and is replaced by
/// others on the way.
fn admitted_by_strict(
    algorithm: &Algorithm,
    arrivals: &[Arrival],
    rings: u64,
    moves: &[prop::sample::Index],
) -> Vec<Arrival> {
    let moves: Vec<_> = moves
        .iter()
        .map(|index| index.index(arrivals.len()))
        .collect();
    let new = |keys: usize| {
        let bytes = rings * Table::ring_bytes_for(algorithm);
        Table::with_rings("test", algorithm.clone(), keys, bytes, OnFull::Strict)
    };
    let mut table = Arc::new(new(3));
    let mut admitted = Vec::new();
    for (index, arrival) in arrivals.iter().enumerate() {
        if moves.contains(&index) {
            let keys = 3 + 6 * (index % 2);
            let next = Arc::new(new(keys));
            table.migrate_to(next.clone(), Timestamp::from_micros(arrival.now));
            table = next;
        }
        if charge(&table, arrival.key, arrival.cost, arrival.now).is_admitted() {
            admitted.push(*arrival);
        }
    }
    admitted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn strict_never_admits_what_an_unbounded_store_would_refuse(
        algorithm in algorithms(), arrivals in arrivals(), moves: [prop::sample::Index; 2],
    ) {
        let mut unbounded = Unbounded::new(&algorithm);
        for arrival in admitted_by_strict(&algorithm, &arrivals, 30, &moves) {
            prop_assert!(unbounded.charge(&arrival).is_admitted(), "{:?}", arrival);
        }
    }

    #[test]
    fn strict_never_admits_more_however_little_room_there_is_for_rings(
        algorithm in rings(), arrivals in arrivals(), room in 1..6_u64,
    ) {
        let mut unbounded = Unbounded::new(&algorithm);
        for arrival in admitted_by_strict(&algorithm, &arrivals, room, &[]) {
            prop_assert!(unbounded.charge(&arrival).is_admitted(), "{:?}", arrival);
        }
    }

    /// A newcomer takes over a window that began with somebody else, so it is the bound that holds.
    #[test]
    fn strict_windows_of_different_ends_admit_at_most_twice_their_limit(
        quota in quotas(), start in prop_oneof![Just(Start::FirstRequest), Just(Start::Staggered)],
        arrivals in arrivals(), moves: [prop::sample::Index; 2],
    ) {
        let algorithm = Algorithm::FixedWindow(FixedWindow::new(quota, start));
        let admitted = admitted_by_strict(&algorithm, &arrivals, 30, &moves);
        for first in &admitted {
            let span = first.now..first.now + quota.window_micros();
            let within = admitted.iter().filter(|one| one.key == first.key && span.contains(&one.now));
            prop_assert!(within.map(|one| one.cost).sum::<u32>() <= 2 * quota.limit());
        }
    }

    /// What a newcomer takes over is refilled at other instants than his own would be.
    #[test]
    fn strict_refills_of_different_instants_admit_the_capacity_and_the_refills_of_a_span(
        capacity in 1..=20_u32, amount in 1..=8_u32, interval in 10..=200_u64, span in 1..=1_000_u64,
        arrivals in arrivals(), moves: [prop::sample::Index; 2],
    ) {
        let refill = IntervalRefill::new(capacity, amount, Duration::from_micros(interval)).unwrap();
        let admitted = admitted_by_strict(&Algorithm::IntervalRefill(refill), &arrivals, 30, &moves);
        let refills = (span - 1) / interval + 1;
        for first in &admitted {
            let span = first.now..first.now + span;
            let within = admitted.iter().filter(|one| one.key == first.key && span.contains(&one.now));
            let units: u64 = within.map(|one| u64::from(one.cost)).sum();
            prop_assert!(units <= u64::from(capacity) + refills * u64::from(amount));
        }
    }

    #[test]
    fn staggered_windows_are_clock_windows_with_an_edge_for_each_key(
        quota in quotas(), arrivals in arrivals(),
    ) {
        let with = |start| Algorithm::FixedWindow(FixedWindow::new(quota, start));
        let table = Table::new("test", with(Start::Staggered), 1_000, OnFull::Forget);
        let mut clocks: HashMap<u64, Table> = HashMap::new();
        for Arrival { now, key, cost } in arrivals.into_iter().filter(|one| (1..=quota.limit()).contains(&one.cost)) {
            let decision = charge(&table, key, cost, now);
            // The first request of a key shows where its windows end.
            let offset = Duration::from_micros(decision.reset.as_micros());
            let clock = || Table::new("test", with(Start::Clock { offset }), 8, OnFull::Forget);
            let exact = charge(clocks.entry(key).or_insert_with(clock), key, cost, now);
            prop_assert_eq!(decision, exact);
        }
    }

    #[test]
    fn a_table_that_is_not_full_equals_an_unbounded_store(
        algorithm in algorithms(), arrivals in arrivals(),
        on_full in prop_oneof![Just(OnFull::Forget), Just(OnFull::Strict)],
    ) {
        let bytes = 5 * Table::ring_bytes_for(&algorithm);
        let table = Table::with_rings("test", algorithm.clone(), 3, bytes, on_full);
        let mut unbounded = Unbounded::new(&algorithm);
        for arrival in arrivals {
            let arrival = Arrival { key: 1 + arrival.key % 5, ..arrival };
            let (exact, decision) = (unbounded.charge(&arrival), charge(&table, arrival.key, arrival.cost, arrival.now));
            let now = Timestamp::from_micros(arrival.now);
            prop_assert_eq!(decision.outcome, exact.outcome);
            prop_assert_eq!((decision.remaining, decision.reset), (exact.remaining, exact.reset));
            prop_assert_eq!(algorithm.more_at(&decision, now), algorithm.more_at(&exact, now));
        }
    }

    /// However little room there is, no chunk is lost, and none is in two rings.
    #[test]
    fn every_chunk_is_free_or_in_one_ring(
        algorithm in rings(), arrivals in arrivals(), keys in 3..40_usize, room in 1..6_u64,
        on_full in prop_oneof![Just(OnFull::Forget), Just(OnFull::Strict)],
    ) {
        let bytes = room * Table::ring_bytes_for(&algorithm);
        let table = Table::with_rings("test", algorithm, keys, bytes, on_full);
        for Arrival { now, key, cost } in arrivals {
            charge(&table, key, cost, now);
            table.assert_chunks_are_in_one_ring();
        }
    }
}

impl Slots {
    /// The roots of all rings, including those of expired entries.
    pub(in crate::memory) fn roots(&self) -> Vec<u32> {
        let cells = self.entries.iter().map(|entry| entry.cell);
        cells.map(|cell| cell.a).filter(|root| *root != 0).collect()
    }
}
