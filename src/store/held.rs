//! Handles of a charge until its request ends: a charge to settle, a place in a queue. The store of
//! the bucket is decided inside.

use std::sync::Arc;

use super::memory::{self, Charge, Table, leave_queue};
use super::{Buckets, redis};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Fingerprint};

/// A charge to settle. Dropped, it stays as it was made.
#[derive(Debug)]
pub enum Reservation {
    /// In memory.
    Memory(memory::Reservation),
    /// In Redis.
    Redis(redis::Reservation),
}

/// A place in the queue of a delayed request. A drop leaves the queue unchanged.
#[derive(Debug)]
pub enum QueuePlace {
    /// In memory.
    Memory(MemoryPlace),
    /// In Redis.
    Redis(redis::QueuePlace),
}

/// A place in the queue of a bucket in memory.
#[derive(Debug)]
pub struct MemoryPlace {
    table: Arc<Table>,
    key: Fingerprint,
    cost: u32,
    /// The bucket's state after the charge.
    charged: Cell,
}

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
    pub(super) fn in_memory(buckets: &Buckets, charge: &Charge<'_>, decision: &Decision) -> Self {
        Self::Memory(MemoryPlace {
            table: Arc::clone(&buckets.table),
            key: charge.key,
            cost: charge.cost,
            charged: decision.cell,
        })
    }

    /// Gives the place back if it is the last of the queue.
    pub fn leave(self, now: Timestamp) {
        match self {
            Self::Memory(place) => {
                let charge = Charge::new(&place.table, place.key, place.cost);
                leave_queue(&charge, place.charged, now);
            }
            Self::Redis(place) => place.leave(),
        }
    }
}
