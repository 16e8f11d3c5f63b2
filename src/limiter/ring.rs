//! Rings: the state of a bucket beyond its cell. Slots of four or two bytes lie in chunks, which
//! are added as the ring fills.
//!
//! `store` knows which chunks are free, and reclaims them. The words are atomic because the
//! compiler cannot see a bucket's lock from here. Only the lock's holder touches a ring, and
//! relaxed loads and stores cost as much as plain ones.

mod builder;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Cell, Segments};
pub use builder::RingBuilder;

/// The layout of the rings of one algorithm.
///
/// A ring is a list of chunks. The first, its *root*, starts with the number of chunks, the place
/// of the oldest slot, and the numbers of the other chunks. Slots fill the rest of the root and the
/// other chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    slots: u32,
    width: Width,
    /// A chunk has `1 << shift` words.
    shift: u32,
    /// Chunks of a ring with all its slots.
    most: u32,
}

/// The size of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// A word.
    Word,
    /// Half a word: up to [`RingShape::MAX_HALF`].
    Half,
}

impl Width {
    /// Slots in a word, as a power of two.
    const fn shift(self) -> u32 {
        match self {
            Self::Word => 0,
            Self::Half => 1,
        }
    }
}

/// Words of a root before the list of the other chunks.
const FIXED: u32 = 2;
const CHUNKS: u32 = 0;
const HEAD: u32 = 1;

impl RingShape {
    /// Rings of up to `slots` slots. A chunk is about eight times as large as its list in the root
    /// would be. Neither an almost empty ring nor the list then takes much memory.
    pub const fn new(slots: u32) -> Self {
        let mut shift = 4;
        while 1_u64 << (2 * shift) < 8 * slots as u64 {
            shift += 1;
        }
        Self {
            slots,
            width: Width::Word,
            shift,
            most: Self::most_for(slots, shift),
        }
    }

    /// The largest value of a slot in a [`halved`](Self::halved) ring. Larger values are capped.
    pub const MAX_HALF: u32 = u16::MAX as u32;

    /// Rings of `slots` counters, none of which exceeds `limit`.
    pub const fn of_counters(slots: u32, limit: u32) -> Self {
        match limit <= Self::MAX_HALF {
            true => Self::halved(slots),
            false => Self::new(slots),
        }
    }

    /// Rings of up to `slots` two-byte slots, in chunks of the size for which a full ring is
    /// smallest. Such chunks are small, so an almost empty ring takes little memory, too.
    pub const fn halved(slots: u32) -> Self {
        let words = slots.div_ceil(2);
        let mut best = Self::new(words);
        let mut shift = best.shift;
        while shift > 3 {
            shift -= 1;
            let most = Self::most_for(words, shift);
            // The list of the other chunks has to fit into the root.
            let fits = FIXED + most - 1 < 1 << shift;
            if fits && most << shift <= best.most << best.shift {
                best = Self {
                    shift,
                    most,
                    ..best
                };
            }
        }
        Self {
            slots,
            width: Width::Half,
            ..best
        }
    }

    /// Chunks of `1 << shift` words for these words and the root's header.
    const fn most_for(words: u32, shift: u32) -> u32 {
        let mut most = 1;
        while (most << shift) < words + FIXED + most - 1 {
            most += 1;
        }
        most
    }

    /// True if slots have two bytes.
    pub const fn is_halved(self) -> bool {
        matches!(self.width, Width::Half)
    }

    /// Bytes of a chunk.
    pub const fn chunk_bytes(self) -> usize {
        size_of::<u32>() << self.shift
    }

    /// Chunks of a ring with all its slots.
    pub const fn max_chunks(self) -> u32 {
        self.most
    }

    /// Chunks of a ring with this number of slots.
    pub(super) const fn chunks_for(self, slots: u32) -> u32 {
        (self.header() + slots.div_ceil(1 << self.width.shift())).div_ceil(1 << self.shift)
    }

    /// Words of a root before its first slot.
    const fn header(self) -> u32 {
        FIXED + self.most - 1
    }

    /// Words of a chunk.
    pub const fn chunk_words(self) -> u32 {
        1 << self.shift
    }

    const fn slots_in(self, chunks: u32) -> u32 {
        ((chunks << self.shift) - self.header()) << self.width.shift()
    }
}

