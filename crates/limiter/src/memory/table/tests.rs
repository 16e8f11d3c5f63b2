//! Size, and the move to a successor, also while others charge.

mod flood;

use std::collections::HashSet;
use std::sync::RwLock;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::*;
use crate::algorithms::{
    FixedWindow, Gcra, OldestPart, SlidingCounters, SlidingLog, SlidingWindow, Start,
};
use crate::{Charge, KeyParts, Quota, Secret, charge_all};

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

fn hourly(limit: u32) -> Algorithm {
    let quota = Quota::new(limit, Duration::from_secs(3600)).unwrap();
    Algorithm::Gcra(Gcra::new(quota, limit).unwrap())
}

fn table(limit: u32, keys: usize) -> Arc<Table> {
    Arc::new(Table::new("test", hourly(limit), keys, OnFull::Forget))
}

impl Table {
    pub(in crate::memory) fn assert_chunks_are_in_one_ring(&self) {
        let slab = self.slab.as_ref().expect("an algorithm with rings");
        let mut seen = HashSet::new();
        for bucket in self.segments.iter().filter_map(OnceLock::get).flatten() {
            for root in bucket.lock().into_iter().flat_map(|slots| slots.roots()) {
                for (_, chunk) in slab.words().ring(root).chunks() {
                    assert!(seen.insert(chunk), "{chunk} is in two rings");
                }
            }
        }
        assert_eq!(seen.len(), slab.taken() as usize);
    }
}

fn log(limit: u32, seconds: u64) -> Algorithm {
    let quota = Quota::new(limit, Duration::from_secs(seconds)).unwrap();
    Algorithm::SlidingLog(SlidingLog::new(quota).unwrap())
}

fn counters(limit: u32, seconds: u64, parts: u32) -> Algorithm {
    let quota = Quota::new(limit, Duration::from_secs(seconds)).unwrap();
    Algorithm::SlidingCounters(SlidingCounters::new(quota, parts, OldestPart::Weighted).unwrap())
}

