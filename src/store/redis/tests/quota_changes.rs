//! A quota that is lowered on one machine: others still have the higher one.

use std::cell::RefCell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::Value;

use super::scripted::{Redis, SECOND, START, SharedRedis, at, charge, fingerprint, gcra, quota};
use crate::limiter::algorithms::{
    FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters, SlidingLog,
    SlidingWindow, Start,
};
use crate::limiter::bucket::ReservedCharge;
use crate::limiter::{Algorithm, Decision, Demand, Outcome};
use crate::store::Probe;
use crate::store::redis::follow_up::{Settlement, SettlementReply};
use crate::store::redis::read_bucket;
use crate::store::redis::reply::ScriptReply;
use crate::store::redis::script_call::{BucketCharge, ChargeRequest, ChargedRefusals, ScriptCall};

const WINDOW: u64 = 86_400 * SECOND;

fn algorithms(limit: u32) -> [Algorithm; 5] {
    let quota = quota(limit, WINDOW);
    let steps = IntervalRefill::new(limit, 1, Duration::from_micros(WINDOW / 40));
    [
        gcra(limit, WINDOW),
        Algorithm::IntervalRefill(steps.expect("a refill")),
        Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
        Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Whole)),
        Algorithm::SlidingLog(SlidingLog::new(quota).expect("a log")),
    ]
}

/// One machine has 40 units, and another 30. Both are asked every hour, in any order.
#[test]
fn a_machine_with_a_lower_quota_frees_no_units_of_a_higher_one() {
    let server = SharedRedis::new();
    for (high, low) in algorithms(40).iter().zip(&algorithms(30)) {
        let mut redis = Redis::new(&server);
        assert!(redis.charge(high, "a", 40).is_admitted());
        let (mut admitted, mut hours) = (40, 0);
        for hour in 0..12 {
            redis.scripts.now = Some(at(START + hour * 3_600 * SECOND));
            for algorithm in [low, high, low] {
                admitted += u64::from(redis.charge(algorithm, "a", 1).is_admitted());
            }
            hours = hour;
        }
        // What the higher quota alone would have admitted.
        let most = 40 + 40 * hours / 24;
        assert!(admitted <= most, "{admitted} of {most}: {high:?}");
    }
}

/// Algorithms of each kind, with this quota in the same window.
fn kinds(limit: u32) -> [Algorithm; 9] {
    let of = quota(limit, WINDOW);
    let queue = LeakyBucket::new(of, limit - 1, Duration::MAX, limit).expect("a queue");
    let parts = |oldest| SlidingCounters::new(of, 24, oldest).expect("parts");
    let [gcra, refill, fixed, sliding, log] = algorithms(limit);
    [
        gcra,
        Algorithm::TokenBucket(Gcra::new(of, limit).expect("a burst")),
        refill,
        Algorithm::LeakyBucket(queue),
        fixed,
        sliding,
        log,
        Algorithm::SlidingCounters(parts(OldestPart::Weighted)),
        Algorithm::SlidingCounters(parts(OldestPart::Whole)),
    ]
}

/// Requests to one machine after the other, with the new quota (true) or still with the old one:
/// those that come to both in turn, or to one of them first.
fn orders() -> [Vec<bool>; 6] {
    let turns = |lengths: [usize; 4]| {
        let turn = |(place, length)| std::iter::repeat_n(place % 2 == 0, length);
        lengths.into_iter().enumerate().flat_map(turn).collect()
    };
    [
        [true, false].repeat(60),
        [true, true, false].repeat(40),
        turns([0, 60, 60, 60]),
        turns([60, 60, 60, 60]),
        turns([20, 15, 60, 60]),
        turns([0, 35, 20, 60]),
    ]
}

/// A quota that is lowered, or raised, on one machine after the other.
#[test]
fn machines_with_two_quotas_admit_the_larger_and_not_one_more() {
    let server = SharedRedis::new();
    for (new, old) in [(30, 40), (40, 30)] {
        for (new, old) in kinds(new).iter().zip(&kinds(old)) {
            for (place, order) in orders().into_iter().enumerate() {
                let mut redis = Redis::new(&server);
                let mut admitted = 0;
                // Some time passes, but not enough for a unit to return.
                for (step, is_new) in (0..).zip(order) {
                    redis.scripts.now = Some(at(START + step * SECOND));
                    let algorithm = if is_new { new } else { old };
                    admitted += u32::from(redis.charge(algorithm, "a", 1).is_admitted());
                }
                assert_eq!(admitted, 40, "{place}: {new:?}");
            }
        }
    }
}

