//! What is written is read again, whatever the tables have become; what is not whole is not read.

use std::io::{self, Cursor, Write};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;
use crate::files;
use crate::limiter::algorithms::{
    FixedWindow, Gcra, IntervalRefill, OldestPart, SlidingCounters, SlidingLog, SlidingWindow,
    Start,
};
use crate::limiter::charge_all;
use crate::limiter::penalty::Penalty;
use crate::limiter::{Algorithm, Fingerprint, Quota, Secret};
use crate::store::{
    Attribution, Charge, Home, KeyChange, OnFull, OperatorActionKind, Penalties, SteeredKeys,
    Steering, Store, Table,
};
use crate::telemetry::registry::Registry;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const SECRET: Secret = Secret::from_key([3, 5]);

/// Every algorithm, with this limit.
fn algorithms(limit: u32) -> Vec<Algorithm> {
    let hour = Duration::from_secs(3600);
    let quota = Quota::new(limit, hour).unwrap();
    let counters = |parts| SlidingCounters::new(quota, parts, OldestPart::Whole).unwrap();
    vec![
        Algorithm::Gcra(Gcra::new(quota, limit).unwrap()),
        Algorithm::TokenBucket(Gcra::new(quota, limit).unwrap()),
        Algorithm::IntervalRefill(IntervalRefill::new(limit, 2, hour).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(quota, Start::Staggered)),
        Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
        Algorithm::SlidingCounters(counters(60)),
        Algorithm::SlidingCounters(counters(3)),
        Algorithm::SlidingLog(SlidingLog::new(quota).unwrap()),
    ]
}

/// A table for each, for so many keys.
fn tables(limit: u32, keys: usize, on_full: OnFull) -> Vec<Table> {
    let named = algorithms(limit).into_iter().enumerate();
    named
        .map(|(place, algorithm)| Table::new(format!("policy-{place}"), algorithm, keys, on_full))
        .collect()
}

/// Keys that are spread over the buckets.
fn key(number: u64) -> Fingerprint {
    Fingerprint::from_bits(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn charge(table: &Table, key: Fingerprint, cost: u32, now: Timestamp) -> bool {
    charge_all(&[Charge::new(table, key, cost)], now).is_admitted()
}

fn saved<'a>(tables: impl IntoIterator<Item = &'a Table>, now: Timestamp) -> Vec<u8> {
    let mut writer = SnapshotWriter::new(Vec::new(), &SECRET, now).unwrap();
    for table in tables {
        writer.table("client_ip", table, now).unwrap();
    }
    writer.finish([]).unwrap()
}

fn read(bytes: &[u8]) -> Result<Reader<Cursor<&[u8]>>, ReadError> {
    Reader::new(Cursor::new(bytes), NOW)
}

/// Reads a snapshot into the tables that have the names it gives.
fn restored(bytes: &[u8], tables: &[Table], now: Timestamp) -> RestoreCounts {
    let reader = Reader::new(Cursor::new(bytes), now).unwrap();
    assert!(reader.secret == SECRET);
    let find = |policy: &str, key: &str| {
        assert_eq!(key, "client_ip");
        tables.iter().find(|table| table.policy() == policy)
    };
    reader.restore(find, |_, _| None, now).unwrap()
}

/// Two strikes within an hour bring about a ban of a minute, then one of a day.
fn rule() -> Penalty {
    let minute = Duration::from_mins(1);
    Penalty::new(2, 60 * minute, vec![minute, 24 * 60 * minute])
}

fn penalties() -> Penalties {
    let registry = Registry::default();
    Penalties::new(rule(), "p", None, &Store::Memory, &registry)
}

fn policy_bans(bans: &Penalties) -> PolicyKeyRules<'_> {
    PolicyKeyRules {
        policy: "p",
        key: "client_ip",
        secret: SECRET,
        bans: Some(bans),
        steered: None,
    }
}

fn no_steering() -> Steering {
    Steering::new(
        "p",
        Home::Memory,
        &Store::Memory,
        None,
        &Registry::default(),
    )
}

fn policy_steering(keys: &SteeredKeys) -> PolicyKeyRules<'_> {
    PolicyKeyRules {
        policy: "p",
        key: "client_ip",
        secret: SECRET,
        bans: None,
        steered: Some(keys),
    }
}

