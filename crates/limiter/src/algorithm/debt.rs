//! Debt: units charged beyond what a bucket holds. They are those of refused requests, for policies
//! with `Refusals::Charged`, of requests that cost more than was reserved, and of requests that
//! other machines have admitted. No function here decides.

use super::Algorithm;
use super::fixed_window::Start;
use super::grant::Grant;
use crate::ring::BucketState;
use crate::{Cell, Timestamp};

/// The most that a bucket which recovers with time may owe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debt {
    /// The charges of refused requests: the bucket is whole no later than if the whole quota had
    /// been taken just now.
    Refused,
    /// The debt of admitted requests: up to the quota of so many windows beyond a full bucket.
    Windows(u32),
}

impl Debt {
    /// The windows for which units of admitted requests are owed. With windows so long that this is
    /// more than [`Quota::MAX_WINDOW`](crate::Quota::MAX_WINDOW), for that long.
    pub const MAX_WINDOWS: u32 = 1_000;
    /// The debt of admitted requests.
    pub const CARRIED: Self = Self::Windows(Self::MAX_WINDOWS);
}

impl Algorithm {
    /// The units that the bucket owes: those used beyond its capacity, rounded up.
    pub fn owed_units<'a>(&self, state: impl Into<BucketState<'a>>, now: Timestamp) -> u64 {
        let unit = match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.quota().window_micros(),
            Self::SlidingWindow(window) => window.quota.window_micros(),
            Self::SlidingCounters(window) => {
                window.quota.window_micros() / u64::from(window.parts().0)
            }
            Self::IntervalRefill(_) | Self::FixedWindow(_) => 1,
            // Queues take no debt, and a log keeps no more units than its limit.
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) | Self::Grant(_) => {
                return 0;
            }
        };
        let holds = u128::from(self.capacity()) * u128::from(unit);
        let owed = self.used(state, now).saturating_sub(holds);
        u64::try_from(owed.div_ceil(u128::from(unit).max(1))).unwrap_or(u64::MAX)
    }

    /// The bucket at `now` after `units` that were charged at `at` or earlier without asking it,
    /// even if it lacks them, and the units to record in its ring ([`Algorithm::record`]). Units
    /// that have recovered since `at` are not charged; callers set `at` before `now` if the bucket
    /// was whole in between.
    ///
    /// Continuous and stepped buckets owe up to `debt`. A fixed window counts all units, since some
    /// may be given back, but those of refused requests only up to its limit. Sliding windows and
    /// logs count at most the limit: earlier units weigh as they would as the
    /// [oldest](crate::algorithms::OldestPart) of two counters. A queue is unchanged, since nothing
    /// joins it unasked; a grant has no debt.
    pub fn owe<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        at: Timestamp,
        now: Timestamp,
        units: u32,
        debt: Debt,
    ) -> (Cell, u32) {
        let state = state.into();
        let (cell, at) = (state.cell, at.min(now));
        if self.capacity() == 0 || units == 0 {
            return (cell, 0);
        }
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => {
                (gcra.owe(cell, at, now, units, debt), units)
            }
            Self::IntervalRefill(bucket) => (bucket.owe(cell, at, now, units, debt), units),
            Self::FixedWindow(window) if debt == Debt::Refused => {
                let left = window.decide(cell, now, 0).remaining;
                (window.decide(cell, now, left.min(units.into())).cell, units)
            }
            Self::FixedWindow(window) => (window.force_charge(cell, now, units), units),
            Self::SlidingWindow(window) => {
                let units = window.weighing.covered_of(units, at, now);
                (window.owe(cell, now, units), units)
            }
            Self::SlidingCounters(window) => window.owe(state, now, window.covered(units, at, now)),
            Self::SlidingLog(log) => log.owe(state, now, units),
            Self::Grant(_) if debt != Debt::Refused => {
                (Grant::force_charge(cell, now, units), units)
            }
            Self::LeakyBucket(_) | Self::Concurrency(_) | Self::Grant(_) => (cell, 0),
        }
    }

    /// True if buckets can be charged for other machines. That excludes units that requests return,
    /// queues and logs, which need each unit's instant, and windows that start with a machine's own
    /// first request.
    ///
    /// Units of other machines are owed like those of a machine's own requests. If forgiven beyond
    /// the whole bucket, as those of refused requests are, every machine would go on to admit the
    /// whole recovery rate.
    pub const fn can_charge_remote(&self) -> bool {
        match self {
            Self::FixedWindow(window) => !matches!(window.start(), Start::FirstRequest),
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => false,
            _ => true,
        }
    }
}
