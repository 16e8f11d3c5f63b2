//! Reclaiming chunks for a ring if all are taken.

use std::sync::atomic::Ordering;

use super::Table;
use crate::Timestamp;
use crate::memory::bucket::Bucket;
use crate::memory::slab::Slab;

/// The largest number of attempts to reclaim chunks.
const LOOKS: usize = 16;
/// Buckets compared in each attempt.
const SAMPLE: usize = 4;

impl Table {
    /// Evicts the rings of other keys until `chunks` chunks are free, or too many buckets have been
    /// tried. Each attempt compares a few buckets: expired rings go first, then the least used.
    ///
    /// Waits for no lock, since the caller holds buckets.
    pub(in crate::memory) fn reclaim_chunks(&self, slab: &Slab, chunks: u32, now: Timestamp) {
        for _ in 0..LOOKS {
            let least = self.least_used_of_a_few(now);
            if slab.has(chunks) {
                return;
            }
            if let Some(mut slots) = least.and_then(Bucket::try_lock) {
                self.count_eviction(slots.evict_ring(self.rules(), now));
            }
            if slab.has(chunks) {
                return;
            }
        }
    }

    fn least_used_of_a_few(&self, now: Timestamp) -> Option<&Bucket> {
        let few = (0..SAMPLE).filter_map(|_| {
            let bucket = self.next_touched()?;
            let mut slots = bucket.try_lock()?;
            slots.release_expired(self.rules(), now);
            Some((slots.least_use(self.rules(), now)?, bucket))
        });
        few.min_by_key(|(least, _)| *least)
            .map(|(_, bucket)| bucket)
    }

    /// The next touched bucket. Skips untouched segments.
    fn next_touched(&self) -> Option<&Bucket> {
        for _ in 0..self.segments.len() {
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.buckets;
            let (segment, offset) = self.cut.place(index);
            if let Some(bucket) = self.segments[segment]
                .get()
                .and_then(|made| made.get(offset))
            {
                return Some(bucket);
            }
            let next = self.cut.item(segment + 1, 0);
            self.hand.store(next, Ordering::Relaxed);
        }
        None
    }
}
