//! A bucket as JSON, in the numbers by which its algorithm decides: enough to draw it, and to let
//! the drawing run on until the next request.
//!
//! Names say the unit: `_ms` has a fraction for microseconds, `_units` are units of the quota.

use std::borrow::Cow;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limiter::bucket::{ArrivalTime, BucketView};

/// A bucket as its algorithm sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "algorithm", rename_all = "snake_case")]
pub enum CellView {
    /// The theoretical arrival time, and the bound on it.
    Gcra {
        /// The distance of TAT from now.
        tat_in_ms: f64,
        /// The largest distance after a request.
        tau_ms: f64,
        /// The distance by which a unit moves TAT.
        interval_ms: f64,
        /// The largest number of units at one instant.
        burst_units: u32,
    },
    /// Tokens, refilled one by one or in steps.
    TokenBucket {
        /// Tokens in the bucket; with debt, below 0.
        tokens: f64,
        /// Tokens of a full bucket.
        capacity: u32,
        /// How tokens come back.
        refill: Refill,
        /// Tokens that come back at once.
        refill_units: u32,
        /// The time between two refills.
        refill_every_ms: f64,
        /// The time to the next whole token or step; none if the bucket is full.
        next_refill_in_ms: Option<f64>,
    },
    /// A queue.
    LeakyBucket {
        /// Units that have not departed, the fraction of the first included.
        queue_units: f64,
        /// The largest number of units that have not departed.
        capacity_units: u32,
        /// Waiting units that go on at once.
        delay_after_units: u32,
        /// The time between two departures.
        interval_ms: f64,
        /// The time to the last departure.
        empty_in_ms: f64,
        /// The largest time to the last departure.
        longest_ms: f64,
    },
    /// A count in a window.
    FixedWindow {
        /// Counted units.
        used_units: u64,
        /// Units of the quota.
        limit_units: u64,
        /// The nominal length of a window.
        window_ms: f64,
        /// The time to the end of the running window; none if none runs.
        window_ends_in_ms: Option<f64>,
    },
    /// Counters of parts.
    SlidingWindow {
        /// Units that count now, rounded up.
        used_units: u64,
        /// Units of the quota.
        limit_units: u64,
        /// The length of a part.
        part_ms: f64,
        /// The age of the running part.
        part_elapsed_ms: f64,
        /// The weight of the oldest part.
        oldest: Cow<'static, str>,
        /// The oldest part first, the running one last.
        counts: Vec<u32>,
    },
    /// Instants of units.
    SlidingLog {
        /// Units in the window.
        used_units: u64,
        /// Units of the quota.
        limit_units: u64,
        /// The length of the window.
        window_ms: f64,
        /// Ages of the newest units, newest first.
        ages_ms: Vec<f64>,
    },
    /// Units in use.
    Concurrency {
        /// Units in use.
        in_use_units: u32,
        /// The largest number of units in use.
        max_units: u32,
        /// Waiting requests.
        waiting_requests: u32,
        /// The largest number of waiting requests.
        queue_requests: u32,
    },
}

/// How tokens come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refill {
    /// One by one, evenly.
    Continuous,
    /// Several at once.
    Stepped,
}

impl From<BucketView> for CellView {
    fn from(view: BucketView) -> Self {
        match view {
            BucketView::Gcra(arrival) => Self::Gcra {
                tat_in_ms: millis(arrival.ahead),
                tau_ms: millis(arrival.tau),
                interval_ms: interval(&arrival),
                burst_units: arrival.burst,
            },
            BucketView::TokenBucket(arrival) => tokens(&arrival),
            BucketView::IntervalRefill {
                missing,
                capacity,
                amount,
                interval,
                next,
            } => Self::TokenBucket {
                tokens: f64::from(capacity) - missing as f64,
                capacity,
                refill: Refill::Stepped,
                refill_units: amount,
                refill_every_ms: millis(interval),
                next_refill_in_ms: next.map(millis),
            },
            BucketView::LeakyBucket { line, delay_after } => Self::LeakyBucket {
                queue_units: ratio(millis(line.ahead), interval(&line)),
                capacity_units: line.burst,
                delay_after_units: delay_after,
                interval_ms: interval(&line),
                empty_in_ms: millis(line.ahead),
                longest_ms: millis(line.tau),
            },
            BucketView::FixedWindow {
                used,
                limit,
                window,
                ends_in,
            } => Self::FixedWindow {
                used_units: used,
                limit_units: limit,
                window_ms: millis(window),
                window_ends_in_ms: ends_in.map(millis),
            },
            BucketView::SlidingWindow {
                limit,
                used,
                part,
                elapsed,
                oldest,
                counts,
            } => Self::SlidingWindow {
                used_units: used,
                limit_units: limit,
                part_ms: millis(part),
                part_elapsed_ms: millis(elapsed),
                oldest: Cow::Borrowed(oldest.into()),
                counts,
            },
            BucketView::SlidingLog {
                limit,
                window,
                used,
                ages,
            } => Self::SlidingLog {
                used_units: used,
                limit_units: limit,
                window_ms: millis(window),
                ages_ms: ages.into_iter().map(millis).collect(),
            },
            BucketView::Concurrency {
                in_use,
                max,
                waiting,
                queue,
            } => Self::Concurrency {
                in_use_units: in_use,
                max_units: max,
                waiting_requests: waiting,
                queue_requests: queue,
            },
        }
    }
}

fn tokens(arrival: &ArrivalTime) -> CellView {
    let every = interval(arrival);
    let ahead = millis(arrival.ahead);
    CellView::TokenBucket {
        tokens: f64::from(arrival.burst) - ratio(ahead, every),
        capacity: arrival.burst,
        refill: Refill::Continuous,
        refill_units: 1,
        refill_every_ms: every,
        next_refill_in_ms: (ahead > 0.0).then(|| match ahead % every {
            0.0 => every,
            rest => rest,
        }),
    }
}

/// The distance by which a unit moves TAT, in milliseconds; 0 for a quota of 0.
fn interval(arrival: &ArrivalTime) -> f64 {
    ratio(
        millis(arrival.quota.window()),
        f64::from(arrival.quota.limit()),
    )
}

fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 {
        dividend / divisor
    } else {
        0.0
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
