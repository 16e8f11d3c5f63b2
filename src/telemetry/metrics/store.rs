//! The store that several machines share: what was asked of it, and whether it answers.

use std::time::Duration;

use crate::telemetry::registry::{
    Counter, Counters, Gauge, Histogram, Registry, handle_set, label_values,
};

/// The figures of one store. Its series are there as long as it is.
#[derive(Debug)]
pub struct StoreMetrics {
    registry: Registry,
    /// 1 if the store answers.
    pub up: Gauge,
    /// The time that calls took.
    pub duration: Histogram,
}

impl StoreMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            up: registry.gauge("sluicegate_store_up", &[]),
            duration: registry.histogram("sluicegate_store_duration_seconds", &[]),
        }
    }

    /// The counter of requests of this kind with this result. Both are of closed sets; keep what it
    /// returns.
    pub fn requests(&self, op: &str, result: &str) -> Counter {
        self.registry
            .counter("sluicegate_store_requests_total", &[op, result])
    }

    /// The counter of what could not be told to the store off the path of requests. These are of a
    /// closed set.
    pub fn lost(&self, what: &str) -> Counter {
        self.registry
            .counter("sluicegate_store_lost_total", &[what])
    }
}

label_values! {
    /// The outcome of a round, as the `result` label has it.
    RoundResult {
        /// Everything that was due was sent and received.
        Ok,
        /// There was too much of it: the next round continues.
        Cut,
        /// The store does not answer.
        Failed,
    }
}

handle_set! {
    /// The rounds by which buckets are synchronised. Clones, and handles of the same registry, count
    /// together.
    #[derive(Clone)]
    SyncMetrics() {
        rounds: Counters<RoundResult> = counters("sluicegate_sync_rounds_total"),
        duration: Histogram = histogram("sluicegate_sync_round_duration_seconds"),
    }
}

impl SyncMetrics {
    /// Counts a round, and how long it took.
    pub fn record(&self, result: RoundResult, took: Duration) {
        self.rounds.record(result);
        self.duration.record(took);
    }
}
