//! What a decision costs, hash and clock included, beside governor's keyed limiter in the same run.
//!
//! `cargo bench --bench decision`. Keys are strings of twelve bytes, drawn uniformly or with most
//! requests on few keys (log-uniform, close to Zipf's law). First the bytes a key and the latency
//! of an insert are printed, then criterion measures decisions.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use governor::DefaultKeyedRateLimiter;
use sluicegate::clock::Clock;
use sluicegate::limiter::{
    Algorithm, Fingerprint, FixedWindow, Gcra, KeyParts, Oldest, Quota, Secret, SlidingCounters,
    SlidingLog, SlidingWindow, Start,
};
use sluicegate::store::{Charge, OnFull, Table, charge_all};

const KEYS: usize = 1_000_000;
/// A unit recovers in so long: no key is forgotten while a benchmark runs.
const PERIOD: Duration = Duration::from_secs(10);
/// So large that nothing is refused.
const BURST: u32 = 400_000_000;

fn gcra() -> Algorithm {
    let quota = Quota::new(1, PERIOD).expect("a quota");
    Algorithm::Gcra(Gcra::new(quota, BURST).expect("a burst of 127 years"))
}

fn table(algorithm: Algorithm) -> Table {
    Table::new("bench", algorithm, KEYS, OnFull::Forget)
}

fn governor() -> DefaultKeyedRateLimiter<String> {
    let burst = NonZeroU32::new(BURST).expect("not zero");
    let quota = governor::Quota::with_period(PERIOD)
        .expect("not zero")
        .allow_burst(burst);
    governor::RateLimiter::keyed(quota)
}

/// Numbers in 0..1, the same in each run (xorshift64).
fn fractions() -> impl Iterator<Item = f64> {
    let step = |last: &u64| {
        let mut next = last ^ (last << 13);
        next ^= next >> 7;
        Some(next ^ (next << 17))
    };
    std::iter::successors(Some(0x9E37_79B9_7F4A_7C15), step)
        .map(|bits| (bits >> 11) as f64 / (1_u64 << 53) as f64)
}

fn key(number: usize) -> String {
    format!("key-{number:08}")
}

/// As many draws as there are keys, in the order in which they are asked for, so that reading the
/// key itself costs as little as it does in a request that was just parsed.
fn draws(number: impl Fn(f64) -> f64) -> Vec<String> {
    fractions()
        .take(KEYS)
        .map(|fraction| key(number(fraction) as usize))
        .collect()
}

struct Ours {
    clock: Clock,
    secret: Secret,
}

impl Ours {
    fn new() -> Self {
        Self {
            clock: Clock::system(),
            secret: Secret::random(),
        }
    }

    fn fingerprint(&self, key: &str) -> Fingerprint {
        let mut hasher = self.secret.hasher();
        hasher.part(1, key.as_bytes());
        hasher.finish()
    }

    fn decide<const N: usize>(&self, tables: [&Table; N], key: &str) -> bool {
        let now = self.clock.now();
        let charges = tables.map(|table| Charge {
            table,
            key: self.fingerprint(key),
            cost: 1,
            window_end: None,
        });
        charge_all(&charges, now).is_admitted()
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the resident set in pages") * 4096
}

/// Inserts every key, and prints what that took.
fn fill(name: &str, mut insert: impl FnMut(&str)) {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    // Not zeros, so that their pages are resident before the measurement.
    let mut nanos = vec![1_u64; KEYS];
    let before = resident_bytes();
    for (key, nanos) in keys.iter().zip(&mut nanos) {
        let start = now();
        insert(key);
        *nanos = start.elapsed().as_nanos() as u64;
    }
    let bytes = resident_bytes().saturating_sub(before) / KEYS;
    nanos.sort_unstable();
    let [p50, p99, p9999, max] =
        [KEYS / 2, KEYS / 100 * 99, KEYS - KEYS / 10_000, KEYS - 1].map(|i| nanos[i]);
    println!(
        "{name}: {bytes} bytes a key; insert p50 {p50} ns, p99 {p99} ns, p99.99 {p9999} ns, max {max} ns"
    );
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Measures one decision for each draw, over and over.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    draws: &[String],
    mut decide: impl FnMut(&String) -> bool,
) {
    let mut draws = draws.iter().cycle();
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let key = draws.next().expect("a cycle never ends");
            black_box(decide(key))
        });
    });
}

fn decisions(criterion: &mut Criterion) {
    let ours = Ours::new();
    let tables = [(); 3].map(|()| table(gcra()));
    let [first, second, third] = &tables;
    let governor = governor();
    fill("sluicegate", |key| _ = ours.decide([first], key));
    fill("governor", |key| _ = governor.check_key(&key.to_owned()));
    fill("sluicegate, again", |key| _ = ours.decide([first], key));
    for key in (0..KEYS).map(key) {
        ours.decide([second, third], &key);
    }

    let mut group = criterion.benchmark_group("decision");
    group.throughput(Throughput::Elements(1));
    let uniform = draws(|fraction| fraction * KEYS as f64);
    let skewed = draws(|fraction| (KEYS as f64).powf(fraction) - 1.0);
    for (name, draws) in [("uniform", &uniform), ("skewed", &skewed)] {
        measure(&mut group, &format!("{name}/sluicegate"), draws, |key| {
            ours.decide([first], key)
        });
        measure(&mut group, &format!("{name}/governor"), draws, |key| {
            governor.check_key(key).is_ok()
        });
        measure(
            &mut group,
            &format!("{name}/three policies"),
            draws,
            |key| ours.decide([first, second, third], key),
        );
    }
    let one = &uniform[..1];
    measure(&mut group, "one key/sluicegate", one, |key| {
        ours.decide([first], key)
    });
    measure(&mut group, "one key/governor", one, |key| {
        governor.check_key(key).is_ok()
    });
    group.finish();
}

/// The arithmetic of each algorithm, by one hot key.
fn algorithms(criterion: &mut Criterion) {
    let ours = Ours::new();
    let quota = Quota::new(100, Duration::from_secs(1)).expect("a quota");
    let algorithms = [
        Algorithm::Gcra(Gcra::new(quota, 100).expect("a burst of a second")),
        Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH)),
        Algorithm::SlidingWindow(SlidingWindow::new(quota, Oldest::Weighted)),
        Algorithm::SlidingCounters(
            SlidingCounters::new(quota, 50, Oldest::Weighted).expect("parts of 20 ms"),
        ),
        Algorithm::SlidingLog(SlidingLog::new(quota).expect("a log of 100")),
    ];
    let mut group = criterion.benchmark_group("mostly refused");
    for algorithm in algorithms {
        let table = table(algorithm);
        let name = match table.algorithm() {
            Algorithm::SlidingCounters(_) => "fifty counters",
            other => other.kind(),
        };
        measure(&mut group, name, &[key(1)], |key| {
            ours.decide([&table], key)
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = decisions, algorithms
}
criterion_main!(benches);
