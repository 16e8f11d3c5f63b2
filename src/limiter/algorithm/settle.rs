//! Units that were charged before it was known what a request costs: afterwards the rest is charged, or given back.
//!
//! What is given back makes of the bucket what it would be if so much less had been charged at first, or less: a unit
//! that has come back with time does not come back again. Units in use are given back where they were taken.

use super::Algorithm;
use crate::clock::Timestamp;
use crate::limiter::Cell;
use crate::limiter::ring::BucketState;

/// What is to be known of a charge to give some of it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedCharge {
    /// The bucket after it, as it was kept; [`Cell::EMPTY`] if it was not, and nothing can be given back.
    pub cell: Cell,
    /// When it was made.
    pub at: Timestamp,
    /// How many units it took.
    pub units: u32,
    /// How many units earlier charges had taken that were then still to be settled.
    pub unsettled: u64,
}

impl Algorithm {
    /// Whether charges can be settled at another number of units: neither those whose place in a line has been told, nor
    /// what is in use until requests end.
    pub const fn can_settle(&self) -> bool {
        !self.is_concurrency() && !self.delays()
    }

    /// The bucket after `units` more, whether they are there or not. A window counts all of them, since some may be given
    /// back; any other bucket owes no more than where refused requests are charged ([`Self::charge_refused`]), and is returned
    /// with how many units have to be recorded in its ring, if it has one.
    pub fn force_charge<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        now: Timestamp,
        units: u32,
    ) -> (Cell, u32) {
        let state = state.into();
        match self {
            Self::FixedWindow(window) => (window.force_charge(state.cell, now, units), units),
            _ => self.charge_refused(state, now, units),
        }
    }

    /// The bucket after `units` of `reserved` have been given back, as far as they have not come back with time. A ring
    /// is changed where it is, and nobody's if the bucket has become [`Cell::EMPTY`].
    ///
    /// A queue takes back its last place only: who came later has been told when his turn is.
    pub fn give_back<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        reserved: &ReservedCharge,
        units: u32,
        now: Timestamp,
    ) -> Cell {
        let state = state.into();
        let cell = state.cell;
        if !cell.is_live(now) || reserved.cell == Cell::EMPTY || units == 0 {
            return cell;
        }
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => {
                gcra.give_back(cell, reserved, units, now)
            }
            Self::IntervalRefill(bucket) => bucket.give_back(cell, reserved, units, now),
            Self::FixedWindow(window) => window.give_back(cell, reserved, units),
            Self::SlidingWindow(window) => window.give_back(cell, reserved, units, now),
            Self::SlidingCounters(window) => window.give_back(state, reserved, units, now),
            Self::SlidingLog(log) => log.give_back(state, reserved, units, now),
            Self::LeakyBucket(bucket) => {
                let left = bucket.leave_queue(cell, reserved.cell, units, now);
                left.unwrap_or(cell)
            }
            Self::Concurrency(_) => cell,
        }
    }

    /// The same charge, of a bucket that has been [carried over](Self::convert) to `to` since; `None` where it
    /// started anew, or its units are at other instants. Not more than the other number of units can be given back then.
    pub fn convert_reserved(
        &self,
        to: &Self,
        reserved: ReservedCharge,
        now: Timestamp,
    ) -> Option<(ReservedCharge, u32)> {
        if self.shape().is_some() {
            return to
                .has_same_ring_format(self)
                .then_some((reserved, reserved.units));
        }
        let cell = to.convert_cell(self, reserved.cell, reserved.at);
        let most = match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.returnable(&reserved, now),
            Self::IntervalRefill(bucket) => bucket.returnable(&reserved, now),
            _ => reserved.units,
        };
        (cell != Cell::EMPTY).then_some((ReservedCharge { cell, ..reserved }, most))
    }
}

#[cfg(test)]
mod tests;
