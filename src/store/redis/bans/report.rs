//! What the script is told of keys, and what it says. `script/bans.lua` says what each argument is.

use redis::Value;

use crate::clock::Timestamp;
use crate::limiter::{Ban, Fingerprint, Penalty, Strikes as Known};
use crate::store::redis::naming::Naming;
use crate::store::redis::reply::{ProtocolError, fields, number};
use crate::store::redis::script::Procedure;
use crate::store::redis::script_call::{ScriptCall, micros};

/// The most bans that one call reads of, with the last one that was read before.
const READ_AT_ONCE: u32 = 257;

/// What the bans of a policy are called, all in one slot of a cluster: they are told in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanKeys {
    /// Where bans are announced.
    stream: Box<[u8]>,
    /// What names begin with of what is remembered of keys.
    strikes: Box<str>,
}

/// What a machine tells of keys that are the same on all machines, and what it asks.
#[derive(Clone, Copy, Debug)]
pub struct BanReport<'a> {
    /// Of what policy.
    pub names: &'a BanKeys,
    /// When it bans.
    pub rule: &'a Penalty,
    /// What no other machine has.
    pub node: u64,
    /// The keys, and all that is known of them.
    pub keys: &'a [(Fingerprint, Known)],
    /// The last announcement that the machine has read; empty before the first.
    pub read: &'a [u8],
    /// Now, on its clock.
    pub here: Timestamp,
    /// The instant in the server's time; its clock's if there is none.
    pub now: Option<Timestamp>,
}

/// What the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanReply {
    /// The last announcement that was read; empty if the server has forgotten the one before.
    pub read: Vec<u8>,
    /// Why some of it could not be told.
    pub failure: Option<String>,
    /// Bans of which the machine may not know.
    pub bans: Vec<AnnouncedBan>,
}

/// A ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedBan {
    /// Who is banned.
    pub key: Fingerprint,
    /// Which of his bans it is.
    pub number: u32,
    /// The microseconds to its end; below 0 when it is over.
    pub left: i64,
    /// The microseconds until it is forgotten.
    pub remembered: i64,
    /// Whether it comes about by what was told.
    pub is_own: bool,
}

impl BanKeys {
    /// Those of the policy that is called so.
    pub fn new(naming: &Naming, label: &str) -> Self {
        let name = [&*naming.prefix, "{", label, "}"].concat();
        Self {
            stream: [name.as_bytes(), b":bans"].concat().into(),
            strikes: [&name, ":strikes:"].concat().into(),
        }
    }
}

impl BanReport<'_> {
    /// What to ask of [`Procedure::Ban`].
    pub fn ask(&self) -> ScriptCall {
        let mut ask = ScriptCall::new(Procedure::Ban);
        ask.key(&self.names.stream);
        for (key, _) in self.keys {
            let name = format!("{}{:016x}", self.names.strikes, key.bits());
            ask.key(name.as_bytes());
        }
        ask.instant(self.now);
        ask.bytes(self.read);
        ask.number(READ_AT_ONCE);
        ask.text(&format!("{:x}", self.node));
        let (strikes, within) = self.rule.strikes();
        ask.number(strikes);
        ask.number(micros(within));
        let lengths = self.rule.lengths();
        ask.number(lengths.len() as u64);
        for length in lengths {
            ask.number(micros(*length));
        }
        for (key, known) in self.keys {
            self.push(&mut ask, *key, known);
        }
        ask
    }

    fn push(&self, ask: &mut ScriptCall, key: Fingerprint, known: &Known) {
        let ban = known.last_ban();
        ask.text(&format!("{:016x}", key.bits()));
        ask.number(ban.number);
        ask.text(itoa::Buffer::new().format(ban.until.signed_micros_since(self.here)));
        let mut strikes = String::new();
        for at in known.counting() {
            let ago = micros(self.here.since(*at));
            strikes.push_str(itoa::Buffer::new().format(ago));
            strikes.push(' ');
        }
        ask.text(&strikes);
    }
}

impl BanReply {
    /// Reads the reply.
    ///
    /// # Errors
    /// When it is no reply to that.
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
        let text = |bytes| str::from_utf8(bytes).map_err(|_| ProtocolError::Malformed);
        let key = u64::from_str_radix(text(key)?, 16).map_err(|_| ProtocolError::Malformed)?;
        let micros = |bytes| text(bytes)?.parse().map_err(|_| ProtocolError::Malformed);
        Ok(Self {
            key: Fingerprint::from_bits(key),
            number: u32::try_from(number(ban)?).unwrap_or(u32::MAX),
            left: micros(left)?,
            remembered: micros(remembered)?,
            is_own: *is_own == b"1",
        })
    }

    /// The ban, on a clock that says `now`.
    pub fn ban(&self, now: Timestamp) -> Ban {
        Ban {
            number: self.number,
            until: now.saturating_add_signed(self.left),
            forgotten: now.saturating_add_signed(self.remembered),
        }
    }
}
