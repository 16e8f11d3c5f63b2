//! A quota that is lowered on one machine: others still have the higher one.

use std::time::Duration;

use super::scripted::{Redis, SECOND, START, SharedRedis, at, charge, gcra, quota};
use crate::limiter::{
    Algorithm, FixedWindow, IntervalRefill, OldestPart, ReservedCharge, SlidingLog, SlidingWindow,
    Start,
};
use crate::store::redis::BucketCharge;
use crate::store::redis::follow_up::{Settlement, SettlementReply};

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
                let expected = algorithm.capacity() - (100 + units + 7);
                assert_eq!(left, expected, "{units}: {high:?} {low:?}");
            }
        }
    }
}

#[test]
fn units_that_a_lower_quota_has_cut_off_are_given_back_first() {
    let server = SharedRedis::new();
    let pairs = algorithms(100).into_iter().zip(algorithms(10));
    for (high, low) in pairs.filter(|(high, _)| high.shape().is_none()) {
        let mut redis = Redis::new(&server);
        let name = redis.name("a");
        redis.charge(&high, "a", 20);
        let made = reserve(&mut redis, &high, &name);
        // Carried over, as a leftover.
        for millis in [0, 200] {
            redis.scripts.now = Some(at(START + millis * 1_000));
            assert_eq!(redis.charge(&low, "a", 0).remaining, 0);
        }
        let settlement = Settlement { units: 0, ..made };
        let settled = redis.scripts.settle(&settlement, at(START + 200_000));
        assert_eq!(settled, Some(SettlementReply::Settled));
        assert_eq!(
            redis.charge(&low, "a", 0).remaining,
            0,
            "20 are used: {low:?}"
        );
        let left = redis.charge(&high, "a", 0).remaining;
        assert!((79..=80).contains(&left), "{left}: {high:?}");
    }
}

/// The script gives back no more of a charge that has recovered in part than the limiter would.
#[test]
fn what_has_recovered_of_cut_off_units_is_not_given_back() {
    let server = SharedRedis::new();
    let (high, low) = (gcra(100, WINDOW), gcra(10, WINDOW));
    for (minutes, back) in [(6, 80), (360, 80), (600, 80), (600, 5), (1_080, 80)] {
        let mut redis = Redis::new(&server);
        let name = redis.name("a");
        let made = reserve(&mut redis, &high, &name);
        let reserved = made.reserved;
        let carried = at(START);
        for millis in [0, 200] {
            redis.scripts.now = Some(at(START + millis * 1_000));
            redis.charge(&low, "a", 0);
        }
        let mut cell = low.convert_cell(&high, reserved.cell, carried);
        let now = at(START + minutes * 60 * SECOND);
        redis.scripts.now = Some(now);
        let settlement = Settlement {
            units: 80 - back,
            ..made
        };
        redis.scripts.settle(&settlement, now);
        let (same, most) = high
            .convert_reserved(&low, reserved, now)
            .expect("it counts");
        cell = low.give_back(cell, &same, back.min(most), now);
        let expected = low.decide(cell, now, 0).remaining;
        let left = redis.charge(&low, "a", 0).remaining;
        assert!(left <= expected, "{minutes} {back}: {left} {expected}");
    }
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

/// A machine has reloaded, and another still charges under the earlier quota: what that has just used
/// is no more on the first.
#[test]
fn time_since_a_reload_is_not_taken_for_use() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let [before, after] = [60, 3_600].map(|seconds| gcra(5, seconds * SECOND));
    redis
        .drift
        .record_reload(at(START - 52 * SECOND), at(START - 51 * SECOND));
    redis.charge(&before, "a", 1);
    redis.scripts.now = Some(at(START + SECOND));
    let decision = redis.charge(&after, "a", 1);
    assert!(
        decision.is_admitted() && decision.remaining == 3,
        "{decision:?}"
    );
}