fn saved_keys(keys: PolicyKeyRules<'_>, now: Timestamp) -> Vec<u8> {
    let writer = SnapshotWriter::new(Vec::new(), &SECRET, now).unwrap();
    writer.finish([keys]).unwrap()
}

fn restored_keys(bytes: &[u8], to: PolicyKeyRules<'_>, now: Timestamp) -> RestoreCounts {
    let reader = Reader::new(Cursor::new(bytes), now).unwrap();
    let find = |policy: &str, key: &str| ((policy, key) == (to.policy, to.key)).then_some(to);
    reader.restore(|_, _| None, find, now).unwrap()
}

/// `bytes` with the checksum that belongs to them.
fn with_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut sum = checksum();
    std::hash::Hasher::write(&mut sum, &bytes);
    bytes.extend(std::hash::Hasher::finish(&sum).to_le_bytes());
    bytes
}

fn used(table: &Table, key: Fingerprint, now: Timestamp) -> u32 {
    let peek = table.peek(key, 0, now);
    (peek.capacity - peek.remaining).try_into().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// To the last number, in a table of any size, and later too.
    #[test]
    fn every_bucket_of_every_algorithm_is_restored(
        charges in prop::collection::vec((0..60_u64, 1..5_u32, 0..400_000_000_u64), 1..200),
        keys in prop::sample::select(vec![400_usize, 1_024, 5_000]),
        pause in 0..4_000_000_000_u64,
    ) {
        let (before, after) = (tables(9, 1_024, OnFull::Forget), tables(9, keys, OnFull::Forget));
        let mut now = NOW;
        for (number, cost, gap) in charges {
            now = now.saturating_add_micros(gap);
            before.iter().for_each(|table| _ = charge(table, key(number), cost, now));
        }
        let bytes = saved(&before, now);
        let again = now.saturating_add_micros(pause);
        restored(&bytes, &after, again);
        for (old, new) in before.iter().zip(&after) {
            for number in 0..60 {
                for cost in [0, 1, 5, 9] {
                    let [old, new] = [old, new].map(|table| table.peek(key(number), cost, again));
                    prop_assert_eq!(
                        (old.outcome, old.remaining, old.reset),
                        (new.outcome, new.remaining, new.reset)
                    );
                }
            }
            prop_assert_eq!(new.evictions(), 0);
        }
    }

    /// A flood has made keys share what they have used; nobody has more left after a restart.
    #[test]
    fn no_key_of_a_full_strict_table_gains(costs in prop::collection::vec(1..5_u32, 100..300)) {
        let (before, after) = (tables(9, 8, OnFull::Strict), tables(9, 8, OnFull::Strict));
        for (number, cost) in (0..).zip(&costs) {
            before.iter().for_each(|table| _ = charge(table, key(number), *cost, NOW));
        }
        restored(&saved(&before, NOW), &after, NOW);
        for (old, new) in before.iter().zip(&after) {
            for number in 0..costs.len() as u64 {
                prop_assert!(used(new, key(number), NOW) >= used(old, key(number), NOW));
            }
        }
    }

    /// Also where the checksum is right, nonsense is refused or read, and nothing breaks.
    #[test]
    fn malformed_files_do_no_harm(
        body in prop::collection::vec(prop_oneof![0..9_u8, any::<u8>()], 0..400),
        cut in any::<prop::sample::Index>(),
    ) {
        let table = Table::new("p", algorithms(3).pop().unwrap(), 10, OnFull::Forget);
        charge(&table, key(1), 2, NOW);
        let whole = saved([&table], NOW);
        let mut bytes = whole[..36 + cut.index(whole.len() - 44)].to_vec();
        bytes.extend(body);
        let bytes = with_sum(bytes);
        let reader = read(&bytes).expect("its sum is right");
        let bans = penalties();
        let steering = no_steering();
        let to = PolicyKeyRules {
            steered: Some(steering.keys()),
            ..policy_bans(&bans)
        };
        let _ = reader.restore(|_, _| Some(&table), |_, _| Some(to), NOW);
    }

    /// A process that restarts between any two refusals decides as one that does not.
    #[test]
    fn a_restart_changes_no_ban(
        refusals in prop::collection::vec((0..20_u64, 0..4_000_000_000_u64, any::<bool>()), 1..100),
    ) {
        let steady = penalties();
        let (mut restarted, mut now) = (penalties(), NOW);
        for (number, gap, restart) in refusals {
            now = now.saturating_add_micros(gap);
            if restart {
                let bytes = saved_keys(policy_bans(&restarted), now);
                restarted = penalties();
                restored_keys(&bytes, policy_bans(&restarted), now);
            }
            let key = key(number);
            prop_assert_eq!(
                restarted.banned_until(key, now),
                steady.banned_until(key, now)
            );
            prop_assert_eq!(restarted.strike(key, now), steady.strike(key, now));
        }
    }
}

