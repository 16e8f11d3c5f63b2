//! A flood of new keys against a full table lets no limited client through.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithms::{
    FixedWindow, Gcra, IntervalRefill, OldestPart, SlidingCounters, SlidingLog, SlidingWindow,
    Start,
};
use crate::calendar::{Calendar, Period};
use crate::{
    Algorithm, Charge, Fingerprint, KeyParts, OnFull, Quota, Secret, Table, Timestamp, charge_all,
};
use jiff::tz::TimeZone;

/// Keys of the flood, a request each.
const FLOOD: u64 = 10_000_000;
/// The number of keys that the table is sized for: 196,608 entries.
const TABLE: usize = 131_072;
/// Rings are slow: a tenth of the flood against a tenth of the table.
const RINGS: Size = Size {
    flood: FLOOD / 10,
    table: TABLE / 10,
};
const CELLS: Size = Size {
    flood: FLOOD,
    table: TABLE,
};
/// Keys that have used up their quota before the flood, and keep asking.
const LIMITED: u64 = 1_000;
/// The duration of a flood, in microseconds.
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
    Algorithm::SlidingWindow(SlidingWindow::new(quota(limit, 45), OldestPart::Weighted))
}

fn interval_refill(limit: u32) -> Algorithm {
    let refill = IntervalRefill::new(limit, limit.div_ceil(4), Duration::from_secs(20));
    Algorithm::IntervalRefill(refill.unwrap())
}

fn staggered_window(limit: u32) -> Algorithm {
    Algorithm::FixedWindow(FixedWindow::new(quota(limit, 40), Start::Staggered))
}

fn calendar_day(limit: u32) -> Algorithm {
    let calendar = Calendar::new(Period::Day, TimeZone::get("Europe/Berlin").unwrap());
    Algorithm::FixedWindow(FixedWindow::periods(
        limit.into(),
        Arc::new(calendar),
        Start::Calendar,
    ))
}

fn counters(limit: u32) -> Algorithm {
    let counters = SlidingCounters::new(quota(limit, 45), 60, OldestPart::Weighted);
    Algorithm::SlidingCounters(counters.unwrap())
}

fn log(limit: u32) -> Algorithm {
    Algorithm::SlidingLog(SlidingLog::new(quota(limit, 45)).unwrap())
}

fn quota(limit: u32, seconds: u64) -> Quota {
    Quota::new(limit, Duration::from_secs(seconds)).unwrap()
}

/// The number of keys of the flood, and of the table.
#[derive(Clone, Copy)]
struct Size {
    flood: u64,
    table: usize,
}

/// A table under attack, and the expected state of the watched keys.
struct Attack {
    table: Table,
    secret: Secret,
    /// A table with ample room, charged with the admitted requests of the watched keys.
    exact: Table,
    /// Charges of watched keys that were admitted and should not have been.
    extra: u32,
}

impl Attack {
    fn new(algorithm: Algorithm, keys: usize, on_full: OnFull) -> Self {
        Self::on(Table::new("flood", algorithm, keys, on_full))
    }

    fn on(table: Table) -> Self {
        let algorithm = table.algorithm().clone();
        Self {
            secret: Secret::from_key([0x5EED, algorithm.limit()]),
            exact: Table::new("exact", algorithm, 1 << 20, OnFull::Forget),
            table,
            extra: 0,
        }
    }

    fn key(&self, kind: u8, number: u64) -> Fingerprint {
        let mut hasher = self.secret.hasher();
        hasher.part(kind, &number.to_le_bytes());
        hasher.finish()
    }

    /// A request of a key that occurs once.
    fn flood(&self, number: u64, now: u64) -> bool {
        charge(&self.table, self.key(b'f', number), now)
    }

    /// A request of a watched key, compared with a store that forgets nothing.
    fn watch(&mut self, number: u64, now: u64) -> bool {
        let key = self.key(b'w', number);
        let admitted = charge(&self.table, key, now);
        if admitted {
            self.extra += u32::from(!charge(&self.exact, key, now));
            assert_eq!((self.exact.evictions(), self.exact.unrecorded()), (0, 0));
        }
        admitted
    }
}

