//! The memory of rings, in chunks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use derive_more::Debug;

use super::{CHUNKS, Ring, RingShape};
use crate::segments::Segments;

/// The memory of rings: chunks numbered from 1, in segments that are allocated on first use.
#[derive(Debug)]
pub struct RingMemory {
    shape: RingShape,
    chunks: u32,
    #[debug(skip)]
    cut: Segments,
    #[debug(skip)]
    segments: Box<[OnceLock<Box<[AtomicU32]>>]>,
}

impl RingMemory {
    /// Memory for this number of chunks, none of it allocated yet.
    pub fn new(shape: RingShape, chunks: u32) -> Self {
        let cut = Segments::new(chunks as usize, shape.chunk_bytes());
        Self {
            shape,
            chunks,
            cut,
            segments: (0..cut.count()).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The layout of its rings.
    pub const fn shape(&self) -> RingShape {
        self.shape
    }

    /// The number of chunks.
    pub const fn chunks(&self) -> u32 {
        self.chunks
    }

    /// The ring with this root.
    pub const fn ring(&self, root: u32) -> Ring<'_> {
        Ring { words: self, root }
    }

    /// Starts a ring in the first of these chunks, which are zeroed.
    pub(crate) fn start(&self, chunks: &mut dyn Iterator<Item = u32>) -> Ring<'_> {
        let root = chunks.next().expect("a ring has a root");
        self.ring(root).start()
    }

    /// The value of a word in a chunk.
    pub fn get(&self, chunk: u32, offset: u32) -> u32 {
        self.word(chunk, offset).load(Ordering::Relaxed)
    }

    /// Writes a word of a chunk.
    pub fn set(&self, chunk: u32, offset: u32, value: u32) {
        self.word(chunk, offset).store(value, Ordering::Relaxed);
    }

    /// The words of a chunk.
    pub fn chunk(&self, chunk: u32) -> impl Iterator<Item = u32> {
        (0..1 << self.shape.shift).map(move |offset| self.get(chunk, offset))
    }

    /// Zeroes every word of a chunk.
    pub fn clear(&self, chunk: u32) {
        for offset in 0..1 << self.shape.shift {
            self.set(chunk, offset, 0);
        }
    }

    fn word(&self, chunk: u32, offset: u32) -> &AtomicU32 {
        let (segment, within) = self.cut.place(chunk as usize - 1);
        let words = self.segments[segment].get_or_init(|| {
            let words = self.cut.length(segment) << self.shape.shift;
            (0..words).map(|_| AtomicU32::new(0)).collect()
        });
        &words[(within << self.shape.shift) | offset as usize]
    }

    /// Memory of a single ring for `slots` slots, and its root. `known` has the slots that are not
    /// 0, as (slot, value). Only the chunks in use are allocated.
    pub fn with_ring(
        shape: RingShape,
        slots: u32,
        known: impl IntoIterator<Item = (u32, u32)>,
    ) -> (Self, u32) {
        const ROOT: u32 = 1;
        let words = Self::new(shape, shape.max_chunks());
        let ring = words.ring(ROOT).start();
        words.set(ROOT, CHUNKS, shape.chunks_for(slots).max(1));
        for (slot, value) in known {
            let (place, _) = ring.split(slot);
            if place > 0 && !ring.has(slot) {
                // Numbers of chunks follow their places. Memory for a skipped number is never
                // allocated.
                ring.set_chunk(place, ROOT + place);
            }
            ring.set(slot, value);
        }
        (words, ROOT)
    }
}
