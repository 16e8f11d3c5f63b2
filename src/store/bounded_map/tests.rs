use proptest::prelude::*;

use super::shard::{Entry, INDEX, bytes_of};
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
fn a_smaller_capacity_applies_with_the_next_new_keys() {
    let map = BoundedMap::<Bytes, 1>::new(100 * ENTRY);
    (0..100).for_each(|bits| assert!(!touch(&map, bits)));
    map.set_capacity(10 * ENTRY);
    (100..140).for_each(|bits| assert!(!touch(&map, bits)));
    assert_eq!(map.keys(), 10);
}

#[test]
fn values_that_a_pass_over_all_has_resized_are_counted() {
    let map = BoundedMap::<Bytes, 1>::new(100 * ENTRY);
    let counted = || map.shards()[0].lock().bytes;
    (0..10).for_each(|bits| assert!(!touch(&map, bits)));
    let small = counted();
    map.retain_all(|_, value| {
        *value = Bytes(Vec::with_capacity(100));
        true
    });
    assert_eq!(counted(), small + 10 * 100);
    map.retain_all(|_, value| {
        *value = empty();
        true
    });
    assert_eq!(counted(), small);
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

#[test]
fn maps_share_a_quarter_and_have_some_room_each() {
    let each = |max_size, maps| TrackingBudget::new(max_size, maps).bytes(1024);
    assert_eq!(each(64 << 20, 1), 16 << 20);
    assert_eq!(each(64 << 20, 64), 8 << 20);
    assert_eq!(each(1 << 20, 3), 256 << 10);
    assert_eq!(TrackingBudget::new(64 << 20, 1).bytes(1), 32 << 10);
}
