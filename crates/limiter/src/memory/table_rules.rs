//! The rules by which a table decides and fills its buckets, with or without rings.

use std::num::NonZero;

use super::slab::{Chunks, Slab};
use super::table::Table;
use crate::algorithms::WindowEnd;
use crate::ring::BucketState;
use crate::{Algorithm, Cell, Decision, Demand, Fingerprint, Outcome, Timestamp};

/// The rules of a table for one request.
#[derive(Clone, Copy)]
pub(super) struct TableRules<'a> {
    pub(super) table: &'a Table,
    pub(super) algorithm: &'a Algorithm,
    /// The memory of rings, if the algorithm has any.
    pub(super) slab: Option<&'a Slab>,
    /// The end of a window that is opened now, if the request sets it.
    pub(super) window_end: Option<WindowEnd>,
    /// Units that a request has to leave to others.
    pub(super) demand: Demand,
}

impl<'a> TableRules<'a> {
    /// The cell to decide on for `tag`, whose cell is `cell`.
    pub(super) fn open(&self, cell: Cell, tag: u64, now: Timestamp) -> Cell {
        self.algorithm
            .open(cell, Fingerprint::from_bits(tag), self.window_end, now)
    }

    /// A cell, with the memory of its ring if the algorithm has rings.
    pub(super) fn state(&self, cell: Cell) -> BucketState<'a> {
        BucketState {
            cell,
            words: self.slab.map(Slab::words),
        }
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        self.algorithm.decide_keeping(
            self.state(cell),
            now,
            Demand {
                cost,
                ..self.demand
            },
        )
    }

    /// True if a request of one unit would be refused.
    pub(super) fn refuses(&self, cell: Cell, now: Timestamp) -> bool {
        !(self.algorithm.decide(self.state(cell), now, 1)).is_admitted()
    }

    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        self.algorithm.used(self.state(cell), now)
    }

    /// Takes chunks, reclaiming those of other keys if none are free.
    pub(super) fn take(&self, slab: &Slab, chunks: u32, now: Timestamp) -> Option<Chunks> {
        slab.take(chunks).or_else(|| {
            self.table.reclaim_chunks(slab, chunks, now);
            slab.take(chunks)
        })
    }

    /// A new bucket that has used as much as each of the two; `None` if memory lacks for its ring.
    pub(super) fn join(&self, left: Cell, right: Cell, now: Timestamp) -> Option<Cell> {
        self.join_in(left, right, now, |slab, chunks| {
            self.take(slab, chunks, now)
        })
    }

    /// Like [`join`](Self::join), but takes chunks even from the reserve.
    pub(super) fn join_last(&self, left: Cell, right: Cell, now: Timestamp) -> Option<Cell> {
        self.join_in(left, right, now, Slab::take_last)
    }

    fn join_in(
        &self,
        left: Cell,
        right: Cell,
        now: Timestamp,
        take: impl FnOnce(&Slab, u32) -> Option<Chunks>,
    ) -> Option<Cell> {
        let Some(slab) = self.slab else {
            return Some(self.algorithm.join(left, right, now));
        };
        let (left, right) = (self.state(left), self.state(right));
        let joined = self.algorithm.join_rings(left, right, now);
        let chunks = take(slab, joined.chunks())?;
        Some(joined.write(Some(slab.words()), &mut chunks.into_iter()))
    }

    /// Releases the ring of a cell that is no longer stored.
    pub(super) fn release(&self, cell: Cell) {
        if let Some(slab) = self.slab {
            slab.release(cell);
        }
    }

    /// Takes the chunks that the ring of `before` lacks to become `after`; `None` if memory lacks.
    pub(super) fn reserve(&self, before: Cell, after: Cell, now: Timestamp) -> Option<Chunks> {
        let Some(slab) = self.slab else {
            return Some(Chunks::new());
        };
        let lacks = self.algorithm.missing_chunks(self.state(before), after);
        self.take(slab, lacks, now)
    }

    /// The cell after a charge from `before` to `after`, recorded in its ring.
    pub(super) fn record(&self, before: Cell, after: Cell, cost: u32, chunks: Chunks) -> Cell {
        let Some(slab) = self.slab else {
            return after;
        };
        let (before, chunks) = (self.state(before), &mut chunks.into_iter());
        (self.algorithm).record(before, after, cost, slab.words(), chunks)
    }
}

/// The refusal of a request for lack of memory, until the bucket in its way is whole.
pub(super) fn refuse_for_memory(decision: Decision, cell: Cell, now: Timestamp) -> Decision {
    let retry_at = cell.whole_at(now).max(now.saturating_add_micros(1));
    Decision {
        outcome: Outcome::Refuse {
            retry_at: Some(retry_at),
        },
        remaining: 0,
        reset: retry_at,
        more_at: NonZero::new(retry_at.as_micros()),
        cell,
        ..decision
    }
}
