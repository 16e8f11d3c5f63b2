//! Moving a table's buckets to a successor of another size or quota, while both are charged, and
//! exporting their entries to it or to a snapshot.

use std::sync::{Arc, OnceLock};

use parking_lot::MutexGuard;

use super::{FLOOR, Table};
use crate::memory::bucket::{Bucket, Entry, Eviction, Slots};
use crate::ring::BucketState;
use crate::{Algorithm, Cell, Fingerprint, Timestamp};

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
    fn export_entry(&self, index: usize, entry: Entry) -> ExportedEntry<'_> {
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

    /// The table that counts once a bucket has moved.
    pub(in crate::memory) fn next(&self) -> &Self {
        self.successor
            .get()
            .expect("the successor is set before a bucket is marked as moved")
    }

    /// Moves every bucket to `successor`, which must be a [possible one](Self::can_succeed). Later
    /// charges to this table reach the successor.
    ///
    /// Used units are kept ([`Algorithm::convert`]), and no concurrent charge is lost. Callers
    /// publish `successor` afterwards: a direct charge before its bucket has moved would find it
    /// empty. A table has one successor; a later one succeeds that.
    ///
    /// Units in use are shared already. Their waiters are admitted up to the successor's bound.
    pub fn migrate_to(&self, successor: Arc<Table>, now: Timestamp) {
        if let Some(permits) = &successor.permits {
            return permits.admit_up_to(successor.algorithm.capacity());
        }
        if let Err(successor) = self.successor.set(successor) {
            return self.next().migrate_to(successor, now);
        }
        for (index, segment) in self.segments.iter().enumerate() {
            let segment = segment.get_or_init(Box::default);
            for (offset, bucket) in segment.iter().enumerate() {
                while !self.try_move(self.cut.item(index, offset), bucket, now) {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Moves one bucket; false if a bucket of the successor was locked.
    ///
    /// It never waits for a lock while it holds one, since charges lock buckets of several tables
    /// in the order of their addresses. The next attempt copies everything again: until this bucket
    /// is marked as moved, no charge reaches the copies.
    fn try_move(&self, index: usize, bucket: &Bucket, now: Timestamp) -> bool {
        let Some(mut slots) = bucket.lock() else {
            return true;
        };
        let copied = slots.live(now).all(|entry| {
            self.next()
                .try_import(&self.export_entry(index, entry), now)
        });
        if copied {
            bucket.mark_moved(&mut slots, self.rules());
        }
        copied
    }

    /// Imports an entry of another table; false if a bucket was locked.
    fn try_import(&self, entry: &ExportedEntry<'_>, now: Timestamp) -> bool {
        let (tag, [first, last]) = match entry.keys {
            EntryKeys::Key(key) => (key.bits(), [key.bits(); 2]),
            EntryKeys::Floor(keys) => (FLOOR, keys),
        };
        for index in self.index(first)..=self.index(last) {
            let Some(bucket) = self.bucket(index) else {
                return self.next().try_import(entry, now);
            };
            let Some(mut slots) = bucket.try_lock() else {
                return false;
            };
            if bucket.has_moved() {
                drop(slots);
                return self.next().try_import(entry, now);
            }
            let eviction = match self.convert(entry.from, entry.state, &mut slots, now) {
                Some(cell) => slots.import(Entry { tag, cell }, self.rules(), now),
                None => Eviction::Entries(1),
            };
            self.count_eviction(eviction);
        }
        true
    }

    /// The cell of another table, under this table's parameters; `None` if memory lacks for its
    /// ring.
    fn convert(
        &self,
        from: &Algorithm,
        state: BucketState<'_>,
        slots: &mut Slots,
        now: Timestamp,
    ) -> Option<Cell> {
        let rules = self.rules();
        let carried = self.algorithm.convert(from, state, now);
        let Some(slab) = rules.slab else {
            return Some(carried.write(None, &mut std::iter::empty()));
        };
        let chunks = loop {
            if let Some(chunks) = rules.take(slab, carried.chunks(), now) {
                break chunks;
            }
            match slots.evict_ring(rules, now) {
                Eviction::None | Eviction::Unrecorded => return None,
                eviction => self.count_eviction(eviction),
            }
        };
        Some(carried.write(Some(slab.words()), &mut chunks.into_iter()))
    }
}
