//! Listeners: the connections of clients.

use super::families::{ACCEPT_ERRORS, CONNECTIONS};
use crate::telemetry::registry::{Counter, Gauge, Registry};

/// One listener's connections.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    open: Gauge,
    accept_errors: Counter,
}

impl ListenerMetrics {
    /// Makes the handles of the listener with this address.
    pub fn new(registry: &Registry, listener: &str) -> Self {
        Self {
            open: registry.gauge(&CONNECTIONS, &[listener]),
            accept_errors: registry.counter(&ACCEPT_ERRORS, &[listener]),
        }
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn open(&self) -> OpenGuard {
        self.open.add(1);
        OpenGuard(self.open.clone())
    }

    /// Counts a connection that could not be accepted, or whose handshake failed.
    pub fn accept_error(&self) {
        self.accept_errors.increment();
    }
}

/// One connection in `sluicegate_connections`, until dropped.
#[derive(Debug)]
pub struct OpenGuard(Gauge);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
