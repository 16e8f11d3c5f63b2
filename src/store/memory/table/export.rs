//! What another table, or a snapshot, has of a table's buckets, and what takes it over.

use std::sync::{Arc, OnceLock};

use super::Table;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, BucketState};
use crate::store::memory::bucket::{Bucket, Entry, FLOOR};

/// An entry of another table.
#[derive(Clone, Copy)]
pub(in crate::store::memory) struct ExportedEntry<'a> {
    /// The first and the last of the keys that it holds for: one, unless it is a floor.
    pub(in crate::store::memory) keys: [u64; 2],
    pub(in crate::store::memory) tag: u64,
    /// By which its cell is to be read.
    pub(in crate::store::memory) from: &'a Algorithm,
    pub(in crate::store::memory) state: BucketState<'a>,
}

impl Table {
    /// The buckets that keys have touched, each with its place.
    pub(in crate::store::memory) fn touched(&self) -> impl Iterator<Item = (usize, &Bucket)> {
        let made = self.segments.iter().map(OnceLock::get).enumerate();
        made.flat_map(move |(segment, buckets)| {
            let buckets = buckets.into_iter().flatten().enumerate();
            buckets.map(move |(offset, bucket)| (self.cut.item(segment, offset), bucket))
        })
    }

    /// Who counts in this table's place once its buckets have moved, if anybody.
    pub(in crate::store::memory) fn successor(&self) -> Option<&Arc<Table>> {
        self.successor.get()
    }

    /// What takes over an entry of the bucket at this place has to know.
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

    /// Takes over an entry of another table. What is there under the same key is replaced.
    pub(in crate::store::memory) fn import(&self, entry: &ExportedEntry<'_>, now: Timestamp) {
        while !self.try_import(entry, now) {
            std::thread::yield_now();
        }
    }
}
