//! What a request has of buckets in Redis until it ends: a charge that is to be settled, a place in line, units in use. They
//! know their store, whatever is loaded meanwhile.

use std::sync::Arc;

use super::follow_up::Settlement;
use super::outbox::{HeldLease, OutboxMessage, PendingSettlement};
use super::reply::BucketReply;
use super::script_call::{BucketCharge, ChargedRefusals, ScriptCall, Tier};
use super::store::Store;
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Reserved};
use crate::store::Table;

/// A bucket in Redis, as it was asked by a worker.
#[derive(Clone, Debug)]
pub struct ChargedBucket {
    /// Where it is.
    pub store: Arc<Store>,
    /// On whose connection.
    pub worker: usize,
    /// How it is decided.
    pub table: Arc<Table>,
    /// Its name.
    pub name: Box<[u8]>,
    /// Whose it is.
    pub key: Fingerprint,
    /// How many units were asked.
    pub cost: u32,
    /// The period of a window, where requests say that.
    pub period: Option<(Timestamp, Timestamp)>,
}

/// A charge that is still to be settled. Dropped, it stands as it was made.
#[derive(Debug)]
pub struct Reservation {
    store: Arc<Store>,
    worker: usize,
    due: Option<Box<PendingSettlement>>,
}

/// A place in line. Nothing happens if it is dropped.
#[derive(Debug)]
pub struct QueuePlace {
    store: Arc<Store>,
    worker: usize,
    leave: ScriptCall,
}

/// Units in use, or asked for: dropped, they are given back.
#[derive(Debug)]
pub struct LeaseGuard {
    store: Arc<Store>,
    worker: usize,
    held: Option<HeldLease>,
    /// Under what number they are renewed, once they are.
    number: Option<u64>,
}

impl ChargedBucket {
    /// What this charge has, as it was told.
    pub fn reservation(self, said: &BucketReply) -> Reservation {
        let (unsettled, since) = said.unsettled;
        let reserved = Reserved {
            cell: said.decision.cell,
            at: said.at,
            units: self.cost,
            unsettled,
        };
        Reservation {
            due: Some(Box::new(PendingSettlement {
                table: self.table,
                name: self.name,
                key: self.key,
                period: self.period,
                reserved,
                since,
                units: self.cost,
            })),
            store: self.store,
            worker: self.worker,
        }
    }

    /// What this charge has in line, as it was told; `None` where there is none.
    pub fn turn(self, said: &BucketReply) -> Option<QueuePlace> {
        let charge = BucketCharge {
            algorithm: self.table.algorithm(),
            name: &self.name,
            key: self.key,
            cost: self.cost,
            owes: ChargedRefusals::None,
            settles: false,
            period: None,
            tier: Tier::First,
        };
        Some(QueuePlace {
            leave: ScriptCall::leave(&charge, said.decision.cell, None)?,
            store: self.store,
            worker: self.worker,
        })
    }

    /// These units under this lease, which may be taken from now on.
    pub fn lending(self, id: &Arc<str>) -> LeaseGuard {
        LeaseGuard {
            held: Some(HeldLease {
                name: self.name.into(),
                id: Arc::clone(id),
                units: self.cost,
            }),
            store: self.store,
            worker: self.worker,
            number: None,
        }
    }
}

impl Reservation {
    /// How many units were charged.
    pub fn units(&self) -> u32 {
        self.due.as_ref().map_or(0, |due| due.reserved.units)
    }

    /// Has the charge made one of `units`, soon: the rest is charged, whether it is there or not, or what was too much is given
    /// back, as far as it has not come back with time.
    pub fn settle(mut self, units: u32) {
        if let Some(due) = &mut self.due {
            due.units = units;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(due) = self.due.take() {
            let at = due.reserved.at;
            self.store.tell(self.worker, OutboxMessage::Settle(due, at));
        }
    }
}

impl QueuePlace {
    /// Gives it up, soon, unless somebody has come after.
    pub fn leave(self) {
        self.store
            .tell(self.worker, OutboxMessage::Leave(self.leave));
    }
}

impl LeaseGuard {
    /// They are in use: they are renewed from now on, also where the store was not heard to lend them.
    pub fn renew(&mut self) {
        if let (Some(held), None) = (&self.held, self.number) {
            let errands = self.store.errands(self.worker);
            self.number = Some(errands.hold(held.clone()));
        }
    }

    /// They were not lent.
    pub fn forget(mut self) {
        self.held = None;
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.store.errands(self.worker).let_go(number);
        }
        if let Some(held) = self.held.take() {
            self.store.tell(self.worker, OutboxMessage::GiveBack(held));
        }
    }
}

impl BucketReply {
    /// What gives this charge back, which is to be no charge after all; `None` where there is nothing to give back.
    pub(super) fn reversal(&self, charge: &BucketCharge<'_>) -> Option<ScriptCall> {
        // Nobody knows what is still to be settled where it is not counted: as much as there can be, so that nothing is
        // given back twice.
        let (unsettled, since) = match charge.settles {
            true => (self.unsettled.0, Some(self.unsettled.1)),
            false => (u64::MAX, None),
        };
        let reserved = Reserved {
            cell: self.decision.cell,
            at: self.at,
            units: charge.cost,
            unsettled,
        };
        let settlement = Settlement {
            charge: *charge,
            reserved,
            units: 0,
            since,
        };
        settlement.ask(self.at, None)
    }
}
