//! A map of keys that is bounded in bytes. If it is full, the least used entries make room for new
//! keys.
//!
//! Each use gives an entry a credit. A clock hand takes a credit from each entry that it passes,
//! and evicts one without credits. A new key takes the place of the evicted entry, so the hand
//! passes all others before it.

mod shard;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::telemetry::registry::Counter;
use shard::{Entry, Shard, bytes_of};

/// The largest number of entries that one new key evicts, after the capacity has shrunk.
const EVICTIONS: usize = 4;

/// A value of a bounded map.
pub(super) trait HeapSize {
    /// Bytes on the heap that belong to this entry alone, beyond its `size_of`.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// The end of the value's use, if it has one. Among such values the earliest end is evicted
    /// first, however often they are used.
    fn useful_until(&self) -> Option<Timestamp> {
        None
    }
}

/// A bounded map in shards, so that requests with different keys rarely wait for each other.
#[derive(Debug)]
pub(super) struct BoundedMap<T, const SHARDS: usize = 16> {
    /// Allocated for the first key: many maps never have one.
    shards: OnceLock<Box<[Mutex<Shard<T>>]>>,
    keys: AtomicUsize,
    /// Bytes of each shard.
    room: AtomicUsize,
    /// Counts evictions.
    pub(super) evictions: Option<Counter>,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inserted {
    place: usize,
    /// True if entries were evicted for it.
    pub(super) has_evicted: bool,
}

/// The shard of a key, locked.
#[derive(Debug)]
pub(super) struct LockedKey<'a, T, const SHARDS: usize = 16> {
    map: &'a BoundedMap<T, SHARDS>,
    shard: MutexGuard<'a, Shard<T>>,
    key: u64,
}