/// Charges 80 units to `a` under an algorithm, whose cost is settled later.
fn reserve<'a>(redis: &mut Redis, algorithm: &'a Algorithm, name: &'a str) -> Settlement<'a> {
    let charge = BucketCharge {
        settles: true,
        ..charge(algorithm, name, 80)
    };
    let reply = redis.decide(&[charge]);
    let made = &reply.replies[0];
    Settlement {
        charge,
        reserved: ReservedCharge {
            cell: made.decision.cell,
            at: reply.at,
            units: 80,
            unsettled: made.unsettled.0,
        },
        units: 80,
        since: Some(made.unsettled.1),
    }
}

/// A charge is settled in the bucket of another quota as in one of its own, and keeps that quota.
#[test]
fn a_charge_is_settled_under_the_quota_that_its_bucket_has_by_then() {
    let server = SharedRedis::new();
    let pairs = algorithms(400).into_iter().zip(algorithms(300));
    let pairs = pairs.filter(|(high, _)| high.shape().is_none());
    for (high, low) in pairs.flat_map(|(high, low)| [(high.clone(), low.clone()), (low, high)]) {
        for units in [30, 80, 180] {
            let mut redis = Redis::new(&server);
            let name = redis.name("a");
            redis.charge(&high, "a", 100);
            let made = reserve(&mut redis, &high, &name);
            assert_eq!(redis.charge(&low, "a", 7).remaining, low.capacity() - 187);
            let settlement = Settlement { units, ..made };
            let settled = redis.scripts.settle(&settlement, made.reserved.at);
            assert_eq!(settled, Some(SettlementReply::Settled));
            for algorithm in [&low, &high] {
                let left = redis.charge(algorithm, "a", 0).remaining;
                let expected = algorithm.capacity() - u64::from(100 + units + 7);
                assert_eq!(left, expected, "{units}: {high:?} {low:?}");
            }
        }
    }
}

/// Machines with a higher quota have charged the bucket beyond the lower one meanwhile.
#[test]
fn a_cost_is_settled_in_full_beyond_a_lower_quota() {
    let server = SharedRedis::new();
    let pairs = algorithms(300).into_iter().zip(algorithms(400));
    for (low, high) in pairs.filter(|(low, _)| low.shape().is_none()) {
        let mut redis = Redis::new(&server);
        let name = redis.name("a");
        let made = reserve(&mut redis, &low, &name);
        assert!(redis.charge(&high, "a", 270).is_admitted());
        let settlement = Settlement { units: 120, ..made };
        redis.scripts.settle(&settlement, at(START));
        assert_eq!(redis.charge(&high, "a", 0).remaining, 10, "{low:?}");
    }
}

/// Units beyond a lower quota are given back like any others.
#[test]
fn a_charge_beyond_a_lower_quota_is_given_back() {
    let server = SharedRedis::new();
    let pairs = algorithms(100).into_iter().zip(algorithms(10));
    for (high, low) in pairs.filter(|(high, _)| high.shape().is_none()) {
        let mut redis = Redis::new(&server);
        let name = redis.name("a");
        redis.charge(&high, "a", 20);
        let made = reserve(&mut redis, &high, &name);
        assert!(!redis.charge(&low, "a", 1).is_admitted());
        let settlement = Settlement { units: 0, ..made };
        let settled = redis.scripts.settle(&settlement, at(START));
        assert_eq!(settled, Some(SettlementReply::Settled));
        assert_eq!(
            redis.charge(&low, "a", 0).remaining,
            0,
            "20 are used: {low:?}"
        );
        assert_eq!(redis.charge(&high, "a", 0).remaining, 80, "{high:?}");
    }
}

