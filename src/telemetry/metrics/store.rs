//! The store that several machines share: what was asked of it, and whether it answers.

use std::time::Duration;

use super::families::{
    STORE_DURATION, STORE_LOST, STORE_REQUESTS, STORE_UP, SYNC_DURATION, SYNC_KEYS, SYNC_ROUNDS,
    SYNC_UNTRACKED,
};
use crate::telemetry::registry::{
    Counter, Counters, Gauge, Histogram, Observer, Registry, label_values,
};

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

    /// Counts how long a call took that was sent.
    pub fn record(&self, took: Duration) {
        self.duration.record(took);
    }

    /// Says whether the store answers.
    pub fn set_up(&self, is_up: bool) {
        self.up.set(is_up.into());
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

/// Figures of a synchronised policy, read at each scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncFigures {
    /// Keys whose charges are told.
    pub keys: u64,
    /// Charges of which nobody was told.
    pub untracked: u64,
}

/// The figures of one synchronised policy.
#[derive(Debug)]
pub struct TrackerMetrics {
    _series: [Observer; 2],
}

impl TrackerMetrics {
    /// Makes the handles of the policy with this name, whose trackers `figures` reads.
    pub fn new(
        registry: &Registry,
        policy: &str,
        figures: impl Fn() -> SyncFigures + Send + Sync + Clone + 'static,
    ) -> Self {
        let observe = |family, read: fn(SyncFigures) -> u64| {
            let figures = figures.clone();
            registry.observe(family, &[policy], move || read(figures()) as f64)
        };
        Self {
            _series: [
                observe(&SYNC_KEYS, |figures| figures.keys),
                observe(&SYNC_UNTRACKED, |figures| figures.untracked),
            ],
        }
    }
}
