//! The memory for the rings of one table: the free list of its chunks. `limiter` defines the
//! content of rings; `table` reclaims them.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::Cell;
use crate::ring::{RingMemory, RingShape};

/// Zeroed chunks outside any ring.
pub(super) type Chunks = SmallVec<[u32; 4]>;

/// A fixed number of chunks for rings.
#[derive(Debug)]
pub(super) struct Slab {
    words: RingMemory,
    free: Mutex<Free>,
    /// Chunks that only [`Slab::take_last`] takes: one ring, so that two can be joined if all
    /// others are taken.
    reserve: u32,
}

#[derive(Debug)]
struct Free {
    /// The head of the list of returned chunks. Each starts with the number of the next.
    first: u32,
    /// The number of chunks that were ever taken. Those beyond it are untouched.
    touched: u32,
    /// The number of free chunks.
    count: u32,
}

impl Slab {
    /// A slab of about `bytes` bytes for rings of this shape: at least one ring, plus the reserve.
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

    /// The memory of the chunks.
    pub(super) const fn words(&self) -> &RingMemory {
        &self.words
    }

    /// Takes `chunks` chunks; `None` if fewer are free.
    pub(super) fn take(&self, chunks: u32) -> Option<Chunks> {
        self.take_leaving(chunks, self.reserve)
    }

    /// Takes `chunks` chunks, even from the reserve.
    pub(super) fn take_last(&self, chunks: u32) -> Option<Chunks> {
        self.take_leaving(chunks, 0)
    }

    /// True if `chunks` chunks are free.
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

    /// Takes back unused chunks.
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
            let chunks = self.words.ring(cell.a).chunks();
            self.give_back(chunks.map(|(_, chunk)| chunk));
        }
    }

    /// The number of chunks that were ever taken: those have memory of the system.
    pub(super) fn touched(&self) -> u32 {
        self.free.lock().touched
    }

    /// The number of chunks in use.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u32 {
        self.words.chunks() - self.free.lock().count
    }
}

/// Chunks are numbered from 1, with 32 bits.
const MOST_CHUNKS: u64 = u32::MAX as u64 - 1;

impl Free {
    /// A chunk that is already counted as taken.
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
