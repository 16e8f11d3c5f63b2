//! Exporting a table's entries to its successor, or to a snapshot, and importing them.

use std::sync::{Arc, OnceLock};

use super::Table;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, BucketState};
use crate::store::memory::bucket::{Bucket, Entry, FLOOR};

/// An entry of another table.
#[derive(Clone, Copy)]
pub(in crate::store::memory) struct ExportedEntry<'a> {
    /// The first and the last key that it stands for: one key, or the range of a floor.
    pub(in crate::store::memory) keys: [u64; 2],
    pub(in crate::store::memory) tag: u64,
    /// The algorithm by which to read the cell.
    pub(in crate::store::memory) from: &'a Algorithm,
    pub(in crate::store::memory) state: BucketState<'a>,
}

impl Table {
    /// The buckets that keys have touched, with their indices.
    pub(in crate::store::memory) fn touched(&self) -> impl Iterator<Item = (usize, &Bucket)> {
        let made = self.segments.iter().map(OnceLock::get).enumerate();
        made.flat_map(move |(segment, buckets)| {
            let buckets = buckets.into_iter().flatten().enumerate();
            buckets.map(move |(offset, bucket)| (self.cut.item(segment, offset), bucket))
        })
    }

    /// The table that counts instead of this one once its buckets have moved.
    pub(in crate::store::memory) fn successor(&self) -> Option<&Arc<Table>> {
        self.successor.get()
    }

    /// The entry of the bucket at `index`, for another table.
    pub(in crate::store::memory) fn export(&self, index: usize, entry: Entry) -> ExportedEntry<'_> {
        let keys = match entry.tag {
            FLOOR => self.keys_of(index),
            tag => tag..=tag,
        };
        ExportedEntry {
            keys: [*keys.start(), *keys.end()],
            tag: entry.tag,
            from: &self.algorithm,
            state: self.rules().state(entry.cell),
        }
    }

    /// Imports an entry of another table. Replaces the present entry of the same key.
    pub(in crate::store::memory) fn import(&self, entry: &ExportedEntry<'_>, now: Timestamp) {
        while !self.try_import(entry, now) {
            std::thread::yield_now();
        }
    }
}
