//! The keys with the most hits, or units, in bounded memory: the Space-Saving algorithm (Metwally,
//! Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
//! 2005), on a heap, so that a hit may have any weight.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use derive_more::Deref;
use foldhash::fast::FixedState;
use limiter::Fingerprint;

/// The keys with the highest counts, and a value for each.
///
/// With N counted in all, every key with more than N / capacity is among them, and no count is too
/// large by more than that.
#[derive(Debug)]
pub struct TopKeys<T> {
    capacity: usize,
    entries: Vec<TopEntry<T>>,
    /// Entries, the lowest count first, as they were when they were last looked at: counts only grow.
    /// Empty until the first key gives way.
    heap: BinaryHeap<Reverse<EntryOrder>>,
    /// Indices of entries by key. The hash needs no key of its own: that of fingerprints is secret.
    places: HashMap<Fingerprint, usize, FixedState>,
    /// The number of hits so far.
    hits: u64,
}

/// The order of an entry: its count, then the number of its last hit, and its index.
type EntryOrder = (u64, u64, usize);

/// The count of a key.
#[derive(Clone, Debug)]
pub struct KeyCount<T> {
    /// The count, at most.
    pub count: u64,
    /// By how much that may be too large.
    pub excess: u64,
    /// The record of the key.
    pub value: T,
}

impl<T> KeyCount<T> {
    /// Adds another count of the key.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.excess = self.excess.saturating_add(other.excess);
    }
}

/// A key that is followed.
#[derive(Clone, Debug, Deref)]
pub struct TopEntry<T> {
    /// The key.
    pub key: Fingerprint,
    /// Its count.
    #[deref]
    pub counted: KeyCount<T>,
    /// The number of its last hit.
    last_hit: u64,
}

/// Follows 1024 keys.
impl<T> Default for TopKeys<T> {
    fn default() -> Self {
        Self::new(1024)
    }
}