/// The memory of rings: chunks numbered from 1, in segments that are allocated on first use.
pub struct RingMemory {
    shape: RingShape,
    chunks: u32,
    cut: Segments,
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
}

impl RingMemory {
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

impl RingMemory {
    /// A copy of a ring of counters with a word for each, in memory of its own, and its root.
    pub fn widened(&self, root: u32) -> (Self, u32) {
        let ring = self.ring(root);
        let counts = (0..self.shape.slots).map(|slot| (slot, ring.get(slot)));
        Self::with_ring(
            RingShape::new(self.shape.slots),
            1,
            counts.filter(|(_, count)| *count > 0),
        )
    }
}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words")
            .field("shape", &self.shape)
            .field("chunks", &self.chunks)
            .finish_non_exhaustive()
    }
}

/// One ring. Root 0 means a ring without chunks, whose slots are all 0.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    words: &'a RingMemory,
    root: u32,
}

impl Ring<'_> {
    /// Starts a ring whose root is this zeroed chunk.
    pub(super) fn start(self) -> Self {
        self.words.set(self.root, CHUNKS, 1);
        self
    }

    pub(super) const fn root(self) -> u32 {
        self.root
    }

    pub(super) const fn shape(self) -> RingShape {
        self.words.shape
    }

    /// The ring's chunks, in no particular order.
    pub fn chunks(self) -> impl Iterator<Item = u32> {
        let others = (1..self.shape().most).map(move |place| self.chunk(place));
        std::iter::once(self.root)
            .chain(others)
            .filter(|chunk| *chunk != 0)
    }

    /// The ring's chunks with their places, from the root on.
    pub fn placed(self) -> impl Iterator<Item = (u32, u32)> {
        let places = 0..self.shape().most;
        let placed = places.map(move |place| (place, self.chunk(place)));
        placed.filter(|(_, chunk)| *chunk != 0)
    }

    /// The number of chunks before the first gap.
    pub(super) fn length(self) -> u32 {
        match self.root {
            0 => 0,
            root => self.words.get(root, CHUNKS),
        }
    }

    /// The number of slots in these chunks.
    pub fn capacity(self) -> u32 {
        self.shape().slots_in(self.length())
    }

    /// The place of the oldest slot.
    pub fn head(self) -> u32 {
        self.words.get(self.root, HEAD)
    }

    pub(super) fn set_head(self, slot: u32) {
        self.words.set(self.root, HEAD, slot);
    }

    /// The value of a slot; 0 if it has no chunk.
    pub fn get(self, slot: u32) -> u32 {
        match (self.place(slot), self.shape().width) {
            ((0, _), _) => 0,
            ((chunk, offset), Width::Word) => self.words.get(chunk, offset),
            ((chunk, offset), Width::Half) => {
                self.words.get(chunk, offset) >> half(slot) & RingShape::MAX_HALF
            }
        }
    }

    /// Writes a slot. A slot without a chunk accepts only 0.
    pub(super) fn set(self, slot: u32, value: u32) {
        match (self.place(slot), self.shape().width) {
            ((0, _), _) => debug_assert_eq!(value, 0),
            ((chunk, offset), Width::Word) => self.words.set(chunk, offset, value),
            ((chunk, offset), Width::Half) => {
                let shift = half(slot);
                let others = self.words.get(chunk, offset) & !(RingShape::MAX_HALF << shift);
                let own = value.min(RingShape::MAX_HALF) << shift;
                self.words.set(chunk, offset, others | own);
            }
        }
    }

    /// True if the slot has a chunk.
    pub(super) fn has(self, slot: u32) -> bool {
        self.place(slot).0 != 0
    }

    /// Gives a slot this zeroed chunk.
    pub(super) fn supply(self, slot: u32, chunk: u32) {
        self.set_chunk(self.split(slot).0, chunk);
    }

    /// Adds a chunk for slots after the newest of `used` ones. If the ring's content wraps around,
    /// the chunk goes in before the oldest slot, and the slots behind that move along.
    pub(super) fn grow(self, used: u32, chunk: u32) {
        let (length, head, shape) = (self.length(), self.head(), self.shape());
        self.words.set(self.root, CHUNKS, length + 1);
        if head + used <= shape.slots_in(length) {
            return self.set_chunk(length, chunk);
        }
        let (place, offset) = self.split(head);
        for later in (place + 1..length).rev() {
            self.set_chunk(later + 1, self.chunk(later));
        }
        self.set_chunk(place + 1, chunk);
        for offset in offset..1 << shape.shift {
            let moved = self.words.get(self.chunk(place), offset);
            self.words.set(chunk, offset, moved);
        }
        self.set_head(head + (1 << shape.shift));
    }

    /// The chunk of a slot (0 if there is none), and the slot's offset in it.
    fn place(self, slot: u32) -> (u32, u32) {
        let (place, offset) = self.split(slot);
        (self.chunk(place), offset)
    }

    fn split(self, slot: u32) -> (u32, u32) {
        let within = slot >> self.shape().width.shift();
        let (word, shift) = (self.shape().header() + within, self.shape().shift);
        (word >> shift, word & ((1 << shift) - 1))
    }

    fn chunk(self, place: u32) -> u32 {
        match (self.root, place) {
            (0, _) => 0,
            (root, 0) => root,
            (root, place) => self.words.get(root, FIXED + place - 1),
        }
    }

    /// Puts a chunk at a place other than the root's.
    pub(super) fn set_chunk(self, place: u32, chunk: u32) {
        self.words.set(self.root, FIXED + place - 1, chunk);
    }
}

