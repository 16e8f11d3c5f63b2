//! What every algorithm promises, over all of them, with parameters up to the largest there are.

mod budgets;
mod debt;
mod elsewhere;
mod kept;
mod known;
mod histories;
mod most;
mod shared_bursts;
mod view;

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use proptest::prelude::*;

use super::*;
use crate::QuotaError;
use crate::algorithms::{OldestPart, Start};
use crate::calendar::{Calendar, Period};
use crate::ring::RingMemory;

const LONGEST: u64 = Quota::MAX_WINDOW.as_micros() as u64;

fn quota(limit: u32, window: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(window)).expect("a window within bounds")
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// A bucket, with memory for its ring.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) cell: Cell,
    words: Option<RingMemory>,
    /// The last chunk that was taken.
    taken: u32,
}

impl Bucket {
    pub(super) fn new(algorithm: &Algorithm) -> Self {
        let words = |shape: crate::ring::RingShape| RingMemory::new(shape, 4 * shape.max_chunks());
        Self {
            cell: Cell::EMPTY,
            words: algorithm.shape().map(words),
            taken: 0,
        }
    }

    /// Decides, and charges if it is admitted.
    pub(super) fn charge(&mut self, algorithm: &Algorithm, now: Timestamp, cost: u32) -> Decision {
        let mut decision = algorithm.decide(&*self, now, cost.into());
        if decision.is_admitted() && cost > 0 {
            decision.cell = self.record(algorithm, now, decision.cell, cost);
        }
        decision
    }

    /// Charges what was refused.
    pub(super) fn owe(&mut self, algorithm: &Algorithm, now: Timestamp, cost: u32) {
        let (after, cost) = algorithm.owe(&*self, now, now, cost, Debt::Refused);
        if cost > 0 {
            self.record(algorithm, now, after, cost);
        }
    }

    /// Charges what was found out later.
    pub(super) fn owe_settled(&mut self, algorithm: &Algorithm, now: Timestamp, units: u32) {
        let (after, recorded) = algorithm.owe(&*self, now, now, units, Debt::CARRIED);
        if recorded > 0 {
            self.record(algorithm, now, after, recorded);
        }
    }

    pub(super) fn give_back(
        &mut self,
        algorithm: &Algorithm,
        reserved: &ReservedCharge,
        units: u32,
        now: Timestamp,
    ) {
        self.cell = algorithm.give_back(&*self, reserved, units, now);
    }

    fn record(&mut self, algorithm: &Algorithm, now: Timestamp, after: Cell, cost: u32) -> Cell {
        self.cell = match &self.words {
            None => after,
            Some(words) => {
                // A ring of which nothing counts is a new one, as in a store.
                let cell = if self.cell.is_live(now) {
                    self.cell
                } else {
                    Cell::EMPTY
                };
                self.taken = if cell == Cell::EMPTY { 0 } else { self.taken };
                let before = BucketState {
                    cell,
                    words: Some(words),
                };
                let lacks = algorithm.missing_chunks(before, after);
                let mut chunks =
                    (self.taken + 1..=self.taken + lacks).inspect(|chunk| words.clear(*chunk));
                let after = Cell { a: cell.a, ..after };
                let after = algorithm.record(before, after, cost, words, &mut chunks);
                assert_eq!(chunks.next(), None);
                self.taken += lacks;
                after
            }
        };
        self.cell
    }

    /// A new bucket with a ring of so many chunks.
    fn written(
        algorithm: &Algorithm,
        chunks: u32,
        write: impl FnOnce(Option<&RingMemory>, &mut dyn Iterator<Item = u32>) -> Cell,
    ) -> Self {
        let mut bucket = Self::new(algorithm);
        bucket.cell = write(bucket.words.as_ref(), &mut (1..=chunks));
        bucket.taken = chunks;
        bucket
    }

    fn join(algorithm: &Algorithm, left: &Self, right: &Self, now: Timestamp) -> Self {
        if algorithm.shape().is_none() {
            return Self::written(algorithm, 0, |_, _| {
                algorithm.join(left.cell, right.cell, now)
            });
        }
        if !left.cell.is_live(now) && !right.cell.is_live(now) {
            return Self::new(algorithm);
        }
        let joined = algorithm.join_rings(left.into(), right.into(), now);
        Self::written(algorithm, joined.chunks(), |words, chunks| {
            joined.write(words, chunks)
        })
    }

    fn carry(to: &Algorithm, from: &Algorithm, bucket: &Self, now: Timestamp) -> Self {
        let carried = to.convert(from, bucket.into(), now);
        Self::written(to, carried.chunks(), |words, chunks| {
            carried.write(words, chunks)
        })
    }
}

