//! Handles of a request in Redis until it ends: a charge to settle, a queue place, units in use.
//! Each keeps its store, whatever a reload brings.

use std::sync::Arc;

use super::follow_up::{HeldLease, Settlement};
use super::outbox::{ChargedBucket, OutboxMessage, PendingSettlement};
use super::reply::BucketReply;
use super::script_call::{BucketCharge, ScriptCall};
use super::store::Store;
use crate::limiter::bucket::ReservedCharge;

/// A charge whose cost is still unknown. Dropped, it stands as it was made.
#[derive(Debug)]
pub struct Reservation(Option<Box<PendingSettlement>>);

/// Units in use, or requested. A drop returns them.
#[derive(Debug)]
pub struct LeaseGuard {
    store: Arc<Store>,
    worker: usize,
    lease: Option<HeldLease>,
    /// The number of their renewal, once it has begun.
    number: Option<u64>,
}

impl ChargedBucket {
    /// The reservation of this charge, from its reply.
    pub fn reservation(self, reply: &BucketReply) -> Reservation {
        let (unsettled, since) = reply.unsettled;
        Reservation(Some(Box::new(PendingSettlement {
            reserved: reply.reserved(self.cost, unsettled),
            since: (self.cost > 0).then_some(since),
            units: self.cost,
            bucket: self,
        })))
    }

    /// Gives back the queue place of this charge, from its reply, when it is called. It has no effect
    /// if a later request has queued behind. `None` for algorithms without a queue.
    pub fn queue_place(self, reply: &BucketReply) -> Option<impl FnOnce() + Send + Sync + use<>> {
        let leave = ScriptCall::leave_queue(&self.charge(), reply.decision.cell)?;
        Some(move || (self.store).enqueue(self.worker, OutboxMessage::Leave(leave)))
    }

    /// These units under this lease, from before the charge is sent.
    pub fn lease(self, id: &Arc<str>) -> LeaseGuard {
        LeaseGuard {
            lease: Some(HeldLease {
                name: self.name.into(),
                id: Arc::clone(id),
                units: self.cost,
                is_in_doubt: true,
            }),
            store: self.store,
            worker: self.worker,
            number: None,
        }
    }
}

impl Reservation {
    /// The units charged.
    pub fn units(&self) -> u32 {
        self.0.as_ref().map_or(0, |pending| pending.bucket.cost)
    }

    /// Queues the settlement at `units`. Missing units are charged even into debt; excess units are
    /// given back, except those that would have been refilled meanwhile.
    pub fn settle(mut self, units: u32) {
        if let Some(pending) = &mut self.0 {
            pending.units = units;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(pending) = self.0.take() {
            let (store, worker) = (Arc::clone(&pending.bucket.store), pending.bucket.worker);
            let at = pending.reserved.at;
            store.enqueue(worker, OutboxMessage::Settle(pending, at));
        }
    }
}

impl LeaseGuard {
    /// Starts renewing the lease, also if the store's reply was lost.
    pub fn renew(&mut self) {
        if let (Some(lease), None) = (&self.lease, self.number) {
            let outbox = &self.store.outboxes[self.worker];
            self.number = Some(outbox.start_renewing(lease.clone()));
        }
    }

    /// Notes that Redis has answered: no call takes the lease any more.
    pub fn confirm(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.is_in_doubt = false;
        }
    }

    /// Ends the guard without a return: Redis refused the units.
    pub fn forget(mut self) {
        self.lease = None;
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let outbox = &self.store.outboxes[self.worker];
        let is_in_doubt = self
            .number
            .is_some_and(|number| outbox.stop_renewing(number));
        if let Some(mut lease) = self.lease.take() {
            lease.is_in_doubt |= is_in_doubt;
            self.store
                .enqueue(self.worker, OutboxMessage::GiveBack(lease));
        }
    }
}

impl BucketReply {
    /// The charge of so many units, before which others were unsettled.
    fn reserved(&self, units: u32, unsettled: u64) -> ReservedCharge {
        ReservedCharge {
            cell: self.decision.cell,
            at: self.at,
            units,
            unsettled,
        }
    }

    /// The call that gives this charge back completely; `None` if there is nothing to give back.
    pub(super) fn reversal_call(&self, charge: &BucketCharge<'_>) -> Option<ScriptCall> {
        // Without a count, all other units may be unsettled: assume the most, so that no unit is
        // given back twice.
        let (unsettled, since) = if charge.settles {
            (self.unsettled.0, Some(self.unsettled.1))
        } else {
            (u64::MAX, None)
        };
        let settlement = Settlement {
            charge: *charge,
            reserved: self.reserved(charge.demand.cost, unsettled),
            units: 0,
            since,
        };
        settlement.script_call(self.at)
    }
}
