//! Units that were charged before it was known what a request costs: afterwards the rest is charged, or given back.
//!
//! What is given back makes of the bucket what it would be if so much less had been charged at first, or less: a unit
//! that has come back with time does not come back again. It is for algorithms without rings.

use super::Algorithm;
use crate::clock::Timestamp;
use crate::limiter::Cell;

/// What is to be known of a charge to give some of it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The bucket after it.
    pub cell: Cell,
    /// When it was made.
    pub at: Timestamp,
    /// How many units it took.
    pub units: u32,
    /// How many units earlier charges had taken that were then still to be settled.
    pub unsettled: u64,
}

impl Algorithm {
    /// Whether charges can be settled.
    pub const fn can_settle(&self) -> bool {
        self.shape().is_none() && !self.is_permits() && !self.delays()
    }

    /// The bucket after `units` more, whether they are there or not. A window counts all of them, since some may be given
    /// back; any other bucket owes no more than where refused requests are charged ([`Self::indebted`]).
    pub fn owe(&self, cell: Cell, now: Timestamp, units: u32) -> Cell {
        match self {
            Self::FixedWindow(window) => window.owe(cell, now, units),
            Self::SlidingCounters(_)
            | Self::SlidingLog(_)
            | Self::LeakyBucket(_)
            | Self::Concurrency(_) => cell,
            _ => self.indebted(cell, now, units).0,
        }
    }

    /// The bucket after `units` of `reserved` have been given back, as far as they have not come back with time.
    pub fn give_back(&self, cell: Cell, reserved: &Reserved, units: u32, now: Timestamp) -> Cell {
        if !cell.is_live(now) {
            return cell;
        }
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => {
                gcra.give_back(cell, reserved, units, now)
            }
            Self::IntervalRefill(bucket) => bucket.give_back(cell, reserved, units, now),
            Self::FixedWindow(window) => window.give_back(cell, reserved, units),
            Self::SlidingWindow(window) => window.give_back(cell, reserved, units, now),
            Self::SlidingCounters(_)
            | Self::SlidingLog(_)
            | Self::LeakyBucket(_)
            | Self::Concurrency(_) => cell,
        }
    }

    /// The same charge, of a bucket that has been [converted](Self::convert) to `to` since; `None` where it
    /// started anew. Not more than the other number of units can be given back then.
    pub fn reserved_under(
        &self,
        to: &Self,
        reserved: Reserved,
        now: Timestamp,
    ) -> Option<(Reserved, u32)> {
        let cell = to.convert(self, reserved.cell, reserved.at);
        let most = match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.returnable(&reserved, now),
            Self::IntervalRefill(bucket) => bucket.returnable(&reserved, now),
            _ => reserved.units,
        };
        (cell != Cell::EMPTY).then_some((Reserved { cell, ..reserved }, most))
    }
}

#[cfg(test)]
mod tests;
