//! The most that can be admitted in any span as long as a window: the table in `docs/limits.md`.

use proptest::prelude::*;

use super::histories::{admitted, histories};
use super::*;

/// The most units admitted in any half-open span of `length`.
fn most_in_a_span(algorithm: &Algorithm, history: &[(u64, u32)], length: u64) -> u64 {
    let admitted = admitted(algorithm, history);
    let charged: Vec<_> = history
        .iter()
        .zip(admitted)
        .filter(|(_, admit)| *admit)
        .map(|(one, _)| *one)
        .collect();
    let span = |from: u64| {
        let within = charged
            .iter()
            .filter(|(now, _)| (from..from + length).contains(now));
        within.map(|(_, cost)| u64::from(*cost)).sum()
    };
    charged.iter().map(|(now, _)| span(*now)).max().unwrap_or(0)
}

/// A history dense enough to spend a small quota in every window.
fn dense() -> impl Strategy<Value = (Vec<(u64, u32)>, u32, u64)> {
    (histories(), 1..=8_u32, prop_oneof![1..=60_u64, 1..=800_u64])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn gcra_admits_its_burst_and_its_limit((history, limit, window) in dense(), burst in 1..=8_u32) {
        let gcra = Gcra::new(quota(limit, window), burst).unwrap();
        // Also in a span that includes both its ends.
        let most = most_in_a_span(&Algorithm::Gcra(gcra), &history, window + 1);
        prop_assert!(most <= u64::from(burst) + u64::from(limit));
    }

    /// In a span that includes both its ends, as for gcra; by when requests go on.
    #[test]
    fn a_leaky_bucket_lets_its_limit_go_on_and_one_more_and_none_closer_than_its_rate(
        (history, limit, window) in dense(), queue in 0..=20_u32, delay_after in 0..=8_u32,
    ) {
        let leaky = |delay_after| {
            LeakyBucket::new(quota(limit, window), queue, Duration::MAX, delay_after).unwrap()
        };
        let goes_on = |delay_after| {
            let algorithm = Algorithm::LeakyBucket(leaky(delay_after));
            let mut bucket = Bucket::new(&algorithm);
            let each = history.iter().filter_map(|(now, _)| {
                let decision = bucket.charge(&algorithm, at(*now), 1);
                let until = decision.delayed_until().unwrap_or(at(*now)).as_micros();
                decision.is_admitted().then_some(until)
            });
            let mut instants: Vec<u64> = each.collect();
            instants.sort_unstable();
            instants
        };
        let paced = goes_on(0);
        for pair in paced.windows(2) {
            prop_assert!(pair[1] - pair[0] >= window / u64::from(limit));
        }
        let most = |instants: &[u64]| {
            let within = |from: &u64| instants.iter().filter(|at| (*from..=*from + window).contains(at)).count();
            instants.iter().map(within).max().unwrap_or(0)
        };
        prop_assert!(most(&paced) <= limit as usize + 1);
        prop_assert!(most(&goes_on(delay_after)) <= (limit + delay_after) as usize + 1);
    }

    #[test]
    fn interval_refill_admits_its_capacity_and_the_refills_of_a_window(
        (history, capacity, interval) in dense(), amount in 1..=8_u32, span in 1..=2_000_u64,
    ) {
        let refill = IntervalRefill::new(capacity, amount, Duration::from_micros(interval)).unwrap();
        let most = most_in_a_span(&Algorithm::IntervalRefill(refill), &history, span);
        let refills = (span - 1) / interval + 1;
        prop_assert!(most <= u64::from(capacity) + refills * u64::from(amount));
    }

    #[test]
    fn a_calendar_window_admits_its_limit_in_each_period(
        (history, limit, _) in dense(), calendar in calendars(), scale in 1..=100_000_000_u64,
    ) {
        let history: Vec<_> = history.iter().map(|(now, cost)| (now * scale, *cost)).collect();
        let fixed = Algorithm::FixedWindow(FixedWindow::periods(limit.into(), Arc::clone(&calendar), Start::Calendar));
        let mut periods = std::collections::BTreeMap::<u64, u32>::new();
        for ((now, cost), admit) in history.iter().zip(admitted(&fixed, &history)) {
            let count = periods.entry(calendar.end(at(*now))).or_default();
            prop_assert_eq!(admit, *count + cost <= limit);
            *count += if admit { *cost } else { 0 };
        }
    }

    #[test]
    fn a_fixed_window_admits_twice_its_limit((history, limit, window) in dense(), start in starts()) {
        let fixed = Algorithm::FixedWindow(FixedWindow::new(quota(limit, window), start));
        prop_assert!(most_in_a_span(&fixed, &history, window) <= 2 * u64::from(limit));
    }

    #[test]
    fn a_weighted_sliding_window_admits_less_than_twice_its_limit((history, limit, window) in dense()) {
        let sliding = SlidingWindow::new(quota(limit, window), OldestPart::Weighted);
        let most = most_in_a_span(&Algorithm::SlidingWindow(sliding), &history, window);
        prop_assert!(most < 2 * u64::from(limit));
    }

    #[test]
    fn a_sliding_window_whose_oldest_part_counts_whole_admits_its_limit((history, limit, window) in dense()) {
        let sliding = SlidingWindow::new(quota(limit, window), OldestPart::Whole);
        let most = most_in_a_span(&Algorithm::SlidingWindow(sliding), &history, window);
        prop_assert!(most <= u64::from(limit));
    }

    #[test]
    fn a_sliding_window_whose_oldest_part_is_ignored_admits_twice_its_limit((history, limit, window) in dense()) {
        let sliding = SlidingWindow::new(quota(limit, window), OldestPart::Ignored);
        let most = most_in_a_span(&Algorithm::SlidingWindow(sliding), &history, window);
        prop_assert!(most <= 2 * u64::from(limit));
    }

    #[test]
    fn a_log_admits_its_limit((history, limit, window) in dense()) {
        let log = Algorithm::SlidingLog(SlidingLog::new(quota(limit, window)).unwrap());
        prop_assert!(most_in_a_span(&log, &history, window) <= u64::from(limit));
    }

    #[test]
    fn counters_admit_their_limit_but_for_what_they_ignore(
        (history, limit, part) in dense(), parts in 1..=6_u32, oldest in oldest(),
    ) {
        let window = part * u64::from(parts);
        let counters = SlidingCounters::new(quota(limit, window), parts, oldest).unwrap();
        let counters = Algorithm::SlidingCounters(counters);
        let limit = u64::from(limit);
        let most = match oldest {
            OldestPart::Weighted => 2 * limit - 1,
            OldestPart::Whole => limit,
            OldestPart::Ignored => 2 * limit,
        };
        prop_assert!(most_in_a_span(&counters, &history, window) <= most);
        prop_assert!(most_in_a_span(&counters, &history, window - part) <= limit);
    }
}

#[test]
fn the_bounds_are_reached() {
    let most = |algorithm, history: &[(u64, u32)]| most_in_a_span(&algorithm, history, 1_000);
    let quota = quota(10, 1_000);

    let gcra = Algorithm::Gcra(Gcra::new(quota, 10).unwrap());
    let each_tenth: Vec<_> = (0..10)
        .map(|i| (10_000 + 100 * i, 10 - 9 * i.min(1) as u32))
        .collect();
    assert_eq!(
        most(gcra, &each_tenth),
        19,
        "and the twentieth as the window ends"
    );

    let leaky = LeakyBucket::new(quota, 10, Duration::MAX, 10).unwrap();
    let burst = [(10_000, 11), (11_000, 10)];
    assert_eq!(
        most_in_a_span(&Algorithm::LeakyBucket(leaky), &burst, 1_001),
        21,
        "nobody waits"
    );

    let fixed = Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH));
    assert_eq!(most(fixed, &[(10_999, 10), (11_000, 10)]), 20);

    let weighted = Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted));
    assert_eq!(most(weighted, &[(10_999, 10), (11_900, 9)]), 19);
}
