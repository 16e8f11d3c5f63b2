//! The accept loop of one worker on one listener. It ends when the server drains or a reload removes
//! the listener, never on an error.

use std::{
    cell::{Cell, RefCell},
    io,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::{spawn_local, yield_now},
    time::sleep,
};
use tracing::warn;

use super::{
    ConnectionTable, HttpService,
    connection::ConnectionHandler,
    connection_bounds::{ConnectionBounds, ConnectionPermit, TooManyConnections},
    connection_guard::ConnectionGuard,
};
use crate::{
    http::connection::ClientConnection,
    net::drain::{DrainStage, DrainWatcher},
    net::file_budget,
    net::listener::{Accepted, ListenAddress, Listener},
    net::peer_address::PeerAddress,
    telemetry::{
        log_throttle::LogThrottle,
        metrics::{ConnectionRefusal, ListenerMetrics},
    },
};

/// The pause after a failed accept for want of resources. The kernel does not report when they are
/// free again; retrying so often costs nothing.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Accepts connections and starts serving them.
pub(super) struct Acceptor<F> {
    /// For the next connections; a reload replaces it.
    pub(super) handling: Rc<RefCell<Handling>>,
    pub(super) factory: F,
    /// Connections of the worker since the start.
    pub(super) accepted: Rc<Cell<u64>>,
    /// The bounds of connections, shared by all workers and listeners.
    pub(super) bounds: Arc<ConnectionBounds>,
    /// The table that evicts a connection when there is no permit.
    pub(super) table: Option<ConnectionTable>,
    pub(super) metrics: Arc<ListenerMetrics>,
    /// Its own drain, not that of its connections.
    pub(super) closing: DrainWatcher,
    pub(super) warnings: Arc<AcceptWarnings>,
}

/// The handling of accepted connections.
pub(super) struct Handling {
    pub(super) handler: Rc<ConnectionHandler>,
    /// The drain of the connections.
    pub(super) drain: DrainWatcher,
}

/// Bounds the log lines about clients that wait to be accepted by one listener, over all its
/// workers.
#[derive(Debug)]
pub(super) struct AcceptWarnings {
    accept_error: LogThrottle,
    max_connections: LogThrottle,
    max_per_client: LogThrottle,
}

impl AcceptWarnings {
    pub(super) fn new() -> Self {
        Self {
            accept_error: LogThrottle::new(WARNING_INTERVAL),
            max_connections: LogThrottle::new(WARNING_INTERVAL),
            max_per_client: LogThrottle::new(WARNING_INTERVAL),
        }
    }

    /// Says that a client has as many connections as it may.
    pub(super) fn log_refused(&self, listener: &ListenAddress, client: PeerAddress) {
        if let Some(omitted) = self.max_per_client.admit_now() {
            warn!(%listener, %client, omitted, "max_connections_per_client reached: new connections of the client are closed");
        }
    }
}

impl<F, S> Acceptor<F>
where
    F: Fn(&ClientConnection) -> S + Clone + 'static,
    S: HttpService,
{
    /// Accepts until its drain, then serves the connections that the kernel has accepted already.
    pub(super) async fn run(self, listener: Listener) {
        let mut closing = self.closing.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.reached(DrainStage::Finish) => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => self.serve(accepted).await,
                Err(error) => self.failed(&error).await,
            }
        }
        closing.reached(DrainStage::Close).await;
        for accepted in listener.into_queued() {
            self.serve(accepted).await;
        }
    }

    /// Starts serving a connection as soon as it has a permit. Until then this one waits unread,
    /// and later ones wait in the kernel. Closes the connection if its client has too many.
    async fn serve(&self, accepted: Accepted) {
        let Ok(client) = self.count_client(accepted.peer) else {
            return;
        };
        let permit = self.permit().await;
        let id = self.accepted.get();
        self.accepted.set(id + 1);
        let serve = |permit| {
            let Handling { handler, drain } = &*self.handling.borrow();
            let place = self.bounds.enter(handler.worker, permit, client);
            let guard = ConnectionGuard::new(&self.metrics, place, drain.clone());
            handler
                .clone()
                .serve(id, accepted, self.factory.clone(), guard)
        };
        let Some(table) = &self.table else {
            spawn_local(serve(Some(permit)));
            return;
        };
        // Before it is served: the next client may need its permit at once.
        let mut membership = table.enter(id, Some(permit));
        let served = serve(None);
        spawn_local(async move {
            tokio::select! {
                // A request that has arrived is answered first.
                biased;
                () = served => {}
                () = membership.ended() => {}
            }
        });
    }
}

impl<F> Acceptor<F> {
    fn handler(&self) -> Rc<ConnectionHandler> {
        self.handling.borrow().handler.clone()
    }

    /// Counts the connection of a client that is known already.
    fn count_client(&self, peer: PeerAddress) -> Result<Option<IpAddr>, TooManyConnections> {
        let handler = self.handler();
        if handler.expects_header(peer) {
            return Ok(None);
        }
        let rules = handler.client_rules.load();
        let counted = self.bounds.count_client(peer, &rules);
        counted.inspect_err(|_| {
            self.metrics.refuse(ConnectionRefusal::MaxPerClient);
            self.warnings.log_refused(&handler.local, peer);
        })
    }

    /// Waits for a permit, for which an idle connection gives way near the bound. A server with a
    /// table evicts a connection at the bound.
    async fn permit(&self) -> ConnectionPermit {
        if self.table.is_none() && self.bounds.is_near_max() {
            self.bounds.evict();
        }
        if let Some(permit) = self.bounds.try_permit() {
            return permit;
        }
        match &self.table {
            Some(table) => {
                table.evict();
                self.log_full("an older one gives way");
                self.bounds.permit().await
            }
            None => {
                let log = |consequence: &str| self.log_full(consequence);
                self.bounds.permit_of_idle(log).await
            }
        }
    }

    fn log_full(&self, consequence: &str) {
        if let Some(omitted) = self.warnings.max_connections.admit_now() {
            warn!(listener = %self.handler().local, omitted, "max_connections reached: {consequence}");
        }
    }

    /// Counts a failed accept, and pauses unless the failure was one connection's own.
    async fn failed(&self, error: &io::Error) {
        self.metrics.accept_error();
        if is_of_one_connection(error) {
            return yield_now().await;
        }
        file_budget::UPSTREAMS.note_shortage();
        if let Some(omitted) = self.warnings.accept_error.admit_now() {
            warn!(listener = %self.handler().local, omitted, "cannot accept connections, new clients wait: {error}");
        }
        sleep(ACCEPT_RETRY_PAUSE).await;
    }
}

/// Returns true if accept(2) reports the failure of one connection, so that the next may succeed.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted,
        NetworkDown, NetworkUnreachable, PermissionDenied, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | PermissionDenied
            | TimedOut
    )
}
