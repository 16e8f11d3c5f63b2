//! Delays of admitted requests: each lasts until the limits' queues reach the request.

use std::sync::Arc;

use super::{Admission, LimitRecord};
use crate::clock::{Clock, Timestamp};
use crate::proxy::ruleset::Route;
use crate::store::QueuePlace;
use crate::telemetry::metrics::LimitDecision;
use crate::telemetry::registry::GaugeGuard;

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
    place: Option<QueuePlace>,
    until: Timestamp,
    clock: Arc<Clock>,
    _metrics: GaugeGuard,
}

impl Delay {
    /// Enters the queues of all limits that delay the request; `None` if none does.
    pub(crate) fn enter(
        admission: &mut Admission,
        route: &Route,
        clock: &Arc<Clock>,
    ) -> Option<Box<Self>> {
        let until = admission.delayed_until()?;
        let held = admission.result.held();
        let queue_places = held.map(|held| std::mem::take(&mut held.queue_places));
        let mut queue_places = queue_places.unwrap_or_default();
        // A limit in shadow delays no request.
        let delaying = |record: &LimitRecord| record.word == LimitDecision::Delayed;
        let decided = admission.decided().filter(|(record, ..)| delaying(record));
        let places = decided.filter_map(|(record, _, decision)| {
            let mut known = queue_places.iter();
            let index = known.position(|(number, _)| *number == record.limit)?;
            let policy = &route.limit(record.limit).policy;
            Some(Place {
                until: decision.delayed_until()?,
                place: Some(queue_places.swap_remove(index).1),
                clock: Arc::clone(clock),
                _metrics: policy.metrics.waits.as_ref()?.waiting.hold(1),
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

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.clock.now();
        if let Some(place) = self.place.take().filter(|_| now < self.until) {
            place.leave(now);
        }
    }
}
