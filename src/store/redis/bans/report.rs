//! The report of a machine's strikes, and the reply. `script/bans.lua` documents each argument.

use redis::Value;

use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::limiter::penalty::{Ban, BanHistory as Known, Penalty};
use crate::store::redis::client::ScriptWords;
use crate::store::redis::naming::Naming;
use crate::store::redis::reply::{ProtocolError, fields, parsed};
use crate::store::redis::script::Procedure;
use crate::store::redis::script_call::{ScriptCall, micros, push_server_time};

/// The most announcements that one call reads, with the last one read before.
const READ_AT_ONCE: u32 = 257;

/// The Redis keys of a policy's bans, all in one slot of a cluster for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanKeys {
    /// The stream of announcements.
    stream: Box<[u8]>,
    /// The prefix of the keys with strikes.
    strikes: Box<str>,
}

/// A machine's report on keys, which all machines share.
#[derive(Clone, Copy, Debug)]
pub struct BanReport<'a> {
    /// The keys of the policy.
    pub names: &'a BanKeys,
    /// The rule of the policy's bans.
    pub rule: &'a Penalty,
    /// An id that no other machine has.
    pub node: u64,
    /// The keys, with all strikes and bans that the machine knows.
    pub keys: &'a [(Fingerprint, Known)],
    /// The last announcement that the machine has read; empty before the first.
    pub read: &'a [u8],
    /// Now, on the machine's clock.
    pub here: Timestamp,
}

/// The reply to a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanReply {
    /// The last announcement read; empty if the server has forgotten the one before.
    pub read: Vec<u8>,
    /// The failure of a part of the report.
    pub failure: Option<String>,
    /// Bans that the machine may not know.
    pub bans: Vec<AnnouncedBan>,
}

/// A ban of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedBan {
    /// The banned key.
    pub key: Fingerprint,
    /// The number of the key's bans so far; 0 if they are lifted.
    pub number: u32,
    /// The microseconds to its end; below 0 when it is over.
    pub left: i64,
    /// The microseconds until it is forgotten.
    pub remembered: i64,
    /// True if this report caused it.
    pub is_own: bool,
}

impl BanKeys {
    /// The keys of the policy with this label.
    pub fn new(naming: &Naming, label: &str) -> Self {
        let name = [&*naming.prefix, "{", label, "}"].concat();
        Self {
            stream: [name.as_bytes(), b":bans"].concat().into(),
            strikes: [&name, ":strikes:"].concat().into(),
        }
    }

    /// The stream of announcements.
    pub(in crate::store) fn stream(&self) -> &[u8] {
        &self.stream
    }

    /// The record of a key.
    pub(in crate::store) fn record(&self, key: Fingerprint) -> Vec<u8> {
        format!("{}{:016x}", self.strikes, key.bits()).into_bytes()
    }
}

impl BanReport<'_> {
    /// The call of [`Procedure::Ban`].
    pub fn script_call(&self) -> ScriptCall {
        let mut words = ScriptWords::default();
        words.key(&self.names.stream);
        for (key, _) in self.keys {
            words.key(&self.names.record(*key));
        }
        push_server_time(&mut words);
        words.bytes(self.read);
        words.number(READ_AT_ONCE);
        words.text(&format!("{:x}", self.node));
        words.number(self.rule.strikes);
        words.number(micros(self.rule.within));
        words.number(self.rule.lengths.len() as u64);
        for length in &self.rule.lengths {
            words.number(micros(*length));
        }
        for (key, known) in self.keys {
            self.push(&mut words, *key, known);
        }
        ScriptCall::new(Procedure::Ban, words)
    }

    fn push(&self, words: &mut ScriptWords, key: Fingerprint, known: &Known) {
        let ban = known.last_ban();
        words.text(&format!("{:016x}", key.bits()));
        words.number(ban.number);
        words.text(itoa::Buffer::new().format(ban.until.signed_micros_since(self.here)));
        let mut strikes = String::new();
        for at in known.recent_strikes() {
            let ago = micros(self.here.since(*at));
            strikes.push_str(itoa::Buffer::new().format(ago));
            strikes.push(' ');
        }
        words.text(&strikes);
    }
}

impl BanReply {
    /// Reads the reply.
    ///
    /// # Errors
    /// If it is no reply to this call.
    pub fn read(reply: &Value) -> Result<Self, ProtocolError> {
        let fields = fields(reply)?;
        let [read, failure, bans @ ..] = &*fields else {
            return Err(ProtocolError::Malformed);
        };
        let (bans, []) = bans.as_chunks() else {
            return Err(ProtocolError::Malformed);
        };
        let failure = String::from_utf8_lossy(failure);
        Ok(Self {
            read: read.to_vec(),
            failure: (!failure.is_empty()).then(|| failure.into_owned()),
            bans: bans
                .iter()
                .map(AnnouncedBan::read)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl AnnouncedBan {
    fn read([key, ban, left, remembered, is_own]: &[&[u8]; 5]) -> Result<Self, ProtocolError> {
        let key = str::from_utf8(key).ok();
        let key = key.and_then(|key| u64::from_str_radix(key, 16).ok());
        Ok(Self {
            key: Fingerprint::from_bits(key.ok_or(ProtocolError::Malformed)?),
            number: u32::try_from(parsed::<u64>(ban)?).unwrap_or(u32::MAX),
            left: parsed(left)?,
            remembered: parsed(remembered)?,
            is_own: *is_own == b"1",
        })
    }

    /// The ban, on a clock that says `now`.
    pub fn ban(&self, now: Timestamp) -> Ban {
        Ban {
            number: self.number,
            until: now.saturating_add_signed(self.left),
            forgotten_at: now.saturating_add_signed(self.remembered),
        }
    }
}
