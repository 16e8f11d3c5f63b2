//! The resources of a connection.

use std::io;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::drain::DrainWatcher;
use crate::telemetry::metrics::{BadRequest, ConnectionRefusal, ListenerMetrics, OpenGuard};

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

    /// Counts a preamble that is no header, unless the client has sent nothing.
    pub(super) fn preamble_failed(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            let reason = ConnectionRefusal::BadPreamble;
            self.metrics.listener().refuse(reason);
        }
    }

    pub(super) fn bad_request(&self, reason: BadRequest) {
        self.metrics.listener().bad_request(reason);
    }
}
