//! Usage of other machines: units that they admitted, charged here once that is known, even if the
//! bucket lacks them. No function here decides.
//!
//! Remote units are owed like those of a machine's own requests. If forgiven beyond the whole bucket,
//! as those of refused requests are, every machine would go on to admit the whole recovery rate.

use super::Algorithm;
use super::debt::Debt;
use super::fixed_window::Start;
use super::grant::Grant;
use crate::ring::BucketState;
use crate::{Cell, Timestamp};

impl Algorithm {
    /// True if buckets can be charged for other machines. That excludes units that requests return,
    /// queues and logs, which need each unit's instant, and windows that start with a machine's own
    /// first request.
    pub const fn can_charge_remote(&self) -> bool {
        match self {
            Self::Gcra(_)
            | Self::TokenBucket(_)
            | Self::IntervalRefill(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounters(_)
            | Self::Grant(_) => true,
            Self::FixedWindow(window) => !matches!(window.start(), Start::FirstRequest),
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => false,
        }
    }

    /// The bucket at `now` after `units` that other machines charged at `at` or earlier, and the
    /// units to record in its ring. Units that have recovered since `at` are not charged; callers
    /// set `at` before `now` if the bucket was whole in between. Continuous and stepped buckets owe
    /// up to `debt`; windows recover when they end.
    ///
    /// A window counts the units in its running part. Earlier units weigh as they would as the
    /// [oldest](super::super::OldestPart) of two counters. The bucket is unchanged unless
    /// [`can_charge_remote`](Self::can_charge_remote).
    pub fn charge_remote<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        at: Timestamp,
        now: Timestamp,
        units: u32,
        debt: Debt,
    ) -> (Cell, u32) {
        let state = state.into();
        let (cell, at) = (state.cell, at.min(now));
        if !self.can_charge_remote() || self.capacity() == 0 || units == 0 {
            return (cell, 0);
        }
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => {
                (gcra.owe(cell, at, now, units, debt), units)
            }
            Self::IntervalRefill(bucket) => (bucket.owe(cell, at, now, units, debt), units),
            Self::FixedWindow(window) => (window.force_charge(cell, now, units), units),
            Self::Grant(_) => (Grant::force_charge(cell, now, units), units),
            Self::SlidingWindow(window) => {
                let units = window.covered(units, at, now);
                (window.charge_refused(cell, now, units), units)
            }
            Self::SlidingCounters(window) => {
                window.charge_refused(state, now, window.covered(units, at, now))
            }
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => (cell, 0),
        }
    }
}