/// A small snapshot with every kind of item.
fn sample() -> Vec<u8> {
    let tables = tables(3, 1, OnFull::Strict);
    for table in &tables {
        (0..12).for_each(|number| _ = charge(table, key(number), 1, NOW));
    }
    let bans = penalties();
    for number in [1, 2, 2] {
        bans.strike(key(number), NOW);
    }
    let steering = steering();
    let keys = PolicyKeyRules {
        steered: Some(steering.keys()),
        ..policy_bans(&bans)
    };
    let mut writer = SnapshotWriter::new(Vec::new(), &SECRET, NOW).unwrap();
    for table in &tables {
        writer.table("client_ip", table, NOW).unwrap();
    }
    writer.finish([keys]).unwrap()
}

fn operator() -> Attribution {
    Attribution {
        actor: "write#2".into(),
        reason: "abuse".into(),
    }
}

/// A banned key, and two with grants.
fn steering() -> Steering {
    let steering = no_steering();
    let keys = steering.keys();
    let change = |number, change| keys.change(key(number), change, &operator(), NOW).unwrap();
    let after = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    change(1, KeyChange::Ban { until: after(60) });
    for (number, seconds) in [(1, 30), (2, 90)] {
        let (units, until) = (5, after(seconds));
        change(number, KeyChange::Grant { units, until });
    }
    charge(keys.grants(), key(2), 2, NOW);
    steering
}

#[test]
fn bans_and_grants_by_operators_are_restored_until_they_end() {
    let before = steering();
    let bytes = saved_keys(policy_steering(before.keys()), NOW);
    for (seconds, bans, grants) in [
        (0, 1, [Some(5), Some(3)]),
        (45, 1, [None, Some(3)]),
        (75, 0, [None, Some(3)]),
    ] {
        let now = NOW.saturating_add(Duration::from_secs(seconds));
        let after = no_steering();
        restored_keys(&bytes, policy_steering(after.keys()), now);
        let keys = after.keys();
        let ban_of = |keys: &SteeredKeys| keys.rule(key(1), OperatorActionKind::Ban, now);
        assert_eq!(ban_of(keys), ban_of(before.keys()));
        assert_eq!(keys.count(OperatorActionKind::Ban, now), bans);
        let left = [1, 2].map(|number| Some(keys.grant_of(key(number), key(number), now)?.left));
        assert_eq!(left, grants);
        let rules = |keys: &SteeredKeys| {
            let mut rules: Vec<_> = keys.rules(now).collect();
            rules.sort_by_key(|(key, ..)| key.bits());
            rules
        };
        assert_eq!(rules(keys), rules(before.keys()));
    }
    let after = no_steering();
    let to = policy_steering(after.keys());
    let others = [
        PolicyKeyRules { policy: "q", ..to },
        PolicyKeyRules {
            key: "constant",
            ..to
        },
        PolicyKeyRules {
            secret: Secret::from_key([3, 6]),
            ..to
        },
    ];
    for other in others {
        let restored = restored_keys(&bytes, other, NOW);
        assert_eq!((restored.bans, restored.dropped), (0, 3));
    }
}

