//! What is asked after a charge: leases are renewed and given back, who waits leaves, and costs are settled.

use std::time::Duration;

use redis::Value;

use super::reply::{ProtocolError, fields, number};
use super::script::Procedure;
use super::script_call::{BucketCharge, EXACT, Lease, ScriptCall, micros};
use super::value;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, Reserved};

/// Units in use.
#[derive(Clone, Copy, Debug)]
pub struct LeasedUnits<'a> {
    /// The bucket's name, as of the charge that took them.
    pub name: &'a [u8],
    /// The id of their lease.
    pub id: &'a str,
    /// How many.
    pub units: u32,
}

impl ScriptCall {
    /// Has these leases last so long from now on ([`Procedure::Lease`]).
    pub fn renewal(lent: &[LeasedUnits<'_>], lasts: Duration, now: Option<Timestamp>) -> Self {
        Self::of_leases("renew", lent, lasts, now)
    }

    /// Gives back these units ([`Procedure::Lease`]).
    pub fn giving_back(lent: &[LeasedUnits<'_>], now: Option<Timestamp>) -> Self {
        Self::of_leases("give_back", lent, Duration::ZERO, now)
    }

    fn of_leases(
        what: &str,
        lent: &[LeasedUnits<'_>],
        lasts: Duration,
        now: Option<Timestamp>,
    ) -> Self {
        let mut ask = Self::new(Procedure::Lease);
        for one in lent {
            ask.key_of_leases(one.name);
        }
        ask.instant(now);
        ask.text(what);
        ask.number(micros(lasts));
        for one in lent {
            ask.text(one.id);
            ask.number(one.units);
        }
        ask
    }

    /// Gives back what a charge took that made somebody wait, and left the bucket `charged`, if nobody has come after him
    /// ([`Procedure::Leave`]). `None` where nobody waits.
    pub fn leave(charge: &BucketCharge<'_>, charged: Cell, now: Option<Timestamp>) -> Option<Self> {
        let Algorithm::LeakyBucket(bucket) = charge.algorithm else {
            return None;
        };
        let mut ask = Self::new(Procedure::Leave);
        charge.push_key(&mut ask);
        ask.instant(now);
        ask.recipe(charge.algorithm);
        ask.text(&value::cell_text(charged));
        ask.spans(bucket.line(), charge.cost);
        Some(ask)
    }
}

/// A charge that is settled once it is known what the request costs.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// The charge as it was made, of an algorithm that [can settle](Algorithm::can_settle).
    pub charge: BucketCharge<'a>,
    /// What it took; its cell and its instant are those that were told with it, in the server's time.
    pub reserved: Reserved,
    /// What it is to be.
    pub units: u32,
    /// Since when the units of its bucket are counted that are still to be settled, as it was told; `None` where they are not.
    pub since: Option<Timestamp>,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementReply {
    /// It is made.
    Settled,
    /// The bucket is under another recipe by now, and the charge stands.
    Unchanged,
    /// It is to be asked again, around this instant in the server's time.
    Retry(Timestamp),
}

impl Settlement<'_> {
    /// What to ask of [`Procedure::Settle`], around this instant in the server's time; `None` where the charge is right
    /// already, and nobody counts what is still to be settled.
    pub fn ask(&self, around: Timestamp, now: Option<Timestamp>) -> Option<ScriptCall> {
        let (what, cost) = match self.units.checked_sub(self.reserved.units) {
            Some(0) if self.since.is_none() => return None,
            Some(0) => ("keep", 0),
            Some(more) => ("owe", more),
            None => ("give_back", self.reserved.units - self.units),
        };
        let charge = BucketCharge {
            cost,
            ..self.charge
        };
        let mut ask = ScriptCall::new(Procedure::Settle(charge.kind()));
        charge.push_key(&mut ask);
        ask.instant(now);
        ask.text(what);
        ask.number(cost);
        ask.text(charge.kind().name());
        ask.recipe(charge.algorithm);
        ask.number(self.reserved.units);
        ask.instant(self.since);
        let Cell { expires, a, b } = self.reserved.cell;
        ask.number(expires);
        ask.number(a);
        ask.number(b);
        ask.number(self.reserved.at.as_micros());
        self.push_units(&mut ask);
        let none = Lease {
            id: "",
            lasts: Duration::ZERO,
        };
        charge.push_numbers(&mut ask, around, none);
        Some(ask)
    }

    /// What the charge took, and what was unsettled then.
    fn push_units(&self, ask: &mut ScriptCall) {
        let Reserved {
            units, unsettled, ..
        } = self.reserved;
        match self.charge.algorithm {
            Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra) => {
                ask.span(gcra.step(units));
                ask.span(gcra.step(u32::try_from(unsettled).unwrap_or(u32::MAX)));
            }
            _ => {
                ask.number(units);
                ask.number(0_u32);
                ask.number(unsettled.min(EXACT));
                ask.number(0_u32);
            }
        }
    }

    /// Reads the reply.
    ///
    /// # Errors
    /// When it is no reply to that.
    pub fn read(&self, reply: &Value) -> Result<SettlementReply, ProtocolError> {
        match reply {
            Value::BulkString(word) if word == b"1" => Ok(SettlementReply::Settled),
            Value::BulkString(word) if word == b"0" => Ok(SettlementReply::Unchanged),
            Value::BulkString(at) => {
                Ok(SettlementReply::Retry(Timestamp::from_micros(number(at)?)))
            }
            _ => Err(ProtocolError::Malformed),
        }
    }
}

/// Reads what [`Procedure::Lease`] or [`Procedure::Leave`] replied: of each whether it was there. In a key that is not ours there
/// is none.
///
/// # Errors
/// When it is no such reply.
pub fn parse_presence(reply: &Value) -> Result<Vec<bool>, ProtocolError> {
    let word = |word: &[u8]| match word {
        b"1" => Ok(true),
        b"0" | OTHERS => Ok(false),
        _ => Err(ProtocolError::Malformed),
    };
    match reply {
        Value::BulkString(one) => Ok(vec![word(one)?]),
        _ => fields(reply)?.into_iter().map(word).collect(),
    }
}

/// What [`Procedure::Lease`] replies of a key that is not ours.
const OTHERS: &[u8] = b"-";

/// For how many leases [`Procedure::Lease`] could do nothing, as it replied.
pub(super) fn left_alone(reply: &Value) -> usize {
    let words = fields(reply).unwrap_or_default();
    words.into_iter().filter(|word| *word == OTHERS).count()
}
