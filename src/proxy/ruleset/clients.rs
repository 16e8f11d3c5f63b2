//! The clients of a ruleset, with counters.

use super::ClientsSpec;
use crate::rules::{ClientLookup, Clients};
use crate::telemetry::metrics::{ClientMetrics, ClientResult};
use crate::telemetry::registry::Registry;

/// The known clients, and counters of the requests that were looked up.
#[derive(Debug)]
pub struct KnownClients {
    pub(crate) clients: Clients,
    metrics: ClientMetrics,
}

impl KnownClients {
    pub(crate) fn new(spec: ClientsSpec, registry: &Registry) -> Self {
        Self {
            clients: spec.clients,
            metrics: ClientMetrics::new(registry),
        }
    }

    /// Shows how many clients there are, once the ruleset runs.
    pub(super) fn show(&self) {
        self.metrics.clients.set(self.clients.table.len() as i64);
    }

    /// Counts the result for a request.
    pub(crate) fn record(&self, found: ClientLookup) {
        self.metrics.lookups.record(match found {
            ClientLookup::Known(_) => ClientResult::Known,
            ClientLookup::NoKey => ClientResult::NoKey,
            ClientLookup::Unknown => ClientResult::Unknown,
            ClientLookup::Several => ClientResult::Several,
        });
    }
}
