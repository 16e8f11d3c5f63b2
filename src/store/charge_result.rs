//! The result of charging a request: the decisions, and all that the request holds until it ends.

use std::sync::Arc;

use smallvec::SmallVec;

use super::memory::{self, Charge, leave_queue};
use super::redis::{self, ChargeError};
use super::{Buckets, ChargeId, InUse, OnStoreError, Role};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Verdict};

/// A bucket that has decided on a request.
#[derive(Clone, Copy, Debug)]
pub struct DecidedBucket {
    /// The limit, and which of its buckets.
    pub id: ChargeId,
    /// The role of the charge.
    pub role: Role,
    /// The key of the bucket.
    pub key: Fingerprint,
    /// The units of the request; 0 for permits that it had already.
    pub cost: u32,
}

/// A limit whose store does not answer.
#[derive(Clone, Debug)]
pub struct WithoutStore {
    /// The number of the limit.
    pub limit: u16,
    /// The treatment of the request; memory decides for [`OnStoreError::Local`].
    pub on_error: OnStoreError,
    /// The error.
    pub error: ChargeError,
}

/// The resources that a request holds until it ends, beside the decisions on it.
#[derive(Debug, Default)]
pub struct Held {
    /// Units in use, returned on drop.
    pub in_use: Vec<InUse>,
    /// The charges that the response settles, by the numbers of their limits.
    pub reservations: Vec<(u16, Reservation)>,
    /// The places of a delayed request in queues, by the numbers of their limits.
    pub queue_places: Vec<(u16, QueuePlace)>,
    /// The limits whose store does not answer.
    pub without_store: Vec<WithoutStore>,
}

/// The decision on a request, and all that the request holds until it ends.
#[derive(Debug, Default)]
pub struct ChargeResult {
    /// A decision for each charge that has one: those that refuse first, then those in shadow, then
    /// those that tag.
    pub verdict: Verdict,
    /// The deciding buckets, in the order of the decisions.
    pub buckets: SmallVec<[DecidedBucket; 4]>,
    /// The resources of the request. Boxed: few requests hold any, and all would have room for them.
    held: Option<Box<Held>>,
    /// The request is refused only because of charges that may be given back, since another store
    /// may refuse their requests: those are decided by this instant. No strike is counted.
    pub doubted_until: Option<Timestamp>,
}

impl ChargeResult {
    /// Returns what the request holds, if it holds anything.
    pub fn held(&mut self) -> Option<&mut Held> {
        self.held.as_deref_mut()
    }

    /// Returns the place for what the request holds.
    pub fn held_mut(&mut self) -> &mut Held {
        self.held.get_or_insert_default()
    }

    /// Takes the units in use.
    pub fn take_in_use(&mut self) -> Vec<InUse> {
        let held = self.held();
        held.map(|held| std::mem::take(&mut held.in_use))
            .unwrap_or_default()
    }

    /// The decision on the charge of this limit, unless its store does not answer.
    pub fn known_decision(&self, limit: u16) -> Option<Decision> {
        let mut errors = self.held.iter().flat_map(|held| &held.without_store);
        let mut decided = self.buckets.iter().zip(&self.verdict.decisions);
        let decision = decided.find(|(bucket, _)| bucket.id.limit == limit);
        let is_known = errors.all(|error| error.limit != limit);
        decision.filter(|_| is_known).map(|(_, decision)| *decision)
    }

    /// Returns what a refused request would hold.
    pub fn release(&mut self) {
        if let Some(held) = self.held() {
            held.in_use.clear();
            held.queue_places.clear();
        }
    }
}

/// A charge to settle. Dropped, it stays as it was made.
#[derive(Debug)]
pub enum Reservation {
    /// In memory.
    Memory(memory::Reservation),
    /// In Redis.
    Redis(redis::Reservation),
}

/// A place in the queue of a delayed request. A drop leaves the queue unchanged.
#[derive(derive_more::Debug)]
pub struct QueuePlace(#[debug(skip)] Box<dyn FnOnce(Timestamp) + Send + Sync>);

impl Reservation {
    /// The charged units.
    pub fn units(&self) -> u32 {
        match self {
            Self::Memory(reservation) => reservation.units(),
            Self::Redis(reservation) => reservation.units(),
        }
    }

    /// Changes the charge to `units` units. Missing units are charged even if the bucket lacks
    /// them; excess units are given back unless they have recovered.
    pub fn settle(self, units: u32, now: Timestamp) {
        match self {
            Self::Memory(reservation) => reservation.settle(units, now),
            // Redis settles at its own time, soon.
            Self::Redis(reservation) => reservation.settle(units),
        }
    }
}

impl QueuePlace {
    /// The place that `leave` gives back.
    pub(super) fn new(leave: impl FnOnce(Timestamp) + Send + Sync + 'static) -> Self {
        Self(Box::new(leave))
    }

    pub(super) fn in_memory(buckets: &Buckets, charge: &Charge<'_>, decision: &Decision) -> Self {
        let (table, charged) = (Arc::clone(&buckets.table), decision.cell);
        let (key, cost) = (charge.key, charge.demand.cost);
        Self::new(move |now| {
            leave_queue(&Charge::new(&table, key, cost), charged, now);
        })
    }

    /// Gives the place back if it is the last of the queue.
    pub fn leave(self, now: Timestamp) {
        (self.0)(now);
    }
}
