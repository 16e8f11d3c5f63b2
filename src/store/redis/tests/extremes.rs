//! The arithmetic of the scripts beside the memory store's, step by step, with extreme numbers:
//! limits up to 2^32 - 1, windows from a millisecond to a year, costs up to the limit, debts,
//! shadowed limits, steps back in time. Also conversions to another rate.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::algorithms::{
    FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters, SlidingLog,
    SlidingWindow, Start, WindowEnd,
};
use crate::limiter::bucket::{Debt, ReservedCharge};
use crate::limiter::calendar::{Calendar, Calendars, Period};
use crate::limiter::charge_all;
use crate::limiter::{Algorithm, Cell, Decision, Demand, Outcome, Quota, Verdict};
use crate::store::memory::Claims;
use crate::store::redis::follow_up::{Settlement, SettlementReply};
use crate::store::redis::script_call::{BucketCharge, ChargeRequest, ChargedRefusals, Tier};
use crate::store::{self, Ask, OnFull, Refusals, Role, Table};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};

use super::scripted::{
    Redis, SECOND, START, SharedRedis, YEAR, at, charge, fingerprint, gcra, quota,
};

/// The part of a decision that clients see.
fn told(
    algorithm: &Algorithm,
    decision: &Decision,
    now: Timestamp,
) -> impl PartialEq + std::fmt::Debug {
    let Decision {
        outcome,
        remaining,
        capacity,
        reset,
        ..
    } = *decision;
    (
        outcome,
        remaining,
        capacity,
        reset,
        algorithm.more_at(decision, now),
    )
}

/// The largest cost that the bucket has room for.
fn most(algorithm: &Algorithm) -> u32 {
    u32::try_from(algorithm.capacity()).unwrap_or(u32::MAX)
}

/// A policy, and true if refusals are charged.
type Drawn = (Algorithm, bool);

fn limits() -> impl Strategy<Value = u32> {
    prop_oneof![
        1..=12_u32,
        Just(1_000),
        1_000_000..=2_000_000_u32,
        u32::MAX - 3..=u32::MAX,
        any::<u32>()
    ]
}

fn windows() -> impl Strategy<Value = u64> {
    let day = 86_400 * SECOND;
    prop_oneof![
        Just(1_000),
        1_000..=SECOND,
        Just(3_600 * SECOND),
        day..=YEAR,
        Just(YEAR),
        // A prime, which nothing divides.
        Just(31_535_999_999_999)
    ]
}

fn quotas() -> impl Strategy<Value = Quota> {
    (limits(), windows()).prop_map(|(limit, window)| quota(limit, window))
}

fn oldest() -> impl Strategy<Value = OldestPart> {
    prop::sample::select(vec![
        OldestPart::Weighted,
        OldestPart::Whole,
        OldestPart::Ignored,
    ])
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let bursts = (quotas(), limits()).prop_filter_map("a burst within bounds", |(quota, burst)| {
        Gcra::new(quota, burst).ok()
    });
    let refills = (limits(), limits(), windows())
        .prop_filter_map("within bounds", |(all, some, micros)| {
            IntervalRefill::new(all, some, Duration::from_micros(micros)).ok()
        });
    let lines = (quotas(), limits(), windows(), limits()).prop_filter_map(
        "within bounds",
        |(quota, queue, wait, free)| {
            LeakyBucket::new(quota, queue, Duration::from_micros(wait), free).ok()
        },
    );
    let starts = prop_oneof![
        Just(Start::EPOCH),
        Just(Start::FirstRequest),
        Just(Start::Staggered),
        windows().prop_map(|offset| Start::Clock {
            offset: Duration::from_micros(offset)
        }),
    ];
    let parts = prop::sample::select(vec![1_u32, 2, 7, 60, 3_600]);
    let counters = (quotas(), parts, oldest()).prop_map(|(quota, parts, oldest)| {
        let part = (quota.window_micros() / u64::from(parts)).max(1);
        let quota = Quota::new(
            quota.limit(),
            Duration::from_micros(part * u64::from(parts)),
        );
        Algorithm::SlidingCounters(SlidingCounters::new(quota.unwrap(), parts, oldest).unwrap())
    });
    let logs = (
        prop_oneof![1..=12_u32, Just(1_000), Just(100_000)],
        windows(),
    )
        .prop_map(|(limit, window)| {
            Algorithm::SlidingLog(SlidingLog::new(quota(limit, window)).unwrap())
        });
    prop_oneof![
        3 => bursts.prop_map(Algorithm::Gcra),
        2 => refills.prop_map(Algorithm::IntervalRefill),
        2 => lines.prop_map(Algorithm::LeakyBucket),
        2 => (limits(), 1..=200_u64, windows(), starts).prop_map(|(limit, times, micros, start)| {
            let window = FixedWindow::new(quota(0, micros), start);
            Algorithm::FixedWindow(window.with_limit(u64::from(limit) * times))
        }),
        2 => (quotas(), oldest()).prop_map(|(quota, oldest)| Algorithm::SlidingWindow(SlidingWindow::new(quota, oldest))),
        2 => counters,
        2 => logs,
    ]
}

