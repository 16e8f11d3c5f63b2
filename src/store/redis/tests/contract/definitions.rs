//! Each algorithm in every store beside a naive model of its definition: logs and whole fractions, no cells.

use std::cell::Cell;
use std::fmt::Debug;
use std::ops::RangeInclusive;

use super::*;

const WINDOWS: RangeInclusive<u64> = 1..=2_000;

/// Redis decides about one history of so many: each decision is a round trip.
const IN_REDIS: u32 = 8;

/// Requests with small gaps and costs, in the order of time.
fn histories() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gaps = prop_oneof![3 => 0..=20_u64, 2 => 0..=400_u64, 1 => 0..=5_000_u64];
    let costs = prop_oneof![4 => Just(1_u32), 1 => 0..=6_u32];
    prop::collection::vec((gaps, costs), 1..120).prop_map(|steps| {
        let arrive = |now: &mut u64, (gap, cost)| {
            *now += gap;
            Some((*now, cost))
        };
        let steps = steps.into_iter().scan(1_795_236_060_000_000, arrive);
        steps.collect()
    })
}

/// The delay of each request in microseconds; `None` for one that is refused.
fn delays(store: &mut dyn Store, history: &[(u64, u32)]) -> Vec<Option<u64>> {
    let decide = |&(now, cost): &(u64, u32)| {
        let charge = Charge {
            policy: 0,
            key: 0,
            cost,
            kept: 0,
        };
        let decision = store.charge(&[charge], at(now)).decisions[0];
        let until = decision.delayed_until().unwrap_or(at(now));
        decision
            .is_admitted()
            .then_some(until.as_micros().saturating_sub(now))
    };
    history.iter().map(decide).collect()
}

/// Compares the decisions of every store, by each of the algorithms, with those of a model.
fn compare<P: Debug, const N: usize>(
    parameters: impl Strategy<Value = P>,
    model: impl Fn(P, &[(u64, u32)]) -> ([Algorithm; N], Vec<Option<u64>>),
) {
    let server = SharedRedis::new();
    let count = Cell::new(0_u32);
    let check = |(history, parameters): (Vec<_>, P)| {
        let (algorithms, expected) = model(parameters, &history);
        let is_in_redis = count.replace(count.get() + 1).is_multiple_of(IN_REDIS);
        for algorithm in algorithms {
            let policies = [algorithm];
            let mut stores: Vec<Box<dyn Store>> =
                vec![Box::new(Model::new(&policies)), memory(&policies)];
            if is_in_redis {
                stores.push(Box::new(Redis::new(&server, &policies)));
            }
            for store in &mut stores {
                prop_assert_eq!(&delays(&mut **store, &history), &expected, "{:?}", policies);
            }
        }
        Ok(())
    };
    let mut runner = TestRunner::new(ProptestConfig::default());
    let checked = runner.run(&(histories(), parameters), check);
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The requests that `admits`, in turn, of algorithms that delay none.
fn admitted(history: &[(u64, u32)], mut admits: impl FnMut(u64, u32) -> bool) -> Vec<Option<u64>> {
    let admits = history
        .iter()
        .map(|(now, cost)| admits(*now, *cost).then_some(0));
    admits.collect()
}

fn quota(limit: u32, window: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(window)).unwrap()
}

/// The share of its oldest part that a sliding window covers, `elapsed` into the newest.
fn covered(oldest: OldestPart, part: u64, elapsed: u64) -> u64 {
    match oldest {
        OldestPart::Weighted => part - elapsed,
        OldestPart::Whole => part,
        OldestPart::Ignored => 0,
    }
}

#[test]
fn gcra_is_its_definition() {
    let parameters = (1..=12_u32, WINDOWS, 1..=12_u32);
    compare(parameters, |(limit, window, burst), history| {
        // Instants times the limit, so that T = window / limit is whole.
        let (scale, unit) = (u64::from(limit), window);
        let mut tat = 0;
        let model = admitted(history, |now, cost| {
            let charged = tat.max(now * scale) + unit * u64::from(cost);
            let admit = cost <= burst && charged - now * scale <= unit * u64::from(burst);
            if admit {
                tat = charged;
            }
            admit
        });
        let gcra = Gcra::new(quota(limit, window), burst).unwrap();
        ([Algorithm::Gcra(gcra), Algorithm::TokenBucket(gcra)], model)
    });
}

/// As `docs/limits.md` defines it: a request of several units comes as as many that leave together.
#[test]
fn a_leaky_bucket_is_its_definition() {
    let parameters = (1..=12_u32, WINDOWS, 0..=12_u32, 0..=4_000_u64, 0..=4_u32);
    compare(parameters, |parameters, history| {
        let (limit, window, queue, max_wait, delay_after) = parameters;
        // Instants times the limit, so that T = window / limit is whole.
        let (scale, unit) = (u64::from(limit), window);
        let mut last = None::<u64>;
        let model = history.iter().map(|&(now, cost)| {
            if cost == 0 {
                return Some(0);
            }
            let mut departure = last;
            for _ in 0..cost {
                departure =
                    Some(departure.map_or(now * scale, |last| (last + unit).max(now * scale)));
            }
            let departure = departure.expect("at least one");
            let wait = departure - now * scale;
            let place = wait.div_ceil(unit);
            let admits = place <= u64::from(queue) && wait <= max_wait * scale;
            admits.then(|| {
                last = Some(departure);
                wait.saturating_sub(u64::from(delay_after) * unit)
                    .div_ceil(scale)
            })
        });
        let model = model.collect();
        let max_wait = Duration::from_micros(max_wait);
        let leaky = LeakyBucket::new(quota(limit, window), queue, max_wait, delay_after);
        ([Algorithm::LeakyBucket(leaky.unwrap())], model)
    });
}

