//! Requests that wait for a slot at a host of their upstream.

use std::sync::Arc;

use super::families::{UPSTREAM_PENDING, UPSTREAM_PENDING_REFUSED, UPSTREAM_PENDING_WAIT};
use crate::telemetry::registry::{Counters, Gauge, Histogram, Registry, label_values};

/// The waiting requests of an upstream with `connections.max`. Handles of the same name count
/// together.
#[derive(Debug)]
pub struct PendingMetrics {
    /// Requests that wait.
    pub pending: Gauge,
    /// The time for which requests have waited for their slots.
    pub wait: Histogram,
    /// Requests that got no slot.
    pub refused: Counters<PendingRefusal>,
}

label_values! {
    /// The reason why a request that needs a slot gets none: the `reason` label.
    PendingRefusal {
        /// As many requests as may wait do so.
        Full,
        /// It has waited as long as it may.
        Timeout,
        /// The time for the whole request was over.
        Deadline,
    }
}

impl PendingMetrics {
    /// The handles of the upstream with this name.
    pub fn new(registry: &Registry, upstream: &Arc<str>) -> Self {
        let labels = [&**upstream];
        Self {
            pending: registry.gauge(&UPSTREAM_PENDING, &labels),
            wait: registry.histogram(&UPSTREAM_PENDING_WAIT, &labels),
            refused: registry.counters(&UPSTREAM_PENDING_REFUSED, &labels),
        }
    }
}
