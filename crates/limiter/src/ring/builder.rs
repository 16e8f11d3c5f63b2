//! Rebuilds a saved ring in memory of its own, chunk by chunk.

use super::{BucketState, Cell, FIXED, RingMemory, RingShape};

/// Memory for one ring at a time.
#[derive(Debug)]
pub struct RingBuilder {
    words: RingMemory,
    /// True for each place that has a chunk.
    present: Vec<bool>,
}

impl RingBuilder {
    /// Memory for a full ring of this shape.
    pub fn new(shape: RingShape) -> Self {
        Self {
            words: RingMemory::new(shape, shape.most),
            present: vec![false; shape.most as usize],
        }
    }

    /// Words of a chunk.
    pub const fn chunk_words(&self) -> u32 {
        self.words.shape().chunk_words()
    }

    /// Discards the previous ring.
    pub fn begin(&mut self) {
        self.present.fill(false);
    }

    /// Fills the chunk at `place`; missing words are 0. False if the ring has no such place.
    pub fn put(&mut self, place: u32, words: impl IntoIterator<Item = u32>) -> bool {
        let Some(present) = self.present.get_mut(place as usize) else {
            return false;
        };
        *present = true;
        self.words.clear(place + 1);
        for (offset, word) in (0..self.words.shape().chunk_words()).zip(words) {
            self.words.set(place + 1, offset, word);
        }
        true
    }

    /// The cell with this ring; `None` if the chunks do not form a valid ring.
    pub fn state(&self, cell: Cell) -> Option<BucketState<'_>> {
        let ring = self.words.ring(1);
        for (place, present) in (0..).zip(&self.present).skip(1) {
            let chunk = if *present { place + 1 } else { 0 };
            self.words.set(1, FIXED + place - 1, chunk);
        }
        let state = BucketState {
            cell: Cell { a: 1, ..cell },
            words: Some(&self.words),
        };
        let (length, most) = (ring.length(), self.words.shape().most);
        let mut first = self.present.iter().take(length as usize);
        let is_whole = (1..=most).contains(&length) && first.all(|is_there| *is_there);
        (is_whole && ring.head() < ring.capacity()).then_some(state)
    }
}
