//! What the script is asked about strikes, and what it says. `script/bans.lua` says what each argument is.

use std::time::Duration;

use redis::Value;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Penalty, Strike};
use crate::store::redis::asked::{Ask, micros};
use crate::store::redis::naming::Naming;
use crate::store::redis::script::Procedure;
use crate::store::redis::told::{Nonsense, fields, number};

/// The most bans that one call hears of.
const HEARD_AT_ONCE: u32 = 256;

/// What the bans of a policy are called, all in one slot of a cluster: they are told in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanNames {
    /// Where bans are announced.
    stream: Box<[u8]>,
    /// What names begin with of what is remembered of keys.
    strikes: Box<str>,
}

/// A strike of a key that is the same on all machines.
#[derive(Clone, Copy, Debug)]
pub struct Struck {
    /// Whom it is about.
    pub key: Fingerprint,
    /// What no other machine has, and its number there.
    pub id: (u64, u64),
    /// The strike, as the machine counted it.
    pub strike: Strike,
}

/// Strikes that a machine tells, and what it asks.
#[derive(Clone, Copy, Debug)]
pub struct Strikes<'a> {
    /// Of what policy.
    pub names: &'a BanNames,
    /// When it bans.
    pub rule: &'a Penalty,
    /// The strikes.
    pub strikes: &'a [Struck],
    /// The last announcement that the machine has read; empty before the first.
    pub read: &'a [u8],
    /// Now, on its clock.
    pub here: Timestamp,
    /// The instant in the server's time; its clock's if there is none.
    pub now: Option<Timestamp>,
}

/// What the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The last announcement that was read.
    pub read: Vec<u8>,
    /// Why some strikes could not be counted.
    pub failure: Option<String>,
    /// Bans that hold.
    pub bans: Vec<Announced>,
}

/// A ban that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Who is banned.
    pub key: Fingerprint,
    /// Which of his bans it is.
    pub number: u32,
    /// For how long from now on.
    pub left: Duration,
    /// Whether the strikes that were told brought it about, and nobody knew of it.
    pub is_own: bool,
}

impl BanNames {
    /// Those of the policy that is called so.
    pub fn new(naming: &Naming, label: &str) -> Self {
        let name = [&*naming.prefix, "{", label, "}"].concat();
        Self {
            stream: [name.as_bytes(), b":bans"].concat().into(),
            strikes: [&name, ":strikes:"].concat().into(),
        }
    }
}

impl Strikes<'_> {
    /// What to ask of [`Procedure::Ban`].
    pub fn ask(&self) -> Ask {
        let mut ask = Ask::new(Procedure::Ban);
        ask.key(&self.names.stream);
        for struck in self.strikes {
            let name = format!("{}{:016x}", self.names.strikes, struck.key.bits());
            ask.key(name.as_bytes());
        }
        ask.instant(self.now);
        ask.bytes(self.read);
        ask.number(HEARD_AT_ONCE);
        let (strikes, within) = self.rule.strikes();
        ask.number(strikes);
        ask.number(micros(within));
        let lengths = self.rule.lengths();
        ask.number(lengths.len() as u64);
        for length in lengths {
            ask.number(micros(*length));
        }
        for struck in self.strikes {
            self.push(&mut ask, struck);
        }
        ask
    }

    fn push(&self, ask: &mut Ask, struck: &Struck) {
        let Struck { key, id, strike } = struck;
        ask.text(&format!("{:016x}", key.bits()));
        ask.text(&format!("{:016x}{:x}", id.0, id.1));
        ask.number(micros(self.here.since(strike.at)));
        ask.number(strike.bans);
        let until = strike.until.unwrap_or(self.here);
        ask.number(micros(until.since(self.here)));
    }
}

impl Heard {
    /// Reads the reply.
    ///
    /// # Errors
    /// When it is no reply to that.
    pub fn read(reply: &Value) -> Result<Self, Nonsense> {
        let fields = fields(reply)?;
        let [read, failure, bans @ ..] = &*fields else {
            return Err(Nonsense::Malformed);
        };
        let (bans, []) = bans.as_chunks() else {
            return Err(Nonsense::Malformed);
        };
        let failure = String::from_utf8_lossy(failure);
        Ok(Self {
            read: read.to_vec(),
            failure: (!failure.is_empty()).then(|| failure.into_owned()),
            bans: bans.iter().map(Announced::read).collect::<Result<_, _>>()?,
        })
    }
}

impl Announced {
    fn read([key, ban, left, is_own]: &[&[u8]; 4]) -> Result<Self, Nonsense> {
        let key = str::from_utf8(key).map_err(|_| Nonsense::Malformed)?;
        let key = u64::from_str_radix(key, 16).map_err(|_| Nonsense::Malformed)?;
        Ok(Self {
            key: Fingerprint::from_bits(key),
            number: u32::try_from(number(ban)?).unwrap_or(u32::MAX),
            left: Duration::from_micros(number(left)?),
            is_own: *is_own == b"1",
        })
    }
}