/// Under a higher quota of another machine, more of a charge recovers in the same time.
#[test]
fn what_has_recovered_under_another_quota_is_not_given_back() {
    let server = SharedRedis::new();
    let refill = |amount| {
        let every = Duration::from_micros(WINDOW / 400);
        let bucket = IntervalRefill::new(400, amount, every).expect("a refill");
        Algorithm::IntervalRefill(bucket)
    };
    for (low, high) in [
        (gcra(100, WINDOW), gcra(400, WINDOW)),
        (refill(1), refill(4)),
    ] {
        let mut redis = Redis::new(&server);
        let name = redis.name("a");
        let made = reserve(&mut redis, &low, &name);
        redis.charge(&high, "a", 1);
        // All but a quarter of the charge has recovered, and without it all would have.
        redis.scripts.now = Some(at(START + WINDOW * 60 / 400));
        redis.charge(&high, "a", 5);
        let settlement = Settlement { units: 0, ..made };
        redis
            .scripts
            .settle(&settlement, redis.scripts.now.expect("set"));
        let left = redis.charge(&high, "a", 0).remaining;
        assert!((390..=395).contains(&left), "{left}: {low:?}");
    }
}

/// A refused client that waits as long as it is told is admitted, and not before.
#[test]
fn a_refusal_announces_when_a_bucket_of_another_quota_has_room() {
    let server = SharedRedis::new();
    for (low, high) in kinds(30).iter().zip(&kinds(40)) {
        let mut redis = Redis::new(&server);
        for second in 0..40 {
            redis.scripts.now = Some(at(START + second * SECOND));
            assert!(redis.charge(high, "a", 1).is_admitted());
        }
        let Outcome::Refuse {
            retry_at: Some(retry_at),
        } = redis.charge(low, "a", 1).outcome
        else {
            panic!("40 are used: {low:?}")
        };
        redis.scripts.now = Some(at(retry_at.as_micros() - 1));
        assert!(!redis.charge(low, "a", 1).is_admitted(), "{low:?}");
        redis.scripts.now = Some(retry_at);
        assert!(redis.charge(low, "a", 1).is_admitted(), "{low:?}");
    }
}

