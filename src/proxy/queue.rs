//! Requests that wait their turn: each for as long as the limits say that delay it, and no longer.

use std::sync::Arc;

use super::admission::Admission;
use super::meeting::Meeting;
use super::snapshot::{Limit, Route};
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Cell, Decision, Fingerprint, Secret};
use crate::rules::Head;
use crate::store::{self, Charge, Table};
use crate::telemetry::metrics::Waiting;

/// A request that waits. It holds no lock.
#[derive(Debug)]
pub(super) struct Queued {
    until: Timestamp,
    clock: Arc<Clock>,
    /// Given up with it.
    _places: Vec<Place>,
}

/// A place in the line of one policy. Dropped before its turn, it is given back if it was the last.
#[derive(Debug)]
struct Place {
    table: Arc<Table>,
    key: Fingerprint,
    cost: u32,
    /// What the charge left.
    charged: Cell,
    until: Timestamp,
    clock: Arc<Clock>,
    _metrics: Waiting,
}

impl Queued {
    /// A request that was admitted, in the lines of all limits that delay it; `None` where none does.
    pub(super) fn enter(
        admission: &Admission,
        route: &Route,
        secret: &Secret,
        head: &Head<'_>,
        clock: &Arc<Clock>,
    ) -> Option<Box<Self>> {
        let until = admission.delayed_until()?;
        let places = admission
            .delays(route)
            .filter_map(|(limit, decision)| Place::enter(limit, secret, head, decision, clock));
        Some(Box::new(Queued {
            until,
            _places: places.collect(),
            clock: Arc::clone(clock),
        }))
    }

    /// Waits until it is its turn in every line.
    pub(super) async fn pass(self: Box<Self>) {
        tokio::time::sleep(self.until.since(self.clock.now())).await;
    }
}

impl Place {
    fn enter(
        limit: &Limit,
        secret: &Secret,
        head: &Head<'_>,
        decision: &Decision,
        clock: &Arc<Clock>,
    ) -> Option<Self> {
        // What was asked when it was charged, and answers the same again.
        let Meeting::Bucket(key, chosen) = limit.meet(secret, head) else {
            return None;
        };
        let policy = limit.chosen(chosen);
        Some(Place {
            table: Arc::clone(&policy.table),
            key,
            cost: limit.cost.of(head).ok()?,
            charged: decision.cell,
            until: decision.delayed_until()?,
            clock: Arc::clone(clock),
            _metrics: policy.metrics.waits()?.enter(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.clock.now();
        if now < self.until {
            let (table, key, cost) = (&*self.table, self.key, self.cost);
            store::leave(
                &Charge {
                    table,
                    key,
                    cost,
                    window_end: None,
                },
                self.charged,
                now,
            );
        }
    }
}