impl<'a> From<&'a Bucket> for BucketState<'a> {
    fn from(bucket: &'a Bucket) -> Self {
        Self {
            cell: bucket.cell,
            words: bucket.words.as_ref(),
        }
    }
}

/// A bucket that requests have come to; the last of them charged it at `now`.
#[derive(Debug)]
struct Charged {
    algorithm: Algorithm,
    bucket: Bucket,
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
pub(crate) fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled()
        .get(name)
        .expect("the database has this zone")
}

/// Periods of zones that set their clocks at midnight, by half an hour, by a day, and never.
pub(crate) fn calendars() -> impl Strategy<Value = Arc<Calendar>> {
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

fn oldest() -> impl Strategy<Value = OldestPart> {
    prop_oneof![
        Just(OldestPart::Weighted),
        Just(OldestPart::Whole),
        Just(OldestPart::Ignored)
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

/// Windows cut in parts, the whole within bounds.
fn counters() -> impl Strategy<Value = SlidingCounters> {
    let parts = prop_oneof![Just(1_u32), Just(2), Just(3), Just(7), Just(60)];
    (units(), parts, windows(), oldest()).prop_map(|(limit, parts, part, oldest)| {
        let window = part.min(LONGEST / u64::from(parts)) * u64::from(parts);
        SlidingCounters::new(quota(limit, window), parts, oldest).expect("parts of a window")
    })
}

fn logs() -> impl Strategy<Value = SlidingLog> {
    let limits = prop_oneof![0..=4_u32, 1..=100_u32, 400..=1_000_u32];
    (limits, windows())
        .prop_map(|(limit, window)| SlidingLog::new(quota(limit, window)).expect("a short log"))
}

fn queues() -> impl Strategy<Value = LeakyBucket> {
    let waits = prop_oneof![Just(0), 1..=20_u64, 1..=10_000_u64, 1..=LONGEST];
    (units(), windows(), units(), waits, units()).prop_filter_map(
        "too long a wait",
        |(limit, window, queue, max_wait, delay_after)| {
            let max_wait = Duration::from_micros(max_wait);
            LeakyBucket::new(quota(limit, window), queue, max_wait, delay_after).ok()
        },
    )
}

/// Units of a window, which counts more of them than 32 bits have.
fn many() -> impl Strategy<Value = u64> {
    let (small, half) = (units().prop_map(u64::from), u64::from(u32::MAX));
    prop_oneof![small, half - 2..half + 3, 1..=FixedWindow::MOST]
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
        queues().prop_map(Algorithm::LeakyBucket),
        (quotas(), starts())
            .prop_map(|(quota, start)| Algorithm::FixedWindow(FixedWindow::new(quota, start))),
        (many(), quotas(), starts()).prop_map(|(limit, quota, start)| Algorithm::FixedWindow(
            FixedWindow::new(quota, start).with_limit(limit)
        )),
        (many(), calendars()).prop_map(|(limit, calendar)| Algorithm::FixedWindow(
            FixedWindow::periods(limit, calendar, Start::Calendar)
        )),
        (many(), calendars()).prop_map(|(limit, calendar)| Algorithm::FixedWindow(
            FixedWindow::periods(limit, calendar, Start::Local)
        )),
        (quotas(), oldest()).prop_map(|(quota, oldest)| Algorithm::SlidingWindow(
            SlidingWindow::new(quota, oldest)
        )),
        counters().prop_map(Algorithm::SlidingCounters),
        logs().prop_map(Algorithm::SlidingLog),
    ]
}

/// An algorithm, a bucket with some history, and the instant of the last charge.
fn charged() -> impl Strategy<Value = Charged> {
    let arrivals = prop::collection::vec((any::<u64>(), any::<u32>()), 1..12);
    (algorithms(), 0..=LONGEST, arrivals).prop_map(|(algorithm, start, arrivals)| {
        let mut bucket = Bucket::new(&algorithm);
        let (mut now, mut last) = (at(start), at(start));
        for (gap, cost) in arrivals {
            now = now.saturating_add_micros(a_gap(&algorithm, gap));
            let before = bucket.cell;
            let decision = bucket.charge(&algorithm, now, a_cost(&algorithm, cost));
            if decision.is_admitted() && bucket.cell != before {
                last = now;
            }
        }
        Charged {
            algorithm,
            bucket,
            now: last,
        }
    })
}

/// The largest cost that the bucket has room for.
fn whole(algorithm: &Algorithm) -> u32 {
    u32::try_from(algorithm.capacity()).unwrap_or(u32::MAX)
}

/// A cost of which none, one, the whole and more than the whole are likely.
fn a_cost(algorithm: &Algorithm, seed: u32) -> u32 {
    let whole = whole(algorithm);
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
    let window = algorithm.window().expect("a quota").as_micros() as u64;
    match seed % 8 {
        0 => 0,
        1 => 1,
        2..=4 => seed % (window / algorithm.limit().max(1) + 2),
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
        charged in charged(), gap: u64, cost: u32, seeds: [u64; 16],
    ) {
        let Charged { algorithm, bucket, now } = charged;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        let cost = a_cost(&algorithm, cost);
        let decision = algorithm.decide(&bucket, now, cost.into());
        let possible = algorithm.limit() > 0 && u64::from(cost) <= algorithm.capacity();
        match decision.outcome {
            Outcome::Admit => prop_assert!(possible),
            Outcome::Delay { until } => prop_assert!(possible && until > now),
            Outcome::Refuse { retry_at: None } => prop_assert!(!possible),
            Outcome::Refuse { retry_at: Some(retry_at) } => {
                prop_assert!(possible && retry_at > now);
                prop_assert!(algorithm.decide(&bucket, retry_at, cost.into()).is_admitted());
                for instant in instants(now, retry_at, &seeds) {
                    let again = algorithm.decide(&bucket, instant, cost.into());
                    prop_assert_eq!(again.outcome, decision.outcome, "at {:?}", instant);
                }
            }
        }
    }

    #[test]
    fn a_refusal_and_a_cost_of_nothing_leave_the_bucket_as_it_was(charged in charged(), gap: u64, cost: u32) {
        let Charged { algorithm, mut bucket, now } = charged;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        let cell = bucket.cell;
        let decision = algorithm.decide(&bucket, now, a_cost(&algorithm, cost).into());
        if !decision.is_admitted() {
            prop_assert_eq!(decision.cell, cell);
        }
        let asked = bucket.charge(&algorithm, now, 0).cell;
        prop_assert!(asked == cell || !cell.is_live(now) && asked == Cell::EMPTY);
    }

    #[test]
    fn remaining_is_what_can_still_be_taken(charged in charged(), gap: u64, cost: u32) {
        let Charged { algorithm, mut bucket, now } = charged;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        let decision = bucket.charge(&algorithm, now, a_cost(&algorithm, cost));
        let Decision { remaining, capacity, .. } = decision;
        prop_assert!(remaining <= capacity);
        prop_assert_eq!(capacity, algorithm.capacity());
        prop_assert_eq!(algorithm.decide(&bucket, now, remaining).is_admitted(), capacity > 0);
        if let Some(more) = remaining.checked_add(1) {
            let refused = algorithm.decide(&bucket, now, more).outcome;
            prop_assert_eq!(refused, Outcome::Refuse { retry_at: algorithm.more_at(&decision, now) });
        }
    }

    #[test]
    fn reset_is_the_first_instant_at_which_the_bucket_is_whole(charged in charged(), cost: u32) {
        let Charged { algorithm, mut bucket, now } = charged;
        let Decision { reset, .. } = bucket.charge(&algorithm, now, a_cost(&algorithm, cost));
        if algorithm.capacity() > 0 {
            prop_assert!(algorithm.decide(&bucket, reset, algorithm.capacity()).is_admitted());
        }
        if reset > now {
            let before = reset.saturating_sub_micros(1);
            prop_assert!(!algorithm.decide(&bucket, before, algorithm.capacity()).is_admitted());
        }
    }

    #[test]
    fn a_bucket_that_has_recovered_equals_one_that_does_not_exist(charged in charged(), later: u64, cost: u32) {
        let Charged { algorithm, bucket, .. } = charged;
        let now = at(bucket.cell.expires).saturating_add_micros(a_gap(&algorithm, later));
        let (recovered, none) = (algorithm.decide(&bucket, now, cost.into()), algorithm.decide(Cell::EMPTY, now, cost.into()));
        prop_assert_eq!(recovered.outcome, none.outcome);
        prop_assert_eq!((recovered.remaining, recovered.reset), (none.remaining, none.reset));
        prop_assert_eq!(algorithm.more_at(&recovered, now), algorithm.more_at(&none, now));
        prop_assert_eq!(algorithm.used(&bucket, now), 0);
        if none.is_admitted() && cost > 0 {
            let root = if algorithm.shape().is_some() { bucket.cell.a } else { none.cell.a };
            prop_assert_eq!(recovered.cell, Cell { a: root, ..none.cell });
        }
    }

    #[test]
    fn an_earlier_now_charges_what_the_present_would_or_refuses(charged in charged(), back: u64, cost: u32) {
        let Charged { algorithm, bucket, now } = charged;
        let cost = a_cost(&algorithm, cost);
        let earlier = now.saturating_sub_micros(a_gap(&algorithm, back));
        let (then, present) = (algorithm.decide(&bucket, earlier, cost.into()), algorithm.decide(&bucket, now, cost.into()));
        if bucket.cell.is_live(now) && then.is_admitted() {
            prop_assert!(present.is_admitted());
            prop_assert_eq!(then.cell, present.cell);
        }
    }

    #[test]
    fn a_joined_bucket_never_admits_what_either_would_refuse(
        charged in charged(), costs: [u32; 3], gaps: [u64; 3],
    ) {
        let Charged { algorithm, bucket: left, now } = charged;
        let mut right = Bucket::new(&algorithm);
        let mut now = now.saturating_sub_micros(a_gap(&algorithm, gaps[0]));
        for (cost, gap) in costs.into_iter().zip(gaps) {
            right.charge(&algorithm, now, a_cost(&algorithm, cost));
            now = now.saturating_add_micros(a_gap(&algorithm, gap));
        }
        let joined = Bucket::join(&algorithm, &left, &right, now);
        let again = Bucket::join(&algorithm, &joined, &right, now);
        prop_assert_eq!(algorithm.used(&again, now), algorithm.used(&joined, now));
        for gap in gaps {
            now = now.saturating_add_micros(a_gap(&algorithm, gap));
            let remaining = |bucket: &Bucket| algorithm.decide(bucket, now, 0).remaining;
            prop_assert!(remaining(&joined) <= remaining(&left).min(remaining(&right)));
        }
    }

    #[test]
    fn a_changed_quota_keeps_the_units_that_were_used(
        charged in charged(), to in algorithms(), gap: u64,
    ) {
        let Charged { algorithm: from, bucket, now } = charged;
        let now = now.saturating_add_micros(a_gap(&from, gap));
        let used = from.capacity() - from.decide(&bucket, now, 0).remaining;
        let carried = Bucket::carry(&to, &from, &bucket, now);
        let remaining = to.decide(&carried, now, 0).remaining;
        if to.delays() && from.delays() {
            // Room for a part of a unit is no room for one, but keeps one from being used.
            prop_assert!(remaining.abs_diff(to.capacity().saturating_sub(used)) <= 1);
        } else if to.kind() == from.kind() {
            prop_assert_eq!(remaining, to.capacity().saturating_sub(used));
        } else {
            prop_assert_eq!(carried.cell, Cell::EMPTY);
        }
        let same = Bucket::carry(&from, &from, &bucket, now);
        for now in [now, now.saturating_add_micros(a_gap(&from, gap / 8))] {
            let (kept, same) = (from.decide(&bucket, now, 0), from.decide(&same, now, 0));
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
        Algorithm::LeakyBucket(LeakyBucket::new(zero, 5, Duration::MAX, 0).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(zero, Start::EPOCH)),
        Algorithm::SlidingWindow(SlidingWindow::new(zero, OldestPart::Weighted)),
        Algorithm::SlidingCounters(SlidingCounters::new(zero, 10, OldestPart::Weighted).unwrap()),
        Algorithm::SlidingLog(SlidingLog::new(zero).unwrap()),
    ];
    for algorithm in algorithms {
        for cost in [0, 1, u32::MAX] {
            let decision = algorithm.decide(Cell::EMPTY, at(7), cost.into());
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
fn a_wait_that_never_ends_is_an_error() {
    let new = |limit, window, queue, micros| {
        let wait = Duration::from_micros(micros);
        LeakyBucket::new(quota(limit, window), queue, wait, 0).map(|_| ())
    };
    assert_eq!(new(1, LONGEST, 1, u64::MAX), Err(QuotaError::BurstTooLong));
    assert_eq!(new(1, LONGEST, 1, 0), Ok(()));
    assert_eq!(new(2, LONGEST, 1, LONGEST), Ok(()));
    assert_eq!(new(u32::MAX, 1, u32::MAX, u64::MAX), Ok(()));
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
fn a_ring_that_is_too_large_is_an_error() {
    let log = |limit| SlidingLog::new(quota(limit, 1_000)).map(|_| ());
    assert_eq!(log(100_000), Ok(()));
    assert_eq!(log(100_001), Err(QuotaError::LogTooLong));
    let parts = |window, parts| {
        SlidingCounters::new(quota(1, window), parts, OldestPart::Whole).map(|_| ())
    };
    assert_eq!(parts(3_600_000_000, 3_600), Ok(()));
    for (window, count) in [(1_000, 3), (1_000, 0), (3_601_000_000, 3_601)] {
        assert_eq!(parts(window, count), Err(QuotaError::Parts));
    }
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
            Outcome::Admit | Outcome::Delay { .. } => {
                (cell, admitted) = (decision.cell, admitted + 1)
            }
            Outcome::Refuse { retry_at } => now = retry_at.unwrap(),
        }
    }
    assert_eq!(admitted, 2 + 3_000);
}
