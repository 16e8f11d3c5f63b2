//! Writing a snapshot bucket by bucket: a lock is held only while one bucket is copied, and only a
//! few buckets are in memory.

use std::hash::Hasher;
use std::io::{self, Write};

use siphasher::sip::SipHasher13;

use super::{
    BANNED, BANS, END, FLOOR, GRANTED, KEY, MAGIC, OLDEST, PolicyBans, PolicySteering, STEERED,
    STEP, STRIKES, SavedKeys, TABLE, VERSION, WITHOUT_STEERING, check_of, checksum,
};
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, BanHistory, BucketState, Fingerprint, RingMemory, Secret};
use crate::store::memory::bucket;
use crate::store::memory::table::ExportedEntry;
use crate::store::{Attribution, GrantedUnits, OperatorBan, Table};

/// A snapshot in progress.
pub struct SnapshotWriter<'a, W> {
    out: W,
    sum: SipHasher13,
    buffer: Vec<u8>,
    /// Written after the buckets; empty in a file of the oldest version.
    keys: SavedKeys<'a>,
    saved_at: Timestamp,
}

impl<'a, W: Write> SnapshotWriter<'a, W> {
    /// Starts a snapshot of buckets whose fingerprints use `secret`, and of the keys that count at
    /// `now`.
    ///
    /// The file has the oldest version that has all of them, so that an earlier release can read
    /// it.
    ///
    /// # Errors
    /// Errors of `out`, as from all methods here.
    pub fn new(out: W, secret: &Secret, keys: SavedKeys<'a>, now: Timestamp) -> io::Result<Self> {
        let mut writer = Self {
            out,
            sum: checksum(),
            buffer: Vec::with_capacity(2 * STEP),
            keys,
            saved_at: now,
        };
        writer.keys.steered.retain(|of| of.has_any(now));
        if !writer.keys.bans.iter().any(|of| of.has_any(now)) {
            writer.keys.bans.clear();
        }
        writer.buffer.extend(MAGIC);
        writer.put_u32(match (&*writer.keys.bans, &*writer.keys.steered) {
            ([], []) => OLDEST,
            (_, []) => WITHOUT_STEERING,
            _ => VERSION,
        });
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
    pub fn finish(mut self) -> io::Result<W> {
        let SavedKeys { bans, steered } = std::mem::take(&mut self.keys);
        for of in bans {
            self.bans(&of)?;
        }
        for of in steered {
            self.steered(&of)?;
        }
        self.buffer.push(END);
        self.flush()?;
        self.out.write_all(&self.sum.finish().to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn bans(&mut self, of: &PolicyBans<'_>) -> io::Result<()> {
        self.buffer.push(BANS);
        self.put_text(of.policy);
        self.put_text(of.key);
        self.put_u64(check_of(&of.secret));
        for some in of.bans.saved(of.rule, self.saved_at) {
            for (key, strikes) in &some {
                self.strikes(*key, strikes);
                if self.buffer.len() >= STEP {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    fn steered(&mut self, of: &PolicySteering<'_>) -> io::Result<()> {
        self.buffer.push(STEERED);
        self.put_text(of.policy);
        self.put_text(of.key);
        self.put_u64(check_of(&of.secret));
        for some in of.keys.saved(self.saved_at) {
            for (key, steered) in &some {
                if let Some(ban) = &steered.ban {
                    self.banned(*key, ban);
                }
                let granted = of.keys.grant_of(*key, *key, self.saved_at);
                if let Some(granted) = granted.filter(|_| !of.keys.is_shared()) {
                    self.granted(*key, &granted);
                }
            }
            if self.buffer.len() >= STEP {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn banned(&mut self, key: Fingerprint, ban: &OperatorBan) {
        self.buffer.push(BANNED);
        self.put_u64(key.bits());
        self.put_u64(ban.since.as_micros());
        self.put_u64(ban.until.as_micros());
        self.put_by(&ban.by);
    }

    fn granted(&mut self, key: Fingerprint, granted: &GrantedUnits) {
        self.buffer.push(GRANTED);
        self.put_u64(key.bits());
        self.put_u64(granted.until.as_micros());
        self.put_u32(granted.left);
        self.put_u32(granted.units);
        self.put_u64(granted.since.as_micros());
        self.put_by(&granted.by);
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
        for (index, bucket) in table.touched() {
            if let Some(slots) = bucket.lock() {
                for entry in slots.live(now) {
                    let entry = table.export(index, entry);
                    if entry.state.words.map(RingMemory::shape) == shape {
                        self.entry(&entry)
                    } else {
                        self.converted(&entry, &plain, now)
                    }
                }
            }
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
        let [first, last] = entry.keys;
        if entry.tag == bucket::FLOOR {
            self.buffer.push(FLOOR);
            self.put_u64(first);
            self.put_u64(last);
        } else {
            self.buffer.push(KEY);
            self.put_u64(entry.tag);
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
        let placed = || words.ring(cell.a).placed();
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

    fn put_by(&mut self, by: &Attribution) {
        self.put_text(&by.reason);
        self.put_text(&by.actor);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sum.write(&self.buffer);
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
