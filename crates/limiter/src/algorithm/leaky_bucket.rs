//! The leaky bucket as a queue: requests leave it one by one at the quota's rate.
//!
//! It is GCRA that delays requests instead of admitting a burst. TAT is the instant at which the
//! next unit in the queue departs; a request departs with the last of its units. The
//! caller makes requests wait.

use std::time::Duration;

use super::gcra::Gcra;
use super::settle::Refund;
use super::{BucketView, div_ceil};
use crate::{Cell, Decision, Outcome, Quota, QuotaError, Timestamp};

/// The parameters of a queue.
///
/// Cell: as in [`Gcra`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    line: Gcra,
    /// The largest distance of TAT after a request that need not wait, in 1/limit microseconds.
    free: u128,
    /// The distance of TAT up to which the queue takes its full capacity: its length beyond whole
    /// units.
    spare: u128,
}

impl LeakyBucket {
    /// A queue that moves by one unit each window / limit. A request waits behind at most `queue`
    /// units, for at most `max_wait`; any other is refused. The first `delay_after` units do not
    /// wait.
    ///
    /// A quota of 0 refuses always.
    ///
    /// # Errors
    /// The longest wait exceeds [`Quota::MAX_WINDOW`].
    pub fn new(
        quota: Quota,
        queue: u32,
        max_wait: Duration,
        delay_after: u32,
    ) -> Result<Self, QuotaError> {
        let unit = u128::from(quota.window_micros());
        let longest = max_wait.as_micros() * u128::from(quota.limit());
        // One less than the maximum, so that the units of a full queue fit in 32 bits.
        let places = unit * u128::from(queue.min(u32::MAX - 1));
        Self::bounded(quota, unit + places.min(longest), delay_after)
    }

    /// A queue that is `whole` / limit microseconds long.
    fn bounded(quota: Quota, whole: u128, delay_after: u32) -> Result<Self, QuotaError> {
        let unit = u128::from(quota.window_micros());
        let line = Gcra::with_tau(quota, whole)?;
        Ok(Self {
            line,
            free: unit + unit * u128::from(delay_after),
            spare: whole.saturating_sub(unit * u128::from(line.burst())),
        })
    }

    /// The units that do not wait, and the queue's length beyond whole units in 1/limit
    /// microseconds.
    pub(super) fn parts(&self) -> (u32, u64) {
        let unit = u128::from(self.line.quota().window_micros());
        let at_once = u32::try_from(self.free / unit - 1).unwrap_or(u32::MAX);
        (at_once, u64::try_from(self.spare).unwrap_or(u64::MAX))
    }

    /// The queue with this capacity and these parts.
    ///
    /// # Errors
    /// As [`LeakyBucket::new`].
    pub(super) fn from_parts(
        quota: Quota,
        capacity: u32,
        (at_once, spare): (u32, u64),
    ) -> Result<Self, QuotaError> {
        let units = u128::from(quota.window_micros()) * u128::from(capacity);
        Self::bounded(quota, units + u128::from(spare), at_once)
    }

    /// The largest number of units at one instant: one goes on at once, and the others wait.
    pub const fn capacity(&self) -> u32 {
        self.line.burst()
    }

    /// The same queue, which moves at a quota of `limit` units in the same window.
    pub(super) fn with_rate(&self, limit: u32) -> Option<Self> {
        let line = self.line.with_rate(limit)?;
        Some(Self { line, ..*self })
    }

    /// The arithmetic of its cells.
    pub const fn line(&self) -> &Gcra {
        &self.line
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let mut decision = self.line.decide(cell, now, cost);
        let ahead = self.line.used(decision.cell, now);
        decision.reset = self.after(now, ahead.saturating_sub(self.spare));
        let waits = decision.is_admitted() && cost > 0 && ahead > self.free;
        if waits {
            let until = self.after(now, ahead - self.free);
            decision.outcome = Outcome::Delay { until };
        }
        decision
    }

    /// The instant `wait` / limit microseconds after `now`, rounded up.
    fn after(&self, now: Timestamp, wait: u128) -> Timestamp {
        let limit = u64::from(self.line.quota().limit());
        now.saturating_add_micros(div_ceil(wait, limit))
    }

    pub(super) fn bucket_view(&self, cell: Cell, now: Timestamp) -> BucketView {
        BucketView::LeakyBucket {
            line: self.line.arrival_time(cell, now),
            delay_after: self.parts().0,
        }
    }

    /// The bucket after a request has left the queue, if it is still the last.
    pub(super) fn give_back(&self, cell: Cell, refund: Refund<'_>) -> Cell {
        if cell == refund.reserved.cell {
            self.line.returned(cell, refund.now, refund.units)
        } else {
            cell
        }
    }
}
