//! What a decision costs, hash and clock included, beside governor's keyed limiter in the same run.
//!
//! `cargo bench --bench decision`. Keys are strings of twelve bytes, drawn uniformly or with most
//! requests on few keys (log-uniform, close to Zipf's law). First the bytes a key and the latency
//! of an insert are printed, then criterion measures decisions.
//!
//! What no decision can cost less than, on this machine, is measured beside them: reading the clock, and locking a
//! random cache line in as much memory as a table takes, or three of them at once.

use std::cell::RefCell;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use governor::DefaultKeyedRateLimiter;
use limiter::algorithms::{
    FixedWindow, Gcra, OldestPart, SlidingCounters, SlidingLog, SlidingWindow, Start,
};
use limiter::claims::charge_into;
use limiter::{
    Algorithm, Charge, Fingerprint, KeyParts, OnFull, Quota, Secret, Table, Timestamp, Verdict,
};

const KEYS: usize = 1_000_000;
const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
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

/// As many draws as there are keys.
fn draws(number: impl Fn(f64) -> f64) -> Vec<usize> {
    fractions()
        .take(KEYS)
        .map(|fraction| number(fraction) as usize)
        .collect()
}

/// Reads the monotonic clock, as governor does.
struct Clock(Instant);

impl Clock {
    fn now(&self) -> Timestamp {
        START.saturating_add(self.0.elapsed())
    }
}

struct Ours {
    clock: Clock,
    secret: Secret,
    /// Made once, as the proxy has it in the request's own place: it is large.
    verdict: RefCell<Verdict>,
}

impl Ours {
    fn new() -> Self {
        Self {
            clock: Clock(now()),
            secret: Secret::random(),
            verdict: RefCell::default(),
        }
    }

    fn fingerprint(&self, key: &str) -> Fingerprint {
        let mut hasher = self.secret.hasher();
        hasher.part(1, key.as_bytes());
        hasher.finish()
    }

    fn decide<const N: usize>(&self, tables: [&Table; N], key: &str) -> bool {
        let now = self.clock.now();
        let charges = tables.map(|table| Charge::new(table, self.fingerprint(key), 1));
        let mut verdict = self.verdict.borrow_mut();
        charge_into(&mut verdict, &charges, now);
        verdict.is_admitted()
    }
}

/// As much memory as a table has, with nothing to decide: what it takes to have a bucket at hand.
struct Floor(Box<[Line]>);

/// Aligned as a bucket, and as large.
#[repr(align(128))]
struct Line(AtomicBool);

impl Floor {
    fn new() -> Self {
        let lines = Table::bytes_for(KEYS) / size_of::<Line>();
        Self((0..lines).map(|_| Line(AtomicBool::new(false))).collect())
    }

    /// The line of a key, as far from those of its neighbours as any.
    fn line(&self, key: usize) -> &AtomicBool {
        let spread = (key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[((u128::from(spread) * self.0.len() as u128) >> 64) as usize].0
    }
}

/// Reads the clock, and locks lines as buckets are: all of them are asked for, and then locked in turn. The reading waits for
/// all memory that was asked for before, so that no two rounds overlap, as no two requests do.
fn lock_lines<const N: usize>(clock: &Clock, floors: [&Floor; N], key: usize) -> bool {
    let now = clock.now();
    let lines = floors.map(|floor| floor.line(key));
    for line in lines {
        black_box(line.load(Relaxed));
    }
    let free = lines.map(|line| !line.swap(true, Acquire));
    for line in lines {
        line.store(false, Release);
    }
    now > Timestamp::EPOCH && free == [true; N]
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the resident set in pages") * 4096
}

/// Inserts every key, or asks for it again, and prints what that took.
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
        "{name}: {bytes} bytes a key; p50 {p50} ns, p99 {p99} ns, p99.99 {p9999} ns, max {max} ns"
    );
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Measures one decision for each draw, over and over.
fn measure<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    draws: &[T],
    mut decide: impl FnMut(&T) -> bool,
) {
    let mut draws = draws.iter().cycle();
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let draw = draws.next().expect("a cycle never ends");
            black_box(decide(draw))
        });
    });
}

fn decisions(criterion: &mut Criterion) {
    let ours = Ours::new();
    let tables = [(); 3].map(|()| table(gcra()));
    let [first, second, third] = &tables;
    let governor = governor();
    let floors = [(); 3].map(|()| Floor::new());
    fill("inserts, sluicegate", |key| _ = ours.decide([first], key));
    fill("inserts, governor", |key| {
        _ = governor.check_key(&key.to_owned())
    });
    fill("again, sluicegate", |key| _ = ours.decide([first], key));
    fill("again, clock and one line", |key| {
        let number = key[4..].parse().expect("digits");
        lock_lines(&ours.clock, [&floors[0]], number);
    });
    for key in (0..KEYS).map(key) {
        ours.decide([second, third], &key);
    }

    let mut group = criterion.benchmark_group("decision");
    group.throughput(Throughput::Elements(1));
    let uniform = draws(|fraction| fraction * KEYS as f64);
    let skewed = draws(|fraction| (KEYS as f64).powf(fraction) - 1.0);
    let cases = [
        ("uniform", &uniform[..]),
        ("skewed", &skewed),
        ("one key", &uniform[..1]),
    ];
    for (name, draws) in cases {
        // In the order in which they are asked for, so that reading the key itself costs as little as
        // it does in a request that was just parsed.
        let keys: Vec<_> = draws.iter().copied().map(key).collect();
        let group = &mut group;
        let name = |what| format!("{name}/{what}");
        measure(group, &name("sluicegate"), &keys, |key| {
            ours.decide([first], key)
        });
        measure(group, &name("governor"), &keys, |key| {
            governor.check_key(key).is_ok()
        });
        measure(group, &name("clock and one line"), draws, |key| {
            lock_lines(&ours.clock, [&floors[0]], *key)
        });
        measure(group, &name("three policies"), &keys, |key| {
            ours.decide([first, second, third], key)
        });
        measure(group, &name("clock and three lines"), draws, |key| {
            lock_lines(&ours.clock, floors.each_ref(), *key)
        });
    }
    measure(&mut group, "a reading of the clock", &[()], |()| {
        ours.clock.now() > Timestamp::EPOCH
    });
    measure(&mut group, "a fingerprint", &[key(1)], |key| {
        ours.fingerprint(key).bits() > 1
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
        Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
        Algorithm::SlidingCounters(
            SlidingCounters::new(quota, 50, OldestPart::Weighted).expect("parts of 20 ms"),
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