#[test]
fn bans_of_another_policy_or_secret_and_forgotten_ones_are_dropped() {
    let before = penalties();
    for number in [1, 2, 2, 3, 3] {
        before.strike(key(number), NOW);
    }
    let bytes = saved_keys(policy_bans(&before), NOW);
    let bans = penalties();
    let to = policy_bans(&bans);
    let counted = |to, hours: u64| {
        let later = NOW.saturating_add(Duration::from_secs(3600 * hours));
        let found = restored_keys(&bytes, to, later);
        (found.bans, found.dropped)
    };
    assert_eq!(counted(PolicyKeyRules { policy: "q", ..to }, 0), (0, 3));
    assert_eq!(
        counted(
            PolicyKeyRules {
                key: "constant",
                ..to
            },
            0
        ),
        (0, 3)
    );
    let secret = Secret::from_key([3, 6]);
    assert_eq!(counted(PolicyKeyRules { secret, ..to }, 0), (0, 3));
    assert_eq!(counted(to, 2), (0, 0));
    assert_eq!(counted(to, 1), (2, 0), "the bans count for a minute longer");
    assert_eq!(counted(to, 0), (3, 0));
    let later = NOW.saturating_add(Duration::from_hours(2));
    assert_eq!(
        saved_keys(policy_bans(&before), later),
        saved_keys(policy_bans(&penalties()), later)
    );
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = sample();
    assert!(read(&bytes).is_ok());
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "{length}");
    }
    for more in [&b"\0"[..], b"more"] {
        assert!(read(&[&bytes, more].concat()).is_err());
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut bytes = sample();
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&bytes).is_err(), "{bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(read(&bytes).is_ok());
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = sample();
    let said = |bytes: &[u8]| read(bytes).map(drop).unwrap_err().to_string();
    assert_eq!(
        said(b"routes: [{ upstream: echo }]"),
        "it isn't a snapshot of buckets"
    );
    assert_eq!(said(b""), "it is damaged");
    assert_eq!(said(&bytes[..100]), "it is damaged");
    let mut future = bytes.clone();
    for version in [0, 4] {
        future[8] = version;
        assert_eq!(
            said(&future),
            format!("its format is version {version}, and this program reads version 5")
        );
    }
    let later = NOW.saturating_add(AHEAD + Duration::from_secs(1));
    assert_eq!(
        said(&saved([], later)),
        "it was written 172801 s from now: was the clock set back?"
    );
    let latest = NOW.saturating_add(AHEAD);
    let bytes = saved([], latest);
    let reader = read(&bytes).expect("it is not too far ahead");
    assert_eq!(reader.saved_at, latest);
}

#[test]
fn recovered_buckets_and_removed_policies_take_no_memory() {
    let (before, after) = (
        tables(3, 100, OnFull::Forget),
        tables(3, 100, OnFull::Forget),
    );
    for table in &before {
        (0..20).for_each(|number| _ = charge(table, key(number), 1, NOW));
    }
    let bytes = saved(&before, NOW);
    let tomorrow = NOW.saturating_add(Duration::from_secs(24 * 3600));
    restored(&bytes, &after, tomorrow);
    assert!(after.iter().all(|table| table.live(tomorrow) == 0));
    let found = restored(&bytes, &after[..2], NOW);
    assert_eq!((found.buckets, found.dropped), (2 * 20, 6 * 20));
}

#[test]
fn used_units_are_kept_when_the_quota_is_another() {
    let (before, after) = (
        tables(9, 100, OnFull::Forget),
        tables(20, 100, OnFull::Forget),
    );
    for (number, table) in (1..).zip(&before) {
        assert!(charge(table, key(number), 5, NOW));
    }
    restored(&saved(&before, NOW), &after, NOW);
    for (number, table) in (1..).zip(&after) {
        assert_eq!(
            used(table, key(number), NOW),
            5,
            "{}",
            table.algorithm().kind()
        );
    }
}

/// Takes what is written, and charges every key meanwhile: nobody could if a bucket were locked.
struct Charging<'a> {
    table: &'a Table,
    written: Vec<u8>,
    largest: usize,
}