/// The distribution of costs: nothing, one, a part of the capacity, all of it, more, anything.
#[derive(Clone, Debug)]
enum Cost {
    Exactly(u32),
    Share(u32),
    Spare(u32),
}

impl Cost {
    fn of(&self, capacity: u32) -> u32 {
        match self {
            Self::Exactly(cost) => *cost,
            Self::Share(parts) => capacity / parts,
            Self::Spare(less) => capacity.saturating_sub(*less),
        }
    }
}

fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![
        3 => (0..=3_u32).prop_map(Cost::Exactly),
        3 => (2..=7_u32).prop_map(Cost::Share),
        3 => (0..=2_u32).prop_map(Cost::Spare),
        1 => any::<u32>().prop_map(Cost::Exactly),
    ]
}

/// The gap between requests: none, a little, a part of the first policy's window; or back in time.
fn gaps() -> impl Strategy<Value = (i64, i64)> {
    prop_oneof![
        3 => Just((0, 1)),
        3 => (1..=3_i64).prop_map(|micros| (micros, 1)),
        4 => (1..=9_i64).prop_map(|parts| (0, parts)),
        1 => (-3_000..=-1_i64).prop_map(|micros| (micros, 1)),
        1 => (-3..=-1_i64).prop_map(|parts| (0, parts)),
    ]
}

type Step = ((i64, i64), Vec<(bool, u64, Cost)>, usize);

fn histories() -> impl Strategy<Value = (Vec<Drawn>, Vec<Step>)> {
    prop::collection::vec((algorithms(), any::<bool>()), 1..=4).prop_flat_map(|policies| {
        let charges = prop::collection::vec(
            (prop::bool::weighted(0.8), 0..2_u64, costs()),
            policies.len(),
        );
        let steps = prop::collection::vec((gaps(), charges, 0..=policies.len()), 1..40);
        (Just(policies), steps)
    })
}

