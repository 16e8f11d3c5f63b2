//! Giving back units of a charge.

use super::{SlidingCounters, View};
use crate::algorithm::ReservedCharge;
use crate::ring::BucketState;
use crate::{Cell, Timestamp};

impl SlidingCounters {
    /// Counts less in the part of the charge, as long as that part counts.
    pub(in crate::algorithm) fn give_back(
        &self,
        state: BucketState<'_>,
        reserved: &ReservedCharge,
        units: u32,
        now: Timestamp,
    ) -> Cell {
        let (view, part) = (self.view(state, now), self.last(reserved.cell));
        let counts = part + u64::from(self.parts) >= view.part;
        let count = self.count(&view, Some(part).filter(|_| counts));
        let back = units.min(count);
        let Some(ring) = view.ring.filter(|_| back > 0) else {
            return state.cell;
        };
        ring.set(self.slot(part), count - back);
        self.counted(state.cell, &view)
    }

    /// The cell of a ring whose counters have shrunk: last charged in the newest part with a count.
    fn counted(&self, cell: Cell, view: &View<'_>) -> Cell {
        let parts = u64::from(self.parts);
        let back_from = |part: u64| (part.saturating_sub(parts)..=part).rev();
        let count = |part: u64| self.count(view, Some(part));
        let Some(newest) = back_from(view.last).find(|part| count(*part) > 0) else {
            return Cell::EMPTY;
        };
        let others = back_from(newest).take(self.parts as usize).map(count);
        Cell {
            expires: (newest + self.lasting()) * self.weighing.part,
            b: others.fold(0, u32::saturating_add),
            ..cell
        }
    }
}
