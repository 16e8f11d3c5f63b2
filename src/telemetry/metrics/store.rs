//! The store that several machines share: what was asked of it, and whether it answers.

use std::time::Duration;

use super::families::{
    STORE_DURATION, STORE_LOST, STORE_REQUESTS, STORE_UP, SYNC_DURATION, SYNC_KEYS, SYNC_ROUNDS,
    SYNC_UNTRACKED,
};
use super::limits::ReadCount;
use crate::telemetry::registry::{
    Counter, Counters, Gauge, Histogram, Observer, Registry, label_values,
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
            up: registry.gauge(&STORE_UP, &[]),
            duration: registry.histogram(&STORE_DURATION, &[]),
        }
    }

    /// The counter of requests of this kind with this result. Both are of closed sets; keep what it
    /// returns.
    pub fn requests(&self, op: &str, result: &str) -> Counter {
        self.registry.counter(&STORE_REQUESTS, &[op, result])
    }

    /// The counter of what could not be told to the store off the path of requests. These are of a
    /// closed set.
    pub fn lost(&self, what: &str) -> Counter {
        self.registry.counter(&STORE_LOST, &[what])
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

/// The rounds by which buckets are synchronised. Clones, and handles of the same registry, count
/// together.
#[derive(Clone, Debug)]
pub struct SyncMetrics {
    rounds: Counters<RoundResult>,
    duration: Histogram,
}

impl SyncMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            rounds: registry.counters(&SYNC_ROUNDS, &[]),
            duration: registry.histogram(&SYNC_DURATION, &[]),
        }
    }

    /// Counts a round, and how long it took.
    pub fn record(&self, result: RoundResult, took: Duration) {
        self.rounds.record(result);
        self.duration.record(took);
    }
}

/// Shows the keys of a synchronised policy whose charges are shared with other machines, as long as the
/// observer is kept.
pub fn sync_keys(registry: &Registry, policy: &str, read: ReadCount) -> Observer {
    registry.observe(&SYNC_KEYS, &[policy], move || read() as f64)
}

/// Shows the charges to a synchronised policy that no other machine was told, as long as the
/// observer is kept.
pub fn sync_untracked(registry: &Registry, policy: &str, read: ReadCount) -> Observer {
    registry.observe(&SYNC_UNTRACKED, &[policy], move || read() as f64)
}
