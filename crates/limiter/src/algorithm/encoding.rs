//! Algorithms as numbers, to store beside their cells: enough to read the cells, and to convert
//! them to other parameters.

use std::time::Duration;

use super::{
    Algorithm, FixedWindow, Gcra, IntervalRefill, LeakyBucket, SlidingCounters, SlidingLog,
    SlidingWindow,
};
use crate::Quota;
use crate::algorithms::{OldestPart, Start};

/// The kind, the limit (the capacity of a bucket refilled in steps), the window or interval in
/// microseconds, and two more numbers. Snapshot files have it, so no kind ever gets another
/// meaning.
pub type EncodedAlgorithm = [u64; 5];

const GCRA: u64 = 1;
const TOKEN_BUCKET: u64 = 2;
const INTERVAL_REFILL: u64 = 3;
const FIXED_WINDOW: u64 = 4;
const SLIDING_WINDOW: u64 = 5;
const SLIDING_COUNTERS: u64 = 6;
const SLIDING_LOG: u64 = 7;
const LEAKY_BUCKET: u64 = 8;

impl Algorithm {
    /// The algorithm as numbers; `None` for concurrency, whose units end with the process.
    pub fn encode(&self) -> Option<EncodedAlgorithm> {
        let (kind, one, two) = match self {
            Self::Gcra(gcra) => (GCRA, gcra.burst().into(), 0),
            Self::TokenBucket(gcra) => (TOKEN_BUCKET, gcra.burst().into(), 0),
            Self::IntervalRefill(bucket) => {
                let (amount, interval) = bucket.refill();
                return Some([INTERVAL_REFILL, self.limit(), interval, amount.into(), 0]);
            }
            // A cell has the end of its window, whatever set it.
            Self::FixedWindow(_) => (FIXED_WINDOW, 0, 0),
            Self::SlidingWindow(window) => (SLIDING_WINDOW, window.oldest() as u64, 0),
            Self::SlidingCounters(window) => {
                let (parts, oldest) = window.parts();
                (SLIDING_COUNTERS, parts.into(), oldest as u64)
            }
            Self::SlidingLog(_) => (SLIDING_LOG, 0, 0),
            // Snapshots have grants in a section of their own.
            Self::Concurrency(_) | Self::Grant(_) => return None,
            Self::LeakyBucket(bucket) => {
                let (at_once, spare) = bucket.parts();
                (LEAKY_BUCKET, two_of(bucket.capacity(), at_once), spare)
            }
        };
        let window = u64::try_from(self.window()?.as_micros()).ok()?;
        Some([kind, self.limit(), window, one, two])
    }

    /// The algorithm with four-byte counters in rings, as in snapshots.
    #[must_use]
    pub fn with_wide_counters(self) -> Self {
        match self {
            Self::SlidingCounters(window) => Self::SlidingCounters(window.with_wide_counters()),
            Self::SlidingLog(log) => Self::SlidingLog(log.without_room()),
            other => other,
        }
    }

    /// The algorithm with this encoding, for reading its cells and for [`Algorithm::convert`].
    /// `None` for an unknown or invalid one.
    pub fn decode([kind, limit, window, one, two]: EncodedAlgorithm) -> Option<Self> {
        let window_of = |quota| FixedWindow::new(quota, Start::FirstRequest).with_limit(limit);
        let limit = match (u32::try_from(limit), kind) {
            (Ok(limit), _) => limit,
            (Err(_), FIXED_WINDOW) => u32::MAX,
            _ => return None,
        };
        let (large, small) = ((one >> 32) as u32, one as u32);
        if large > 0 && kind != LEAKY_BUCKET {
            return None;
        }
        let window = Duration::from_micros(window);
        let quota = Quota::new(limit, window).ok()?;
        Some(match kind {
            GCRA => Self::Gcra(Gcra::new(quota, small).ok()?),
            TOKEN_BUCKET => Self::TokenBucket(Gcra::new(quota, small).ok()?),
            INTERVAL_REFILL => {
                Self::IntervalRefill(IntervalRefill::new(limit, small, window).ok()?)
            }
            FIXED_WINDOW => Self::FixedWindow(window_of(quota)),
            SLIDING_WINDOW => Self::SlidingWindow(SlidingWindow::new(quota, oldest_of(one)?)),
            SLIDING_COUNTERS => {
                Self::SlidingCounters(SlidingCounters::new(quota, small, oldest_of(two)?).ok()?)
            }
            SLIDING_LOG => Self::SlidingLog(SlidingLog::new(quota).ok()?),
            LEAKY_BUCKET => {
                Self::LeakyBucket(LeakyBucket::from_parts(quota, large, (small, two)).ok()?)
            }
            _ => return None,
        })
    }
}

fn two_of(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn oldest_of(number: u64) -> Option<OldestPart> {
    OldestPart::from_repr(usize::try_from(number).ok()?)
}
