//! Giving back units of a charge.

use super::{SlidingLog, View};
use crate::algorithm::ReservedCharge;
use crate::ring::{BucketState, Ring};
use crate::{Cell, Timestamp};

impl SlidingLog {
    /// Removes units with the instant of the charge, as far as the log still has them.
    pub(in crate::algorithm) fn give_back(
        &self,
        state: BucketState<'_>,
        reserved: &ReservedCharge,
        units: u32,
        now: Timestamp,
    ) -> Cell {
        let (view, tick) = (self.live(state, now), self.newest(reserved.cell));
        let first = self.first_of(&view, |other| other >= tick);
        let end = self.first_of(&view, |other| other > tick);
        let back = units.min(end - first);
        let Some(ring) = view.ring.filter(|_| back > 0) else {
            return state.cell;
        };
        if back == view.units {
            return Cell::EMPTY;
        }
        let units = take_out(ring, [view.left, end - back, end, state.cell.b]);
        Cell {
            expires: self.leaves(self.tick_of(&view, units - 1)),
            b: units,
            ..state.cell
        }
    }

    /// The first counting unit whose tick satisfies `is_it`, as all later ones do; the end if there
    /// is none.
    fn first_of(&self, view: &View<'_>, is_it: impl Fn(u64) -> bool) -> u32 {
        let (mut low, mut high) = (view.left, view.left + view.units);
        while low < high {
            let middle = low.midpoint(high);
            if is_it(self.tick_of(view, middle)) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        low
    }
}

/// Removes the units `first..end` from the counting units `left..all` of a ring, and returns the
/// ring's new number of units. Moves the smaller of the two sides.
fn take_out(ring: Ring<'_>, [left, first, end, all]: [u32; 4]) -> u32 {
    let (head, capacity, gap) = (ring.head(), ring.capacity(), end - first);
    let place = |unit: u32| (head + unit) % capacity;
    if all - end <= first - left {
        (end..all).for_each(|unit| ring.set(place(unit - gap), ring.get(place(unit))));
        return all - gap;
    }
    let before = (left..first).rev();
    before.for_each(|unit| ring.set(place(unit + gap), ring.get(place(unit))));
    ring.set_head(place(left + gap));
    all - left - gap
}
