//! What rings take: a million keys with a quota of 500/1h, as logs and as sixty counters.
//!
//! `cargo bench --bench rings`, which takes some minutes and 2 GB; as a test it has a thousand keys. Each
//! is filled as it fills in life, a little for every key in turn, and what that adds to the resident set is
//! printed: with one unit for each key, with a tenth, with all.

use std::time::Duration;

use limiter::algorithms::{OldestPart, SlidingCounters, SlidingLog};
use limiter::claims::charge_into;
use limiter::{
    Algorithm, Charge, Fingerprint, KeyParts, OnFull, Quota, Secret, Table, Timestamp, Verdict,
};

const KEYS: u64 = 1_000_000;
const KEYS_OF_A_TEST: u64 = 1_000;
const LIMIT: u32 = 500;
const MINUTES: u64 = 60;
const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

fn main() {
    let keys = if std::env::args().any(|argument| argument == "--bench") {
        KEYS
    } else {
        KEYS_OF_A_TEST
    };
    let quota = Quota::new(LIMIT, Duration::from_secs(60 * MINUTES)).expect("a quota");
    let log = SlidingLog::new(quota).expect("a log of 500");
    let counters = SlidingCounters::new(quota, 60, OldestPart::Weighted).expect("minutes");
    measure("sixty counters", Algorithm::SlidingCounters(counters), keys);
    measure("log", Algorithm::SlidingLog(log), keys);
}

/// Charges every key in each minute of an hour.
fn measure(name: &str, algorithm: Algorithm, keys: u64) {
    let before = resident_bytes();
    let table = Table::new("bench", algorithm, keys as usize, OnFull::Forget);
    let mut verdict = Verdict::default();
    for minute in 0..MINUTES {
        let now = START.saturating_add(Duration::from_secs(60 * minute));
        let cost = cost_of(minute);
        for number in 0..keys {
            let charge = Charge::new(&table, key(number), cost);
            charge_into(&mut verdict, &[charge], now);
            assert!(verdict.is_admitted());
        }
        if [0, 5, MINUTES - 1].contains(&minute) {
            let units: u32 = (0..=minute).map(cost_of).sum();
            let bytes = resident_bytes().saturating_sub(before);
            let (all, each) = (bytes / 1_000_000, bytes / keys as usize);
            println!("{name}, {units} units a key: {all} MB, {each} bytes a key");
        }
    }
    let (live, evictions) = (table.live(START), table.evictions());
    println!("{name}: {live} keys, {evictions} evicted");
}

/// One, then about eight a minute, 500 in all.
fn cost_of(minute: u64) -> u32 {
    match minute {
        0 => 1,
        1..=53 => 8,
        54 => 10,
        _ => 13,
    }
}

fn key(number: u64) -> Fingerprint {
    let mut hasher = Secret::from_key([1, 2]).hasher();
    hasher.part(1, &number.to_le_bytes());
    hasher.finish()
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the resident set in pages") * 4096
}