impl<T: HeapSize, const SHARDS: usize> BoundedMap<T, SHARDS> {
    /// An empty map of `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            shards: OnceLock::new(),
            keys: AtomicUsize::new(0),
            room: AtomicUsize::new(bytes / SHARDS),
            evictions: None,
        }
    }

    /// Sets the size to `bytes` bytes. New keys evict entries beyond it.
    pub(super) fn set_capacity(&self, bytes: usize) {
        self.room.store(bytes / SHARDS, Relaxed);
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// The result of `read` for a key's value, if it has one. Does not count as a use.
    pub(super) fn read<R>(
        &self,
        key: Fingerprint,
        read: impl FnOnce(&T) -> Option<R>,
    ) -> Option<R> {
        if self.keys() == 0 {
            return None;
        }
        let shard = self.shard(key).lock();
        let place = *shard.index.get(&key.bits())?;
        read(&shard.entries[place].value)
    }

    pub(super) fn lock(&self, key: Fingerprint) -> LockedKey<'_, T, SHARDS> {
        LockedKey {
            shard: self.shard(key).lock(),
            map: self,
            key: key.bits(),
        }
    }

    /// Keeps the keys for which `keep` returns true. Locks one shard at a time.
    pub(super) fn retain_all(&self, mut keep: impl FnMut(Fingerprint, &mut T) -> bool) {
        (0..SHARDS).for_each(|shard| self.retain(shard, &mut keep));
    }

    /// Keeps the keys of a shard for which `keep` returns true.
    pub(super) fn retain(&self, shard: usize, mut keep: impl FnMut(Fingerprint, &mut T) -> bool) {
        if self.keys() == 0 {
            return;
        }
        let mut shard = self.shards()[shard].lock();
        let mut place = 0;
        while let Some(entry) = shard.entries.get_mut(place) {
            let before = entry.value.heap_bytes();
            let is_kept = keep(Fingerprint::from_bits(entry.key), &mut entry.value);
            let after = entry.value.heap_bytes();
            shard.bytes = (shard.bytes + after).saturating_sub(before);
            if is_kept {
                place += 1
            } else {
                shard.remove(place);
                self.keys.fetch_sub(1, Relaxed);
            }
        }
    }

    /// The number of values for which `counts` is true. Locks one shard at a time.
    pub(super) fn count(&self, counts: impl Fn(&T) -> bool) -> usize {
        let shards = self.shards.get().into_iter().flatten();
        let counted = shards.map(|shard| {
            let shard = shard.lock();
            let entries = shard.entries.iter();
            entries.filter(|entry| counts(&entry.value)).count()
        });
        counted.sum()
    }

    /// Copies of all entries, one shard at a time: the caller holds no lock while using them.
    pub(super) fn copy_shards(&self) -> impl Iterator<Item = Vec<(Fingerprint, T)>>
    where
        T: Clone,
    {
        let shards = self.shards.get().into_iter().flatten();
        shards.map(|shard| {
            let shard = shard.lock();
            let entries = shard.entries.iter();
            entries
                .map(|entry| (Fingerprint::from_bits(entry.key), entry.value.clone()))
                .collect()
        })
    }

    /// The index of a key's shard.
    const fn shard_of(key: Fingerprint) -> usize {
        (key.bits() % SHARDS as u64) as usize
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<Shard<T>> {
        &self.shards()[Self::shard_of(key)]
    }

    fn shards(&self) -> &[Mutex<Shard<T>>] {
        self.shards
            .get_or_init(|| (0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl<T: HeapSize, const SHARDS: usize> LockedKey<'_, T, SHARDS> {
    /// True if the key has a value.
    pub(super) fn is_known(&self) -> bool {
        self.shard.index.contains_key(&self.key)
    }

    /// Changes the value of the key, if it has one. Counts as a use.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let place = *self.shard.index.get(&self.key)?;
        self.shard.add_credit(place);
        Some(self.apply(place, change))
    }

    /// Changes the value of the key, or inserts `new` first. Makes room like [`LockedKey::insert`].
    pub(super) fn change_or_insert<R>(
        &mut self,
        new: impl FnOnce() -> T,
        is_over: impl Fn(&T) -> bool,
        change: impl FnOnce(&mut T) -> R,
    ) -> R {
        let place = match self.shard.index.get(&self.key) {
            Some(&place) => {
                self.shard.add_credit(place);
                place
            }
            None => self.insert(new(), is_over).place,
        };
        self.apply(place, change)
    }

    /// Changes the value of the key, if it has one. Does not count as a use.
    pub(super) fn change_without_credit<R>(
        &mut self,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let place = *self.shard.index.get(&self.key)?;
        Some(self.apply(place, change))
    }

    fn apply<R>(&mut self, place: usize, change: impl FnOnce(&mut T) -> R) -> R {
        let entry = &mut self.shard.entries[place];
        let before = entry.value.heap_bytes();
        let changed = change(&mut entry.value);
        let after = entry.value.heap_bytes();
        self.shard.bytes = (self.shard.bytes + after).saturating_sub(before);
        if after > before {
            self.make_room(0, |_| false);
        }
        changed
    }

    /// Sets the key's value to `new`. Makes room by evicting entries, first those for which
    /// `is_over` is true.
    pub(super) fn insert(&mut self, new: T, is_over: impl Fn(&T) -> bool) -> Inserted {
        self.remove();
        let bytes = bytes_of(&new);
        let vacant = self.make_room(bytes, is_over);
        let entry = Entry {
            key: self.key,
            credit: 0,
            value: new,
        };
        let shard = &mut *self.shard;
        shard.bytes += bytes;
        shard.grow();
        shard.entries.push(entry);
        let last = shard.entries.len() - 1;
        shard.index.insert(self.key, last);
        self.map.keys.fetch_add(1, Relaxed);
        let place = vacant.filter(|vacant| *vacant < last).unwrap_or(last);
        if place < last {
            shard.swap(place, last);
        }
        Inserted {
            place,
            has_evicted: vacant.is_some(),
        }
    }

    /// Removes the key.
    pub(super) fn remove(&mut self) -> Option<T> {
        let place = *self.shard.index.get(&self.key)?;
        self.map.keys.fetch_sub(1, Relaxed);
        Some(self.shard.remove(place))
    }

    /// Evicts entries until `bytes` more bytes fit, and returns the place of the last evicted one.
    fn make_room(&mut self, bytes: usize, is_over: impl Fn(&T) -> bool) -> Option<usize> {
        let room = self.map.room.load(Relaxed);
        let mut vacant = None;
        for _ in 0..EVICTIONS {
            let shard = &mut *self.shard;
            if shard.bytes + bytes <= room {
                break;
            }
            let Some(place) = shard.least_useful(self.key, &is_over) else {
                break;
            };
            if !is_over(&shard.entries[place].value)
                && let Some(evictions) = &self.map.evictions
            {
                evictions.increment();
            }
            shard.remove(place);
            self.map.keys.fetch_sub(1, Relaxed);
            vacant = Some(place);
        }
        vacant
    }
}

/// The smallest room of a map, in bytes, unless that is more than a quarter of the tables' memory.
const LEAST_ROOM: u64 = 8 << 20;
/// The room of a map for one key, which always fits.
const ROOM_OF_ONE: usize = 32 << 10;

/// The memory of each map of keys beside tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackingBudget {
    each: usize,
}

impl TrackingBudget {
    /// Memory for `maps` maps beside tables of `max_size` bytes: together a quarter of that, and at
    /// least the smallest room for each.
    pub fn new(max_size: u64, maps: usize) -> Self {
        let all = max_size / 4;
        let share = (all / maps.max(1) as u64).max(LEAST_ROOM.min(all));
        Self {
            each: usize::try_from(share).unwrap_or(usize::MAX),
        }
    }

    /// The bytes of a map beside a table of `keys` keys.
    pub const fn bytes(self, keys: usize) -> usize {
        match keys {
            1 => ROOM_OF_ONE,
            _ => self.each,
        }
    }
}

#[cfg(test)]
mod tests;
