//! Calls that follow a charge: they renew and return leases, leave a queue, and settle costs.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::client::ScriptWords;
use super::reply::{ProtocolError, fields, parsed};
use super::script::Procedure;
use super::script_call::{
    BucketCharge, MAX_EXACT_INTEGER, ScriptCall, micros, push_instant, push_lease_key,
    push_server_time, push_span, push_spans,
};
use super::value;
use crate::clock::Timestamp;
use crate::limiter::bucket::{Debt, ReservedCharge};
use crate::limiter::{Algorithm, Cell, Demand};

/// Units in use under a lease.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    /// The bucket's name, as in the charge that took them.
    pub(super) name: Arc<[u8]>,
    /// The id of the lease.
    pub(super) id: Arc<str>,
    pub(super) units: u32,
    /// A charge, renewal or return without an answer may still run.
    pub(super) is_in_doubt: bool,
}

impl ScriptCall {
    /// Extends these leases so long from now on, or returns their units ([`Procedure::Lease`]).
    pub(super) fn leases(leases: &[HeldLease], renewed_for: Option<Duration>) -> Self {
        let mut words = ScriptWords::default();
        for one in leases {
            push_lease_key(&mut words, &one.name);
        }
        push_server_time(&mut words);
        words.text(renewed_for.map_or("give_back", |_| "renew"));
        words.number(renewed_for.map_or(0, micros));
        for one in leases {
            words.text(&one.id);
            words.number(one.units);
        }
        Self::new(Procedure::Lease, words)
    }

    /// Leaves a queue ([`Procedure::Leave`]): gives back a delayed charge that left the bucket at
    /// `charged`, unless a later request has queued behind it. `None` for algorithms without a
    /// queue.
    pub fn leave_queue(charge: &BucketCharge<'_>, charged: Cell) -> Option<Self> {
        let Algorithm::LeakyBucket(bucket) = charge.algorithm else {
            return None;
        };
        let mut words = ScriptWords::default();
        charge.push_key(&mut words);
        push_server_time(&mut words);
        let cell = value::cell_numbers(charge.algorithm, charged);
        words.text(&cell.map(|number| number.to_string()).join(" "));
        push_spans(
            &mut words,
            bucket.line(),
            Demand::of(charge.demand.cost),
            Debt::Refused,
        );
        Some(Self::new(Procedure::Leave, words))
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
    /// Call again with this instant, in the server's time.
    Retry(Timestamp),
}

impl Settlement<'_> {
    /// The call of [`Procedure::Settle`] at `estimated_now`, in the server's time. `None` if the
    /// charge has the actual cost already and the bucket counts no unsettled units.
    pub fn script_call(&self, estimated_now: Timestamp) -> Option<ScriptCall> {
        let (what, cost) = match self.units.checked_sub(self.reserved.units) {
            Some(0) if self.since.is_none() => return None,
            Some(0) => ("keep", 0),
            Some(more) => ("owe", more),
            None => ("give_back", self.reserved.units - self.units),
        };
        let charge = BucketCharge {
            demand: Demand {
                cost,
                ..self.charge.demand
            },
            ..self.charge
        };
        let mut words = ScriptWords::default();
        charge.push_key(&mut words);
        push_server_time(&mut words);
        words.text(what);
        words.number(cost);
        words.text(charge.kind().into());
        words.number(self.reserved.units);
        push_instant(&mut words, self.since);
        for number in value::cell_numbers(charge.algorithm, self.reserved.cell) {
            words.number(number);
        }
        words.number(self.reserved.at.as_micros());
        self.push_units(&mut words);
        charge.push_numbers(&mut words, estimated_now, "", Debt::CARRIED);
        Some(ScriptCall::new(Procedure::Settle(charge.kind()), words))
    }

    /// Adds the units of the charge, and those that were unsettled before it.
    fn push_units(&self, words: &mut ScriptWords) {
        let ReservedCharge {
            units, unsettled, ..
        } = self.reserved;
        match self.charge.algorithm {
            Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra) => {
                push_span(words, gcra.step(units));
                push_span(
                    words,
                    gcra.step(u32::try_from(unsettled).unwrap_or(u32::MAX)),
                );
            }
            _ => {
                words.number(units);
                words.number(0_u32);
                words.number(unsettled.min(MAX_EXACT_INTEGER));
                words.number(0_u32);
            }
        }
    }
}

impl SettlementReply {
    /// Reads the reply.
    ///
    /// # Errors
    /// If it is no reply to this call.
    pub fn read(reply: &Value) -> Result<Self, ProtocolError> {
        match reply {
            Value::BulkString(word) if word == b"1" => Ok(Self::Settled),
            Value::BulkString(at) => Ok(Self::Retry(Timestamp::from_micros(parsed(at)?))),
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
