//! Each algorithm against a naive model of its definition: logs and whole fractions, no cells.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const WINDOWS: std::ops::RangeInclusive<u64> = 1..=2_000;

/// Requests with small gaps and costs, in the order of time.
pub(super) fn histories() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gaps = prop_oneof![3 => 0..=20_u64, 2 => 0..=400_u64, 1 => 0..=5_000_u64];
    let costs = prop_oneof![4 => Just(1_u32), 1 => 0..=6_u32];
    prop::collection::vec((gaps, costs), 1..120).prop_map(|steps| {
        let arrive = |now: &mut u64, (gap, cost)| {
            *now += gap;
            Some((*now, cost))
        };
        steps.into_iter().scan(1_000_000, arrive).collect()
    })
}

/// Which requests of a history the algorithm admits.
pub(super) fn admitted(algorithm: &Algorithm, history: &[(u64, u32)]) -> Vec<bool> {
    let mut bucket = Bucket::new(algorithm);
    let charge = |(now, cost): &(u64, u32)| bucket.charge(algorithm, at(*now), *cost).is_admitted();
    history.iter().map(charge).collect()
}

proptest! {
    #[test]
    fn gcra_is_its_definition(
        history in histories(), limit in 1..=12_u32, window in WINDOWS, burst in 1..=12_u32,
    ) {
        // Instants times the limit, so that T = window / limit is whole.
        let (scale, unit) = (u64::from(limit), window);
        let mut tat = 0;
        let model = history.iter().map(|(now, cost)| {
            let charged = tat.max(now * scale) + unit * u64::from(*cost);
            let admit = *cost <= burst && charged - now * scale <= unit * u64::from(burst);
            if admit {
                tat = charged;
            }
            admit
        });
        let model: Vec<bool> = model.collect();
        let gcra = Gcra::new(quota(limit, window), burst).unwrap();
        prop_assert_eq!(admitted(&Algorithm::Gcra(gcra), &history), &model[..]);
        prop_assert_eq!(admitted(&Algorithm::TokenBucket(gcra), &history), model);
    }

    /// As `docs/limits.md` defines it: a request of several units comes as as many that leave
    /// together.
    #[test]
    fn a_leaky_bucket_is_its_definition(
        history in histories(), limit in 1..=12_u32, window in WINDOWS, queue in 0..=12_u32,
        max_wait in 0..=4_000_u64, delay_after in 0..=4_u32,
    ) {
        // Instants times the limit, so that T = window / limit is whole.
        let (scale, unit) = (u64::from(limit), window);
        let wait = Duration::from_micros(max_wait);
        let leaky = LeakyBucket::new(quota(limit, window), queue, wait, delay_after).unwrap();
        let algorithm = Algorithm::LeakyBucket(leaky);
        let (mut bucket, mut last) = (Bucket::new(&algorithm), None::<u64>);
        for (now, cost) in history {
            let decision = bucket.charge(&algorithm, at(now), cost);
            if cost == 0 {
                prop_assert_eq!(decision.outcome, Outcome::Admit);
                continue;
            }
            let mut departure = last;
            for _ in 0..cost {
                departure = Some(departure.map_or(now * scale, |last| (last + unit).max(now * scale)));
            }
            let departure = departure.expect("at least one");
            let wait = departure - now * scale;
            let place = wait.div_ceil(unit);
            let admits = place <= u64::from(queue) && wait <= max_wait * scale;
            prop_assert_eq!(decision.is_admitted(), admits);
            if admits {
                last = Some(departure);
                let held = wait.saturating_sub(u64::from(delay_after) * unit).div_ceil(scale);
                let until = decision.delayed_until().map(|until| until.as_micros() - now);
                prop_assert_eq!(until.unwrap_or(0), held);
            }
        }
    }

    /// The last request in a queue leaves no trace; one that leaves before others does not move
    /// them.
    #[test]
    fn the_last_in_line_gives_his_place_back(
        history in histories(), limit in 1..=12_u32, window in WINDOWS, queue in 1..=12_u32, later in 0..200_u64,
    ) {
        let leaky = LeakyBucket::new(quota(limit, window), queue, Duration::MAX, 0);
        let algorithm = Algorithm::LeakyBucket(leaky.unwrap());
        let mut bucket = Bucket::new(&algorithm);
        for (now, cost) in history {
            let before = bucket.cell;
            let decision = bucket.charge(&algorithm, at(now), cost);
            let Some(until) = decision.delayed_until() else { continue };
            let then = at(now + later).min(until.saturating_sub_micros(1));
            let again = algorithm.leave_queue(bucket.cell, decision.cell, cost, then);
            let used = |cell| algorithm.used(cell, then);
            prop_assert_eq!(again.map(used), Some(used(before)));
            let behind = algorithm.decide(bucket.cell, then, 1);
            if behind.is_admitted() {
                prop_assert_eq!(algorithm.leave_queue(behind.cell, decision.cell, cost, then), None);
            }
        }
    }

    #[test]
    fn interval_refill_adds_tokens_from_the_instant_at_which_the_bucket_stopped_being_full(
        history in histories(), capacity in 1..=12_u32, amount in 1..=12_u32, interval in WINDOWS,
    ) {
        let (mut tokens, mut since) = (capacity, 0);
        let model = history.iter().map(|(now, cost)| {
            while tokens < capacity && since + interval <= *now {
                since += interval;
                tokens = (tokens + amount).min(capacity);
            }
            let admit = *cost <= tokens;
            if admit && *cost > 0 {
                since = if tokens == capacity { *now } else { since };
                tokens -= cost;
            }
            admit
        });
        let model: Vec<bool> = model.collect();
        let refill = IntervalRefill::new(capacity, amount, Duration::from_micros(interval)).unwrap();
        prop_assert_eq!(admitted(&Algorithm::IntervalRefill(refill), &history), model);
    }

    #[test]
    fn a_refill_of_the_whole_capacity_is_a_window_from_the_first_request(
        history in histories(), capacity in 1..=12_u32, interval in WINDOWS,
    ) {
        let refill = IntervalRefill::new(capacity, capacity, Duration::from_micros(interval)).unwrap();
        let window = FixedWindow::new(quota(capacity, interval), Start::FirstRequest);
        let (refill, window) = (Algorithm::IntervalRefill(refill), Algorithm::FixedWindow(window));
        let (mut left, mut right) = (Cell::EMPTY, Cell::EMPTY);
        for (now, _) in history {
            let decisions = (refill.decide(left, at(now), 1), window.decide(right, at(now), 1));
            prop_assert_eq!(decisions.0.outcome, decisions.1.outcome);
            prop_assert_eq!(decisions.0.remaining, decisions.1.remaining);
            prop_assert_eq!(decisions.0.reset, decisions.1.reset);
            (left, right) = (decisions.0.cell, decisions.1.cell);
        }
    }

    #[test]
    fn a_clock_window_counts_what_was_admitted_since_its_edge(
        history in histories(), limit in 1..=12_u32, window in WINDOWS, offset in 0..=4_000_u64,
    ) {
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        let model = history.iter().map(|(now, cost)| {
            let count = counts.entry((now - offset).div_euclid(window)).or_default();
            let admit = *count + cost <= limit;
            *count += if admit { *cost } else { 0 };
            admit
        });
        let model: Vec<bool> = model.collect();
        let start = Start::Clock { offset: Duration::from_micros(offset) };
        let fixed = FixedWindow::new(quota(limit, window), start);
        prop_assert_eq!(admitted(&Algorithm::FixedWindow(fixed), &history), model);
    }

    #[test]
    fn a_first_request_window_starts_with_the_first_charge_after_the_last_ended(
        history in histories(), limit in 1..=12_u32, window in WINDOWS,
    ) {
        let (mut end, mut count) = (0, 0);
        let model = history.iter().map(|(now, cost)| {
            let running = if *now < end { count } else { 0 };
            let admit = running + cost <= limit;
            if admit && *cost > 0 {
                end = if *now < end { end } else { now + window };
                count = running + cost;
            }
            admit
        });
        let model: Vec<bool> = model.collect();
        let fixed = FixedWindow::new(quota(limit, window), Start::FirstRequest);
        prop_assert_eq!(admitted(&Algorithm::FixedWindow(fixed), &history), model);
    }

    #[test]
    fn a_sliding_window_weighs_the_count_before_by_what_is_covered(
        history in histories(), limit in 1..=12_u32, part in WINDOWS, oldest in oldest(),
    ) {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let model = history.iter().map(|(now, cost)| {
            let count = |part: u64| counts.get(&part).copied().unwrap_or_default();
            let covered = match oldest {
                OldestPart::Weighted => part - now % part,
                OldestPart::Whole => part,
                OldestPart::Ignored => 0,
            };
            let (before, current) = (count(now / part - 1), count(now / part));
            let admit = before * covered + (current + u64::from(*cost)) * part <= u64::from(limit) * part;
            if admit {
                counts.insert(now / part, current + u64::from(*cost));
            }
            admit
        });
        let model: Vec<bool> = model.collect();
        let sliding = SlidingWindow::new(quota(limit, part), oldest);
        prop_assert_eq!(admitted(&Algorithm::SlidingWindow(sliding), &history), model);
    }

    #[test]
    fn counters_weigh_the_oldest_part_by_what_is_covered(
        history in histories(), limit in 1..=12_u32, part in 1..=300_u64, parts in 1..=9_u64, oldest in oldest(),
    ) {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let model = history.iter().map(|(now, cost)| {
            let (current, elapsed) = (now / part, now % part);
            let covered = match oldest {
                OldestPart::Weighted => part - elapsed,
                OldestPart::Whole => part,
                OldestPart::Ignored => 0,
            };
            let before = counts.get(&(current - parts)).copied().unwrap_or_default();
            let others: u64 = counts.range(current - parts + 1..=current).map(|(_, count)| count).sum();
            let admit = before * covered + (others + u64::from(*cost)) * part <= u64::from(limit) * part;
            if admit {
                *counts.entry(current).or_default() += u64::from(*cost);
            }
            admit
        });
        let model: Vec<bool> = model.collect();
        let counters = SlidingCounters::new(quota(limit, part * parts), parts as u32, oldest).unwrap();
        prop_assert_eq!(admitted(&Algorithm::SlidingCounters(counters), &history), &model[..]);
        if parts == 1 {
            let two = SlidingWindow::new(quota(limit, part), oldest);
            prop_assert_eq!(admitted(&Algorithm::SlidingWindow(two), &history), model);
        }
    }

    #[test]
    fn a_log_counts_the_units_of_the_last_window(
        history in histories(), limit in prop_oneof![1..=12_u32, 40..=90_u32], window in 1..=4_000_u64,
    ) {
        let mut units: Vec<u64> = Vec::new();
        let model = history.iter().map(|(now, cost)| {
            let counted = units.iter().filter(|unit| *unit + window > *now).count();
            let admit = counted as u32 + cost <= limit;
            units.extend((0..*cost).filter(|_| admit).map(|_| *now));
            admit
        });
        let model: Vec<bool> = model.collect();
        let log = SlidingLog::new(quota(limit, window)).unwrap();
        prop_assert_eq!(admitted(&Algorithm::SlidingLog(log), &history), model);
    }

    /// Ticks of several microseconds: units leave late, by less than two of them.
    #[test]
    fn a_log_of_a_long_window_rounds_late(
        history in histories(), limit in 1..=12_u32, days in 1..=300_u64, scale in 1..=4_000_000_000_u64,
    ) {
        let window = days * 86_400_000_000;
        let tick = window.div_ceil(u64::from(u32::MAX));
        let history: Vec<_> = history.iter().map(|(now, cost)| (now * scale, *cost)).collect();
        let log = Algorithm::SlidingLog(SlidingLog::new(quota(limit, window)).unwrap());
        let mut units: Vec<u64> = Vec::new();
        for ((now, cost), admit) in history.iter().zip(admitted(&log, &history)) {
            let counted = |window: u64| units.iter().filter(|unit| *unit + window > *now).count() as u32;
            if admit {
                prop_assert!(counted(window) + cost <= limit, "never early");
                units.extend((0..*cost).map(|_| *now));
            } else {
                prop_assert!(counted(window + 2 * tick) + cost > limit, "never more than two ticks late");
            }
        }
    }
}