/// Whatever two machines admit together, the larger quota alone would.
#[test]
fn no_history_gets_more_than_the_larger_quota_admits() {
    let server = SharedRedis::new();
    let redis = RefCell::new(Redis::new(&server));
    let step = (any::<bool>(), 1..=5_u32, 0..=3 * 3_600 * SECOND);
    let strategy = (
        0..9_usize,
        1..=50_u32,
        0..=20_u32,
        prop::collection::vec(step, 1..60),
    );
    let mut runner = TestRunner::new(ProptestConfig::with_cases(192));
    let checked = runner.run(&strategy, |(kind, low, more, steps)| {
        let redis = &mut *redis.borrow_mut();
        redis.prefix = server.prefix();
        let [low, high] = [low, low + more].map(|limit| kinds(limit)[kind].clone());
        let mut now = START;
        for (is_low, cost, gap) in steps {
            now += gap;
            redis.scripts.now = Some(at(now));
            let algorithm = if is_low { &low } else { &high };
            if redis.charge(algorithm, "both", cost).is_admitted() {
                let alone = redis.charge(&high, "alone", cost);
                prop_assert!(alone.is_admitted(), "{low:?} {high:?}");
            }
        }
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

fn probe(cost: u32) -> Probe {
    Probe {
        demand: Demand {
            cost,
            ..Demand::default()
        },
        window_end: None,
    }
}

/// The value in Redis gives the same facts as a decision on it, whatever quota wrote it.
#[test]
fn a_value_of_another_quota_is_read_as_it_is_decided() {
    let server = SharedRedis::new();
    for (new, old) in [(30, 40), (40, 30)] {
        for (new, old) in kinds(new).iter().zip(&kinds(old)) {
            let mut redis = Redis::new(&server);
            let name = redis.name("a");
            assert!(redis.charge(old, "a", 25).is_admitted());
            for (cost, hours) in [(1, 0), (5, 0), (1, 1), (10, 2), (1, 30)] {
                let now = at(START + hours * 3_600 * SECOND);
                redis.scripts.now = Some(now);
                redis.run::<()>(&["PERSIST", &name]);
                let value: Vec<u8> = redis.run(&["GET", &name]);
                let facts = read_bucket(new, fingerprint(1), &value, probe(cost), now);
                let facts = facts.expect("it can be read");
                let charges = [charge(new, &name, cost)];
                let request = ChargeRequest {
                    ask: crate::store::Ask::Banned,
                    ..redis.request(&charges)
                };
                let reply = redis.scripts.decide(&request, now).replies[0];
                let found = reply.spared.unwrap_or(reply.decision);
                let shown = if found.is_admitted() {
                    facts.decision
                } else {
                    facts.next
                };
                assert_eq!(
                    (shown.outcome, shown.remaining, shown.reset),
                    (found.outcome, found.remaining, found.reset),
                    "{cost} {hours}: {new:?}"
                );
            }
        }
    }
}

/// Values that no machine of this policy can have written.
#[test]
fn numbers_of_any_size_are_decided_or_an_error() {
    const NUMBERS: [u64; 6] = [0, 1, 7, u32::MAX as u64, 1 << 52, u64::MAX];
    let words = |words: [String; 2]| {
        Value::Array(
            words
                .map(|word| Value::BulkString(word.into_bytes()))
                .into(),
        )
    };
    let server = SharedRedis::new();
    let redis = Redis::new(&server);
    let many = gcra(u32::MAX, WINDOW);
    for algorithm in kinds(30).iter().chain([&many]) {
        for outcome in ["charged", "spared", "refused", "owed"] {
            for state in NUMBERS.iter().flat_map(|rate| {
                NUMBERS.map(|ahead| format!("{rate}|{} 0 0", START.saturating_add(ahead)))
            }) {
                for cost in [0, 1, u32::MAX] {
                    let charges = [charge(algorithm, "a", cost)];
                    let reply = words([format!("told {START} {outcome}"), state.clone()]);
                    let read = redis.request(&charges).read(&reply, at(START));
                    assert!(!matches!(read, Ok(ScriptReply::Retry(_))));
                }
                let value = state.as_bytes();
                read_bucket(algorithm, fingerprint(1), value, probe(1), at(START));
            }
        }
    }
}

/// A refusal that is charged takes no units from those that count for machines with more.
#[test]
fn a_charged_refusal_of_a_lower_quota_forgets_no_units() {
    let server = SharedRedis::new();
    for (low, high) in kinds(30).iter().zip(&kinds(40)) {
        let mut redis = Redis::new(&server);
        let name = redis.name("a");
        assert!(redis.charge(high, "a", 38).is_admitted());
        for _ in 0..3 {
            let refused = [BucketCharge {
                charged_refusals: ChargedRefusals::All,
                ..charge(low, &name, 1)
            }];
            assert!(!redis.decide(&refused).is_admitted);
        }
        let left = redis.charge(high, "a", 0).remaining;
        assert!(left <= 2, "{left}: {low:?}");
    }
}

/// A machine with a lower quota reads a longer queue, and lets its own request leave.
#[test]
fn a_request_leaves_a_queue_that_other_quotas_have_filled() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let line = |limit| {
        let line = LeakyBucket::new(quota(limit, WINDOW), 50, Duration::MAX, 0);
        Algorithm::LeakyBucket(line.expect("a queue"))
    };
    let (low, high) = (line(30), line(40));
    let first = redis.charge(&high, "a", 10);
    let second = redis.charge(&low, "a", 5);
    let name = redis.name("a");
    let mut leave = |algorithm, cost, decision: Decision| {
        let call = ScriptCall::leave_queue(&charge(algorithm, &name, cost), decision.cell);
        redis.scripts.leave(call.expect("a queue"))
    };
    assert!(!leave(&high, 10, first), "another is behind it");
    assert!(leave(&low, 5, second));
    assert_eq!(redis.charge(&high, "a", 0).remaining, 41);
}

/// An emergency stop on one machine.
#[test]
fn a_quota_of_0_leaves_the_bucket_to_machines_with_another() {
    let server = SharedRedis::new();
    let (some, none) = (gcra(40, WINDOW), gcra(0, WINDOW));
    let mut redis = Redis::new(&server);
    redis.charge(&some, "a", 30);
    for millis in [0, 200, 400] {
        redis.scripts.now = Some(at(START + millis * 1_000));
        assert!(!redis.charge(&none, "a", 1).is_admitted());
    }
    assert_eq!(redis.charge(&some, "a", 0).remaining, 10);
}
