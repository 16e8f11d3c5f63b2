//! A flood of new keys against a table that is full: nobody who is limited is let through.

use std::collections::HashMap;
use std::time::Duration;

use sluicegate::clock::Timestamp;
use sluicegate::limiter::{
    Algorithm, Cell, Fingerprint, FixedWindow, Gcra, Oldest, Quota, Secret, SlidingWindow, Start,
};
use sluicegate::store::{Charge, OnFull, Table, charge_all};

/// Keys of the flood, a request each.
const FLOOD: u64 = 10_000_000;
/// For how many keys the table is made: 196,608 entries.
const TABLE: usize = 131_072;
/// Keys that have spent their quota before the flood, and go on asking through it.
const LIMITED: u64 = 1_000;
/// How long a flood lasts, in microseconds.
const LASTS: u64 = 60_000_000;

const START: u64 = 1_800_000_000_000_000;

fn gcra(limit: u32) -> Algorithm {
    // Recovers a few times while the flood lasts: limited keys are admitted now and then.
    Algorithm::Gcra(Gcra::new(quota(limit, 60), limit).unwrap())
}

fn token_bucket(limit: u32) -> Algorithm {
    Algorithm::TokenBucket(Gcra::new(quota(limit, 300), limit).unwrap())
}

fn clock_window(limit: u32) -> Algorithm {
    Algorithm::FixedWindow(FixedWindow::new(quota(limit, 3600), Start::EPOCH))
}

fn first_request_window(limit: u32) -> Algorithm {
    Algorithm::FixedWindow(FixedWindow::new(quota(limit, 40), Start::FirstRequest))
}

fn sliding_window(limit: u32) -> Algorithm {
    Algorithm::SlidingWindow(SlidingWindow::new(quota(limit, 45), Oldest::Weighted))
}

fn quota(limit: u32, seconds: u64) -> Quota {
    Quota::new(limit, Duration::from_secs(seconds)).unwrap()
}

/// A table under attack, and what it should know of the keys that are watched.
struct Attack {
    table: Table,
    secret: Secret,
    watched: HashMap<u64, Cell>,
    /// Charges of watched keys that were admitted and should not have been.
    extra: u32,
}

impl Attack {
    fn new(algorithm: Algorithm, keys: usize, on_full: OnFull) -> Self {
        let table = Table::new("flood", algorithm, keys, on_full);
        let secret = Secret::from_key([0x5EED, table.algorithm().limit().into()]);
        Self {
            table,
            secret,
            watched: HashMap::new(),
            extra: 0,
        }
    }

    fn key(&self, kind: u8, number: u64) -> Fingerprint {
        let mut hasher = self.secret.hasher();
        hasher.part(kind, &number.to_le_bytes());
        hasher.finish()
    }

    fn charge(&self, key: Fingerprint, now: u64) -> bool {
        let charge = Charge {
            table: &self.table,
            key,
            cost: 1,
        };
        charge_all(&[charge], Timestamp::from_micros(now)).is_admitted()
    }

    /// A request of a key that is seen once.
    fn flood(&self, number: u64, now: u64) -> bool {
        self.charge(self.key(b'f', number), now)
    }

    /// A request of a key that is watched: would a store that forgets nothing admit it as well?
    fn watch(&mut self, number: u64, now: u64) -> bool {
        let admitted = self.charge(self.key(b'w', number), now);
        if admitted {
            let cell = self.watched.entry(number).or_insert(Cell::EMPTY);
            let exact = self
                .table
                .algorithm()
                .decide(*cell, Timestamp::from_micros(now), 1);
            self.extra += u32::from(!exact.is_admitted());
            *cell = exact.cell;
        }
        admitted
    }
}

/// Limited keys, then one request each of ten million others.
fn flood(algorithm: Algorithm, on_full: OnFull) -> Attack {
    let mut attack = Attack::new(algorithm, TABLE, on_full);
    for number in 0..LIMITED {
        while attack.watch(number, START) {}
    }
    for number in 0..FLOOD {
        let now = START + number * LASTS / FLOOD;
        attack.flood(number, now);
        if number % 500 == 0 {
            attack.watch(number / 500 % LIMITED, now);
        }
    }
    attack
}

#[track_caller]
fn lets_no_limited_key_through(algorithm: Algorithm) {
    let attack = flood(algorithm, OnFull::Forget);
    assert_eq!(attack.extra, 0);
    assert!(attack.table.evictions() > FLOOD / 2, "the table was full");
    assert_eq!(attack.table.unrecorded(), 0);
}

#[test]
fn gcra_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through(gcra(20));
}

#[test]
fn a_token_bucket_at_50_lets_no_limited_key_through() {
    lets_no_limited_key_through(token_bucket(50));
}

#[test]
fn a_clock_window_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through(clock_window(20));
}

#[test]
fn a_first_request_window_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through(first_request_window(20));
}

#[test]
fn a_sliding_window_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through(sliding_window(20));
}

#[test]
fn strict_at_a_quota_of_1_lets_no_limited_key_through() {
    let attack = flood(clock_window(1), OnFull::Strict);
    assert_eq!(attack.extra, 0);
}

/// Regular keys that come back all the time, not limited to begin with, in a smaller flood.
#[test]
fn strict_at_any_quota_lets_no_key_exceed_its_limit() {
    const REQUESTS: u64 = 100_000;
    for limit in 1..=20 {
        for algorithm in [gcra, token_bucket, clock_window, sliding_window] {
            let mut attack = Attack::new(algorithm(limit), 1_024, OnFull::Strict);
            let mut refused = 0;
            for number in 0..REQUESTS {
                let now = START + number * LASTS / REQUESTS;
                refused += u32::from(!attack.flood(number, now));
                attack.watch(number % 97, now);
            }
            let kind = attack.table.algorithm().kind();
            assert_eq!(attack.extra, 0, "{kind} at {limit}");
            assert!(
                refused > 1_000,
                "the table was full under {kind} at {limit}"
            );
        }
    }
}

/// The price of `strict`: while the table is full, new keys are refused that have done nothing.
#[test]
fn strict_refuses_new_keys_while_the_table_is_full_and_admits_them_after() {
    let attack = Attack::new(gcra(5), 1_024, OnFull::Strict);
    let refused = (0..100_000)
        .filter(|number| !attack.flood(*number, START))
        .count();
    assert!(refused > 90_000, "{refused}");
    let once_whole = START + 60_000_000;
    assert!((200_000..201_000).all(|number| attack.flood(number, once_whole)));
}

/// The price of `forget`: who fills the table with keys that have spent their quota makes new keys
/// pass unrecorded. Those that have spent it stay refused.
#[test]
fn forget_lets_new_keys_pass_unrecorded_once_every_entry_refuses() {
    let mut attack = Attack::new(clock_window(3), 1_024, OnFull::Forget);
    let spenders = 0..20_000;
    for number in spenders.clone() {
        (0..3).for_each(|_| _ = attack.watch(number, START));
    }
    let refused: Vec<_> = spenders
        .filter(|number| !attack.watch(*number, START))
        .collect();
    assert_eq!(
        refused.len(),
        attack.table.live(Timestamp::from_micros(START))
    );
    let unrecorded = attack.table.unrecorded();
    assert!((0..1_000).all(|number| attack.flood(number, START)));
    assert_eq!(attack.table.unrecorded(), unrecorded + 1_000);
    assert!(refused.iter().all(|number| !attack.watch(*number, START)));
}
