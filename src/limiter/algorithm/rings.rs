//! What only the algorithms have whose buckets need more than a cell: how their rings are laid out,
//! written, joined, and carried over to other parameters. None of it decides.

use super::{Algorithm, Past};
use crate::clock::Timestamp;
use crate::limiter::Cell;
use crate::limiter::ring::{Shape, State, Words};

const NO_RINGS: &str = "only algorithms with rings are asked";

/// What a bucket becomes under other parameters. It is written where its ring will be.
pub struct Carried<'a> {
    to: &'a Algorithm,
    now: Timestamp,
    what: What<'a>,
}

enum What<'a> {
    Cell(Cell),
    /// The same counters, or instants.
    Same(State<'a>),
    Past(Past),
}

impl Algorithm {
    /// How the rings are laid out; `None` for algorithms whose buckets are cells.
    pub const fn shape(&self) -> Option<Shape> {
        match self {
            Self::SlidingCounters(window) => Some(window.shape()),
            Self::SlidingLog(log) => Some(log.shape()),
            Self::Gcra(_)
            | Self::TokenBucket(_)
            | Self::IntervalRefill(_)
            | Self::LeakyBucket(_)
            | Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::Concurrency(_) => None,
        }
    }

    /// Whether a ring that was read back can be that of its cell.
    pub fn is_sound(&self, state: State<'_>) -> bool {
        match self {
            Self::SlidingLog(_) => state
                .ring()
                .is_some_and(|ring| state.cell.b <= ring.capacity()),
            _ => true,
        }
    }

    /// How many chunks the ring of `before` lacks to take the charge that a decision made `after` of.
    pub fn lacks(&self, before: State<'_>, after: Cell) -> u32 {
        match self {
            Self::SlidingCounters(window) => window.lacks(before, after),
            Self::SlidingLog(log) => log.lacks(before, after),
            _ => 0,
        }
    }

    /// Records in the ring of `before` the `cost` units by which a decision made `after` of it, and
    /// returns the bucket. `chunks` are those that it lacked, all zeros.
    pub fn record(
        &self,
        before: State<'_>,
        after: Cell,
        cost: u32,
        words: &Words,
        chunks: &mut dyn Iterator<Item = u32>,
    ) -> Cell {
        match self {
            Self::SlidingCounters(window) => window.record(before, after, cost, words, chunks),
            Self::SlidingLog(log) => log.record(before, after, cost, words, chunks),
            _ => after,
        }
    }

    /// How many chunks [`Algorithm::join_rings`] needs.
    pub fn joined_chunks(&self, left: State<'_>, right: State<'_>, now: Timestamp) -> u32 {
        match self {
            Self::SlidingCounters(window) => window.whole_chunks(),
            Self::SlidingLog(log) => log.joined_chunks(left, right, now),
            _ => 0,
        }
    }

    /// A new bucket that has used at least as much as each of the two, now and ever after. At least one
    /// of them still counts.
    pub fn join_rings(
        &self,
        left: State<'_>,
        right: State<'_>,
        now: Timestamp,
        words: &Words,
        chunks: &mut dyn Iterator<Item = u32>,
    ) -> Cell {
        match self {
            Self::SlidingCounters(window) => window.join(left, right, now, words, chunks),
            Self::SlidingLog(log) => log.join(left, right, now, words, chunks),
            _ => unreachable!("{NO_RINGS}"),
        }
    }

    /// What the bucket becomes that was `state` under `from`'s parameters: it has used as many units,
    /// but never more than the whole. Units of a ring keep their ages, and in a shorter window as
    /// large a share of it. Another kind of algorithm starts anew.
    pub fn carry<'a>(&'a self, from: &Self, state: State<'a>, now: Timestamp) -> Carried<'a> {
        let what = match (self, from) {
            _ if !state.cell.is_live(now) || self.capacity() == 0 => What::Cell(Cell::EMPTY),
            _ if self.counts_like(from) => What::Same(state),
            (Self::SlidingCounters(_), Self::SlidingCounters(_) | Self::SlidingWindow(_))
            | (Self::SlidingWindow(_), Self::SlidingCounters(_))
            | (Self::SlidingLog(_), Self::SlidingLog(_)) => {
                What::Past(self.rescaled(from, from.past(state, now)))
            }
            _ => What::Cell(self.convert(from, state.cell, now)),
        };
        Carried {
            to: self,
            now,
            what,
        }
    }

    /// Whether what is in a ring under `other`'s parameters means the same under these.
    pub(super) fn counts_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SlidingCounters(own), Self::SlidingCounters(other)) => own.counts_like(other),
            (Self::SlidingLog(own), Self::SlidingLog(other)) => own.counts_like(other),
            _ => false,
        }
    }

    fn past(&self, state: State<'_>, now: Timestamp) -> Past {
        match self {
            Self::SlidingWindow(window) => window.past(state.cell, now),
            Self::SlidingCounters(window) => window.past(state, now),
            Self::SlidingLog(log) => log.past(state, now),
            _ => Past::new(),
        }
    }

    fn rescaled(&self, from: &Self, mut past: Past) -> Past {
        let window = |of: &Self| of.window().map_or(1, |window| window.as_micros());
        let (old, new) = (window(from), window(self).min(window(from)));
        for (age, _) in &mut past {
            *age = (u128::from(*age) * new / old) as u64;
        }
        past.retain(|(_, units)| *units > 0);
        past
    }
}

impl Carried<'_> {
    /// How many chunks its ring needs.
    pub fn chunks(&self) -> u32 {
        match (&self.what, self.to) {
            (What::Past(past), _) if past.is_empty() => 0,
            (What::Past(_) | What::Same(_), Algorithm::SlidingCounters(to)) => to.whole_chunks(),
            (What::Past(past), Algorithm::SlidingLog(to)) => to.rebuilt_chunks(past),
            (What::Same(state), Algorithm::SlidingLog(to)) => to.copied_chunks(*state, self.now),
            _ => 0,
        }
    }

    /// Writes the ring, if it needs one, in as many chunks as it asked for.
    pub fn write(self, words: Option<&Words>, chunks: &mut dyn Iterator<Item = u32>) -> Cell {
        match (self.what, self.to, words) {
            (What::Cell(cell), ..) => cell,
            (What::Past(past), ..) if past.is_empty() => Cell::EMPTY,
            (What::Past(past), Algorithm::SlidingWindow(to), _) => to.rebuild(&past, self.now),
            (What::Past(past), Algorithm::SlidingCounters(to), Some(words)) => {
                to.rebuild(&past, self.now, words, chunks)
            }
            (What::Same(state), Algorithm::SlidingCounters(to), Some(words)) => {
                to.copy(state, self.now, words, chunks)
            }
            (What::Same(state), Algorithm::SlidingLog(to), Some(words)) => {
                to.copy(state, self.now, words, chunks)
            }
            (What::Past(past), Algorithm::SlidingLog(to), Some(words)) => {
                to.rebuild(&past, self.now, words, chunks)
            }
            _ => Cell::EMPTY,
        }
    }
}
