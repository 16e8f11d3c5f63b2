//! The store that several machines share: what was asked of it, and whether it answers.

use std::time::Duration;

use redis_client::{FaultKind, Operation};

use crate::telemetry::registry::{
    Counter, Counters, Gauge, Histogram, Registry, handle_set, label_values,
};

/// The results of operations before those of [`FaultKind`].
const RESULTS: [&str; 2] = ["ok", "unsent"];

/// The labels of lost messages.
const LOST: [&str; 5] = ["settlement", "place", "permit", "renewal", "decision"];

/// The figures of one store. Its series are there as long as it is.
#[derive(Debug)]
pub struct StoreMetrics {
    /// 1 if the store answers.
    pub up: Gauge,
    /// The time that calls took.
    duration: Histogram,
    /// By operation: the results of [`RESULTS`], then each kind of fault.
    results: [Box<[Counter]>; Operation::LABELS.len()],
    /// What could not be told to the store off the path of requests.
    lost: [Counter; LOST.len()],
}

impl StoreMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        let results = Operation::LABELS.map(|op| {
            let faults = FaultKind::ALL.iter().map(|kind| kind.label());
            let all = RESULTS.into_iter().chain(faults);
            let counter =
                |result| registry.counter("sluicegate_store_requests_total", &[op, result]);
            all.map(counter).collect()
        });
        Self {
            results,
            lost: LOST.map(|what| registry.counter("sluicegate_store_lost_total", &[what])),
            up: registry.gauge("sluicegate_store_up", &[]),
            duration: registry.histogram("sluicegate_store_duration_seconds", &[]),
        }
    }

    /// Counts an operation that was sent.
    pub fn count_sent(&self, op: Operation, fault: Option<FaultKind>, took: Duration) {
        let result = fault.map_or(0, |kind| RESULTS.len() + kind as usize);
        self.results[op as usize][result].increment();
        if op == Operation::Call {
            self.duration.record(took);
        }
    }

    /// Counts an operation that was not sent.
    pub fn count_unsent(&self, op: Operation) {
        self.results[op as usize][1].increment();
    }

    /// Counts a lost message, whose label is one of [`LOST`].
    pub fn count_lost(&self, what: &'static str) {
        if let Some(place) = LOST.iter().position(|known| *known == what) {
            self.lost[place].increment();
        }
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
