//! The position of items in memory that is allocated in segments, each on first use.

/// The division of items into segments of equal length, of which the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    items: usize,
    /// Items of a segment: one less than a power of two.
    length: usize,
    /// 2^64 / `length`, rounded up: multiplying by it divides any 32-bit number exactly.
    reciprocal: u64,
}

/// Approximate maximum of segments, so that their list stays in a fast cache.
const MOST: usize = 1024;
/// Approximate minimum of bytes in an allocation.
const FEWEST_BYTES: usize = 8 * 1024;

impl Segments {
    /// Divides `items` (below 2^32) of `bytes` bytes each.
    ///
    /// A segment is a little smaller than a power of two of bytes, since the allocator adds its own
    /// data. A whole power of two takes the next size class: up to a third more memory, all of it
    /// resident if pages are huge.
    pub const fn new(items: usize, bytes: usize) -> Self {
        let (wanted, fewest) = (items.div_ceil(MOST), FEWEST_BYTES / bytes);
        let wanted = if wanted < fewest { fewest } else { wanted };
        let length = if wanted < 2 {
            1
        } else {
            wanted.next_power_of_two() - 1
        };
        Self {
            items,
            length,
            reciprocal: (u64::MAX / length as u64).wrapping_add(1),
        }
    }

    /// The number of segments.
    pub const fn count(&self) -> usize {
        self.items.div_ceil(self.length)
    }

    /// The segment of an item, and its place in the segment.
    pub const fn place(&self, item: usize) -> (usize, usize) {
        let segment = match self.length {
            1 => item,
            _ => ((item as u128 * self.reciprocal as u128) >> 64) as usize,
        };
        (segment, item - segment * self.length)
    }

    /// The item at this place of a segment.
    pub const fn item(&self, segment: usize, place: usize) -> usize {
        segment * self.length + place
    }

    /// The number of items in a segment.
    pub const fn length(&self, segment: usize) -> usize {
        let rest = self.items - segment * self.length;
        if rest < self.length {
            rest
        } else {
            self.length
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn segments_are_a_little_smaller_than_a_power_of_two() {
        for (items, bytes, length) in [
            (1, 128, 63),
            (64_000, 128, 63),
            (917_432, 128, 1_023),
            (5_000_000, 32, 8_191),
            (10, 8_192, 1),
        ] {
            assert_eq!(Segments::new(items, bytes).length, length);
        }
    }

    proptest! {
        #[test]
        fn every_item_has_a_place(
            items in 1..=u32::MAX as usize,
            bytes in 5..14_u32,
            some in any::<prop::sample::Index>(),
        ) {
            let segments = Segments::new(items, 1 << bytes);
            prop_assert!(segments.count() <= 1 + 2 * MOST || segments.length == 1);
            let ends = [0, segments.length - 1, segments.length, items - 1];
            for item in ends.into_iter().chain([some.index(items)]).filter(|item| *item < items) {
                let (segment, place) = segments.place(item);
                prop_assert!(segment < segments.count() && place < segments.length(segment));
                prop_assert_eq!(segments.item(segment, place), item);
            }
        }
    }
}
