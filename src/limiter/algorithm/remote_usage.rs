//! Units that were admitted on other machines, and are charged here once that is known, whether they are there or not.
//! None of it decides.
//!
//! What refused requests owe is forgiven beyond the whole bucket. If these units were, every machine would admit whatever comes
//! back with time, all of them at once, and go on so: they are owed for up to a window longer.

use super::Algorithm;
use super::fixed_window::Start;
use crate::clock::Timestamp;
use crate::limiter::Cell;
use crate::limiter::ring::BucketState;

impl Algorithm {
    /// Whether buckets can be charged for what others admit: their units come back with time, nobody is told the instant of
    /// each, or his place in a line, and windows end at an instant that all know. Where each machine began a window with a request of
    /// its own, what one has counted would be nothing to others whose windows begin after that.
    pub const fn can_charge_remote(&self) -> bool {
        match self {
            Self::Gcra(_)
            | Self::TokenBucket(_)
            | Self::IntervalRefill(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounters(_) => true,
            Self::FixedWindow(window) => !matches!(window.start(), Start::FirstRequest),
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => false,
        }
    }

    /// The bucket at `now` after `units` that others have charged at `at` or earlier, and how many of them have to be recorded
    /// in its ring, if it has one. What has come back of them by itself since `at` is not charged: an `at` before `now` is to
    /// be said where the bucket was whole between. It may owe; but where it recovers continuously or in steps, there is
    /// something to take a window later, and in windows when they end.
    ///
    /// Windows count it in the part that runs, and what was charged before as much as it would count there as the
    /// [oldest](super::super::OldestPart) of two counters. As it was if that [cannot be](Self::can_charge_remote).
    pub fn charge_remote<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        at: Timestamp,
        now: Timestamp,
        units: u32,
    ) -> (Cell, u32) {
        let state = state.into();
        let (cell, at) = (state.cell, at.min(now));
        if !self.can_charge_remote() || self.capacity() == 0 || units == 0 {
            return (cell, 0);
        }
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => {
                (gcra.charge_remote(cell, at, now, units), units)
            }
            Self::IntervalRefill(bucket) => (bucket.charge_remote(cell, at, now, units), units),
            Self::FixedWindow(window) => (window.force_charge(cell, now, units), units),
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
