//! The store that several machines share: what was asked of it, and whether it answers.

use std::time::Duration;

use super::families::{STORE_DURATION, STORE_REQUESTS, STORE_UP};
use crate::telemetry::registry::{Counter, Gauge, Histogram, Registry};

/// The figures of one store. Its series are there as long as it is.
#[derive(Debug)]
pub struct StoreMetrics {
    registry: Registry,
    up: Gauge,
    duration: Histogram,
}

impl StoreMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            up: registry.gauge(&STORE_UP, &[]),
            duration: registry.histogram(&STORE_DURATION, &[]),
        }
    }

    /// The counter of requests of this kind with this result. Both are of closed sets; keep what it returns.
    pub fn requests(&self, op: &str, result: &str) -> Counter {
        self.registry.counter(&STORE_REQUESTS, &[op, result])
    }

    /// Counts how long a call took that was sent.
    pub fn record(&self, took: Duration) {
        self.duration.record(took);
    }

    /// Says whether the store answers.
    pub fn set_up(&self, is_up: bool) {
        self.up.set(is_up.into());
    }
}
