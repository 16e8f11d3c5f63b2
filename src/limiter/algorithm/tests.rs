//! What every algorithm promises, over all of them, with parameters up to the largest there are.

mod models;
mod most;

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use proptest::prelude::*;

use super::*;
use crate::limiter::{Calendar, Oldest, Period, QuotaError, Start};

const LONGEST: u64 = Quota::MAX_WINDOW.as_micros() as u64;

fn quota(limit: u32, window: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(window)).expect("a window within bounds")
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// A bucket that requests have come to; the last of them charged it at `now`.
#[derive(Clone, Debug)]
struct Charged {
    algorithm: Algorithm,
    cell: Cell,
    now: Timestamp,
}

/// Numbers of which the small, the round and the largest are as likely as the rest.
fn units() -> impl Strategy<Value = u32> {
    prop_oneof![0..=4_u32, 1..=100_u32, any::<u32>(), Just(u32::MAX)]
}

fn windows() -> impl Strategy<Value = u64> {
    prop_oneof![
        1..=20_u64,
        1..=10_000_u64,
        1..=LONGEST,
        Just(60_000_000),
        Just(LONGEST)
    ]
}

fn starts() -> impl Strategy<Value = Start> {
    let offset = |micros| Start::Clock {
        offset: Duration::from_micros(micros),
    };
    prop_oneof![
        Just(Start::FirstRequest),
        Just(Start::EPOCH),
        Just(Start::Staggered),
        any::<u64>().prop_map(offset)
    ]
}

/// A zone of the database that comes with the crate.
pub(in crate::limiter) fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled()
        .get(name)
        .expect("the database has this zone")
}

/// Periods of zones that set their clocks at midnight, by half an hour, by a day, and never.
pub(in crate::limiter) fn calendars() -> impl Strategy<Value = Arc<Calendar>> {
    let zones = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/Havana",
        "America/St_Johns",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Asia/Beirut",
    ]);
    let periods = prop_oneof![
        Just(Period::Day),
        Just(Period::Week),
        (1..=31_i8).prop_map(|anchor| Period::Month { anchor }),
        Just(Period::Year),
    ];
    (periods, zones).prop_map(|(period, name)| Arc::new(Calendar::new(period, zone(name))))
}

fn oldest() -> impl Strategy<Value = Oldest> {
    prop_oneof![
        Just(Oldest::Weighted),
        Just(Oldest::Whole),
        Just(Oldest::Ignored)
    ]
}

fn refills() -> impl Strategy<Value = IntervalRefill> {
    (units(), units(), windows()).prop_filter_map(
        "too long to fill",
        |(capacity, amount, interval)| {
            IntervalRefill::new(capacity, amount, Duration::from_micros(interval)).ok()
        },
    )
}

/// Any algorithm with any parameters that it takes.
fn algorithms() -> impl Strategy<Value = Algorithm> {
    let gcra = (units(), windows(), units())
        .prop_filter_map("too long a burst", |(limit, window, burst)| {
            Gcra::new(quota(limit, window), burst).ok()
        })
        .boxed();
    let quotas = || (units(), windows()).prop_map(|(limit, window)| quota(limit, window));
    prop_oneof![
        gcra.clone().prop_map(Algorithm::Gcra),
        gcra.prop_map(Algorithm::TokenBucket),
        refills().prop_map(Algorithm::IntervalRefill),
        (quotas(), starts())
            .prop_map(|(quota, start)| Algorithm::FixedWindow(FixedWindow::new(quota, start))),
        (units(), calendars()).prop_map(|(limit, calendar)| Algorithm::FixedWindow(
            FixedWindow::calendar(limit, calendar)
        )),
        (quotas(), oldest()).prop_map(|(quota, oldest)| Algorithm::SlidingWindow(
            SlidingWindow::new(quota, oldest)
        )),
    ]
}

