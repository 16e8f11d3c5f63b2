//! Where the bucket of a key is: in segments, each made on first use.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use super::Table;
use crate::limiter::{Fingerprint, Segments};
use crate::store::memory::bucket::{Bucket, ENTRIES};

/// The keys in so many buckets, where none is to be lost.
const LOAD: (u128, u128) = (105, 100);

impl Table {
    /// The bytes that a table for `keys` keys has when every part of it has been touched.
    pub const fn bytes_for(keys: usize) -> usize {
        let buckets = Self::buckets_for(keys);
        let segments = Self::segments_for(buckets).count();
        size_of::<Self>()
            + buckets * size_of::<Bucket>()
            + segments * size_of::<OnceLock<Box<[Bucket]>>>()
    }

    /// The size of a table that keeps `keys` keys: fewer than one in a thousand finds its bucket full.
    ///
    /// Hashed keys fill buckets as a Poisson distribution says. With 1.05 keys a bucket on average, 0.085 % of
    /// all keys exceed its five entries; a table of `keys` itself would lose 6.2 %.
    pub const fn size_keeping(keys: usize) -> usize {
        let buckets = (keys as u128 * LOAD.1).div_ceil(LOAD.0);
        let entries = buckets * ENTRIES as u128;
        (entries * 2 / 3) as usize
    }

    /// So many that a third of the entries is spare.
    pub(super) const fn buckets_for(keys: usize) -> usize {
        let slots = keys.saturating_add(keys.div_ceil(2));
        let buckets = slots.div_ceil(ENTRIES);
        if buckets == 0 { 1 } else { buckets }
    }

    /// How buckets are allocated together.
    pub(super) const fn segments_for(buckets: usize) -> Segments {
        Segments::new(buckets, size_of::<Bucket>())
    }

    /// The bucket of a key, made if it is the first there; `None` when it was moved before it was
    /// made.
    pub(in crate::store::memory) fn bucket_of(&self, key: Fingerprint) -> Option<&Bucket> {
        self.bucket(self.index(key.bits()))
    }

    /// A bucket by its place, made if it is the first of its segment; `None` when it was moved before.
    pub(super) fn bucket(&self, index: usize) -> Option<&Bucket> {
        let (segment, offset) = self.place(index);
        let buckets = self.segments[segment].get_or_init(|| {
            let buckets = 0..self.cut.length(segment);
            buckets.map(|_| Bucket::default()).collect()
        });
        buckets.get(offset)
    }

    /// The segment of a bucket, and where it is there.
    pub(super) fn place(&self, index: usize) -> (usize, usize) {
        self.cut.place(index)
    }

    /// The bucket that a key belongs to: the key's place among all keys, scaled to the buckets, so
    /// that a bucket has the keys of one range.
    pub(super) fn index(&self, key: u64) -> usize {
        ((u128::from(key) * self.buckets as u128) >> 64) as usize
    }

    /// The keys that belong to a bucket: the inverse of `index`.
    pub(super) fn keys_of(&self, index: usize) -> RangeInclusive<u64> {
        let first = |index: usize| ((index as u128) << 64).div_ceil(self.buckets as u128);
        first(index) as u64..=(first(index + 1) - 1) as u64
    }
}
