//! The keys that are met most, in bounded memory: the Space-Saving algorithm (Metwally, Agrawal and
//! El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005).

use std::collections::HashMap;

use crate::limiter::Fingerprint;

/// How many keys are followed. With N hits in all, every key with more than N / CAPACITY of them is
/// among those, and no count is too large by more than that.
const CAPACITY: usize = 2048;

/// The keys with the most hits, and a value for each.
#[derive(Debug)]
pub(super) struct TopKeys<T> {
    /// The most hit first.
    entries: Vec<TopEntry<T>>,
    positions: HashMap<Fingerprint, usize>,
}

/// A key that is followed.
#[derive(Debug)]
pub(super) struct TopEntry<T> {
    key: Fingerprint,
    /// How often it was hit, at most.
    pub count: u64,
    /// By how much that may be too large.
    pub excess: u64,
    /// The record of the key.
    pub value: T,
}

impl<T> Default for TopKeys<T> {
    fn default() -> Self {
        TopKeys {
            entries: Vec::new(),
            positions: HashMap::new(),
        }
    }
}

impl<T> TopKeys<T> {
    /// Counts a hit, and hands out the key's value. A key that was not followed takes the place of
    /// the one with the fewest hits, and with it the suspicion that these were its own.
    pub(super) fn hit(&mut self, key: Fingerprint, make: impl FnOnce() -> T) -> &mut T {
        let place = match self.positions.get(&key) {
            Some(&place) => place,
            None => self.insert(key, make()),
        };
        let place = self.advance(place);
        let entry = &mut self.entries[place];
        entry.count += 1;
        &mut entry.value
    }

    /// Gives a key the last place.
    fn insert(&mut self, key: Fingerprint, value: T) -> usize {
        let dropped = match self.entries.len() {
            CAPACITY => self.entries.pop(),
            _ => None,
        };
        let count = dropped.as_ref().map_or(0, |dropped| dropped.count);
        if let Some(dropped) = dropped {
            self.positions.remove(&dropped.key);
        }
        self.entries.push(TopEntry {
            key,
            count,
            excess: count,
            value,
        });
        let place = self.entries.len() - 1;
        self.positions.insert(key, place);
        place
    }

    /// Moves an entry before all that have as many hits: one more, and the order is still right.
    fn advance(&mut self, place: usize) -> usize {
        let count = self.entries[place].count;
        let first = self.entries.partition_point(|entry| entry.count > count);
        self.entries.swap(place, first);
        self.positions.insert(self.entries[place].key, place);
        self.positions.insert(self.entries[first].key, first);
        first
    }

    /// So many keys, the most hit first.
    pub(super) fn most(&self, number: usize) -> &[TopEntry<T>] {
        &self.entries[..number.min(self.entries.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bits: u64) -> Fingerprint {
        Fingerprint::from_bits(bits)
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut top = TopKeys::default();
        for bits in [1, 2, 1, 3, 1, 2] {
            *top.hit(key(bits), || 0) += bits;
        }
        let most = top.most(2);
        let told: Vec<_> = most
            .iter()
            .map(|entry| (entry.key.bits(), entry.count, entry.excess, entry.value))
            .collect();
        assert_eq!(told, [(1, 3, 0, 3), (2, 2, 0, 4)]);
    }

    #[test]
    fn a_flood_of_keys_hides_none_that_is_hit_often() {
        let mut top = TopKeys::default();
        let hits = CAPACITY as u64 * 100;
        for bits in 0..hits {
            top.hit(key(1_000 + bits), || ());
            if bits % 50 == 0 {
                top.hit(key(7), || ());
            }
        }
        let all = hits + hits / 50;
        assert_eq!(top.entries.len(), CAPACITY);
        let first = &top.most(1)[0];
        assert_eq!(first.key, key(7));
        assert!(first.count >= hits / 50 && first.count - first.excess <= hits / 50);
        assert!(first.excess <= all / CAPACITY as u64);
    }
}
