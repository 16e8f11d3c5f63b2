//! A map of keys that is bounded in bytes. If it is full, the least used entries make room for new
//! keys.
//!
//! Each use gives an entry a credit. A clock hand takes a credit from each entry that it passes,
//! and evicts one without credits. A new key takes the place of the evicted entry, so the hand
//! passes all others before it.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::telemetry::registry::Counter;

/// The largest number of credits of an entry.
const MOST_CREDIT: u8 = 15;
/// The largest number of entries that the hand passes before it evicts the one with the fewest
/// credits.
const LOOKS: usize = 16;
/// The largest number of entries that one new key evicts, after the capacity has shrunk.
const EVICTIONS: usize = 4;
/// Bytes of an entry in the index: a hash table of powers of two, at least 7/32 full if keys come
/// and go.
const INDEX: usize = 78;
/// The vector grows by this fraction of its entries.
const GROWTH: usize = 8;

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

/// A value of a bounded map.
pub(super) trait HeapSize {
    /// Bytes on the heap that belong to this entry alone, beyond its `size_of`.
    fn heap_bytes(&self) -> usize;

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
    evictions: Option<Counter>,
}

#[derive(Debug)]
struct Shard<T> {
    index: HashMap<u64, usize>,
    entries: Vec<Entry<T>>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<T> {
    key: u64,
    credit: u8,
    value: T,
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

    /// Counts evictions in this metric.
    #[must_use]
    pub(super) fn with_metrics(mut self, evictions: Counter) -> Self {
        self.evictions = Some(evictions);
        self
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

    pub(super) fn change_all(&self, mut change: impl FnMut(Fingerprint, &mut T)) {
        for shard in 0..SHARDS {
            self.retain(shard, |key, value| {
                change(key, value);
                true
            });
        }
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
            match is_kept {
                true => place += 1,
                false => {
                    shard.remove(place);
                    self.keys.fetch_sub(1, Relaxed);
                }
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
    pub(super) const fn shard_of(key: Fingerprint) -> usize {
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
        let entry = &mut self.shard.entries[place];
        entry.credit = entry.credit.saturating_add(1).min(MOST_CREDIT);
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
                let entry = &mut self.shard.entries[place];
                entry.credit = entry.credit.saturating_add(1).min(MOST_CREDIT);
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

impl<T: HeapSize> Shard<T> {
    /// Moves the hand to the next entry to evict, which is not that of `key`.
    fn least_useful(&mut self, key: u64, is_over: impl Fn(&T) -> bool) -> Option<usize> {
        let mut least: Option<(u8, usize)> = None;
        let mut soonest: Option<(Timestamp, usize)> = None;
        for _ in 0..LOOKS.min(self.entries.len()) {
            self.hand = (self.hand + 1) % self.entries.len();
            let entry = &mut self.entries[self.hand];
            if entry.key == key {
                continue;
            }
            if is_over(&entry.value) {
                return Some(self.hand);
            }
            if let Some(end) = entry.value.useful_until() {
                if soonest.is_none_or(|(soonest, _)| end < soonest) {
                    soonest = Some((end, self.hand));
                }
                continue;
            }
            if entry.credit == 0 {
                return Some(self.hand);
            }
            entry.credit -= 1;
            if least.is_none_or(|(credit, _)| entry.credit < credit) {
                least = Some((entry.credit, self.hand));
            }
        }
        match soonest {
            Some((_, place)) => {
                self.hand = place;
                Some(place)
            }
            None => least.map(|(_, place)| place),
        }
    }

    /// Allocates memory for an eighth more entries: doubling would waste more.
    fn grow(&mut self) {
        let entries = self.entries.len();
        if entries == self.entries.capacity() {
            self.entries.reserve_exact((entries / GROWTH).max(1));
        }
    }

    /// Returns unused memory if three quarters are free.
    fn shrink(&mut self) {
        let entries = self.entries.len();
        if entries < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * entries);
            self.index.shrink_to(2 * entries);
        }
    }

    fn remove(&mut self, place: usize) -> T {
        let entry = self.entries.swap_remove(place);
        self.index.remove(&entry.key);
        if let Some(moved) = self.entries.get(place) {
            self.index.insert(moved.key, place);
        }
        self.bytes = self.bytes.saturating_sub(bytes_of(&entry.value));
        self.shrink();
        entry.value
    }

    fn swap(&mut self, left: usize, right: usize) {
        self.entries.swap(left, right);
        for place in [left, right] {
            self.index.insert(self.entries[place].key, place);
        }
    }
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self {
            index: HashMap::new(),
            entries: Vec::new(),
            hand: 0,
            bytes: 0,
        }
    }
}

/// Bytes of an entry, with its share of unused capacity.
pub(super) fn bytes_of<T: HeapSize>(value: &T) -> usize {
    size_of::<Entry<T>>() * (GROWTH + 1) / GROWTH + INDEX + value.heap_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Bytes(Vec<u8>);

    impl HeapSize for Bytes {
        fn heap_bytes(&self) -> usize {
            self.0.capacity()
        }
    }

    const ENTRY: usize = size_of::<Entry<Bytes>>() * 9 / 8 + INDEX;

    fn key(bits: u64) -> Fingerprint {
        Fingerprint::from_bits(bits + 1)
    }

    fn empty() -> Bytes {
        Bytes(Vec::new())
    }

    /// One use of a key: whether it was there.
    fn touch(map: &BoundedMap<Bytes, 1>, bits: u64) -> bool {
        let mut locked = map.lock(key(bits));
        let known = locked.change(|_| ()).is_some();
        if !known {
            locked.insert(empty(), |_| false);
        }
        known
    }

    fn has(map: &BoundedMap<Bytes, 1>, bits: u64) -> bool {
        map.read(key(bits), |_| Some(())).is_some()
    }

    #[test]
    fn new_keys_evict_the_least_used() {
        let map = BoundedMap::<Bytes, 1>::new(100 * ENTRY);
        touch(&map, 0);
        for bits in 1..=2_000 {
            assert!(!touch(&map, bits));
            if bits % 50 == 0 {
                assert!(touch(&map, 0), "used again and again, also after {bits}");
            }
        }
        assert_eq!(map.keys(), 100);
        assert!(has(&map, 2_000) && !has(&map, 1_000));
    }

    #[test]
    fn an_often_used_key_outlasts_one_flood_but_not_two() {
        let map = BoundedMap::<Bytes, 1>::new(100 * ENTRY);
        for _ in 0..5 {
            touch(&map, 0);
        }
        (1..=400).for_each(|bits| assert!(!touch(&map, bits)));
        assert!(has(&map, 0));
        (401..=1_000).for_each(|bits| assert!(!touch(&map, bits)));
        assert!(!has(&map, 0));
    }

    #[test]
    fn a_new_key_stays_while_as_many_others_come() {
        let map = BoundedMap::<Bytes, 1>::new(100 * ENTRY);
        (0..150).for_each(|bits| assert!(!touch(&map, bits)));
        touch(&map, 1_000);
        (200..290).for_each(|bits| assert!(!touch(&map, bits)));
        assert!(has(&map, 1_000));
    }

    #[test]
    fn allocated_memory_is_counted() {
        let map = BoundedMap::<Bytes, 1>::new(10_000 * ENTRY);
        let allocated = || {
            let shard = map.shards()[0].lock();
            let bucket = size_of::<(u64, usize)>() + 1;
            let index = shard.index.capacity() * 8 / 7 * bucket;
            shard.entries.capacity() * size_of::<Entry<Bytes>>() + index
        };
        (0..30_000).for_each(|bits| assert!(!touch(&map, bits)));
        assert!(allocated() <= 10_000 * ENTRY, "{}", allocated());
        map.set_capacity(100 * ENTRY);
        (30_000..35_000).for_each(|bits| assert!(!touch(&map, bits)));
        assert_eq!(map.keys(), 100);
        assert!(allocated() <= 500 * ENTRY, "{}", allocated());
    }

    #[test]
    fn maps_share_a_quarter_and_have_some_room_each() {
        let each = |max_size, maps| TrackingBudget::new(max_size, maps).bytes(1024);
        assert_eq!(each(64 << 20, 1), 16 << 20);
        assert_eq!(each(64 << 20, 64), 8 << 20);
        assert_eq!(each(1 << 20, 3), 256 << 10);
        assert_eq!(TrackingBudget::new(64 << 20, 1).bytes(1), 32 << 10);
    }

    #[test]
    fn a_smaller_capacity_applies_with_the_next_new_keys() {
        let map = BoundedMap::<Bytes, 1>::new(100 * ENTRY);
        (0..100).for_each(|bits| assert!(!touch(&map, bits)));
        map.set_capacity(10 * ENTRY);
        (100..140).for_each(|bits| assert!(!touch(&map, bits)));
        assert_eq!(map.keys(), 10);
    }

    proptest! {
        /// After any steps the map exceeds its room by at most one entry, and finds its keys.
        #[test]
        fn it_stays_within_its_room_and_its_index_is_right(
            steps in prop::collection::vec((0..40_u64, 0..4_u8, 0..200_usize), 1..300),
        ) {
            let room = 20 * ENTRY + 500;
            let map = BoundedMap::<Bytes, 1>::new(room);
            for (bits, what, heap) in steps {
                let mut locked = map.lock(key(bits));
                match what {
                    0 => { locked.remove(); }
                    1 => { locked.insert(Bytes(Vec::with_capacity(heap)), |value| value.0.capacity() > 150); }
                    2 => { locked.change(|value| *value = Bytes(Vec::with_capacity(heap))); }
                    _ => { locked.change(|_| ()); }
                }
                drop(locked);
                let shard = map.shards()[0].lock();
                let bytes: usize = shard.entries.iter().map(|entry| bytes_of(&entry.value)).sum();
                prop_assert_eq!(bytes, shard.bytes);
                prop_assert!(bytes <= room, "{} of {}", bytes, room);
                prop_assert_eq!(shard.entries.len(), shard.index.len());
                prop_assert_eq!(shard.entries.len(), map.keys());
                for (place, entry) in shard.entries.iter().enumerate() {
                    prop_assert_eq!(shard.index.get(&entry.key), Some(&place));
                }
            }
        }
    }
}
