//! What a connection occupies.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::drain::DrainWatcher;
use crate::telemetry::metrics::{BadRequest, ListenerMetrics, OpenGuard};

/// What a connection occupies until its socket is closed.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    metrics: OpenGuard,
    /// `None` where a table of connections has it.
    _place: Option<OwnedSemaphorePermit>,
    _draining: DrainWatcher,
}

impl ConnectionGuard {
    pub(super) fn new(
        metrics: &Arc<ListenerMetrics>,
        place: Option<OwnedSemaphorePermit>,
        draining: DrainWatcher,
    ) -> Self {
        Self {
            metrics: metrics.open(),
            _place: place,
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
