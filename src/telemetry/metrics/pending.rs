//! Requests that wait for a slot at a host of their upstream.

use std::sync::Arc;
use std::time::Duration;

use super::families::{UPSTREAM_PENDING, UPSTREAM_PENDING_REFUSED, UPSTREAM_PENDING_WAIT};
use crate::telemetry::registry::{Counters, Gauge, GaugeGuard, Histogram, Registry, label_values};

/// The waiting requests of an upstream with `connections.max`. Handles of the same name count
/// together.
#[derive(Debug)]
pub struct PendingMetrics {
    pending: Gauge,
    wait: Histogram,
    refused: Counters<PendingRefusal>,
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

    /// Counts a request as waiting until the guard is dropped.
    pub fn enter(&self) -> GaugeGuard {
        self.pending.hold(1)
    }

    /// Counts for how long a request has waited for its slot.
    pub fn record(&self, wait: Duration) {
        self.wait.record(wait);
    }

    /// Counts a request that gets no slot.
    pub fn refuse(&self, reason: PendingRefusal) {
        self.refused.record(reason);
    }
}
