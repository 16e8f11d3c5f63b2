//! Settlement: charges made before the cost of a request is known. Afterwards the rest is charged,
//! or given back.
//!
//! A bucket after giving back is the same as if that much less had been charged at first, or has
//! less left: a unit that has recovered is not given back again. Permits give back units in use.

use super::Algorithm;
use super::grant::Grant;
use crate::ring::BucketState;
use crate::{Cell, Timestamp};

/// The record of a charge that settling needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedCharge {
    /// The bucket after the charge. [`Cell::EMPTY`] if it was not recorded: then nothing is given
    /// back.
    pub cell: Cell,
    /// The instant of the charge.
    pub at: Timestamp,
    /// The charged units.
    pub units: u32,
    /// Units of earlier charges that were unsettled at that time.
    pub unsettled: u64,
}

/// Units of a charge that are given back.
#[derive(Clone, Copy)]
pub(super) struct Refund<'a> {
    pub(super) reserved: &'a ReservedCharge,
    pub(super) units: u32,
    pub(super) now: Timestamp,
}

impl Algorithm {
    /// The bucket after `units` of `reserved` are given back, unless they have recovered. A ring is
    /// changed in place, and is unused if the result is `Cell::EMPTY`.
    ///
    /// A queue gives back only its last place: later requests know their turns already.
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
        let refund = Refund {
            reserved,
            units,
            now,
        };
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.give_back(cell, refund),
            Self::IntervalRefill(bucket) => bucket.give_back(cell, refund),
            Self::FixedWindow(window) => window.give_back(cell, refund),
            Self::SlidingWindow(window) => window.give_back(cell, refund),
            Self::SlidingCounters(window) => window.give_back(state, refund),
            Self::SlidingLog(log) => log.give_back(state, refund),
            Self::LeakyBucket(bucket) => bucket.give_back(cell, refund),
            Self::Concurrency(_) => cell,
            Self::Grant(_) => Grant::give_back(cell, refund),
        }
    }

    /// The charge of a bucket that has since been [converted](Self::convert) to `to`, and the most
    /// units that can then be given back. `None` if the bucket started empty, or its units have
    /// other instants.
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
