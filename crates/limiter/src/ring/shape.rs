//! The layout of rings: how many slots and chunks they have.

use super::FIXED;

/// The layout of the rings of one algorithm.
///
/// A ring is a list of chunks. The first, its *root*, starts with the number of chunks, the place
/// of the oldest slot, and the numbers of the other chunks. Slots fill the rest of the root and the
/// other chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// The largest number of slots.
    pub(crate) slots: u32,
    pub(super) width: Width,
    /// A chunk has `1 << shift` words.
    pub(super) shift: u32,
    /// Chunks of a ring with all its slots.
    pub(super) most: u32,
}

/// The size of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// A word.
    Word,
    /// Half a word: up to [`RingShape::MAX_HALF`].
    Half,
}

impl Width {
    /// Slots in a word, as a power of two.
    pub(super) const fn shift(self) -> u32 {
        match self {
            Self::Word => 0,
            Self::Half => 1,
        }
    }
}

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
        if limit <= Self::MAX_HALF {
            Self::halved(slots)
        } else {
            Self::new(slots)
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

    /// Bytes of a chunk.
    pub const fn chunk_bytes(self) -> usize {
        size_of::<u32>() << self.shift
    }

    /// The largest value of a slot.
    pub(crate) const fn max_value(self) -> u32 {
        match self.width {
            Width::Word => u32::MAX,
            Width::Half => Self::MAX_HALF,
        }
    }

    /// Chunks of a ring with all its slots.
    pub const fn max_chunks(self) -> u32 {
        self.most
    }

    /// Chunks of a ring with this number of slots.
    pub(crate) const fn chunks_for(self, slots: u32) -> u32 {
        (self.header() + slots.div_ceil(1 << self.width.shift())).div_ceil(1 << self.shift)
    }

    /// Words of a root before its first slot.
    pub(super) const fn header(self) -> u32 {
        FIXED + self.most - 1
    }

    /// Words of a chunk.
    pub const fn chunk_words(self) -> u32 {
        1 << self.shift
    }

    /// Slots of a ring with this number of chunks.
    pub(super) const fn slots_in(self, chunks: u32) -> u32 {
        ((chunks << self.shift) - self.header()) << self.width.shift()
    }
}
