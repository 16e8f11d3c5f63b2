//! Settlements of a policy, counted and logged.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::telemetry::metrics::{SettlementMetrics, SettlementResult, settled_units};
use crate::telemetry::registry::{Counter, Registry};

/// Settlements of a policy. Policies of one name count together.
#[derive(Debug)]
pub struct Settlements {
    pub(crate) metrics: SettlementMetrics,
    /// The units that are charged in the end.
    pub(crate) units: Counter,
    /// Set by the first response without a cost: the log has only this one.
    is_logged: AtomicBool,
}

impl Settlements {
    pub(crate) fn new(registry: &Registry, policy: &str) -> Self {
        Settlements {
            metrics: SettlementMetrics::new(registry, policy),
            units: settled_units(registry, policy),
            is_logged: AtomicBool::new(false),
        }
    }

    /// The number of estimated costs, and of all costs.
    pub fn estimated(&self) -> (u64, u64) {
        let all = self.metrics.total();
        (all - self.metrics.count(SettlementResult::Settled), all)
    }

    /// True for the first caller, which logs.
    pub(crate) fn is_first_to_log(&self) -> bool {
        !self.is_logged.swap(true, Relaxed)
    }
}
