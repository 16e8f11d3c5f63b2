//! Counters of operations by result, and the latency of calls.

use std::time::Duration;

use super::fault::{Fault, FaultKind};
use crate::telemetry::metrics::StoreMetrics;
use crate::telemetry::registry::Counter;

/// An operation, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The decision of a request, which waits for it.
    Call,
    /// Follow-ups of a request: settled costs, and units that are given back.
    FollowUp,
    /// Calls that no request needs: rounds between machines, renewals of leases, changes by operators.
    Background,
    /// The question whether a server that is out of use is back.
    Probe,
}

impl Operation {
    const ALL: [&str; 4] = ["call", "follow_up", "background", "probe"];
}

/// The results of operations before those of [`FaultKind`].
const RESULTS: [&str; 2] = ["ok", "unsent"];

/// The labels of lost messages.
const LOST: [&str; 5] = ["settlement", "place", "permit", "renewal", "decision"];

/// The counters by operation and result, the latency of calls, and the messages that were lost.
#[derive(Debug)]
pub(super) struct CallMetrics {
    metrics: StoreMetrics,
    /// By operation: the results of [`RESULTS`], then each kind of fault.
    results: [Box<[Counter]>; Operation::ALL.len()],
    lost: [Counter; LOST.len()],
}

impl CallMetrics {
    pub(super) fn new(metrics: StoreMetrics) -> Self {
        let results = Operation::ALL.map(|op| {
            let faults = FaultKind::ALL.iter().map(|kind| kind.label());
            let all = RESULTS.into_iter().chain(faults);
            all.map(|result| metrics.requests(op, result)).collect()
        });
        Self {
            results,
            lost: LOST.map(|what| metrics.lost(what)),
            metrics,
        }
    }

    /// Counts an operation that was sent.
    pub(super) fn count_sent(&self, op: Operation, fault: Option<FaultKind>, took: Duration) {
        let result = fault.map_or(0, |kind| RESULTS.len() + kind as usize);
        self.results[op as usize][result].increment();
        if op == Operation::Call {
            self.metrics.duration.record(took);
        }
    }

    /// Counts an operation that was not sent.
    pub(super) fn count_unsent(&self, op: Operation) {
        self.results[op as usize][1].increment();
    }

    /// Counts a lost message, whose label is one of [`LOST`].
    pub(super) fn count_lost(&self, what: &'static str) {
        if let Some(place) = LOST.iter().position(|known| *known == what) {
            self.lost[place].increment();
        }
    }

    /// Counts a new connection, or a failed one.
    pub(super) fn count_probe(&self, fault: Option<&Fault>) {
        self.count_sent(
            Operation::Probe,
            fault.map(|fault| fault.kind),
            Duration::ZERO,
        );
    }

    pub(super) fn set_up(&self, is_up: bool) {
        self.metrics.up.set(is_up.into());
    }
}