impl<T> TopKeys<T> {
    /// Follows at most `capacity` keys, and at least one.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            entries: Vec::new(),
            heap: BinaryHeap::new(),
            places: HashMap::default(),
            hits: 0,
        }
    }

    /// Counts `weight` for a key, and returns the key's value. A key that was not followed takes the
    /// place of the one with the lowest count, and with it the suspicion that this was its own.
    pub fn hit(&mut self, key: Fingerprint, weight: u64, make: impl FnOnce() -> T) -> &mut T {
        self.hits += 1;
        let index = match self.places.get(&key) {
            Some(&index) => index,
            None => self.insert(key, make()),
        };
        let entry = &mut self.entries[index];
        entry.counted.count = entry.count.saturating_add(weight);
        entry.last_hit = self.hits;
        &mut entry.counted.value
    }

    /// True if no key was hit.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The highest count that a key may have without being followed.
    pub fn floor(&self) -> u64 {
        let counts = self.entries.iter().map(|entry| entry.count);
        let lowest = counts.min().filter(|_| !self.heap.is_empty());
        lowest.unwrap_or(0)
    }

    /// At most `number` keys, the highest count first; of equal ones that which had it first.
    pub fn most(&self, number: usize) -> Vec<&TopEntry<T>> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_unstable_by_key(|entry| (Reverse(entry.count), entry.last_hit));
        all.truncate(number);
        all
    }

    /// The entry of a key, if it is followed.
    pub fn find(&self, key: Fingerprint) -> Option<&TopEntry<T>> {
        self.places.get(&key).map(|&index| &self.entries[index])
    }

    /// All followed keys, in no order.
    pub fn entries(&self) -> &[TopEntry<T>] {
        &self.entries
    }

    /// Adds the counts of another sketch. Of keys that the other one does not follow, it may have
    /// counted as much as its [`floor`](Self::floor).
    pub fn merge(&mut self, other: &Self)
    where
        T: Clone,
    {
        for added in &other.entries {
            self.hit(added.key, added.count, || added.value.clone());
            if let Some(&index) = self.places.get(&added.key) {
                let counted = &mut self.entries[index].counted;
                counted.excess = counted.excess.saturating_add(added.excess);
            }
        }
    }

    /// Forgets all keys, and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.heap.clear();
        self.places.clear();
    }

    /// Follows a key, and returns its index.
    fn insert(&mut self, key: Fingerprint, value: T) -> usize {
        let index = if self.entries.len() < self.capacity {
            self.entries.push(TopEntry {
                key,
                counted: KeyCount {
                    count: 0,
                    excess: 0,
                    value,
                },
                last_hit: 0,
            });
            self.entries.len() - 1
        } else {
            let lowest = self.lowest();
            let entry = &mut self.entries[lowest];
            self.places.remove(&entry.key);
            entry.key = key;
            entry.counted.excess = entry.count;
            entry.counted.value = value;
            lowest
        };
        self.places.insert(key, index);
        index
    }

    /// The index of the entry with the lowest count; of equal ones that was hit longest ago. There is
    /// one.
    fn lowest(&mut self) -> usize {
        let entries = &self.entries;
        let order = |index: usize| {
            let entry: &TopEntry<T> = &entries[index];
            Reverse((entry.count, entry.last_hit, index))
        };
        if self.heap.is_empty() {
            self.heap.extend((0..entries.len()).map(order));
        }
        loop {
            let mut lowest = self.heap.peek_mut().expect("all entries are here");
            let Reverse((.., index)) = *lowest;
            if *lowest == order(index) {
                return index;
            }
            *lowest = order(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const CAPACITY: usize = 256;

    fn key(bits: u64) -> Fingerprint {
        Fingerprint::from_bits(bits)
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut top = TopKeys::new(CAPACITY);
        for bits in [1, 2, 1, 3, 1, 2] {
            *top.hit(key(bits), 1, || 0) += bits;
        }
        let most = top.most(2);
        let told: Vec<_> = most
            .iter()
            .map(|entry| (entry.key.bits(), entry.count, entry.excess, entry.value))
            .collect();
        assert_eq!(told, [(1, 3, 0, 3), (2, 2, 0, 4)]);
        assert_eq!(top.floor(), 0);
    }

    #[test]
    fn a_flood_of_keys_hides_none_that_is_hit_often() {
        let mut top = TopKeys::new(CAPACITY);
        let hits = CAPACITY as u64 * 100;
        for bits in 0..hits {
            top.hit(key(1_000 + bits), 1, || ());
            if bits % 50 == 0 {
                top.hit(key(7), 1, || ());
            }
        }
        let all = hits + hits / 50;
        assert_eq!(top.entries.len(), CAPACITY);
        let first = top.most(1)[0];
        assert_eq!(first.key, key(7));
        assert!(first.count >= hits / 50 && first.count - first.excess <= hits / 50);
        assert!(first.excess <= all / CAPACITY as u64);
    }

    #[test]
    fn a_cleared_sketch_begins_anew() {
        let mut top = TopKeys::new(1);
        top.hit(key(1), 5, || ());
        top.hit(key(3), 1, || ());
        top.clear();
        assert!(top.is_empty() && top.floor() == 0);
        top.hit(key(2), 3, || ());
        let first = top.most(9)[0];
        assert_eq!((first.count, first.excess), (3, 0));
    }

    proptest! {
        /// The promises of the algorithm, for any weights.
        #[test]
        fn counts_are_bounded_by_the_excess(
            hits in prop::collection::vec((0_u64..40, 1_u64..1000), 1..400),
            capacity in 1_usize..20,
        ) {
            let mut top = TopKeys::new(capacity);
            let mut exact = HashMap::<u64, u64>::new();
            let mut all = 0;
            for (bits, weight) in hits {
                top.hit(key(bits), weight, || ());
                *exact.entry(key(bits).bits()).or_default() += weight;
                all += weight;
            }
            prop_assert!(top.floor() <= all / capacity as u64);
            for entry in top.entries() {
                let count = exact.remove(&entry.key.bits()).unwrap_or_default();
                prop_assert!(entry.count >= count && entry.count - entry.excess <= count);
            }
            for (_, count) in exact {
                prop_assert!(count <= top.floor());
            }
        }
    }
}
