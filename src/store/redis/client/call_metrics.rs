//! Counters of calls, batches and probes by result, and their latency.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use super::fault::{Fault, FaultKind};
use crate::telemetry::metrics::StoreMetrics;
use crate::telemetry::registry::Counter;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Call,
    Batch,
    Probe,
}

impl Operation {
    const ALL: [&str; 3] = ["call", "batch", "probe"];
}

/// The counters, each made when it first counts.
#[derive(Debug)]
pub(super) struct CallMetrics {
    metrics: StoreMetrics,
    answered: [OnceLock<Counter>; Operation::ALL.len()],
    faulty: [[OnceLock<Counter>; FaultKind::ALL.len()]; Operation::ALL.len()],
    /// Calls that were not sent because the server was out of use.
    unsent: [OnceLock<Counter>; Operation::ALL.len()],
    /// Lost messages, each counter made at its first use.
    lost: Mutex<HashMap<&'static str, Counter>>,
}

impl CallMetrics {
    pub(super) fn new(metrics: StoreMetrics) -> Self {
        Self {
            metrics,
            answered: Default::default(),
            faulty: std::array::from_fn(|_| std::array::from_fn(|_| OnceLock::new())),
            unsent: Default::default(),
            lost: Mutex::default(),
        }
    }

    /// Counts an operation that was sent.
    pub(super) fn count_sent(&self, op: Operation, fault: Option<FaultKind>, took: Duration) {
        let (counter, label) = match fault {
            None => (&self.answered[op as usize], "ok"),
            Some(kind) => (&self.faulty[op as usize][kind as usize], kind.label()),
        };
        self.count(op, counter, label);
        if op == Operation::Call {
            self.metrics.record(took);
        }
    }

    /// Counts an operation that was not sent.
    pub(super) fn count_unsent(&self, op: Operation) {
        self.count(op, &self.unsent[op as usize], "unsent");
    }

    /// Counts a lost message.
    pub(super) fn count_lost(&self, what: &'static str) {
        let mut lost = self.lost.lock();
        let counter = lost.entry(what).or_insert_with(|| self.metrics.lost(what));
        counter.increment();
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
        self.metrics.set_up(is_up);
    }

    fn count(&self, op: Operation, counter: &OnceLock<Counter>, result: &str) {
        counter
            .get_or_init(|| self.metrics.requests(Operation::ALL[op as usize], result))
            .increment();
    }
}