/// The first bit of a two-byte slot within its word.
const fn half(slot: u32) -> u32 {
    (slot & 1) * u16::BITS
}

/// A cell, with the memory of its ring if the algorithm has rings.
#[derive(Clone, Copy)]
pub struct BucketState<'a> {
    /// The cell; `a` is the root of its ring.
    pub cell: Cell,
    /// The memory of rings; `None` for algorithms without rings.
    pub words: Option<&'a RingMemory>,
}

impl<'a> BucketState<'a> {
    /// The ring, with root 0 if nothing has been counted.
    pub(super) fn ring(self) -> Option<Ring<'a>> {
        self.words.map(|words| words.ring(self.cell.a))
    }
}

impl From<Cell> for BucketState<'static> {
    fn from(cell: Cell) -> Self {
        Self { cell, words: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_rings_waste_next_to_nothing() {
        let bytes = |slots| {
            let shape = RingShape::new(slots);
            shape.max_chunks() as usize * shape.chunk_bytes()
        };
        assert_eq!(bytes(61), 256);
        assert_eq!(bytes(500), 2048);
        let halved = RingShape::halved(61);
        assert_eq!(halved.max_chunks() as usize * halved.chunk_bytes(), 160);
        for slots in (1..5_000).chain([99_999, 100_000]) {
            let shape = RingShape::new(slots);
            assert!(shape.slots_in(shape.max_chunks()) >= slots);
            assert!(shape.header() < 1 << shape.shift, "{slots}");
            assert!(bytes(slots) <= 4 * slots as usize + 2 * shape.chunk_bytes() + 64);
        }
        for slots in 2..=3601 {
            let shape = RingShape::halved(slots);
            assert!(shape.slots_in(shape.max_chunks()) >= slots);
            assert!(shape.header() < 1 << shape.shift, "{slots}");
            let bytes = shape.max_chunks() as usize * shape.chunk_bytes();
            assert!(bytes <= bytes_of_words(slots), "{slots}: {bytes}");
        }
    }

    fn bytes_of_words(slots: u32) -> usize {
        let shape = RingShape::new(slots);
        (shape.max_chunks() as usize * shape.chunk_bytes()).max(64)
    }

    #[test]
    fn slots_of_half_a_word_hold_what_they_are_given_and_nothing_of_their_neighbours() {
        let shape = RingShape::halved(61);
        let known = |slot: u32| (slot * 7919) % 65_536;
        let (words, root) =
            RingMemory::with_ring(shape, 61, (0..61).map(|slot| (slot, known(slot))));
        let ring = words.ring(root);
        assert!((0..61).all(|slot| ring.get(slot) == known(slot)));
        ring.set(30, 1_000_000);
        ring.set(31, 0);
        assert_eq!(
            [29, 30, 31, 32].map(|slot| ring.get(slot)),
            [known(29), 65_535, 0, known(32)]
        );
        ring.set(30, 5);
        assert_eq!(
            [29, 30, 31, 32].map(|slot| ring.get(slot)),
            [known(29), 5, 0, known(32)]
        );
    }
}
