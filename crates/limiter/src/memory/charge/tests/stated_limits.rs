//! Requests of one bucket that state different limits of its window.

use std::time::Duration;

use proptest::prelude::*;

use crate::algorithms::{
    FixedWindow, OldestPart, SlidingCounters, SlidingLog, SlidingWindow, Start,
};
use crate::{Algorithm, Charge, Demand, Fingerprint, OnFull, Quota, Table, Timestamp, charge_all};

const WINDOW: u64 = 1_000_000;
const PARTS: u32 = 5;
const START: u64 = 1_795_236_060_000_000;

/// True if units of the first instant count at the second.
type IsCounted = fn(u64, u64) -> bool;

/// Windows that never admit more than their limit, and the spans that they count: the window at an
/// instant, or the last so many microseconds.
fn windows(limit: u32) -> [(Algorithm, IsCounted); 5] {
    let quota = Quota::new(limit, Duration::from_micros(WINDOW)).expect("a quota");
    let counters = SlidingCounters::new(quota, PARTS, OldestPart::Whole).expect("equal parts");
    let is_recent: IsCounted = |then, now| now - then < WINDOW;
    let is_same: IsCounted = |then, now| then / WINDOW == now / WINDOW;
    [
        (
            Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH)),
            is_same,
        ),
        (
            Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Whole)),
            is_recent,
        ),
        (Algorithm::SlidingCounters(counters), is_recent),
        (
            Algorithm::SlidingLog(SlidingLog::new(quota).expect("a short log")),
            is_recent,
        ),
        // The running part alone, of which nothing is forgotten.
        (
            Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
            is_same,
        ),
    ]
}

fn limits() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(1_u32), 3 => Just(50), 3 => 0..=50_u32]
}

proptest! {
    /// Whatever limits requests state in turn, a window admits no more than the largest of them:
    /// units stay used. A request that is refused would be so by a bucket of its limit that has
    /// admitted as much.
    #[test]
    fn a_window_admits_as_many_as_the_largest_limit_that_is_stated_in_it(
        steps in prop::collection::vec((0..150_000_u64, 1..4_u32, limits()), 1..300),
    ) {
        for (algorithm, is_counted) in windows(50) {
            let table = Table::new("test", algorithm, 16, OnFull::Forget);
            let mut admitted: Vec<(u64, u32)> = Vec::new();
            let mut stated: Vec<(u64, u32)> = Vec::new();
            let mut now = START;
            for (gap, cost, limit) in &steps {
                now += gap;
                stated.push((now, *limit));
                let charge = Charge { table: &table, key: Fingerprint::from_bits(7), demand: Demand { cost: *cost, required: 0, kept: u64::from(50 - limit) }, window_end: None };
                let verdict = charge_all(&[charge], Timestamp::from_micros(now));
                let decision = verdict.decisions[0];
                prop_assert_eq!(decision.capacity, u64::from(*limit));
                prop_assert!(decision.remaining <= (*limit).into());
                if decision.is_admitted() {
                    admitted.push((now, *cost));
                }
                let used: u32 = admitted.iter().filter(|(then, _)| is_counted(*then, now)).map(|(_, units)| units).sum();
                let most = stated.iter().filter(|(then, _)| is_counted(*then, now)).map(|(_, limit)| *limit).max();
                prop_assert!(used <= most.unwrap_or(0), "{used} of {most:?}: {:?}", table.algorithm());
                if decision.is_admitted() {
                    prop_assert!(used <= *limit, "{used} under {limit}: {:?}", table.algorithm());
                }
            }
        }
    }
}
