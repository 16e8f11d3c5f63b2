//! The resources of a connection.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::StatusCode;
use tokio::time::Instant;

use super::connection_bounds::ConnectionPlace;
use crate::http::client_ip::ClientIp;
use crate::net::drain::DrainWatcher;
use crate::net::peer_address::PeerAddress;
use crate::telemetry::metrics::{BadRequest, ConnectionRefusal, ListenerMetrics, OpenGuard};

/// Counts a connection and holds its place until its socket is closed. Boxed: each future that it
/// passes through keeps room for it.
#[derive(Debug)]
pub(super) struct ConnectionGuard(Box<Resources>);

#[derive(Debug)]
struct Resources {
    metrics: OpenGuard,
    place: ConnectionPlace,
    closing: DrainWatcher,
}

/// A connection that gave way to a new one.
#[derive(Debug)]
pub(super) struct Evicted;

impl fmt::Display for Evicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the idle connection gave way to a new one")
    }
}

impl std::error::Error for Evicted {}

impl ConnectionGuard {
    pub(super) fn new(
        metrics: &Arc<ListenerMetrics>,
        place: ConnectionPlace,
        closing: DrainWatcher,
    ) -> Self {
        Self(Box::new(Resources {
            metrics: metrics.open(),
            place,
            closing,
        }))
    }

    /// The drain of the connection's listener.
    pub(super) fn closing(&self) -> &DrainWatcher {
        &self.0.closing
    }

    /// Counts a handshake that failed, unless the connection gave way to another.
    pub(super) fn handshake_failed(&self, error: &io::Error) {
        if !error.get_ref().is_some_and(|error| error.is::<Evicted>()) {
            self.0.metrics.listener().accept_error();
        }
    }

    /// Counts a preamble that is no header, unless the client has sent nothing.
    pub(super) fn preamble_failed(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            let reason = ConnectionRefusal::BadPreamble;
            self.0.metrics.listener().refuse(reason);
        }
    }

    pub(super) fn bad_request(&self, reason: BadRequest) {
        self.0.metrics.listener().bad_request(reason);
    }

    /// Counts a connection of the client that a preamble names.
    ///
    /// # Errors
    /// When the client has too many.
    pub(super) fn count_client(&self, client: PeerAddress, rules: &ClientIp) -> io::Result<()> {
        let counted = self.0.place.count_client(client, rules);
        counted.map_err(|_| {
            self.0
                .metrics
                .listener()
                .refuse(ConnectionRefusal::MaxPerClient);
            io::Error::other("the client has too many connections")
        })
    }

    /// Notes a request in flight.
    pub(super) fn begin(&self) {
        self.0.place.begin();
    }

    /// Notes that no request is in flight since then. Becomes ready, once, when the connection has
    /// to give way to a new one.
    pub(super) fn poll_evicted(
        &self,
        cx: &mut Context<'_>,
        since: impl FnOnce() -> Instant,
    ) -> Poll<()> {
        let evicted = self.0.place.poll_evicted(cx, since);
        if evicted.is_ready() {
            self.0.metrics.listener().evicted();
        }
        evicted
    }

    /// Returns true if the connection may stay open after a response. At the bound none may; near
    /// it, none whose client has only been refused.
    pub(super) fn may_stay(&self, status: StatusCode, was_served: bool) -> bool {
        let bounds = self.0.place.bounds();
        let is_refused = status == StatusCode::TOO_MANY_REQUESTS && !was_served;
        !(bounds.is_at_max() || is_refused && bounds.is_near_max())
    }
}
