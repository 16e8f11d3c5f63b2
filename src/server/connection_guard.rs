//! What a connection occupies.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::drain::Closing;
use crate::telemetry::metrics::{BadRequest, ListenerMetrics, OpenGuard};

/// What a connection occupies until its socket is closed.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    open: OpenGuard,
    /// `None` where a table of connections has it.
    _place: Option<OwnedSemaphorePermit>,
    _draining: Closing,
}

impl ConnectionGuard {
    pub(super) fn new(
        metrics: &Arc<ListenerMetrics>,
        place: Option<OwnedSemaphorePermit>,
        draining: Closing,
    ) -> Self {
        Self {
            open: metrics.open(),
            _place: place,
            _draining: draining,
        }
    }

    pub(super) fn handshake_failed(&self) {
        self.open.listener().accept_error();
    }

    pub(super) fn bad_request(&self, reason: BadRequest) {
        self.open.listener().bad_request(reason);
    }
}