/// Keys that are spread over the buckets.
fn key(number: u64) -> Fingerprint {
    Fingerprint::from_bits(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn charge(table: &Table, key: Fingerprint, cost: u32) -> bool {
    charge_all(&[Charge::new(table, key, cost)], NOW).is_admitted()
}

fn used(table: &Table, key: Fingerprint) -> u32 {
    let peek = table.peek(key, 0, NOW);
    (peek.capacity - peek.remaining).try_into().unwrap()
}

#[test]
fn a_key_costs_less_than_forty_bytes() {
    for keys in [1_000, 1_024, 100_000, 1_000_000] {
        assert!(Table::bytes_for(keys) <= 40 * keys, "{keys}");
    }
}

#[test]
fn a_census_counts_keys_near_their_quota_and_touched_memory() {
    for algorithm in [hourly(10), log(10, 3_600), counters(10, 3_600, 6)] {
        let table = Table::new("test", algorithm, 100_000, OnFull::Forget);
        assert_eq!(table.census(NOW), TableCensus::default());
        for (number, cost) in [(1, 7), (2, 8), (3, 10)] {
            assert!(charge(&table, key(number), cost));
        }
        let census = table.census(NOW);
        assert_eq!((census.keys, census.near), (3, 2));
        assert!(census.bytes > 0, "{census:?}");
        assert!(census.bytes * 4 < table.max_bytes(), "{census:?}");
    }
}

/// A bucket has five entries, and hashing gives some buckets more keys than that.
#[test]
fn a_table_keeps_as_many_keys_as_it_is_sized_for() {
    for keys in [1_024, 10_000, 100_000, 1_000_000] {
        let table = table(10, Table::size_keeping(keys));
        let secret = Secret::from_key([keys as u64, 7]);
        for number in 0..keys as u64 {
            let mut hasher = secret.hasher();
            hasher.part(1, &number.to_le_bytes());
            charge(&table, hasher.finish(), 1);
        }
        let lost = keys - table.live(NOW);
        assert!(lost * 1_000 <= keys + 3_000, "{keys}: {lost}");
        assert_eq!(table.evictions(), lost as u64);
        assert!(Table::bytes_for(Table::size_keeping(keys)) <= 123 * keys + 16 * 1024);
    }
}

#[test]
fn an_untouched_table_has_no_buckets_and_looking_makes_none() {
    let table = table(10, 1 << 20);
    assert_eq!(used(&table, key(1)), 0);
    assert_eq!(table.live(NOW), 0);
    assert!(table.segments.iter().all(|segment| segment.get().is_none()));
    charge(&table, key(1), 1);
    assert_eq!(
        table
            .segments
            .iter()
            .filter(|segment| segment.get().is_some())
            .count(),
        1
    );
}

#[test]
fn every_key_of_a_bucket_maps_to_it() {
    for keys in [1, 3, 5, 1_000, 1_024, 77_777] {
        let table = table(10, keys);
        assert_eq!(*table.keys_of(0).start(), 0);
        assert_eq!(*table.keys_of(table.buckets - 1).end(), u64::MAX);
        for index in 0..table.buckets {
            let keys = table.keys_of(index);
            assert_eq!(
                (table.index(*keys.start()), table.index(*keys.end())),
                (index, index)
            );
        }
    }
}

#[test]
fn a_successor_of_any_size_knows_what_was_used() {
    for sizes in [
        [1_000, 4_000],
        [4_000, 1_000],
        [1_000, 1_000],
        [500, 100_000],
    ] {
        let [old, new] = sizes.map(|keys| table(100, keys));
        for number in 0..500 {
            assert!(charge(&old, key(number), 1 + number as u32 % 90));
        }
        old.migrate_to(new.clone(), NOW);
        for number in 0..500 {
            assert_eq!(used(&new, key(number)), 1 + number as u32 % 90);
            assert_eq!(
                used(&old, key(number)),
                used(&new, key(number)),
                "the old one follows"
            );
        }
        assert_eq!((old.live(NOW), new.live(NOW), new.evictions()), (0, 500, 0));
    }
}

#[test]
fn a_charge_to_the_first_of_several_tables_reaches_the_last() {
    let tables = [100, 50, 200].map(|limit| table(limit, 10_000));
    charge(&tables[0], key(1), 10);
    for pair in tables.windows(2) {
        pair[0].migrate_to(pair[1].clone(), NOW);
    }
    assert!(charge(&tables[0], key(1), 20));
    assert_eq!(tables.each_ref().map(|table| used(table, key(1))), [30; 3]);
    // Also a bucket that was never made before the moves.
    assert!(charge(&tables[0], key(2), 5));
    assert_eq!(used(&tables[2], key(2)), 5);
}

#[test]
fn a_second_successor_succeeds_the_first() {
    let tables = [100; 3].map(|limit| table(limit, 64));
    charge(&tables[0], key(1), 10);
    tables[0].migrate_to(tables[1].clone(), NOW);
    tables[0].migrate_to(tables[2].clone(), NOW);
    assert_eq!(used(&tables[2], key(1)), 10);
}

#[test]
fn a_raised_quota_applies_and_a_lowered_one_is_never_exceeded() {
    let tables = [100, 120, 40].map(|limit| table(limit, 64));
    charge(&tables[0], key(1), 100);
    tables[0].migrate_to(tables[1].clone(), NOW);
    assert_eq!(tables[1].peek(key(1), 0, NOW).remaining, 20);
    tables[1].migrate_to(tables[2].clone(), NOW);
    assert_eq!(tables[2].peek(key(1), 0, NOW).remaining, 0);
    assert!(!charge(&tables[2], key(1), 1));
}

#[test]
fn another_algorithm_starts_anew() {
    let old = table(100, 64);
    charge(&old, key(1), 100);
    let quota = Quota::new(100, Duration::from_secs(3600)).unwrap();
    let window = Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH));
    let new = Arc::new(Table::new("test", window, 64, OnFull::Forget));
    old.migrate_to(new.clone(), NOW);
    assert_eq!(used(&new, key(1)), 0);
}

#[test]
fn a_smaller_table_keeps_the_most_used_keys() {
    let (old, new) = (table(100, 1_000), table(100, 50));
    for number in 0..1_000 {
        charge(&old, key(number), if number < 20 { 100 } else { 1 });
    }
    old.migrate_to(new.clone(), NOW);
    for number in 0..20 {
        assert!(!charge(&new, key(number), 1));
    }
    assert!(new.evictions() > 0);
}

#[test]
fn a_move_waits_for_a_locked_bucket_without_holding_its_own() {
    let [old, new] = [100, 100].map(|limit| table(limit, 64));
    charge(&old, key(1), 10);
    thread::scope(|scope| {
        let locked = new.bucket_of(key(1)).unwrap().lock();
        let moving = scope.spawn(|| old.migrate_to(new.clone(), NOW));
        while old.successor.get().is_none() {
            thread::yield_now();
        }
        for _ in 0..1_000 {
            assert!(old.bucket_of(key(1)).unwrap().lock().is_some());
            thread::yield_now();
        }
        drop(locked);
        moving.join().unwrap();
    });
    assert_eq!(used(&new, key(1)), 10);
}

