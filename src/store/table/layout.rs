//! Where the bucket of a key is: in segments, each made on first use.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use super::Table;
use crate::limiter::Fingerprint;
use crate::store::bucket::{Bucket, ENTRIES};

/// The fewest buckets that are allocated together: 8 KiB.
const SEGMENT: usize = 64;
/// About the most segments that a table has, so that their list stays in a fast cache.
const SEGMENTS: usize = 1024;

impl Table {
    /// The bytes that a table for `keys` keys has when every part of it has been touched.
    pub const fn bytes_for(keys: usize) -> usize {
        let buckets = Self::buckets_for(keys);
        let segments = buckets.div_ceil(Self::segment_for(buckets));
        size_of::<Self>()
            + buckets * size_of::<Bucket>()
            + segments * size_of::<OnceLock<Box<[Bucket]>>>()
    }

    /// So many that a third of the entries is spare.
    pub(super) const fn buckets_for(keys: usize) -> usize {
        let slots = keys.saturating_add(keys.div_ceil(2));
        let buckets = slots.div_ceil(ENTRIES);
        if buckets == 0 { 1 } else { buckets }
    }

    /// How many buckets are allocated together.
    pub(super) const fn segment_for(buckets: usize) -> usize {
        let segment = buckets.div_ceil(SEGMENTS).next_power_of_two();
        if segment < SEGMENT { SEGMENT } else { segment }
    }

    /// The bucket of a key, made if it is the first there; `None` when it was moved before it was
    /// made.
    pub(in crate::store) fn bucket_of(&self, key: Fingerprint) -> Option<&Bucket> {
        self.bucket(self.index(key.bits()))
    }

    /// A bucket by its place, made if it is the first of its segment; `None` when it was moved before.
    pub(super) fn bucket(&self, index: usize) -> Option<&Bucket> {
        let (segment, offset) = self.place(index);
        let buckets = self.segments[segment].get_or_init(|| {
            let rest = self.buckets - segment * self.segment;
            (0..rest.min(self.segment))
                .map(|_| Bucket::default())
                .collect()
        });
        buckets.get(offset)
    }

    /// The segment of a bucket, and where it is there.
    pub(super) fn place(&self, index: usize) -> (usize, usize) {
        (
            index >> self.segment.trailing_zeros(),
            index & (self.segment - 1),
        )
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
