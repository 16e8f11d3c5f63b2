//! Writing a snapshot bucket by bucket: a lock is held only while one bucket is copied, and only a
//! few buckets are in memory.

use std::hash::Hasher;
use std::io::{self, Write};

use siphasher::sip::SipHasher13;

use super::{
    BANNED, END, FLOOR, GRANTED, KEY, KEYS, MAGIC, PolicyKeyRules, STEP, STRIKES, TABLE, VERSION,
    check_of, checksum,
};
use crate::clock::Timestamp;
use crate::limiter::penalty::BanHistory;
use crate::limiter::ring::{BucketState, RingMemory};
use crate::limiter::snapshot::{EntryKeys, ExportedEntry};
use crate::limiter::{Algorithm, Fingerprint, Secret};
use crate::store::{KeyRule, OperatorActionKind, Table};

/// A snapshot in progress.
pub struct SnapshotWriter<W> {
    out: W,
    sum: SipHasher13,
    buffer: Vec<u8>,
    saved_at: Timestamp,
}

impl<W: Write> SnapshotWriter<W> {
    /// Starts a snapshot, as of `now`, of buckets whose fingerprints use `secret`.
    ///
    /// # Errors
    /// Errors of `out`, as from all methods here.
    pub fn new(out: W, secret: &Secret, now: Timestamp) -> io::Result<Self> {
        let mut writer = Self {
            out,
            sum: checksum(),
            buffer: Vec::with_capacity(2 * STEP),
            saved_at: now,
        };
        writer.buffer.extend(MAGIC);
        writer.put_u32(VERSION);
        for number in secret.key() {
            writer.put_u64(number);
        }
        writer.put_u64(now.as_micros());
        Ok(writer)
    }

    /// Adds the buckets of a policy with this key that count at `now`. Concurrent charges are
    /// allowed: each bucket is copied at one instant. Units in use are left out.
    pub fn table(&mut self, key: &str, table: &Table, now: Timestamp) -> io::Result<()> {
        let mut table = table;
        loop {
            self.buckets(key, table, now)?;
            // Buckets that moved meanwhile are in the successor.
            match table.successor() {
                Some(next) => table = next,
                None => return Ok(()),
            }
        }
    }

    /// Adds the keys beside the buckets, and ends the snapshot.
    pub fn finish<'a>(
        mut self,
        keys: impl IntoIterator<Item = PolicyKeyRules<'a>>,
    ) -> io::Result<W> {
        for of in keys {
            self.keys(&of)?;
        }
        self.buffer.push(END);
        self.flush()?;
        self.out.write_all(&self.sum.finish().to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn keys(&mut self, of: &PolicyKeyRules<'_>) -> io::Result<()> {
        let now = self.saved_at;
        self.buffer.push(KEYS);
        self.put_text(of.policy);
        self.put_text(of.key);
        self.put_u64(check_of(&of.secret));
        let strikes = of.bans.into_iter().flat_map(|bans| bans.saved(now));
        for (key, strikes) in strikes.flatten() {
            self.strikes(key, &strikes);
            self.flush_full()?;
        }
        let steered = of.steered.into_iter();
        for (key, kind, rule) in steered.flat_map(|steered| steered.saved(now)) {
            self.rule(key, kind, &rule);
            self.flush_full()?;
        }
        Ok(())
    }

    fn rule(&mut self, key: Fingerprint, kind: OperatorActionKind, rule: &KeyRule) {
        self.buffer.push(match kind {
            OperatorActionKind::Ban => BANNED,
            OperatorActionKind::Grant => GRANTED,
        });
        self.put_u64(key.bits());
        self.put_u32(rule.units);
        self.put_u32(rule.left);
        self.put_u64(rule.since.as_micros());
        self.put_u64(rule.until.as_micros());
        self.put_text(&rule.by.reason);
        self.put_text(&rule.by.actor);
    }

    fn buckets(&mut self, key: &str, table: &Table, now: Timestamp) -> io::Result<()> {
        let Some(recipe) = table.algorithm().encode() else {
            return Ok(());
        };
        let plain = table.algorithm().clone().with_wide_counters();
        let shape = plain.shape();
        self.buffer.push(TABLE);
        self.put_text(table.policy());
        self.put_text(key);
        for number in recipe {
            self.put_u64(number);
        }
        self.put_u32(shape.map_or(0, |shape| shape.chunk_words()));
        for bucket in table.export() {
            for entry in bucket.entries(now) {
                if entry.state.words.map(RingMemory::shape) == shape {
                    self.entry(&entry)
                } else {
                    self.converted(&entry, &plain, now)
                }
            }
            drop(bucket);
            if self.buffer.len() >= STEP {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes an entry whose rings have another layout.
    fn converted(&mut self, entry: &ExportedEntry<'_>, plain: &Algorithm, now: Timestamp) {
        let carried = plain.convert(entry.from, entry.state, now);
        let chunks = carried.chunks();
        let words = plain.shape().map(|shape| RingMemory::new(shape, chunks));
        let cell = carried.write(words.as_ref(), &mut (1..=chunks));
        let state = BucketState {
            cell,
            words: words.as_ref(),
        };
        self.entry(&ExportedEntry { state, ..*entry });
    }

    fn entry(&mut self, entry: &ExportedEntry<'_>) {
        match entry.keys {
            EntryKeys::Floor([first, last]) => {
                self.buffer.push(FLOOR);
                self.put_u64(first);
                self.put_u64(last);
            }
            EntryKeys::Key(key) => {
                self.buffer.push(KEY);
                self.put_u64(key.bits());
            }
        }
        self.put_u64(entry.state.cell.expires);
        self.put_u32(entry.state.cell.a);
        self.put_u32(entry.state.cell.b);
        self.ring(entry.state);
    }

    fn ring(&mut self, BucketState { cell, words }: BucketState<'_>) {
        let Some(words) = words else {
            return;
        };
        let placed = || words.ring(cell.a).chunks();
        self.put_u32(placed().count() as u32);
        for (place, chunk) in placed() {
            self.put_u32(place);
            for word in words.chunk(chunk) {
                self.put_u32(word);
            }
        }
    }

    fn strikes(&mut self, key: Fingerprint, strikes: &BanHistory) {
        let (last, counting) = (strikes.last_ban(), strikes.recent_strikes());
        self.buffer.push(STRIKES);
        self.put_u64(key.bits());
        self.put_u32(last.number);
        self.put_u64(last.until.as_micros());
        self.put_u64(last.forgotten_at.as_micros());
        // At most 100, as in any penalty.
        self.put_u32(counting.len() as u32);
        for at in counting {
            self.put_u64(at.as_micros());
        }
    }

    fn put_u32(&mut self, number: u32) {
        self.buffer.extend(number.to_le_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.buffer.extend(number.to_le_bytes());
    }

    fn put_text(&mut self, text: &str) {
        // At most 16 MiB, as any configuration.
        self.put_u32(text.len() as u32);
        self.buffer.extend(text.as_bytes());
    }

    fn flush_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < STEP {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sum.write(&self.buffer);
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