/// Charges from many threads until every quota is spent, while the tables of both policies are
/// replaced again and again: each thread charges through whichever tables it saw last.
#[test]
fn no_charge_is_lost_while_tables_are_replaced() {
    let gcra = |quota: Quota, _| Algorithm::Gcra(Gcra::new(quota, quota.limit()).unwrap());
    let log = |quota, _| Algorithm::SlidingLog(SlidingLog::new(quota).unwrap());
    let counters = |quota, round: usize| {
        let parts = [60, 12, 1][round % 3];
        Algorithm::SlidingCounters(SlidingCounters::new(quota, parts, OldestPart::Whole).unwrap())
    };
    replace_while_charging(5_000, gcra);
    replace_while_charging(1_000, log);
    replace_while_charging(1_000, counters);
}

fn replace_while_charging(limit: u32, algorithm: impl Fn(Quota, usize) -> Algorithm) {
    const KEYS: usize = 40;
    let sizes = [4_000, 500, 500, 64, 8_000, 1_000];
    let hours = [1, 2, 1, 7, 3];
    let make = |round: usize| {
        let window = Duration::from_secs(3600 * hours[round % hours.len()]);
        let algorithm = algorithm(Quota::new(limit, window).unwrap(), round);
        let keys = sizes[round % sizes.len()];
        Arc::new(Table::new("test", algorithm, keys, OnFull::Forget))
    };
    let published = [0, 1].map(|round| RwLock::new(make(round)));
    let current = || {
        published
            .each_ref()
            .map(|table| table.read().unwrap().clone())
    };

    // Which keys were admitted in one round over all of them.
    let round_over_keys = |thread: usize| {
        let held = current();
        std::array::from_fn(|number| {
            let key = key(number as u64);
            let mut charges = held.each_ref().map(|table| Charge::new(table, key, 1));
            charges.rotate_left(thread % 2);
            u32::from(charge_all(&charges, NOW).is_admitted())
        })
    };
    let sum = |left: [u32; KEYS], right: [u32; KEYS]| std::array::from_fn(|i| left[i] + right[i]);
    let replaced = AtomicUsize::new(0);
    // However threads are scheduled, most units are taken after the first replacements.
    let is_early = |round: usize| round > limit as usize / 20 && replaced.load(Relaxed) <= 10;
    let run = |thread: usize| {
        let rounds = (0..).map(|round| {
            while is_early(round) {
                thread::yield_now();
            }
            round_over_keys(thread)
        });
        rounds
            .take_while(|admitted| *admitted != [0; KEYS])
            .fold([0; KEYS], sum)
    };
    let admitted = thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            let rounds = 1 + replaced.fetch_add(1, Relaxed);
            for (offset, (old, published)) in current().iter().zip(&published).enumerate() {
                let next = make(rounds + offset);
                old.migrate_to(next.clone(), NOW);
                *published.write().unwrap() = next;
            }
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold([0; KEYS], sum)
    });
    assert_eq!(admitted, [limit; KEYS]);
    let replaced = replaced.into_inner();
    assert!(replaced > 10, "the tables were replaced {replaced} times");
    assert_eq!(
        current().map(|table| (table.evictions(), table.unrecorded())),
        [(0, 0); 2]
    );
}

#[test]
fn rings_survive_another_quota_window_and_precision() {
    let day = 86_400;
    let cases = [
        (log(100, 3_600), log(80, 3_600)),
        (log(100, 3_600), log(100, 60)),
        (log(100, 60), log(100, 20 * day)),
        (counters(100, 3_600, 60), counters(80, 3_600, 60)),
        (counters(100, 3_600, 60), counters(100, 3_600, 4)),
        (counters(100, 60, 6), counters(100, 3_600, 60)),
    ];
    for (from, to) in cases {
        let old = Table::new("test", from, 1_000, OnFull::Forget);
        let new = Arc::new(Table::new("test", to, 2_000, OnFull::Forget));
        for number in 0..500 {
            assert!(charge(&old, key(number), 1 + number as u32 % 90));
        }
        old.migrate_to(new.clone(), NOW);
        for number in 0..500 {
            let most = new.algorithm().limit();
            assert_eq!(
                used(&new, key(number)),
                (1 + number as u32 % 90).min(most.try_into().unwrap())
            );
        }
        new.assert_chunks_are_in_one_ring();
        assert_eq!(old.slab.as_ref().unwrap().taken(), 0);
    }
}

#[test]
fn a_sliding_window_keeps_its_units_when_its_precision_changes() {
    let quota = Quota::new(100, Duration::from_secs(3_600)).unwrap();
    let two = Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted));
    let tables = [two.clone(), counters(100, 3_600, 60), two]
        .map(|algorithm| Arc::new(Table::new("test", algorithm, 1_000, OnFull::Forget)));
    assert!(charge(&tables[0], key(1), 70));
    for pair in tables.windows(2) {
        pair[0].migrate_to(pair[1].clone(), NOW);
        assert_eq!(used(&pair[1], key(1)), 70);
        assert!(!charge(&pair[0], key(1), 31), "through the old one as well");
    }
}

