//! Requests that wait for a slot at a host of their upstream.

use std::sync::Arc;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::families::{UPSTREAM_PENDING, UPSTREAM_PENDING_REFUSED, UPSTREAM_PENDING_WAIT};
use crate::telemetry::registry::{CounterSet, Gauge, GaugeGuard, Histogram, Registry};

/// The waiting requests of an upstream with `connections.max`. Handles of the same name count
/// together.
#[derive(Debug)]
pub struct PendingMetrics {
    pending: Gauge,
    wait: Histogram,
    refused: CounterSet,
}

/// The reason why a request that needs a slot gets none: the `reason` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PendingRefusal {
    /// As many requests as may wait do so.
    Full,
    /// It has waited as long as it may.
    Timeout,
    /// The time for the whole request was over.
    Deadline,
}

impl PendingRefusal {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl PendingMetrics {
    /// The handles of the upstream with this name.
    pub fn new(registry: &Registry, upstream: &Arc<str>) -> Self {
        let labels = [&**upstream];
        let reason = |index: usize| PendingRefusal::VARIANTS[index].as_str();
        let reasons = PendingRefusal::VARIANTS.len();
        Self {
            pending: registry.gauge(&UPSTREAM_PENDING, &labels),
            wait: registry.histogram(&UPSTREAM_PENDING_WAIT, &labels),
            refused: registry.counter_set(&UPSTREAM_PENDING_REFUSED, &labels, reasons, reason),
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
        self.refused.increment(reason as usize);
    }
}
