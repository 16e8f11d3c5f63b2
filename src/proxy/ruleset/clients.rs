//! The clients of a ruleset, with counters.

use super::ClientsSpec;
use crate::rules::{ClientLookup, Clients, Head};
use crate::telemetry::metrics::{ClientMetrics, ClientResult};
use crate::telemetry::registry::Registry;

/// The known clients, and counters of the requests that were looked up.
#[derive(Debug)]
pub struct KnownClients {
    pub(crate) clients: Clients,
    /// The column whose values label metrics.
    label: Option<usize>,
    metrics: ClientMetrics,
}

impl KnownClients {
    pub(crate) fn new(spec: ClientsSpec, registry: &Registry) -> Self {
        let column = spec.metric_label.as_deref();
        Self {
            label: column.and_then(|column| spec.clients.table.column(column)),
            clients: spec.clients,
            metrics: ClientMetrics::new(registry),
        }
    }

    /// Shows how many clients there are, once the ruleset runs.
    pub(super) fn show(&self) {
        self.metrics
            .clients
            .set(self.clients.table.clients() as i64);
    }

    /// Looks the client of a request up, and returns the place of its label among those of
    /// [`ClientsSpec::labels`]; `None` if nothing is labelled.
    pub(crate) fn label(&self, head: &Head<'_>) -> Option<u8> {
        let found = head.client?.lookup(head);
        let column = self.label?;
        Some(match found {
            ClientLookup::Known(client) => 1 + self.clients.table.distinct_place(client, column),
            _ => 0,
        } as u8)
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