#[test]
fn a_shorter_window_lets_units_leave_over_its_whole_length() {
    let old = Table::new("test", log(10, 3_600), 64, OnFull::Forget);
    let ask = |table: &Table, cost, now| {
        let key = key(1);
        charge_all(&[Charge::new(table, key, cost)], now).decisions[0]
    };
    for sixth in 0..6 {
        let now = NOW.saturating_add(Duration::from_secs(600 * sixth));
        assert!(ask(&old, 1, now).is_admitted());
    }
    let now = NOW.saturating_add(Duration::from_secs(3_599));
    let new = Arc::new(Table::new("test", log(10, 60), 64, OnFull::Forget));
    old.migrate_to(new.clone(), now);
    let remaining =
        |seconds| ask(&new, 0, now.saturating_add(Duration::from_secs(seconds))).remaining;
    assert_eq!(
        [0, 5, 15, 25, 35, 45, 55].map(remaining),
        [4, 5, 6, 7, 8, 9, 10]
    );
}

/// Every entry and every chunk touched; `benches/rings.rs` measures what is.
#[test]
fn a_million_keys_with_rings_are_bounded() {
    let most = |algorithm: &Algorithm| {
        Table::bytes_for(Table::size_keeping(1_000_000)) as u64
            + 1_000_000 * Table::ring_bytes_for(algorithm)
    };
    assert!(most(&counters(500, 3_600, 60)) < 300_000_000);
    assert!(most(&log(500, 3_600)) < 2_170_000_000);
}

#[test]
fn rings_of_a_key_that_is_gone_are_found_again() {
    // Room for eight full rings, and 400 keys that come one after another.
    let algorithm = log(500, 60);
    let bytes = 8 * Table::ring_bytes_for(&algorithm);
    let table = Table::with_rings("test", algorithm, 1_000, bytes, OnFull::Forget);
    for number in 0..400 {
        let now = NOW.saturating_add(Duration::from_secs(40 * number));
        let charge = Charge::new(&table, key(number), 500);
        assert!(charge_all(&[charge], now).is_admitted());
        assert!(
            !charge_all(
                &[Charge {
                    demand: Demand::of(1),
                    ..charge
                }],
                now
            )
            .is_admitted()
        );
    }
    assert_eq!((table.evictions(), table.unrecorded()), (0, 0));
    table.assert_chunks_are_in_one_ring();
}

#[test]
fn a_full_slab_evicts_the_least_used_key_and_never_a_refused_one() {
    let algorithm = log(500, 60);
    let bytes = 24 * Table::ring_bytes_for(&algorithm);
    let table = Table::with_rings("test", algorithm, 1_000, bytes, OnFull::Forget);
    for number in 0..10 {
        assert!(charge(&table, key(number), 500));
    }
    for number in 10..2_000 {
        assert!(charge(&table, key(number), 1));
    }
    for number in 0..10 {
        assert!(!charge(&table, key(number), 1), "{number}");
    }
    assert!(table.evictions() > 500);
    table.assert_chunks_are_in_one_ring();
}

/// Threads that take each other's rings away, through tables that are replaced meanwhile.
#[test]
fn no_chunk_is_lost_or_shared_while_rings_are_scarce() {
    for on_full in [OnFull::Forget, OnFull::Strict] {
        for algorithm in [log(40, 3_600), counters(40, 3_600, 60)] {
            let make = || {
                let bytes = 30 * Table::ring_bytes_for(&algorithm);
                let table = Table::with_rings("test", algorithm.clone(), 400, bytes, on_full);
                Arc::new(table)
            };
            let tables: Vec<_> = (0..6).map(|_| make()).collect();
            let (latest, charges) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let charge_many = |thread: u64| {
                for number in 0..20_000 {
                    let table = &tables[latest.load(Ordering::Acquire)];
                    let key = key((number * 7 + thread) % 300);
                    charge(table, key, 1 + number as u32 % 3);
                    charges.fetch_add(1, Ordering::Relaxed);
                }
            };
            thread::scope(|scope| {
                for thread in 0..4 {
                    scope.spawn(move || charge_many(thread));
                }
                for (index, pair) in tables.windows(2).enumerate() {
                    while charges.load(Ordering::Relaxed) < 12_000 * (index + 1) {
                        thread::yield_now();
                    }
                    pair[0].migrate_to(pair[1].clone(), NOW);
                    latest.store(index + 1, Ordering::Release);
                }
            });
            let (last, before) = tables.split_last().expect("six tables");
            last.assert_chunks_are_in_one_ring();
            for table in before {
                assert_eq!(table.slab.as_ref().expect("rings").taken(), 0);
            }
        }
    }
}
