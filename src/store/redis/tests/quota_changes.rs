//! A quota that is lowered on one machine: others still have the higher one.

use std::time::Duration;

use super::scripted::{Redis, SECOND, START, SharedRedis, at, gcra, quota};
use crate::limiter::{
    Algorithm, FixedWindow, IntervalRefill, OldestPart, SlidingLog, SlidingWindow, Start,
};

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