fn charge(table: &Table, key: Fingerprint, now: u64) -> bool {
    let cost = 1;
    charge_all(
        &[Charge::new(table, key, cost)],
        Timestamp::from_micros(now),
    )
    .is_admitted()
}

/// Limited keys, then one request of each of many others.
fn flood(table: Table, keys: u64) -> Attack {
    let mut attack = Attack::on(table);
    for number in 0..LIMITED {
        while attack.watch(number, START) {}
    }
    let each = keys / LIMITED / 20;
    for number in 0..keys {
        let now = START + number * LASTS / keys;
        attack.flood(number, now);
        if number % each == 0 {
            attack.watch(number / each % LIMITED, now);
        }
    }
    attack
}

#[track_caller]
fn lets_no_limited_key_through(algorithm: Algorithm) {
    through_a_full_table_comes_nobody(algorithm, CELLS, 0);
}

/// With room for the full rings of all keys, and for a quarter of them.
#[track_caller]
fn lets_no_limited_key_through_by_its_ring(algorithm: Algorithm) {
    let rings = RINGS.table as u64 * Table::ring_bytes_for(&algorithm);
    through_a_full_table_comes_nobody(algorithm.clone(), RINGS, rings);
    through_a_full_table_comes_nobody(algorithm, RINGS, rings / 4);
}

#[track_caller]
fn through_a_full_table_comes_nobody(algorithm: Algorithm, size: Size, rings: u64) {
    let table = Table::with_rings("flood", algorithm, size.table, rings, OnFull::Forget);
    let attack = flood(table, size.flood);
    assert_eq!(attack.extra, 0);
    let evictions = attack.table.evictions();
    assert!(evictions > size.flood / 2, "the table was full");
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
fn interval_refill_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through(interval_refill(20));
}

#[test]
fn a_staggered_window_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through(staggered_window(20));
}

#[test]
fn a_calendar_day_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through(calendar_day(20));
}

#[test]
fn sixty_counters_at_20_let_no_limited_key_through() {
    lets_no_limited_key_through_by_its_ring(counters(20));
}

#[test]
fn a_log_at_20_lets_no_limited_key_through() {
    lets_no_limited_key_through_by_its_ring(log(20));
}

#[test]
fn strict_at_a_quota_of_1_lets_no_limited_key_through() {
    let table = Table::new("flood", clock_window(1), TABLE, OnFull::Strict);
    let attack = flood(table, FLOOD);
    assert_eq!(attack.extra, 0);
}

/// Regular keys that keep returning, unlimited at first, in a smaller flood.
#[test]
fn strict_at_any_quota_lets_no_key_exceed_its_limit() {
    for limit in 1..=20 {
        for algorithm in [
            gcra,
            token_bucket,
            clock_window,
            sliding_window,
            calendar_day,
        ] {
            strict_lets_no_key_exceed_its_limit(algorithm(limit), 100_000);
        }
    }
    for limit in [1, 2, 3, 5, 8, 13, 20] {
        for algorithm in [log, counters] {
            strict_lets_no_key_exceed_its_limit(algorithm(limit), 40_000);
        }
    }
}

#[track_caller]
fn strict_lets_no_key_exceed_its_limit(algorithm: Algorithm, requests: u64) {
    let mut attack = Attack::new(algorithm, 1_024, OnFull::Strict);
    let mut refused = 0;
    for number in 0..requests {
        let now = START + number * LASTS / requests;
        refused += u32::from(!attack.flood(number, now));
        attack.watch(number % 97, now);
    }
    let algorithm = attack.table.algorithm();
    assert_eq!(attack.extra, 0, "{algorithm:?}");
    assert!(refused > 1_000, "the table was full under {algorithm:?}");
}

/// The price of `strict`: a full table refuses new keys that have used nothing.
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

/// The price of `forget`: a client that fills the table with used-up keys makes new keys pass
/// unrecorded. Used-up keys stay refused.
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
