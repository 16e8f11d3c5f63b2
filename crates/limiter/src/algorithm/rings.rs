//! Operations on rings: their layout, writing, joining, and conversion to other parameters. No
//! function here decides.

use super::{Algorithm, History};
use crate::ring::{BucketState, RingMemory, RingShape};
use crate::{Cell, Timestamp};

const NO_RINGS: &str = "only algorithms with rings are asked";

/// A bucket's conversion to other parameters, to be written where its ring will be.
pub struct RingConversion<'a> {
    to: &'a Algorithm,
    now: Timestamp,
    source: Source<'a>,
}

enum Source<'a> {
    Cell(Cell),
    /// Counters or instants, copied as they are.
    Same(BucketState<'a>),
    History(History),
}

impl Algorithm {
    /// The layout of rings; `None` for algorithms without rings.
    pub const fn shape(&self) -> Option<RingShape> {
        match self {
            Self::SlidingCounters(window) => Some(window.shape()),
            Self::SlidingLog(log) => Some(log.shape()),
            Self::Gcra(_)
            | Self::TokenBucket(_)
            | Self::IntervalRefill(_)
            | Self::LeakyBucket(_)
            | Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::Concurrency(_)
            | Self::Grant(_) => None,
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

    /// The chunks that [`Algorithm::join_rings`] needs.
    pub fn chunks_to_join(
        &self,
        left: BucketState<'_>,
        right: BucketState<'_>,
        now: Timestamp,
    ) -> u32 {
        match self {
            Self::SlidingCounters(window) => window.whole_chunks(),
            Self::SlidingLog(log) => log.chunks_to_join(left, right, now),
            _ => 0,
        }
    }

    /// A new bucket that has used at least as much as each of the two, now and at any later
    /// instant. At least one of them must be live.
    pub fn join_rings(
        &self,
        left: BucketState<'_>,
        right: BucketState<'_>,
        now: Timestamp,
        words: &RingMemory,
        chunks: &mut dyn Iterator<Item = u32>,
    ) -> Cell {
        match self {
            Self::SlidingCounters(window) => window.join(left, right, now, words, chunks),
            Self::SlidingLog(log) => log.join(left, right, now, words, chunks),
            _ => unreachable!("{NO_RINGS}"),
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
    ) -> RingConversion<'a> {
        let what = match (self, from) {
            _ if !state.cell.is_live(now) || self.capacity() == 0 => Source::Cell(Cell::EMPTY),
            _ if self.has_same_ring_format(from) => Source::Same(state),
            (Self::SlidingCounters(_), Self::SlidingCounters(_) | Self::SlidingWindow(_))
            | (Self::SlidingWindow(_), Self::SlidingCounters(_))
            | (Self::SlidingLog(_), Self::SlidingLog(_)) => {
                Source::History(self.rescaled(from, from.history(state, now)))
            }
            _ => Source::Cell(self.convert_cell(from, state.cell, now)),
        };
        RingConversion {
            to: self,
            now,
            source: what,
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

impl RingConversion<'_> {
    /// The chunks that its ring needs.
    pub fn chunks(&self) -> u32 {
        match (&self.source, self.to) {
            (Source::History(past), _) if past.is_empty() => 0,
            (Source::History(_) | Source::Same(_), Algorithm::SlidingCounters(to)) => {
                to.whole_chunks()
            }
            (Source::History(past), Algorithm::SlidingLog(to)) => to.chunks_to_rebuild(past),
            (Source::Same(state), Algorithm::SlidingLog(to)) => to.chunks_to_copy(*state, self.now),
            _ => 0,
        }
    }

    /// Writes the ring in [`chunks`](Self::chunks) chunks, if it needs one.
    pub fn write(self, words: Option<&RingMemory>, chunks: &mut dyn Iterator<Item = u32>) -> Cell {
        match (self.source, self.to, words) {
            (Source::Cell(cell), ..) => cell,
            (Source::History(past), ..) if past.is_empty() => Cell::EMPTY,
            (Source::History(past), Algorithm::SlidingWindow(to), _) => to.rebuild(&past, self.now),
            (Source::History(past), Algorithm::SlidingCounters(to), Some(words)) => {
                to.rebuild(&past, self.now, words, chunks)
            }
            (Source::Same(state), Algorithm::SlidingCounters(to), Some(words)) => {
                to.copy(state, self.now, words, chunks)
            }
            (Source::Same(state), Algorithm::SlidingLog(to), Some(words)) => {
                to.copy(state, self.now, words, chunks)
            }
            (Source::History(past), Algorithm::SlidingLog(to), Some(words)) => {
                to.rebuild(&past, self.now, words, chunks)
            }
            _ => Cell::EMPTY,
        }
    }
}
