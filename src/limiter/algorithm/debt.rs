//! What refused requests leave behind where a policy charges them all the same: debt, of which no bucket has more
//! than it would if all of its quota had been taken just now. None of it decides.

use super::Algorithm;
use crate::clock::Timestamp;
use crate::limiter::Cell;
use crate::limiter::ring::BucketState;

impl Algorithm {
    /// The bucket after a refused request of `cost` units was charged, and how many of them that takes. It recovers no later
    /// than one of which everything was taken just now, unless it would have before.
    ///
    /// A bucket with a ring is that only once the units are recorded there ([`Algorithm::record`]). A queue stays as
    /// it was: who is refused stands in no line.
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
                (gcra.charge_refused(cell, now, cost), cost)
            }
            Self::IntervalRefill(bucket) => (bucket.charge_refused(cell, now, cost), cost),
            Self::LeakyBucket(_) | Self::Concurrency(_) => (cell, 0),
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