/// An algorithm, a bucket with some history, and the instant of the last charge.
fn charged() -> impl Strategy<Value = Charged> {
    let arrivals = prop::collection::vec((any::<u64>(), any::<u32>()), 1..12);
    (algorithms(), 0..=LONGEST, arrivals).prop_map(|(algorithm, start, arrivals)| {
        let mut charged = Charged {
            algorithm: algorithm.clone(),
            cell: Cell::EMPTY,
            now: at(start),
        };
        let mut now = charged.now;
        for (gap, cost) in arrivals {
            now = now.saturating_add_micros(a_gap(&algorithm, gap));
            let decision = algorithm.decide(charged.cell, now, a_cost(&algorithm, cost));
            if decision.cell != charged.cell {
                charged = Charged {
                    cell: decision.cell,
                    now,
                    ..charged
                };
            }
        }
        charged
    })
}

/// A cost of which none, one, the whole and more than the whole are likely.
fn a_cost(algorithm: &Algorithm, seed: u32) -> u32 {
    let whole = algorithm.capacity();
    match seed % 8 {
        0 => 0,
        1..=3 => 1,
        4 => whole,
        5 => whole.saturating_add(1),
        _ => seed % whole.saturating_add(1).max(1),
    }
}

/// A gap of which none and the very short are likely, and those beyond two windows not.
fn a_gap(algorithm: &Algorithm, seed: u64) -> u64 {
    let window = algorithm.window().as_micros() as u64;
    match seed % 8 {
        0 => 0,
        1 => 1,
        2..=4 => seed % (window / u64::from(algorithm.limit()).max(1) + 2),
        5..=6 => seed % (window + 2),
        _ => seed % (2 * window + 2),
    }
}

