//! Handles of a charge until its request ends: a charge to settle, a place in a queue. The store of
//! the bucket is decided inside.

use std::sync::Arc;

use super::memory::{self, Charge, leave_queue};
use super::{Buckets, redis};
use crate::clock::Timestamp;
use crate::limiter::Decision;

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
