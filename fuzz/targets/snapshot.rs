//! Snapshots of buckets: any file is restored without a panic, and what was saved or
//! restored can be saved and restored again, and decides as before.

use std::hash::Hasher;
use std::io::Cursor;
use std::sync::{Arc, LazyLock};

use super::fixture::{self, NOW, SECRET};
use crate::clock::Timestamp;
use crate::config::Loaded;
use crate::limiter::{Cell, Decision, Fingerprint, Verdict};
use crate::proxy::Ruleset;
use crate::store::snapshot::{ReadError, Reader, RestoreCounts, SnapshotWriter, checksum};
use crate::store::{Charge, charge_into};

/// Magic, version, secret and time.
const HEADER: usize = 8 + 4 + 16 + 8;

static LOADED: LazyLock<Loaded> = LazyLock::new(|| fixture::loaded(include_str!("snapshot.yaml")));

/// If the first byte is even, what follows is a file's content, to which the target adds header and
/// checksum. Else each four bytes are a charge. The last charges are made before and after a restart.
pub(super) fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    // Whatever it is, it is no file.
    Reader::new(Cursor::new(data), NOW).expect_err("no magic");
    let (rest, last) = rest.split_at(rest.len() - rest.len().min(LAST));
    let (ruleset, now) = if choice % 2 == 0 {
        let (ruleset, _) = restored(&with_header_and_checksum(rest), NOW);
        (ruleset, NOW)
    } else {
        let ruleset = empty();
        let (_, now) = charge(&ruleset, NOW, rest);
        (ruleset, now)
    };
    let (again, end) = restored(&save(&ruleset, now), now);
    end.expect("what was saved is restored");
    let (_, end) = restored(&save(&again, now), now);
    end.expect("what was restored is saved");
    let [here, there] = [&ruleset, &again].map(|ruleset| charge(ruleset, now, last).0);
    assert_eq!(here, there, "a restart changes decisions");
}

/// The bytes of the charges before and after a restart.
const LAST: usize = 64;

fn with_header_and_checksum(content: &[u8]) -> Vec<u8> {
    let empty = save(&empty(), NOW);
    let mut file = [&empty[..HEADER], content].concat();
    let mut sum = checksum();
    sum.write(&file);
    file.extend(sum.finish().to_le_bytes());
    file
}

fn empty() -> Arc<Ruleset> {
    fixture::ruleset(fixture::rules(&LOADED))
}

/// The decisions on these charges, and the time of the last.
fn charge(ruleset: &Ruleset, mut now: Timestamp, charges: &[u8]) -> (Vec<Decision>, Timestamp) {
    let tables: Vec<_> = ruleset.tables().map(|(_, table)| table).collect();
    let (mut decided, mut verdict) = (Vec::new(), Verdict::default());
    let (charges, _) = charges.as_chunks::<4>();
    for &[table, key, cost, seconds] in charges {
        // Up to an hour and a half.
        now = now.saturating_add_micros(u64::from(seconds).pow(2) * 80_000);
        let charge = Charge::new(
            tables[usize::from(table) % tables.len()],
            Fingerprint::from_bits(u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            u32::from(cost),
        );
        charge_into(&mut verdict, &[charge], now);
        // An expired cell isn't saved.
        let cell = Cell::default();
        decided.extend(
            verdict
                .decisions
                .iter()
                .map(|one| Decision { cell, ..*one }),
        );
    }
    (decided, now)
}

fn save(ruleset: &Ruleset, now: Timestamp) -> Vec<u8> {
    let mut writer = SnapshotWriter::new(Vec::new(), &SECRET, now).expect("memory");
    for (key, table) in ruleset.tables() {
        writer.table(key, table, now).expect("memory");
    }
    writer.finish(ruleset.keys()).expect("memory")
}

/// A ruleset with what a file has, up to its first error, and that.
fn restored(file: &[u8], now: Timestamp) -> (Arc<Ruleset>, Result<RestoreCounts, ReadError>) {
    let ruleset = empty();
    let reader = Reader::new(Cursor::new(file), now).expect("header and checksum are right");
    let find_table = |policy: &str, key: &str| {
        let mut tables = ruleset.tables();
        let found = tables.find(|(own, table)| (table.policy(), *own) == (policy, key));
        found.map(|(_, table)| table)
    };
    let find_keys = |policy: &str, key: &str| {
        ruleset
            .keys()
            .find(|of| (of.policy, of.key) == (policy, key))
    };
    let end = reader.restore(find_table, find_keys, now);
    (ruleset, end)
}
