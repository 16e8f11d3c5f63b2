//! Delays of admitted requests: each lasts until the limits' queues reach the request.

use std::sync::Arc;

use super::Admission;
use super::applicability::Applicability;
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Cell, Decision, Fingerprint, Secret};
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::Head;
use crate::store::redis::QueuePlace;
use crate::store::{self, Charge, Table};
use crate::telemetry::metrics::Waiting;

/// A delayed request. It holds no lock.
#[derive(Debug)]
pub(crate) struct Delay {
    until: Timestamp,
    clock: Arc<Clock>,
    /// Released together with the delay.
    _places: Vec<Place>,
}

/// A place in one policy's queue. Dropped before its turn, it is given back if it is the last
/// place.
#[derive(Debug)]
struct Place {
    line: Option<Queue>,
    until: Timestamp,
    clock: Arc<Clock>,
    _metrics: Waiting,
}

/// A queue, and the charge that entered it.
#[derive(Debug)]
enum Queue {
    Here {
        table: Arc<Table>,
        key: Fingerprint,
        cost: u32,
        /// The bucket's state after the charge.
        charged: Cell,
    },
    InRedis(QueuePlace),
}

impl Delay {
    /// Enters the queues of all limits that delay the request; `None` if none does.
    pub(crate) fn enter(
        admission: &mut Admission,
        route: &Route,
        secret: &Secret,
        head: &Head<'_>,
        clock: &Arc<Clock>,
    ) -> Option<Box<Self>> {
        let until = admission.delayed_until()?;
        let mut turns = std::mem::take(&mut admission.queue_places);
        let places = admission
            .delays(route)
            .filter_map(|(place, limit, decision)| {
                let turn = turns.iter().position(|(other, _)| *other == place);
                let line = match turn {
                    Some(turn) => Queue::InRedis(turns.swap_remove(turn).1),
                    None => Queue::here(limit, secret, head, decision)?,
                };
                Some(Place {
                    line: Some(line),
                    until: decision.delayed_until()?,
                    clock: Arc::clone(clock),
                    _metrics: limit.policy.metrics.waits()?.enter(),
                })
            });
        Some(Box::new(Delay {
            until,
            _places: places.collect(),
            clock: Arc::clone(clock),
        }))
    }

    /// Waits for the turn in every queue.
    pub(crate) async fn wait(self: Box<Self>) {
        tokio::time::sleep(self.until.since(self.clock.now())).await;
    }
}

impl Queue {
    fn here(limit: &Limit, secret: &Secret, head: &Head<'_>, decision: &Decision) -> Option<Self> {
        // The same evaluation as before the charge, with the same result.
        let Applicability::Bucket(key, chosen) = limit.evaluate(secret, head) else {
            return None;
        };
        Some(Self::Here {
            table: Arc::clone(&limit.chosen(chosen).table),
            key,
            cost: limit.spec.cost.of(head).ok()?,
            charged: decision.cell,
        })
    }

    /// Gives the place back if it is the last of the queue.
    fn leave(self, now: Timestamp) {
        match self {
            Self::Here {
                table,
                key,
                cost,
                charged,
            } => {
                let charge = Charge {
                    table: &table,
                    key,
                    cost,
                    window_end: None,
                };
                store::leave_queue(&charge, charged, now);
            }
            Self::InRedis(turn) => turn.leave(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.clock.now();
        if let Some(line) = self.line.take().filter(|_| now < self.until) {
            line.leave(now);
        }
    }
}
