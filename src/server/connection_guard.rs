//! The resources of a connection.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::drain::DrainWatcher;
use crate::telemetry::metrics::{BadRequest, ListenerMetrics, OpenGuard};

/// Counts a connection and holds its permit until its socket is closed.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    metrics: OpenGuard,
    /// `None` if the table of connections holds the permit.
    _permit: Option<OwnedSemaphorePermit>,
    _draining: DrainWatcher,
}

impl ConnectionGuard {
    pub(super) fn new(
        metrics: &Arc<ListenerMetrics>,
        permit: Option<OwnedSemaphorePermit>,
        draining: DrainWatcher,
    ) -> Self {
        Self {
            metrics: metrics.open(),
            _permit: permit,
            _draining: draining,
        }
    }

    pub(super) fn handshake_failed(&self) {
        self.metrics.listener().accept_error();
    }

    pub(super) fn bad_request(&self, reason: BadRequest) {
        self.metrics.listener().bad_request(reason);
    }
}
