//! Reading a snapshot into the tables of a new process, after checking all of it.

use std::hash::Hasher;
use std::io::{BufReader, Read, Seek, SeekFrom};

use super::{
    AHEAD, BANNED, END, FLOOR, GRANTED, KEY, KEYS, MAGIC, PolicyKeyRules, ReadError, STEP, STRIKES,
    TABLE, VERSION, check_of, checksum,
};
use crate::clock::Timestamp;
use crate::limiter::penalty::{Ban, BanHistory};
use crate::limiter::ring::{BucketState, RingBuilder};
use crate::limiter::snapshot::{EntryKeys, ExportedEntry};
use crate::limiter::{Algorithm, Cell, Fingerprint, Secret};
use crate::store::{Attribution, KeyRule, OperatorActionKind, Table};

/// The longest policy name or key: no configuration is longer.
const LONGEST: u32 = 16 << 20;
/// The largest number of strikes of a key: no penalty needs more.
const MOST_STRIKES: u32 = 100;
/// Bytes of the checksum.
const CHECKSUM: u64 = 8;

/// A snapshot that has passed its check.
#[derive(Debug)]
pub struct Reader<R> {
    input: BufReader<R>,
    /// The secret of the buckets' fingerprints.
    pub secret: Secret,
    /// The instant at which the snapshot was saved.
    pub saved_at: Timestamp,
}

/// Counts of restored entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreCounts {
    /// Buckets restored to tables, if they still count and fit.
    pub buckets: u64,
    /// Keys with restored strikes, bans or grants.
    pub bans: u64,
    /// Buckets, and keys with strikes, bans or grants, of policies that no longer exist.
    pub dropped: u64,
}

impl<R: Read + Seek> Reader<R> {
    /// Checks all of `input`.
    ///
    /// # Errors
    /// The reason why the file is not read.
    pub fn new(input: R, now: Timestamp) -> Result<Self, ReadError> {
        let mut reader = Self {
            input: BufReader::with_capacity(STEP, input),
            secret: Secret::from_key([0, 0]),
            saved_at: Timestamp::EPOCH,
        };
        let start = reader.header(now);
        match start {
            Err(ReadError::Foreign | ReadError::Version(_) | ReadError::Io(_)) => start?,
            // A wrong checksum hides all other errors.
            _ => reader.check_sum().and(start)?,
        }
        Ok(reader)
    }