/// Some instants of a span, the first and the last among them; all of a short one.
fn instants(from: Timestamp, before: Timestamp, seeds: &[u64]) -> Vec<Timestamp> {
    let (from, before) = (from.as_micros(), before.as_micros());
    if before - from <= 300 {
        return (from..before).map(at).collect();
    }
    let some = seeds.iter().map(|seed| from + seed % (before - from));
    [from, before - 1].into_iter().chain(some).map(at).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_refused_request_is_refused_until_its_retry_and_admitted_then(
        bucket in charged(), gap: u64, cost: u32, seeds: [u64; 16],
    ) {
        let Charged { algorithm, cell, now } = bucket;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        let cost = a_cost(&algorithm, cost);
        let decision = algorithm.decide(cell, now, cost);
        let possible = algorithm.limit() > 0 && cost <= algorithm.capacity();
        match decision.outcome {
            Outcome::Admit => prop_assert!(possible),
            Outcome::Refuse { retry_at: None } => prop_assert!(!possible),
            Outcome::Refuse { retry_at: Some(retry_at) } => {
                prop_assert!(possible && retry_at > now);
                prop_assert!(algorithm.decide(cell, retry_at, cost).is_admitted());
                for instant in instants(now, retry_at, &seeds) {
                    let again = algorithm.decide(cell, instant, cost);
                    prop_assert_eq!(again.outcome, decision.outcome, "at {:?}", instant);
                }
            }
        }
    }

    #[test]
    fn a_refusal_and_a_cost_of_nothing_leave_the_bucket_as_it_was(bucket in charged(), gap: u64, cost: u32) {
        let Charged { algorithm, cell, now } = bucket;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        let decision = algorithm.decide(cell, now, cost);
        if !decision.is_admitted() {
            prop_assert_eq!(decision.cell, cell);
        }
        let asked = algorithm.decide(cell, now, 0).cell;
        prop_assert!(asked == cell || !cell.is_live(now) && asked == Cell::EMPTY);
    }

    #[test]
    fn remaining_is_what_can_still_be_taken(bucket in charged(), gap: u64, cost: u32) {
        let Charged { algorithm, cell, now } = bucket;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        let Decision { remaining, capacity, cell, .. } = algorithm.decide(cell, now, a_cost(&algorithm, cost));
        prop_assert!(remaining <= capacity);
        prop_assert_eq!(capacity, algorithm.capacity());
        prop_assert_eq!(algorithm.decide(cell, now, remaining).is_admitted(), capacity > 0);
        if let Some(more) = remaining.checked_add(1) {
            prop_assert!(!algorithm.decide(cell, now, more).is_admitted());
        }
    }

    #[test]
    fn reset_is_the_first_instant_at_which_the_bucket_is_whole(bucket in charged(), cost: u32) {
        let Charged { algorithm, cell, now } = bucket;
        let Decision { reset, cell, .. } = algorithm.decide(cell, now, a_cost(&algorithm, cost));
        if algorithm.capacity() > 0 {
            prop_assert!(algorithm.decide(cell, reset, algorithm.capacity()).is_admitted());
        }
        if reset > now {
            let before = reset.saturating_sub_micros(1);
            prop_assert!(!algorithm.decide(cell, before, algorithm.capacity()).is_admitted());
        }
    }

    #[test]
    fn a_bucket_that_has_recovered_equals_one_that_does_not_exist(bucket in charged(), later: u64, cost: u32) {
        let Charged { algorithm, cell, .. } = bucket;
        let now = at(cell.expires).saturating_add_micros(a_gap(&algorithm, later));
        let (recovered, none) = (algorithm.decide(cell, now, cost), algorithm.decide(Cell::EMPTY, now, cost));
        prop_assert_eq!(recovered.outcome, none.outcome);
        prop_assert_eq!((recovered.remaining, recovered.reset), (none.remaining, none.reset));
        prop_assert_eq!(algorithm.used(cell, now), 0);
        if none.is_admitted() && cost > 0 {
            prop_assert_eq!(recovered.cell, none.cell);
        }
    }

    #[test]
    fn an_earlier_now_charges_what_the_present_would_or_refuses(bucket in charged(), back: u64, cost: u32) {
        let Charged { algorithm, cell, now } = bucket;
        let cost = a_cost(&algorithm, cost);
        let earlier = now.saturating_sub_micros(a_gap(&algorithm, back));
        let (then, present) = (algorithm.decide(cell, earlier, cost), algorithm.decide(cell, now, cost));
        if cell.is_live(now) && then.is_admitted() {
            prop_assert!(present.is_admitted());
            prop_assert_eq!(then.cell, present.cell);
        }
    }

    #[test]
    fn a_joined_bucket_never_admits_what_either_would_refuse(
        bucket in charged(), costs: [u32; 3], gaps: [u64; 3],
    ) {
        let Charged { algorithm, cell: left, now } = bucket;
        let mut right = Cell::EMPTY;
        let mut now = now.saturating_sub_micros(a_gap(&algorithm, gaps[0]));
        for (cost, gap) in costs.into_iter().zip(gaps) {
            right = algorithm.decide(right, now, a_cost(&algorithm, cost)).cell;
            now = now.saturating_add_micros(a_gap(&algorithm, gap));
        }
        let joined = algorithm.join(left, right, now);
        prop_assert_eq!(algorithm.used(algorithm.join(joined, right, now), now), algorithm.used(joined, now));
        for gap in gaps {
            now = now.saturating_add_micros(a_gap(&algorithm, gap));
            let remaining = |cell| algorithm.decide(cell, now, 0).remaining;
            prop_assert!(remaining(joined) <= remaining(left).min(remaining(right)));
        }
    }

    #[test]
    fn a_changed_quota_keeps_the_units_that_were_used(
        bucket in charged(), to in algorithms(), gap: u64,
    ) {
        let Charged { algorithm: from, cell, now } = bucket;
        let now = now.saturating_add_micros(a_gap(&from, gap));
        let used = from.capacity() - from.decide(cell, now, 0).remaining;
        let converted = to.convert(&from, cell, now);
        let remaining = to.decide(converted, now, 0).remaining;
        if to.kind() == from.kind() {
            prop_assert_eq!(remaining, to.capacity().saturating_sub(used));
        } else {
            prop_assert_eq!(converted, Cell::EMPTY);
        }
        let same = from.convert(&from, cell, now);
        for now in [now, now.saturating_add_micros(a_gap(&from, gap / 8))] {
            let (kept, same) = (from.decide(cell, now, 0), from.decide(same, now, 0));
            prop_assert_eq!((kept.remaining, kept.reset), (same.remaining, same.reset));
        }
    }
}

