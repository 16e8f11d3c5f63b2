//! Exporting a table's entries to its successor, or to a snapshot, and importing them.

use std::sync::{Arc, OnceLock};

use super::Table;
use crate::Timestamp;
use parking_lot::MutexGuard;

use crate::memory::bucket::{Bucket, Entry, FLOOR, Slots};
use crate::ring::BucketState;
use crate::{Algorithm, Fingerprint};

/// An entry of another table.
#[derive(Clone, Copy, Debug)]
pub struct ExportedEntry<'a> {
    /// The keys that it stands for.
    pub keys: EntryKeys,
    /// The algorithm by which to read the cell.
    pub from: &'a Algorithm,
    /// The cell, and the memory of its ring.
    pub state: BucketState<'a>,
}

/// The keys that an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKeys {
    /// One key.
    Key(Fingerprint),
    /// All keys from the first to the last: what those have used that were dropped
    /// ([`OnFull::Strict`](crate::OnFull::Strict)).
    Floor([u64; 2]),
}

/// A bucket of a table, which is locked until this is dropped.
#[derive(derive_more::Debug)]
pub struct ExportedBucket<'a> {
    table: &'a Table,
    index: usize,
    #[debug(skip)]
    slots: MutexGuard<'a, Slots>,
}

impl ExportedBucket<'_> {
    /// The entries that count at `now`.
    pub fn entries(&self, now: Timestamp) -> impl Iterator<Item = ExportedEntry<'_>> {
        let entries = self.slots.live(now);
        entries.map(|entry| self.table.export_entry(self.index, entry))
    }
}

impl Table {
    /// The buckets that keys have touched, with their indices.
    pub(in crate::memory) fn touched(&self) -> impl Iterator<Item = (usize, &Bucket)> {
        let made = self.segments.iter().map(OnceLock::get).enumerate();
        made.flat_map(move |(segment, buckets)| {
            let buckets = buckets.into_iter().flatten().enumerate();
            buckets.map(move |(offset, bucket)| (self.cut.item(segment, offset), bucket))
        })
    }

    /// The buckets that keys have touched, each locked while it is looked at. Those that have moved are in
    /// the [successor](Self::successor).
    pub fn export(&self) -> impl Iterator<Item = ExportedBucket<'_>> {
        self.touched().filter_map(|(index, bucket)| {
            Some(ExportedBucket {
                table: self,
                index,
                slots: bucket.lock()?,
            })
        })
    }

    /// The table that counts instead of this one once its buckets have moved.
    pub fn successor(&self) -> Option<&Arc<Table>> {
        self.successor.get()
    }

    /// The entry of the bucket at `index`, for another table.
    pub(super) fn export_entry(&self, index: usize, entry: Entry) -> ExportedEntry<'_> {
        let keys = match entry.tag {
            FLOOR => EntryKeys::Floor(self.keys_of(index).into_inner().into()),
            tag => EntryKeys::Key(Fingerprint::from_bits(tag)),
        };
        ExportedEntry {
            keys,
            from: &self.algorithm,
            state: self.rules().state(entry.cell),
        }
    }

    /// Imports an entry of another table. Replaces the present entry of the same key.
    pub fn import(&self, entry: &ExportedEntry<'_>, now: Timestamp) {
        while !self.try_import(entry, now) {
            std::thread::yield_now();
        }
    }
}
