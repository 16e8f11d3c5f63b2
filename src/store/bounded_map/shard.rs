//! A shard: its entries, and the clock hand that finds the one to evict.

use std::collections::HashMap;

use super::HeapSize;
use crate::clock::Timestamp;

/// The largest number of credits of an entry.
const MOST_CREDIT: u8 = 15;
/// The largest number of entries that the hand passes before it evicts the one with the fewest
/// credits.
const LOOKS: usize = 16;
/// Bytes of an entry in the index: a hash table of powers of two, at least 7/32 full if keys come
/// and go.
pub(super) const INDEX: usize = 78;
/// The vector grows by this fraction of its entries.
const GROWTH: usize = 8;

#[derive(Debug)]
pub(super) struct Shard<T> {
    pub(super) index: HashMap<u64, usize>,
    pub(super) entries: Vec<Entry<T>>,
    hand: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) key: u64,
    pub(super) credit: u8,
    pub(super) value: T,
}

impl<T: HeapSize> Shard<T> {
    /// Gives the entry a credit for its use.
    pub(super) fn add_credit(&mut self, place: usize) {
        let entry = &mut self.entries[place];
        entry.credit = entry.credit.saturating_add(1).min(MOST_CREDIT);
    }

    /// Moves the hand to the next entry to evict, which is not that of `key`.
    pub(super) fn least_useful(&mut self, key: u64, is_over: impl Fn(&T) -> bool) -> Option<usize> {
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
    pub(super) fn grow(&mut self) {
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

    pub(super) fn remove(&mut self, place: usize) -> T {
        let entry = self.entries.swap_remove(place);
        self.index.remove(&entry.key);
        if let Some(moved) = self.entries.get(place) {
            self.index.insert(moved.key, place);
        }
        self.bytes = self.bytes.saturating_sub(bytes_of(&entry.value));
        self.shrink();
        entry.value
    }

    pub(super) fn swap(&mut self, left: usize, right: usize) {
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