    /// Restores the buckets, bans and grants of every policy that the functions find by name and
    /// key. Used units and the ends of bans are kept, whatever else about the policy has changed.
    ///
    /// # Errors
    /// The file is damaged, or has changed since the check. Entries restored before the error stay.
    pub fn restore<'t>(
        mut self,
        find_table: impl Fn(&str, &str) -> Option<&'t Table>,
        find_keys: impl Fn(&str, &str) -> Option<PolicyKeyRules<'t>>,
        now: Timestamp,
    ) -> Result<RestoreCounts, ReadError> {
        let mut restored = RestoreCounts::default();
        let mut tag = self.u8()?;
        loop {
            match tag {
                END => return Ok(restored),
                TABLE => tag = self.table(&find_table, now, &mut restored)?,
                KEYS => tag = self.policy_keys(&find_keys, now, &mut restored)?,
                _ => return Err(ReadError::Damaged),
            }
        }
    }

    fn header(&mut self, now: Timestamp) -> Result<(), ReadError> {
        let magic = self.bytes::<{ MAGIC.len() }>()?;
        if magic != MAGIC {
            return Err(ReadError::Foreign);
        }
        match self.u32()? {
            VERSION => {}
            other => return Err(ReadError::Version(other)),
        }
        self.secret = Secret::from_key([self.u64()?, self.u64()?]);
        self.saved_at = Timestamp::from_micros(self.u64()?);
        match self.saved_at.since(now) {
            ahead if ahead > AHEAD => Err(ReadError::Future(ahead)),
            _ => Ok(()),
        }
    }

    /// Compares the checksum with the content, and returns to the present position.
    fn check_sum(&mut self) -> Result<(), ReadError> {
        let start = self.input.stream_position()?;
        let end = self.input.seek(SeekFrom::End(0))?;
        let mut left = end.checked_sub(CHECKSUM).ok_or(ReadError::Damaged)?;
        self.input.seek(SeekFrom::Start(0))?;
        let (mut sum, mut step) = (checksum(), vec![0; STEP]);
        while left > 0 {
            let some = &mut step[..left.min(STEP as u64) as usize];
            self.input.read_exact(some)?;
            sum.write(some);
            left -= some.len() as u64;
        }
        if self.u64()? != sum.finish() {
            return Err(ReadError::Damaged);
        }
        self.input.seek(SeekFrom::Start(start))?;
        Ok(())
    }

    /// Reads a table, and the tag that follows it.
    fn table<'t>(
        &mut self,
        find: &impl Fn(&str, &str) -> Option<&'t Table>,
        now: Timestamp,
        restored: &mut RestoreCounts,
    ) -> Result<u8, ReadError> {
        let (policy, key) = (self.text()?, self.text()?);
        let recipe = [(); 5].map(|()| self.u64());
        let [kind, limit, window, one, two] = recipe;
        let from = Algorithm::decode([kind?, limit?, window?, one?, two?]);
        let from = from.ok_or(ReadError::Damaged)?.with_wide_counters();
        let words = self.u32()?;
        if words != from.shape().map_or(0, |shape| shape.chunk_words()) {
            return Err(ReadError::Damaged);
        }
        let table = find(&policy, &key);
        let mut staged = from.shape().map(RingBuilder::new);
        loop {
            let tag = self.u8()?;
            let keys = match tag {
                KEY => EntryKeys::Key(Fingerprint::from_bits(self.u64()?)),
                FLOOR => EntryKeys::Floor(self.keys()?),
                _ => return Ok(tag),
            };
            let state = self.state(staged.as_mut())?;
            let Some(state) = state.filter(|state| from.is_sound(*state)) else {
                return Err(ReadError::Damaged);
            };
            let from = &from;
            match table {
                Some(table) => table.import(&ExportedEntry { keys, from, state }, now),
                None => restored.dropped += 1,
            }
            restored.buckets += u64::from(table.is_some());
        }
    }

    /// Reads the strikes, bans and grants of a policy, and the tag that follows them. Fingerprints
    /// with another secret name other keys.
    fn policy_keys<'t>(
        &mut self,
        find: &impl Fn(&str, &str) -> Option<PolicyKeyRules<'t>>,
        now: Timestamp,
        restored: &mut RestoreCounts,
    ) -> Result<u8, ReadError> {
        let (policy, key) = (self.text()?, self.text()?);
        let check = self.u64()?;
        let found = find(&policy, &key).filter(|found| check_of(&found.secret) == check);
        loop {
            let kind = match self.u8()? {
                STRIKES => None,
                BANNED => Some(OperatorActionKind::Ban),
                GRANTED => Some(OperatorActionKind::Grant),
                tag => return Ok(tag),
            };
            let key = Fingerprint::from_bits(self.u64()?);
            let is_back = if let Some(kind) = kind {
                let rule = self.rule()?;
                let steered = found.and_then(|found| found.steered);
                steered.map(|steered| steered.restore(key, kind, rule, now))
            } else {
                let strikes = self.strikes()?;
                let bans = found.and_then(|found| found.bans);
                bans.map(|bans| bans.restore(key, strikes, now))
            };
            match is_back {
                Some(is_back) => restored.bans += u64::from(is_back),
                None => restored.dropped += 1,
            }
        }
    }

    fn rule(&mut self) -> Result<KeyRule, ReadError> {
        Ok(KeyRule {
            units: self.u32()?,
            left: self.u32()?,
            since: Timestamp::from_micros(self.u64()?),
            until: Timestamp::from_micros(self.u64()?),
            by: Attribution {
                reason: self.text()?.into(),
                actor: self.text()?.into(),
            },
        })
    }

    fn strikes(&mut self) -> Result<BanHistory, ReadError> {
        let last = Ban {
            number: self.u32()?,
            until: Timestamp::from_micros(self.u64()?),
            forgotten_at: Timestamp::from_micros(self.u64()?),
        };
        let count = self.u32()?;
        if count > MOST_STRIKES {
            return Err(ReadError::Damaged);
        }
        let at = (0..count).map(|_| self.u64().map(Timestamp::from_micros));
        let at = at.collect::<Result<Vec<_>, _>>()?;
        Ok(BanHistory::restore(at, last))
    }

    fn keys(&mut self) -> Result<[u64; 2], ReadError> {
        let keys = [self.u64()?, self.u64()?];
        if keys[0] <= keys[1] {
            Ok(keys)
        } else {
            Err(ReadError::Damaged)
        }
    }

    /// A cell with its ring, if it has one; `None` if the ring is invalid.
    fn state<'a>(
        &mut self,
        staged: Option<&'a mut RingBuilder>,
    ) -> Result<Option<BucketState<'a>>, ReadError> {
        let cell = Cell {
            expires: self.u64()?,
            a: self.u32()?,
            b: self.u32()?,
        };
        let Some(staged) = staged else {
            return Ok(Some(cell.into()));
        };
        staged.begin();
        for _ in 0..self.u32()? {
            let place = self.u32()?;
            if !self.chunk(place, staged)? {
                return Ok(None);
            }
        }
        Ok(staged.state(cell))
    }

    fn chunk(&mut self, place: u32, staged: &mut RingBuilder) -> Result<bool, ReadError> {
        let words = (0..staged.chunk_words()).map(|_| self.u32());
        let words = words.collect::<Result<Vec<_>, _>>()?;
        Ok(staged.put(place, words))
    }

    fn text(&mut self) -> Result<String, ReadError> {
        let length = self.u32()?;
        if length > LONGEST {
            return Err(ReadError::Damaged);
        }
        let mut text = String::new();
        let read = (&mut self.input)
            .take(length.into())
            .read_to_string(&mut text);
        match read {
            Ok(read) if read == length as usize => Ok(text),
            _ => Err(ReadError::Damaged),
        }
    }

    fn u8(&mut self) -> Result<u8, ReadError> {
        self.bytes().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, ReadError> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ReadError> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
