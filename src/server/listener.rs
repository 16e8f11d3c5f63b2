//! A listener, as its workers and its connections know it.

use std::sync::Arc;

use tracing::warn;

use super::spec::ListenerSpec;
use crate::net::peer_address::PeerAddress;
use crate::net::socket::StreamAddress;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::ListenerMetrics;

/// A listener's settings, for all workers.
#[derive(Clone, Debug)]
pub(super) struct ListenerSettings {
    pub(super) spec: ListenerSpec,
    /// The bound address.
    pub(super) local: StreamAddress,
    pub(super) metrics: Arc<ListenerMetrics>,
    pub(super) warnings: Arc<AcceptWarnings>,
}

impl ListenerSettings {
    /// Says that a client has as many connections as it may.
    pub(super) fn log_refused(&self, client: PeerAddress) {
        if let Some(omitted) = self.warnings.max_per_client.admit_now() {
            let listener = &self.local;
            warn!(%listener, %client, omitted, "max_connections_per_client reached: new connections of the client are closed");
        }
    }
}

/// Bounds the log lines about clients that wait to be accepted by one listener, over all its
/// workers.
#[derive(Debug, Default)]
pub(super) struct AcceptWarnings {
    pub(super) accept_error: LogThrottle,
    pub(super) max_connections: LogThrottle,
    max_per_client: LogThrottle,
}
