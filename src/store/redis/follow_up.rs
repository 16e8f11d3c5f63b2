//! Calls that follow a charge: they renew and return leases, leave a queue, and settle costs.

use std::time::Duration;

use redis::Value;

use super::reply::{ProtocolError, fields, number};
use super::script::Procedure;
use super::script_call::{BucketCharge, Lease, MAX_EXACT_INTEGER, ScriptCall, micros};
use super::value;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, Debt, ReservedCharge};

/// Units in use under a lease.
#[derive(Clone, Copy, Debug)]
pub struct LeasedUnits<'a> {
    /// The bucket's name, as in the charge that took them.
    pub name: &'a [u8],
    /// The id of the lease.
    pub id: &'a str,
    /// The number of units.
    pub units: u32,
}

impl ScriptCall {
    /// Extends these leases by `duration` from now on ([`Procedure::Lease`]).
    pub fn renew_leases(
        leases: &[LeasedUnits<'_>],
        duration: Duration,
        now: Option<Timestamp>,
    ) -> Self {
        Self::lease_call("renew", leases, duration, now)
    }

    /// Returns these units ([`Procedure::Lease`]).
    pub fn release_leases(leases: &[LeasedUnits<'_>], now: Option<Timestamp>) -> Self {
        Self::lease_call("give_back", leases, Duration::ZERO, now)
    }

    fn lease_call(
        what: &str,
        leases: &[LeasedUnits<'_>],
        duration: Duration,
        now: Option<Timestamp>,
    ) -> Self {
        let mut call = Self::new(Procedure::Lease);
        for one in leases {
            call.lease_key(one.name);
        }
        call.instant(now);
        call.text(what);
        call.number(micros(duration));
        for one in leases {
            call.text(one.id);
            call.number(one.units);
        }
        call
    }

    /// Leaves a queue ([`Procedure::Leave`]): gives back a delayed charge that left the bucket at
    /// `charged`, unless a later request has queued behind it. `None` for algorithms without a
    /// queue.
    pub fn leave_queue(
        charge: &BucketCharge<'_>,
        charged: Cell,
        now: Option<Timestamp>,
    ) -> Option<Self> {
        let Algorithm::LeakyBucket(bucket) = charge.algorithm else {
            return None;
        };
        let mut call = Self::new(Procedure::Leave);
        charge.push_key(&mut call);
        call.instant(now);
        call.recipe(charge.algorithm);
        call.text(&value::cell_text(charged));
        call.spans(bucket.line(), charge.cost, Debt::Refused);
        Some(call)
    }
}

/// The settlement of a charge, once the cost of the request is known.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// The charge as it was made, under an algorithm whose charges can be settled.
    pub charge: BucketCharge<'a>,
    /// The reserved units; cell and instant come from the charge's reply, in the server's time.
    pub reserved: ReservedCharge,
    /// The actual cost.
    pub units: u32,
    /// The start of the bucket's count of unsettled units, from the charge's reply; `None` if they
    /// are not counted.
    pub since: Option<Timestamp>,
}

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementReply {
    /// The charge now has the actual cost.
    Settled,
    /// The bucket has another recipe by now: the charge stays as it was made.
    Unchanged,
    /// Call again with this instant, in the server's time.
    Retry(Timestamp),
}

impl Settlement<'_> {
    /// The call of [`Procedure::Settle`] at `estimated_now`, in the server's time. `None` if the
    /// charge has the actual cost already and the bucket counts no unsettled units.
    pub fn script_call(
        &self,
        estimated_now: Timestamp,
        now: Option<Timestamp>,
    ) -> Option<ScriptCall> {
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
        let mut call = ScriptCall::new(Procedure::Settle(charge.kind()));
        charge.push_key(&mut call);
        call.instant(now);
        call.text(what);
        call.number(cost);
        call.text(charge.kind().into_str());
        call.recipe(charge.algorithm);
        call.number(self.reserved.units);
        call.instant(self.since);
        let Cell { expires, a, b } = self.reserved.cell;
        call.number(expires);
        call.number(a);
        call.number(b);
        call.number(self.reserved.at.as_micros());
        self.push_units(&mut call);
        let none = Lease {
            id: "",
            duration: Duration::ZERO,
        };
        charge.push_numbers(&mut call, estimated_now, none, Debt::CARRIED);
        Some(call)
    }

    /// Adds the units of the charge, and those that were unsettled before it.
    fn push_units(&self, call: &mut ScriptCall) {
        let ReservedCharge {
            units, unsettled, ..
        } = self.reserved;
        match self.charge.algorithm {
            Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra) => {
                call.span(gcra.step(units));
                call.span(gcra.step(u32::try_from(unsettled).unwrap_or(u32::MAX)));
            }
            _ => {
                call.number(units);
                call.number(0_u32);
                call.number(unsettled.min(MAX_EXACT_INTEGER));
                call.number(0_u32);
            }
        }
    }

    /// Reads the reply.
    ///
    /// # Errors
    /// If it is no reply to this call.
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

/// The reply of [`Procedure::Lease`] for a key of another program.
const FOREIGN_KEY: &[u8] = b"-";

/// The number of leases whose keys belong to another program.
pub(super) fn count_foreign_keys(reply: &Value) -> usize {
    let words = fields(reply).unwrap_or_default();
    words
        .into_iter()
        .filter(|word| *word == FOREIGN_KEY)
        .count()
}
