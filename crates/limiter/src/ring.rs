//! Rings: the state of a bucket beyond its cell. Slots of four or two bytes lie in chunks, which
//! are added as the ring fills.
//!
//! A `Slab` knows which chunks are free, and reclaims them. The words are atomic because the
//! compiler cannot see a bucket's lock from here. Only the lock's holder touches a ring, and
//! relaxed loads and stores cost as much as plain ones.

mod builder;
mod memory;
mod shape;

use crate::Cell;
pub use builder::RingBuilder;
pub use memory::RingMemory;
pub use shape::RingShape;
use shape::Width;

/// Words of a root before the list of the other chunks.
const FIXED: u32 = 2;
/// The word of a root with the number of chunks.
const CHUNKS: u32 = 0;
/// The word of a root with the place of the oldest slot.
const HEAD: u32 = 1;

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
        self.words.shape()
    }

    /// The ring's chunks with their places, from the root on.
    pub fn chunks(self) -> impl Iterator<Item = (u32, u32)> {
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
#[derive(Clone, Copy, Debug)]
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
    fn counters_have_room_for_their_limit() {
        for limit in [1, 65_535, 65_536, u32::MAX] {
            let most = RingShape::of_counters(61, limit).max_value();
            assert!(most >= limit, "{most} for {limit}");
        }
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