impl Write for Charging<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (0..2_000).for_each(|number| _ = charge(self.table, key(number), 1, NOW));
        self.largest = self.largest.max(bytes.len());
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn no_charge_waits_for_a_slow_disk_and_little_is_in_memory() {
    for table in tables(1_000, 4_000, OnFull::Forget) {
        (0..2_000).for_each(|number| _ = charge(&table, key(number), 100, NOW));
        let out = Charging {
            table: &table,
            written: Vec::new(),
            largest: 0,
        };
        let mut writer = SnapshotWriter::new(out, &SECRET, NOW).unwrap();
        writer.table("client_ip", &table, NOW).unwrap();
        let out = writer.finish([]).unwrap();
        assert!(out.largest < 2 * STEP, "{}", out.largest);
        let again = tables(1_000, 4_000, OnFull::Forget);
        restored(&out.written, &again, NOW);
        let again = again.iter().find(|again| again.policy() == table.policy());
        for number in 0..2_000 {
            assert!(used(again.unwrap(), key(number), NOW) >= 100);
        }
    }
}

/// Replaces the table when the first bytes are written.
struct Replacing<'a> {
    table: &'a Table,
    successor: Option<Arc<Table>>,
    written: Vec<u8>,
}

impl Write for Replacing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(successor) = self.successor.take() {
            self.table.migrate_to(successor, NOW);
        }
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_table_that_is_replaced_meanwhile_is_saved_whole() {
    let algorithm = algorithms(100).swap_remove(0);
    let new = |keys| Table::new("p", algorithm.clone(), keys, OnFull::Forget);
    let table = new(10_000);
    (0..9_000).for_each(|number| assert!(charge(&table, key(number), 7, NOW)));
    let out = Replacing {
        table: &table,
        successor: Some(Arc::new(new(30_000))),
        written: Vec::new(),
    };
    let mut writer = SnapshotWriter::new(out, &SECRET, NOW).unwrap();
    writer.table("client_ip", &table, NOW).unwrap();
    let bytes = writer.finish([]).unwrap().written;
    let again = [new(20_000)];
    restored(&bytes, &again, NOW);
    for number in 0..9_000 {
        assert_eq!(used(&again[0], key(number), NOW), 7);
    }
}

#[test]
fn a_snapshot_replaces_the_one_before_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("buckets");
    assert!(matches!(open(&path, NOW), Ok(None)));
    files::replace(&path, |file| write(file, &SECRET, NOW, [], [])).unwrap();
    let table = Table::new("p", algorithms(3).swap_remove(0), 10, OnFull::Forget);
    assert!(charge(&table, key(1), 2, NOW));
    let tables = [("k", &table)];
    files::replace(&path, |file| write(file, &SECRET, NOW, tables, [])).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(read(&bytes).is_ok());

    std::fs::create_dir(directory.path().join("buckets.new")).unwrap();
    files::replace(&path, |file| write(file, &SECRET, NOW, [], [])).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(
        set_aside(&path).unwrap(),
        directory.path().join("buckets.unusable")
    );
    assert!(matches!(open(&path, NOW), Ok(None)));
    assert!(matches!(open(directory.path(), NOW), Err(ReadError::Io(_))));
}

/// Every algorithm in a table of its own, with counters of four bytes or as they are.
fn tables_of(is_wide: bool) -> Vec<Table> {
    let algorithms = algorithms(9).into_iter().enumerate();
    let tables = algorithms.map(|(place, algorithm)| {
        let algorithm = if is_wide {
            algorithm.with_wide_counters()
        } else {
            algorithm
        };
        Table::new(format!("policy-{place}"), algorithm, 100, OnFull::Forget)
    });
    tables.collect()
}

/// So a change of the limits that makes counters wide or narrow loses nothing.
#[test]
fn files_have_wide_counters_whatever_memory_has() {
    let later = |minutes| NOW.saturating_add(Duration::from_mins(minutes));
    for is_wide in [false, true] {
        let before = tables_of(is_wide);
        for (number, minutes) in (1..9).zip([0, 1, 7, 13, 30, 44, 58, 59]) {
            for table in &before {
                charge(table, key(number % 3), number as u32 % 4, later(minutes));
            }
        }
        let bytes = saved(&before, later(59));
        for to_wide in [false, true] {
            let after = tables_of(to_wide);
            restored(&bytes, &after, later(59));
            for (old, new) in before.iter().zip(&after) {
                for (number, minutes) in (0..3).flat_map(|number| [(number, 59), (number, 70)]) {
                    let [old, new] =
                        [old, new].map(|table| used(table, key(number), later(minutes)));
                    assert_eq!(old, new, "{is_wide} {to_wide}");
                }
            }
        }
    }
}