#[test]
fn extremes_are_decided_and_stored_as_in_memory() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(384));
    let redis = RefCell::new(&mut redis);
    let checked = runner.run(&histories(), |(policies, steps)| {
        let redis = &mut *redis.borrow_mut();
        redis.prefix = server.prefix();
        let table = |(algorithm, charged_refusals): &Drawn| {
            let refusals = if *charged_refusals {
                Refusals::Charged
            } else {
                Refusals::Free
            };
            Table::new("test", algorithm.clone(), 1_024, OnFull::Forget).with_refusals(refusals)
        };
        let tables: Vec<_> = policies.iter().map(table).collect();
        let windows = policies
            .iter()
            .map(|(algorithm, ..)| algorithm.window().expect("a window").as_micros() as i64);
        let windows: Vec<_> = windows.collect();
        let longest = windows.iter().max().expect("a policy");
        let mut now = START;
        for ((micros, parts), drawn, enforced) in steps {
            let share = if parts == 1 { 0 } else { windows[0] / parts };
            now = now.saturating_add_signed(micros + share);
            // As below: later instants are not exact in Redis.
            if now.saturating_add_signed(2 * longest) >= 1 << 53 {
                break;
            }
            redis.scripts.now = Some(at(now));
            let asked: Vec<_> = drawn
                .iter()
                .enumerate()
                .filter(|(_, (is_asked, ..))| *is_asked)
                .collect();
            let enforced = enforced.min(asked.len());
            let names: Vec<_> = asked
                .iter()
                .map(|(policy, (_, key, _))| redis.name(&format!("{policy}:{key}")))
                .collect();
            let in_memory: Vec<_> = asked
                .iter()
                .map(|(policy, (_, key, cost))| {
                    store::Charge::new(
                        &tables[*policy],
                        fingerprint(*key),
                        cost.of(most(&policies[*policy].0)),
                    )
                })
                .collect();
            let in_redis: Vec<_> = in_memory
                .iter()
                .zip(&names)
                .map(|(one, name)| BucketCharge {
                    algorithm: one.table.algorithm(),
                    name: name.as_bytes(),
                    key: one.key,
                    demand: one.demand,
                    charged_refusals: match one.table.refusals {
                        Refusals::Free => ChargedRefusals::None,
                        Refusals::Charged => ChargedRefusals::All,
                    },
                    settles: false,
                    period: None,
                    tier: Tier::First,
                })
                .collect();
            let (mut claims, mut expected) = (Claims::default(), Verdict::default());
            for (place, charge) in in_memory.iter().enumerate() {
                let role = if place < enforced {
                    Role::Refuses
                } else {
                    Role::Shadows
                };
                claims.push(role, [*charge]);
            }
            claims.decide(Ask::Charge, at(now), &mut expected);
            let request = ChargeRequest {
                enforced,
                ..redis.request(&in_redis)
            };
            let verdict = redis.scripts.decide(&request, at(now)).verdict(enforced);
            prop_assert_eq!(verdict.deciding, expected.deciding);
            for ((one, expected), found) in in_redis
                .iter()
                .zip(&expected.decisions)
                .zip(&verdict.decisions)
            {
                let tell = |decision| told(one.algorithm, decision, at(now));
                prop_assert_eq!(tell(found), tell(expected), "{:?} at {}", one, now);
                if one.algorithm.shape().is_none() {
                    prop_assert_eq!(found.cell, expected.cell, "{:?} at {}", one, now);
                }
            }
        }
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Two quotas of one kind and window, whose cells depend on the rate. A double holds the product of
/// their limits.
fn pairs() -> impl Strategy<Value = (Algorithm, Algorithm)> {
    let limits = || prop_oneof![1..=12_u32, Just(1_000), 1_000_000..=90_000_000_u32];
    (algorithms(), limits(), limits()).prop_filter_map("no rate", |(algorithm, one, two)| {
        let numbers = algorithm.cell_rate().and_then(|_| algorithm.encode())?;
        let with = |limit: u32| {
            let mut numbers = numbers;
            let is_refill = matches!(algorithm, Algorithm::IntervalRefill(_));
            numbers[if is_refill { 3 } else { 1 }] = limit.into();
            Algorithm::decode(numbers)
        };
        Some((with(one)?, with(two)?))
    })
}

/// Machines with two quotas charge one bucket in turn, step by step as the limiter's functions do.
#[test]
fn a_bucket_under_another_rate_is_converted_as_by_the_pure_functions() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(256));
    let redis = RefCell::new(&mut redis);
    let step = (
        any::<bool>(),
        costs(),
        prop_oneof![0..=SECOND, 0..=YEAR / 50],
    );
    let strategy = (pairs(), prop::collection::vec(step, 1..20));
    let checked = runner.run(&strategy, |((one, two), steps)| {
        let redis = &mut *redis.borrow_mut();
        redis.prefix = server.prefix();
        let (mut cell, mut rate, mut now) = (Cell::EMPTY, one.cell_rate(), START);
        for (is_one, cost, gap) in steps {
            now += gap;
            redis.scripts.now = Some(at(now));
            let algorithm = if is_one { &one } else { &two };
            let cost = cost.of(most(algorithm));
            let found = redis.charge(algorithm, "a", cost);
            let written = rate.expect("a rate");
            let read = algorithm.convert_rate(cell, written, at(now));
            let mut expected = algorithm.decide(read, at(now), cost.into());
            // What isn't charged recovers as it would have.
            let recovering = algorithm.with_rate(written).expect("a short recovery");
            let mut decided_by = algorithm;
            if matches!(expected.outcome, Outcome::Refuse { .. }) {
                expected = recovering.decide(cell, at(now), cost.into());
                decided_by = &recovering;
            }
            prop_assert_eq!(
                told(decided_by, &found, at(now)),
                told(decided_by, &expected, at(now)),
                "{:?} and {:?}",
                one,
                two
            );
            if cost > 0 && !matches!(expected.outcome, Outcome::Refuse { .. }) {
                (cell, rate) = (expected.cell, algorithm.cell_rate());
            }
        }
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Where no double holds the product of two limits, a client waits longer by two microseconds at
/// most for each conversion, and no less.
#[test]
fn the_highest_limits_are_converted_against_the_client() {
    const LIMITS: [u32; 4] = [u32::MAX, u32::MAX - 2, 4_123_456_789, 3];
    let server = SharedRedis::new();
    for (from, to) in LIMITS
        .into_iter()
        .flat_map(|one| LIMITS.map(|two| (one, two)))
    {
        for window in [1_000, SECOND, 31_535_999_999_999] {
            let [from, to] = [from, to].map(|limit| gcra(limit, window));
            let mut redis = Redis::new(&server);
            let made = redis.charge(&from, "a", 3).cell;
            let exact = to
                .convert_rate(made, from.limit().try_into().unwrap(), at(START))
                .expires;
            let found = redis.charge(&to, "a", 0).reset.as_micros();
            assert!(
                (exact..=exact + 2).contains(&found),
                "{from:?} {to:?} {exact} {found}"
            );
        }
    }
}

#[test]
fn products_that_no_double_holds_are_compared_exactly() {
    const PART: u64 = 360 * 86_400 * SECOND;
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let quota = quota(u32::MAX, PART);
    let window = Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted));
    let start = (START / PART + 1) * PART;
    redis.scripts.now = Some(at(start));
    assert!(redis.charge(&window, "a", 4_287_450_748).is_admitted());
    // The counted part exceeds the room by 5,285,888 / 31,104,000,000,000: as doubles the products
    // are equal.
    let just_before = start + PART + 5_281_584_146_944;
    for (now, is_admitted) in [(just_before, false), (just_before + 1, true)] {
        redis.scripts.now = Some(at(now));
        let decision = redis.charge(&window, "a", 735_542_907);
        assert_eq!(decision.is_admitted(), is_admitted, "{now}");
    }
}

/// Reserved and actual costs, each after a time; the actual cost is multiplied.
type QueuePlace = (Cost, (Cost, u32), (i64, i64), usize);

#[test]
fn costs_are_settled_as_by_the_pure_functions() {
    let server = SharedRedis::new();
    let redis = RefCell::new(Redis::new(&server));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(384));
    let settling = algorithms().prop_filter("it settles without a ring", |one| {
        !one.is_concurrency() && !one.delays() && one.shape().is_none()
    });
    let turns = prop::collection::vec((costs(), actual_costs(), gaps(), 0..4_usize), 1..24);
    let checked = runner.run(&(settling, turns), |(algorithm, turns)| {
        let redis = &mut *redis.borrow_mut();
        redis.prefix = server.prefix();
        settle_in_turn(redis, &algorithm, turns)
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

fn actual_costs() -> impl Strategy<Value = (Cost, u32)> {
    (costs(), prop_oneof![Just(1_u32), 2..20_u32, Just(2_000)])
}

fn settle_in_turn(
    redis: &mut Redis,
    algorithm: &Algorithm,
    turns: Vec<QueuePlace>,
) -> TestCaseResult {
    let window = algorithm.window().expect("a window").as_micros() as i64;
    let name = redis.name("a");
    let (mut now, mut cell, mut open) = (START, Cell::EMPTY, Vec::<ReservedCharge>::new());
    let most = most(algorithm);
    for (cost, (units, times), (micros, parts), which) in turns {
        now = now.saturating_add_signed(micros + if parts == 1 { 0 } else { window / parts });
        // Later instants are not exact in Redis: a bucket is full a window from now, and in debt
        // later.
        let longest = window
            .saturating_mul(2 + i64::from(Debt::MAX_WINDOWS))
            .min(1 << 52);
        if now.saturating_add_signed(longest) >= 1 << 53 {
            break;
        }
        redis.scripts.now = Some(at(now));
        let (cost, units) = (cost.of(most), units.of(most).saturating_mul(times));
        let charge = charge(algorithm, &name, cost);
        let decision = redis.charge(algorithm, "a", cost);
        let opened = algorithm.open(cell, charge.key, None, at(now));
        let expected = algorithm.decide(opened, at(now), cost.into());
        prop_assert_eq!(decision.outcome, expected.outcome);
        if decision.is_admitted() && cost > 0 {
            cell = expected.cell;
            let unsettled = open.iter().map(|one| u64::from(one.units)).sum();
            open.push(ReservedCharge {
                cell,
                at: at(now),
                units: cost,
                unsettled,
            });
        }
        if which < open.len() {
            let reserved = open.remove(which);
            let settlement = Settlement {
                charge,
                reserved,
                units,
                since: None,
            };
            let settled = redis.scripts.settle(&settlement, at(now));
            prop_assert_eq!(
                settled,
                (units != reserved.units).then_some(SettlementReply::Settled)
            );
            cell = match units.checked_sub(reserved.units) {
                Some(0) => cell,
                Some(more) => {
                    algorithm
                        .owe(
                            algorithm.open(cell, charge.key, None, at(now)),
                            at(now),
                            at(now),
                            more,
                            Debt::CARRIED,
                        )
                        .0
                }
                None => algorithm.give_back(cell, &reserved, reserved.units - units, at(now)),
            };
        }
        let stored = redis.charge(algorithm, "a", 0).cell;
        let live = |cell: Cell| {
            if cell.is_live(at(now)) {
                cell
            } else {
                Cell::EMPTY
            }
        };
        prop_assert_eq!(live(stored), live(cell), "{:?} at {}", algorithm, now);
    }
    Ok(())
}

/// Charges that are given back completely, each after a time.
#[test]
fn logs_and_parts_are_given_back_as_in_memory() {
    let server = SharedRedis::new();
    let redis = RefCell::new(Redis::new(&server));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(384));
    let window = |limit| Quota::new(limit, Duration::from_secs(10)).expect("a quota");
    let parts = prop::sample::select(vec![2_u32, 5, 10, 16, 40]);
    let rings = (1..20_u32, parts, any::<bool>()).prop_map(move |(limit, parts, is_log)| {
        if is_log {
            Algorithm::SlidingLog(SlidingLog::new(window(limit)).expect("a log"))
        } else {
            let counters = SlidingCounters::new(window(limit), parts, OldestPart::Weighted);
            Algorithm::SlidingCounters(counters.expect("parts"))
        }
    });
    let turn = (1..8_u32, 0..4_000_000_i64, any::<bool>(), 0..6_usize);
    let turns = prop::collection::vec(turn, 1..24);
    let checked = runner.run(&(rings, turns), |(algorithm, turns)| {
        let redis = &mut *redis.borrow_mut();
        redis.prefix = server.prefix();
        let name = redis.name("a");
        let bytes = 1 << 20;
        let table = Table::with_rings("a", algorithm.clone(), 1_024, bytes, OnFull::Forget);
        let table = Arc::new(table);
        let (mut now, mut open) = (START, Vec::new());
        for (cost, gap, at_once, which) in turns {
            now = now.saturating_add_signed(if at_once { 0 } else { gap });
            redis.scripts.now = Some(at(now));
            let made = charge(&algorithm, &name, cost);
            let mut claims = store::memory::Claims::default();
            claims.push(
                store::Role::Refuses,
                [store::Charge::new(&table, made.key, cost)],
            );
            let locks = claims.lock_unsettled(|_| true);
            let mut verdict = Verdict::default();
            let deciding = claims.decide(store::Ask::Charge, at(now), &mut verdict);
            let is_admitted = verdict.is_admitted();
            let mut reserved = locks.reserve(&deciding, is_admitted, at(now), false, |_| {
                Arc::clone(&table)
            });
            let decision = redis.charge(&algorithm, "a", cost);
            prop_assert_eq!(decision.outcome, verdict.decisions[0].outcome);
            if let Some((_, reservation)) = reserved.pop() {
                let taken = ReservedCharge {
                    cell: decision.cell,
                    at: at(now),
                    units: cost,
                    unsettled: u64::MAX,
                };
                open.push((made.demand.cost, taken, reservation));
            }
            if which < open.len() {
                let (cost, reserved, reservation) = open.remove(which);
                let charge = charge(&algorithm, &name, cost);
                let settlement = Settlement {
                    charge,
                    reserved,
                    units: 0,
                    since: None,
                };
                let settled = redis.scripts.settle(&settlement, at(now));
                prop_assert_eq!(settled, Some(SettlementReply::Settled));
                reservation.settle(0, at(now));
            }
            let (there, here) = (
                redis.charge(&algorithm, "a", 0),
                table.peek(made.key, 0, at(now)),
            );
            prop_assert_eq!(
                there.remaining,
                here.remaining,
                "{:?} at {}",
                algorithm,
                now
            );
            prop_assert_eq!(there.reset, here.reset, "{:?} at {}", algorithm, now);
        }
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Clients with another time zone in each request.
#[test]
fn windows_of_claimed_zones_end_as_in_memory() {
    let server = SharedRedis::new();
    let redis = RefCell::new(Redis::new(&server));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(256));
    let zones = [
        "UTC",
        "Europe/Berlin",
        "Pacific/Kiritimati",
        "Pacific/Pago_Pago",
    ];
    let zones = zones.map(|name| (Arc::from(name), TimeZone::get(name).expect("a zone")));
    let turns = prop::collection::vec((0..20_u64, 0..=zones.len(), 0..4_u32), 1..60);
    let checked = runner.run(
        &(any::<bool>(), any::<u32>(), turns),
        |(month, first, turns)| {
            let redis = &mut *redis.borrow_mut();
            redis.prefix = server.prefix();
            let name = redis.name("a");
            let period = if month {
                Period::Month { anchor: 31 }
            } else {
                Period::Day
            };
            let calendars = Calendars::new(period, &zones);
            let default = Arc::new(Calendar::new(period, TimeZone::UTC));
            let algorithm = Algorithm::FixedWindow(FixedWindow::periods(3, default, Start::Local));
            let table = Table::new("a", algorithm.clone(), 1_024, OnFull::Forget);
            let mut now = START + u64::from(first % 31_000_000) * SECOND + u64::from(first % 7);
            for (gap, zone, cost) in turns {
                now += gap * 3_600 * SECOND * if month { 31 } else { 1 };
                redis.scripts.now = Some(at(now));
                let zone = zones.get(zone).map(|(name, _)| name);
                let period = zone.and_then(|zone| calendars.period_at(zone, at(now)));
                let asked = BucketCharge {
                    period,
                    ..charge(&algorithm, &name, cost)
                };
                let there = redis.scripts.decide(&redis.request(&[asked]), at(now));
                let window_end = period.map(WindowEnd::of);
                let here = store::Charge {
                    table: &table,
                    key: asked.key,
                    demand: Demand::of(cost),
                    window_end,
                };
                let here = charge_all(&[here], at(now)).decisions[0];
                let there = there.replies[0].decision;
                prop_assert_eq!(
                    told(&algorithm, &there, at(now)),
                    told(&algorithm, &here, at(now))
                );
            }
            Ok(())
        },
    );
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}