#[test]
fn a_quota_of_zero_refuses_always() {
    let zero = quota(0, 1_000);
    let algorithms = [
        Algorithm::Gcra(Gcra::new(zero, 5).unwrap()),
        Algorithm::TokenBucket(Gcra::new(zero, 0).unwrap()),
        Algorithm::IntervalRefill(IntervalRefill::new(0, 1, Duration::from_secs(1)).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(zero, Start::EPOCH)),
        Algorithm::SlidingWindow(SlidingWindow::new(zero, Oldest::Weighted)),
    ];
    for algorithm in algorithms {
        for cost in [0, 1, u32::MAX] {
            let decision = algorithm.decide(Cell::EMPTY, at(7), cost);
            assert_eq!(
                decision.outcome,
                Outcome::Refuse { retry_at: None },
                "{}",
                algorithm.kind()
            );
            assert_eq!((decision.remaining, decision.capacity), (0, 0));
        }
    }
}

#[test]
fn a_burst_that_never_recovers_is_an_error() {
    assert_eq!(Gcra::new(quota(1, 1_000), 0), Err(QuotaError::BurstZero));
    assert_eq!(
        Gcra::new(quota(1, LONGEST), 2),
        Err(QuotaError::BurstTooLong)
    );
    assert!(Gcra::new(quota(2, LONGEST), 2).is_ok());
    assert!(Gcra::new(quota(u32::MAX, LONGEST), u32::MAX).is_ok());
}

#[test]
fn a_bucket_that_never_fills_is_an_error() {
    let new = |capacity, amount, micros| {
        IntervalRefill::new(capacity, amount, Duration::from_micros(micros)).map(|_| ())
    };
    assert_eq!(new(1, 0, 1_000), Err(QuotaError::RefillZero));
    assert_eq!(new(1, 1, 0), Err(QuotaError::WindowTooFine));
    assert_eq!(new(3, 2, LONGEST), Err(QuotaError::BurstTooLong));
    assert_eq!(new(u32::MAX, 1, 1 << 52), Err(QuotaError::BurstTooLong));
    assert_eq!(new(u32::MAX, 1, 1 << 20), Ok(()));
    assert_eq!(new(2, 5, LONGEST), Ok(()));
}

#[test]
fn weeks_start_on_monday() {
    const DAY: u64 = 24 * 60 * 60 * 1_000_000;
    let weekly = FixedWindow::new(quota(1, 7 * DAY), Start::MONDAY);
    // 2026-11-21 was a Saturday, and 2026-11-23 a Monday.
    let (saturday, monday) = (at(20_778 * DAY), at(20_780 * DAY));
    assert_eq!(weekly.decide(Cell::EMPTY, saturday, 1).reset, monday);
}

#[test]
fn thirds_of_a_second_never_drift() {
    let algorithm = Algorithm::Gcra(Gcra::new(quota(3, 1_000_000), 2).unwrap());
    let (mut cell, mut now, mut admitted) = (Cell::EMPTY, at(0), 0);
    while now <= at(1_000_000_000) {
        let decision = algorithm.decide(cell, now, 1);
        match decision.outcome {
            Outcome::Admit => (cell, admitted) = (decision.cell, admitted + 1),
            Outcome::Refuse { retry_at } => now = retry_at.unwrap(),
        }
    }
    assert_eq!(admitted, 2 + 3_000);
}
