//! Buckets as people look at them agree with decisions.

use super::*;
use crate::bucket::{ArrivalTime, BucketView};

/// Whole units that are left if TAT is so many microseconds ahead.
fn left(arrival: &ArrivalTime, ahead: u128) -> u128 {
    let window = u128::from(arrival.quota.window_micros());
    let whole = window * u128::from(arrival.burst);
    whole.saturating_sub(ahead * u128::from(arrival.quota.limit())) / window
}

/// The fewest and the most units that the view leaves. TAT is rounded up to a microsecond, and a
/// queue may be longer than its whole units.
fn remaining(view: &BucketView) -> (u128, u128) {
    let exactly = |units: u64| (u128::from(units), u128::from(units));
    match view {
        BucketView::Gcra(arrival)
        | BucketView::TokenBucket(arrival)
        | BucketView::LeakyBucket { line: arrival, .. } => {
            let ahead = arrival.ahead.as_micros();
            let most = left(arrival, ahead.saturating_sub(1)) + 1;
            (left(arrival, ahead), most.min(arrival.burst.into()))
        }
        BucketView::IntervalRefill {
            missing, capacity, ..
        } => exactly(u64::from(*capacity).saturating_sub(*missing)),
        BucketView::FixedWindow { used, limit, .. }
        | BucketView::SlidingWindow { used, limit, .. }
        | BucketView::SlidingLog { used, limit, .. } => exactly(limit.saturating_sub(*used)),
        BucketView::Concurrency { in_use, max, .. } => exactly(max.saturating_sub(*in_use).into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_view_leaves_what_can_still_be_taken(charged in charged(), gap: u64, key: u64) {
        let Charged { algorithm, bucket, now } = charged;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        let cell = algorithm.open(bucket.cell, Fingerprint::from_bits(key), None, now);
        let state = BucketState { cell, ..(&bucket).into() };
        let decision = algorithm.decide(state, now, 0);
        let (fewest, most) = remaining(&algorithm.view(state, now));
        prop_assert!((fewest..=most).contains(&decision.remaining.into()), "{fewest}..={most}");
    }

    #[test]
    fn lists_are_bounded_and_in_order(charged in charged(), gap: u64) {
        let Charged { algorithm, bucket, now } = charged;
        let now = now.saturating_add_micros(a_gap(&algorithm, gap));
        match algorithm.view(&bucket, now) {
            BucketView::SlidingLog { used, ages, .. } => {
                prop_assert_eq!(ages.len(), BucketView::MOST.min(used as usize));
                prop_assert!(ages.is_sorted());
            }
            BucketView::SlidingWindow { counts, elapsed, part, .. } => {
                prop_assert!((2..=BucketView::MOST).contains(&counts.len()));
                prop_assert!(elapsed < part);
            }
            _ => {}
        }
    }
}

#[test]
fn parts_beyond_the_bound_are_counted_together() {
    const SECOND: u64 = 1_000_000;
    let window = SlidingCounters::new(quota(1_000, 3_600 * SECOND), 3_600, OldestPart::Weighted);
    let algorithm = Algorithm::SlidingCounters(window.expect("parts of a window"));
    let mut bucket = Bucket::new(&algorithm);
    for second in 0..100 {
        bucket.charge(&algorithm, at(1_000 * 3_600 * SECOND + second * SECOND), 2);
    }
    let now = at(1_000 * 3_600 * SECOND + 99 * SECOND);
    let BucketView::SlidingWindow { counts, part, .. } = algorithm.view(&bucket, now) else {
        panic!("a sliding window");
    };
    assert_eq!(part, Duration::from_secs(31));
    assert_eq!(counts.len(), 117);
    assert_eq!(counts[counts.len() - 4..], [14, 62, 62, 62]);
    assert_eq!(counts.iter().sum::<u32>(), 200);
}

#[test]
fn a_grant_that_is_over_does_not_run() {
    let (grant, granted) = (Algorithm::Grant(Grant), Grant::cell(3, at(9)));
    let ends_in = |now| match grant.view(granted, at(now)) {
        BucketView::FixedWindow { ends_in, .. } => ends_in,
        other => panic!("{other:?}"),
    };
    let two = Duration::from_micros(2);
    assert_eq!([7, 9].map(ends_in), [Some(two), None]);
}
