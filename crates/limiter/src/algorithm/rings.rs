//! Operations on rings: their layout, writing, joining, and conversion to other parameters. No
//! function here decides.

use super::{Algorithm, History};
use crate::ring::{BucketState, RingMemory, RingShape};
use crate::{Cell, Timestamp};

/// A bucket to be written, once there are chunks for its ring.
pub enum RingPlan<'a> {
    /// A bucket without a ring.
    Cell(Cell),
    /// A bucket with a ring of so many chunks.
    Ring(u32, Box<WriteRing<'a>>),
}

type WriteRing<'a> = dyn FnOnce(&RingMemory, &mut dyn Iterator<Item = u32>) -> Cell + 'a;

impl<'a> RingPlan<'a> {
    pub(super) fn new(
        chunks: u32,
        write: impl FnOnce(&RingMemory, &mut dyn Iterator<Item = u32>) -> Cell + 'a,
    ) -> Self {
        Self::Ring(chunks, Box::new(write))
    }

    /// The chunks that the ring needs.
    pub fn chunks(&self) -> u32 {
        match self {
            Self::Cell(_) => 0,
            Self::Ring(chunks, _) => *chunks,
        }
    }

    /// Writes the ring in [`chunks`](Self::chunks) chunks, if it needs one.
    pub fn write(self, words: Option<&RingMemory>, chunks: &mut dyn Iterator<Item = u32>) -> Cell {
        match (self, words) {
            (Self::Cell(cell), _) => cell,
            (Self::Ring(_, write), Some(words)) => write(words, chunks),
            (Self::Ring(..), None) => Cell::EMPTY,
        }
    }
}

impl Algorithm {
    /// The layout of rings; `None` for algorithms without rings.
    pub const fn shape(&self) -> Option<RingShape> {
        match self {
            Self::SlidingCounters(window) => Some(window.shape),
            Self::SlidingLog(log) => Some(log.shape),
            _ => None,
        }
    }

    /// True if a ring that was read back can belong to its cell.
    pub fn is_sound(&self, state: BucketState<'_>) -> bool {
        match self {
            Self::SlidingLog(_) => state
                .ring()
                .is_some_and(|ring| state.cell.b <= ring.capacity()),
            _ => true,
        }
    }

    /// The chunks that the ring of `before` lacks for the charge that makes it `after`.
    pub fn missing_chunks(&self, before: BucketState<'_>, after: Cell) -> u32 {
        match self {
            Self::SlidingCounters(window) => window.missing_chunks(before, after),
            Self::SlidingLog(log) => log.missing_chunks(before, after),
            _ => 0,
        }
    }

    /// Records in the ring of `before` the `cost` units that make it `after`, and returns the
    /// bucket. `chunks` are the missing ones, zeroed.
    pub fn record(
        &self,
        before: BucketState<'_>,
        after: Cell,
        cost: u32,
        words: &RingMemory,
        chunks: &mut dyn Iterator<Item = u32>,
    ) -> Cell {
        match self {
            Self::SlidingCounters(window) => window.record(before, after, cost, words, chunks),
            Self::SlidingLog(log) => log.record(before, after, cost, words, chunks),
            _ => after,
        }
    }

    /// A new bucket that has used at least as much as each of the two, now and at any later
    /// instant. At least one of them must be live.
    pub fn join_rings<'a>(
        &'a self,
        left: BucketState<'a>,
        right: BucketState<'a>,
        now: Timestamp,
    ) -> RingPlan<'a> {
        match self {
            Self::SlidingCounters(window) => window.join(left, right, now),
            Self::SlidingLog(log) => log.join(left, right, now),
            _ => unreachable!("only algorithms with rings are asked"),
        }
    }

    /// The bucket `state` of `from`, under these parameters: as many used units, up to the
    /// capacity. Units in a ring keep their ages, scaled down for a shorter window. Another kind of
    /// algorithm starts empty.
    pub fn convert<'a>(
        &'a self,
        from: &Self,
        state: BucketState<'a>,
        now: Timestamp,
    ) -> RingPlan<'a> {
        if !state.cell.is_live(now) || self.capacity() == 0 {
            return RingPlan::Cell(Cell::EMPTY);
        }
        let past = || self.rescaled(from, from.history(state, now));
        match (self, from) {
            (Self::SlidingCounters(to), _) if self.has_same_ring_format(from) => {
                to.copy(state, now)
            }
            (Self::SlidingLog(to), _) if self.has_same_ring_format(from) => to.copy(state, now),
            (Self::SlidingCounters(to), Self::SlidingCounters(_) | Self::SlidingWindow(_)) => {
                to.rebuild(past(), now)
            }
            (Self::SlidingLog(to), Self::SlidingLog(_)) => to.rebuild(past(), now),
            (Self::SlidingWindow(to), Self::SlidingCounters(_)) => {
                RingPlan::Cell(to.rebuild(&past(), now))
            }
            _ => RingPlan::Cell(self.convert_cell(from, state.cell, now)),
        }
    }

    /// The algorithm with room in its rings for all units of `before`, as far as they may count
    /// again under a higher limit.
    #[must_use]
    pub fn with_room_of(self, before: &Self) -> Self {
        match (self, before) {
            (Self::SlidingLog(log), Self::SlidingLog(before)) => {
                Self::SlidingLog(log.with_room_of(before))
            }
            (Self::SlidingCounters(window), Self::SlidingCounters(before)) => {
                Self::SlidingCounters(window.with_room_of(before))
            }
            (own, _) => own,
        }
    }

    /// True if a ring of `other` can be read under these parameters. It may have more units than
    /// they allow.
    pub fn has_same_ring_format(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SlidingCounters(own), Self::SlidingCounters(other)) => {
                own.has_same_ring_format(other)
            }
            (Self::SlidingLog(own), Self::SlidingLog(other)) => own.has_same_ring_format(other),
            _ => false,
        }
    }

    fn history(&self, state: BucketState<'_>, now: Timestamp) -> History {
        match self {
            Self::SlidingWindow(window) => window.history(state.cell, now),
            Self::SlidingCounters(window) => window.history(state, now),
            Self::SlidingLog(log) => log.history(state, now),
            _ => History::new(),
        }
    }

    fn rescaled(&self, from: &Self, mut past: History) -> History {
        let window = |of: &Self| of.window().map_or(1, |window| window.as_micros());
        let (old, new) = (window(from), window(self).min(window(from)));
        for (age, _) in &mut past {
            *age = (u128::from(*age) * new / old) as u64;
        }
        past.retain(|(_, units)| *units > 0);
        past
    }
}