#[test]
fn interval_refill_adds_tokens_from_the_instant_at_which_the_bucket_stopped_being_full() {
    let parameters = (1..=12_u32, 1..=12_u32, WINDOWS);
    compare(parameters, |(capacity, amount, interval), history| {
        let (mut tokens, mut since) = (capacity, 0);
        let model = admitted(history, |now, cost| {
            while tokens < capacity && since + interval <= now {
                since += interval;
                tokens = (tokens + amount).min(capacity);
            }
            let admit = cost <= tokens;
            if admit && cost > 0 {
                since = if tokens == capacity { now } else { since };
                tokens -= cost;
            }
            admit
        });
        let refill = IntervalRefill::new(capacity, amount, Duration::from_micros(interval));
        ([Algorithm::IntervalRefill(refill.unwrap())], model)
    });
}

#[test]
fn a_clock_window_counts_what_was_admitted_since_its_edge() {
    let parameters = (1..=12_u32, WINDOWS, 0..=4_000_u64);
    compare(parameters, |(limit, window, offset), history| {
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        let model = admitted(history, |now, cost| {
            let count = counts.entry((now - offset) / window).or_default();
            let admit = *count + cost <= limit;
            *count += if admit { cost } else { 0 };
            admit
        });
        let offset = Duration::from_micros(offset);
        let fixed = FixedWindow::new(quota(limit, window), Start::Clock { offset });
        ([Algorithm::FixedWindow(fixed)], model)
    });
}

#[test]
fn a_first_request_window_starts_with_the_first_charge_after_the_last_ended() {
    compare((1..=12_u32, WINDOWS), |(limit, window), history| {
        let (mut end, mut count) = (0, 0);
        let model = admitted(history, |now, cost| {
            let running = if now < end { count } else { 0 };
            let admit = running + cost <= limit;
            if admit && cost > 0 {
                end = if now < end { end } else { now + window };
                count = running + cost;
            }
            admit
        });
        let fixed = FixedWindow::new(quota(limit, window), Start::FirstRequest);
        ([Algorithm::FixedWindow(fixed)], model)
    });
}

#[test]
fn a_sliding_window_weighs_the_count_before_by_what_is_covered() {
    let parameters = (1..=12_u32, WINDOWS, oldest());
    compare(parameters, |(limit, part, oldest), history| {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let model = admitted(history, |now, cost| {
            let count = |part: u64| counts.get(&part).copied().unwrap_or_default();
            let covered = covered(oldest, part, now % part);
            let current = count(now / part) + u64::from(cost);
            let admit = count(now / part - 1) * covered + current * part <= u64::from(limit) * part;
            if admit {
                counts.insert(now / part, current);
            }
            admit
        });
        let sliding = SlidingWindow::new(quota(limit, part), oldest);
        ([Algorithm::SlidingWindow(sliding)], model)
    });
}

#[test]
fn counters_weigh_the_oldest_part_by_what_is_covered() {
    let parameters = (1..=12_u32, 1..=300_u64, 1..=9_u64, oldest());
    compare(parameters, |(limit, part, parts, oldest), history| {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let model = admitted(history, |now, cost| {
            let current = now / part;
            let covered = covered(oldest, part, now % part);
            let before = counts.get(&(current - parts)).copied().unwrap_or_default();
            let others = counts.range(current - parts + 1..=current);
            let others: u64 = others.map(|(_, count)| count).sum();
            let units = others + u64::from(cost);
            let admit = before * covered + units * part <= u64::from(limit) * part;
            if admit {
                *counts.entry(current).or_default() += u64::from(cost);
            }
            admit
        });
        let quota = quota(limit, part * parts);
        let counters = SlidingCounters::new(quota, parts as u32, oldest).unwrap();
        // With a single part they are the two counts of a sliding window.
        let same = match parts {
            1 => Algorithm::SlidingWindow(SlidingWindow::new(quota, oldest)),
            _ => Algorithm::SlidingCounters(counters),
        };
        ([Algorithm::SlidingCounters(counters), same], model)
    });
}

#[test]
fn a_log_counts_the_units_of_the_last_window() {
    let limits = prop_oneof![1..=12_u32, 40..=90_u32];
    compare((limits, 1..=4_000_u64), |(limit, window), history| {
        let mut units: Vec<u64> = Vec::new();
        let model = admitted(history, |now, cost| {
            let counted = units.iter().filter(|unit| *unit + window > now).count();
            let admit = counted as u32 + cost <= limit;
            units.extend((0..cost).filter(|_| admit).map(|_| now));
            admit
        });
        let log = SlidingLog::new(quota(limit, window)).unwrap();
        ([Algorithm::SlidingLog(log)], model)
    });
}
