//! The resources of a connection.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection_bounds::ConnectionBounds;
use super::idle_list::IdleList;
use crate::http::client_ip::ClientIp;
use crate::net::drain::DrainWatcher;
use crate::net::peer_address::PeerAddress;
use crate::telemetry::metrics::{BadRequest, ConnectionRefusal, ListenerMetrics};

/// Counts a connection and holds its place until its socket is closed. Boxed: each future that it
/// passes through keeps room for it.
#[derive(Debug)]
pub(super) struct ConnectionGuard(Box<Place>);

/// The place of a connection within the bounds of its server.
#[derive(Debug)]
struct Place {
    bounds: Arc<ConnectionBounds>,
    worker: u32,
    index: u32,
    /// As the list has it, unless the connection is evicted.
    is_idle: Cell<bool>,
    /// The client that is counted.
    client: Cell<Option<IpAddr>>,
    metrics: Arc<ListenerMetrics>,
    closing: DrainWatcher,
}

/// A connection that gave way to a new one.
#[derive(Debug, thiserror::Error)]
#[error("the connection gave way to a new one")]
pub(super) struct Evicted;

impl ConnectionGuard {
    /// Returns true if the connection may carry many clients: that of a trusted proxy, or of a peer without
    /// an address.
    pub(super) fn is_of_proxy(&self) -> bool {
        self.0.client.get().is_none()
    }

    /// Adds a connection of this client, if it is known, to those that a worker serves. The caller has
    /// acquired its permit.
    pub(super) fn new(
        bounds: &Arc<ConnectionBounds>,
        worker: usize,
        client: Option<IpAddr>,
        metrics: &Arc<ListenerMetrics>,
        closing: DrainWatcher,
    ) -> Self {
        metrics.open.add(1);
        Self(Box::new(Place {
            index: bounds.idle[worker].lock().insert(Instant::now()),
            worker: worker as u32,
            is_idle: Cell::new(true),
            client: Cell::new(client),
            bounds: bounds.clone(),
            metrics: metrics.clone(),
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
            self.0.metrics.accept_errors.increment();
        }
    }

    /// Counts a preamble that is no header, unless the client has sent nothing.
    pub(super) fn preamble_failed(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            let refused = &self.0.metrics.refused;
            refused.record(ConnectionRefusal::BadPreamble);
        }
    }

    pub(super) fn bad_request(&self, reason: BadRequest) {
        self.0.metrics.bad_requests.record(reason);
    }

    /// Counts a connection of the client that a preamble names.
    ///
    /// # Errors
    /// When the client has too many.
    pub(super) fn count_client(&self, client: PeerAddress, rules: &ClientIp) -> io::Result<()> {
        let place = &self.0;
        let counted = place.bounds.count_client(client, rules, &place.metrics);
        place.client.set(counted?);
        Ok(())
    }

    /// Notes a request in flight.
    pub(super) fn begin(&self) {
        if self.0.is_idle.replace(false) {
            self.0.list().lock().begin(self.0.index);
        }
    }

    /// Notes that no request is in flight since then. Becomes ready, once, when the connection has
    /// to give way to a new one.
    pub(super) fn poll_evicted(
        &self,
        cx: &mut Context<'_>,
        since: impl FnOnce() -> Instant,
    ) -> Poll<()> {
        let was_idle = self.0.is_idle.replace(true);
        let mut list = self.0.list().lock();
        let is_evicted = list.is_evicted(self.0.index, since, cx.waker());
        drop(list);
        if is_evicted || !was_idle && self.0.bounds.is_at_max() {
            self.0.metrics.evicted.increment();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Becomes ready when the connection has to give way although a request may be in flight.
    pub(super) fn poll_cut(&self, cx: &mut Context<'_>) -> Poll<()> {
        let gives_way = self.max_exchange().is_some();
        if gives_way && self.0.list().lock().is_cut(self.0.index, cx.waker()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// The longest exchange, if there is a bound.
    pub(super) fn max_exchange(&self) -> Option<Duration> {
        self.0.bounds.max_exchange
    }

    /// Returns true if the connection may stay open after a response. At the bound none may; near
    /// it, none whose client has only been refused.
    pub(super) fn may_stay(&self, status: StatusCode, was_served: bool) -> bool {
        let bounds = &self.0.bounds;
        let is_refused = status == StatusCode::TOO_MANY_REQUESTS && !was_served;
        !(bounds.is_at_max() || is_refused && bounds.is_near_max())
    }
}

impl Place {
    fn list(&self) -> &Mutex<IdleList> {
        &self.bounds.idle[self.worker as usize]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.list().lock().remove(self.index);
        if let Some(client) = self.client.get() {
            self.bounds.clients.leave(client);
        }
        self.bounds.permits.release();
        self.metrics.open.add(-1);
    }
}
