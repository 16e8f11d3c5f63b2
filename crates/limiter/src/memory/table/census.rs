//! A count of a table's keys and memory.

use super::{FLOOR, Slab, Table};
use crate::Timestamp;

/// The keys of a table, and the memory of their buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCensus {
    /// Keys with a live entry, or with units in use.
    pub keys: usize,
    /// Keys with at most 20 % of the quota left.
    pub near: usize,
    /// Bytes of buckets and rings that were ever touched. Units in use are not counted.
    pub bytes: u64,
}

impl Table {
    /// Counts keys and memory. Locks every touched bucket in turn, some milliseconds for a million
    /// keys: for metrics, not for requests.
    pub fn census(&self, now: Timestamp) -> TableCensus {
        if let Some(permits) = &self.permits {
            let (keys, near) = permits.census(self.algorithm.capacity());
            return TableCensus {
                keys,
                near,
                bytes: 0,
            };
        }
        let mut census = TableCensus {
            bytes: self.ring_bytes_of(self.slab.as_ref().map_or(0, Slab::touched)),
            ..TableCensus::default()
        };
        for (_, bucket) in self.touched() {
            census.bytes += size_of_val(bucket) as u64;
            let Some(slots) = bucket.lock() else { continue };
            for entry in slots.live(now).filter(|entry| entry.tag != FLOOR) {
                census.keys += 1;
                census.near += usize::from(self.rules().decide(entry.cell, now, 0).is_near());
            }
        }
        census
    }

    /// Counts the keys of [`census`](Self::census) alone, without deciding anything for them.
    pub fn live(&self, now: Timestamp) -> usize {
        if let Some(permits) = &self.permits {
            return permits.census(self.algorithm.capacity()).0;
        }
        let slots = self.touched().filter_map(|(_, bucket)| bucket.lock());
        let keys = slots.map(|slots| slots.live(now).filter(|one| one.tag != FLOOR).count());
        keys.sum()
    }

    /// The most bytes that buckets and rings can take; 0 for units in use.
    pub fn max_bytes(&self) -> u64 {
        let rings = self.slab.as_ref().map_or(0, |slab| slab.words().chunks());
        match self.permits {
            Some(_) => 0,
            None => Self::bytes_for(self.keys) as u64 + self.ring_bytes_of(rings),
        }
    }

    /// The bytes of so many chunks.
    fn ring_bytes_of(&self, chunks: u32) -> u64 {
        let shape = self.algorithm.shape();
        u64::from(chunks) * shape.map_or(0, |shape| shape.chunk_bytes() as u64)
    }
}
