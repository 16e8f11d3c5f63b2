//! Debt: units charged beyond what a bucket holds, and the charges of refused requests, for
//! policies with `Refusals::Charged`. No function here decides.

use super::Algorithm;
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
    pub fn owed_units<'a>(&self, state: impl Into<BucketState<'a>>, now: Timestamp) -> u32 {
        let state = state.into();
        let (used, unit) = match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => {
                (gcra.used(state.cell, now), gcra.quota().window_micros())
            }
            Self::IntervalRefill(bucket) => (bucket.used(state.cell, now), 1),
            Self::FixedWindow(window) => (window.used(state.cell, now), 1),
            Self::SlidingWindow(window) => {
                let part = window.quota().window_micros();
                (window.used(state.cell, now), part)
            }
            Self::SlidingCounters(window) => {
                let part = window.quota().window_micros() / u64::from(window.parts().0);
                (window.used(state, now), part)
            }
            // Queues take no debt, and a log keeps no more units than its limit.
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) | Self::Grant(_) => {
                return 0;
            }
        };
        let owed = used.saturating_sub(u128::from(self.capacity()) * u128::from(unit));
        u32::try_from(owed.div_ceil(u128::from(unit).max(1))).unwrap_or(u32::MAX)
    }

    /// The bucket after the charge of a refused request of `cost` units, and the units to record in
    /// its ring. It recovers no later than a bucket whose whole quota was taken just now, unless it
    /// would have anyway.
    ///
    /// The caller must record the units of a bucket with a ring ([`Algorithm::record`]). A queue is
    /// unchanged, since refused requests do not join it.
    pub fn charge_refused<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        now: Timestamp,
        cost: u32,
    ) -> (Cell, u32) {
        let state = state.into();
        let cell = state.cell;
        if self.capacity() == 0 || cost == 0 {
            return (cell, 0);
        }
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => {
                (gcra.owe(cell, now, now, cost, Debt::Refused), cost)
            }
            Self::IntervalRefill(bucket) => (bucket.owe(cell, now, now, cost, Debt::Refused), cost),
            Self::LeakyBucket(_) | Self::Concurrency(_) | Self::Grant(_) => (cell, 0),
            Self::FixedWindow(window) => {
                let left = window.decide(cell, now, 0).remaining;
                (window.decide(cell, now, cost.min(left)).cell, cost)
            }
            Self::SlidingWindow(window) => (window.charge_refused(cell, now, cost), cost),
            Self::SlidingCounters(window) => window.charge_refused(state, now, cost),
            Self::SlidingLog(log) => log.charge_refused(state, now, cost),
        }
    }
}
