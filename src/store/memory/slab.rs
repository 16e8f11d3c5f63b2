//! The memory for the rings of one table: which of its chunks are free.
//!
//! What rings hold is `limiter`'s business, and who has to give one up the table's.

use std::fmt;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::limiter::{BucketState, Cell, RingMemory, RingShape};

/// Chunks that are nobody's ring yet, all zeros.
pub(super) type Chunks = SmallVec<[u32; 4]>;

/// A fixed number of chunks for rings.
pub(super) struct Slab {
    words: RingMemory,
    free: Mutex<Free>,
    /// Chunks that only [`Slab::take_last`] takes: one ring, so that two can be joined when all else is
    /// taken.
    reserve: u32,
}

struct Free {
    /// The first of the chunks that were given back, each of which starts with the number of the next.
    first: u32,
    /// How many chunks have ever been taken: those beyond were never touched.
    touched: u32,
    /// How many there are in all.
    count: u32,
}

impl Slab {
    /// Room for rings of this shape in about so many bytes, for one ring at least, and for the reserve.
    pub(super) fn new(shape: RingShape, bytes: u64) -> Self {
        let reserve = shape.max_chunks();
        let chunks = (bytes / shape.chunk_bytes() as u64).max(reserve.into());
        let count = (chunks + u64::from(reserve)).min(MOST_CHUNKS) as u32;
        Self {
            words: RingMemory::new(shape, count),
            free: Mutex::new(Free {
                first: 0,
                touched: 0,
                count,
            }),
            reserve,
        }
    }

    /// The memory that the chunks are in.
    pub(super) const fn words(&self) -> &RingMemory {
        &self.words
    }

    /// A cell with the memory of its ring.
    pub(super) const fn state(&self, cell: Cell) -> BucketState<'_> {
        BucketState {
            cell,
            words: Some(&self.words),
        }
    }

    /// Takes so many chunks; `None` when there are not as many.
    pub(super) fn take(&self, chunks: u32) -> Option<Chunks> {
        self.take_leaving(chunks, self.reserve)
    }

    /// Takes so many chunks even if that leaves none.
    pub(super) fn take_last(&self, chunks: u32) -> Option<Chunks> {
        self.take_leaving(chunks, 0)
    }

    /// Whether so many chunks can be taken.
    pub(super) fn has(&self, chunks: u32) -> bool {
        self.free.lock().count >= chunks + self.reserve
    }

    fn take_leaving(&self, chunks: u32, reserve: u32) -> Option<Chunks> {
        if chunks == 0 {
            return Some(Chunks::new());
        }
        let mut free = self.free.lock();
        let left = free.count.checked_sub(chunks);
        free.count = left.filter(|left| *left >= reserve)?;
        let taken: Chunks = (0..chunks).map(|_| free.pop(&self.words)).collect();
        drop(free);
        taken.iter().for_each(|chunk| self.words.clear(*chunk));
        Some(taken)
    }

    /// Takes back chunks that were not used.
    pub(super) fn give_back(&self, chunks: impl IntoIterator<Item = u32>) {
        let mut free = self.free.lock();
        for chunk in chunks {
            self.words.set(chunk, 0, free.first);
            free.first = chunk;
            free.count += 1;
        }
    }

    /// Takes back the ring of a cell, if it has one.
    pub(super) fn release(&self, cell: Cell) {
        if cell.a != 0 {
            self.give_back(self.words.ring(cell.a).chunks());
        }
    }

    /// How many chunks are in use.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u32 {
        self.words.chunks() - self.free.lock().count
    }
}

/// Chunks are numbered by 32 bits, from 1.
const MOST_CHUNKS: u64 = u32::MAX as u64 - 1;

impl Free {
    /// One of the chunks that are counted as free.
    fn pop(&mut self, words: &RingMemory) -> u32 {
        match self.first {
            0 => {
                self.touched += 1;
                self.touched
            }
            chunk => {
                self.first = words.get(chunk, 0);
                chunk
            }
        }
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").finish_non_exhaustive()
    }
}
