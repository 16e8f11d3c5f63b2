//! The position of a key's bucket: in segments, each allocated on first use.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use super::Table;
use crate::Fingerprint;
use crate::memory::bucket::{Bucket, ENTRIES};
use crate::segments::Segments;

/// Keys for each bucket, in a table that keeps all keys.
const LOAD: (u128, u128) = (105, 100);

impl Table {
    /// The bytes of a fully touched table for `keys` keys.
    pub const fn bytes_for(keys: usize) -> usize {
        let buckets = Self::buckets_for(keys);
        let segments = Self::segments_for(buckets).count();
        size_of::<Self>()
            + buckets * size_of::<Bucket>()
            + segments * size_of::<OnceLock<Box<[Bucket]>>>()
    }

    /// The size of a table that keeps `keys` keys: fewer than one in a thousand finds its bucket
    /// full.
    ///
    /// Hashed keys fill buckets by a Poisson distribution. With 1.05 keys for each bucket, 0.085 %
    /// of all keys exceed its five entries; a table of size `keys` would lose 6.2 %.
    pub const fn size_keeping(keys: usize) -> usize {
        let buckets = (keys as u128 * LOAD.1).div_ceil(LOAD.0);
        let entries = buckets * ENTRIES as u128;
        (entries * 2 / 3) as usize
    }

    /// The number of buckets, with a third of the entries to spare.
    pub(super) const fn buckets_for(keys: usize) -> usize {
        let slots = keys.saturating_add(keys.div_ceil(2));
        let buckets = slots.div_ceil(ENTRIES);
        if buckets == 0 { 1 } else { buckets }
    }

    /// The segments in which buckets are allocated.
    pub(super) const fn segments_for(buckets: usize) -> Segments {
        Segments::new(buckets, size_of::<Bucket>())
    }

    /// The bucket of a key, allocated with its segment on first use; `None` if it moved before
    /// that.
    pub(in crate::memory) fn bucket_of(&self, key: Fingerprint) -> Option<&Bucket> {
        self.bucket(self.index(key.bits()))
    }

    /// The bucket at an index, allocated with its segment on first use; `None` if it moved before
    /// that.
    pub(super) fn bucket(&self, index: usize) -> Option<&Bucket> {
        let (segment, offset) = self.cut.place(index);
        let buckets = self.segments[segment].get_or_init(|| {
            let buckets = 0..self.cut.length(segment);
            buckets.map(|_| Bucket::default()).collect()
        });
        buckets.get(offset)
    }

    /// The index of a key's bucket: the key's position among all keys, scaled to the buckets. Each
    /// bucket thus has one range of keys.
    pub(super) fn index(&self, key: u64) -> usize {
        ((u128::from(key) * self.buckets as u128) >> 64) as usize
    }

    /// The keys of a bucket: the inverse of `index`.
    pub(super) fn keys_of(&self, index: usize) -> RangeInclusive<u64> {
        let first = |index: usize| ((index as u128) << 64).div_ceil(self.buckets as u128);
        first(index) as u64..=(first(index + 1) - 1) as u64
    }
}
