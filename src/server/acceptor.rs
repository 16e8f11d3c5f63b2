//! The accept loop of one worker on one listener. It ends when the server drains, never on an
//! error.

use std::{cell::Cell, io, rc::Rc, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{spawn_local, yield_now},
    time::sleep,
};
use tracing::warn;

use super::{
    ConnectionTable, HttpService, connection::ConnectionHandler, connection_guard::ConnectionGuard,
    drain::DrainWatcher,
};
use crate::{
    http::connection::ClientConnection,
    net::listener::{Accepted, Listener},
    telemetry::{log_throttle::LogThrottle, metrics::ListenerMetrics},
};

/// The pause after a failed accept for want of resources. The kernel does not report when they are
/// free again; retrying so often costs nothing.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Accepts connections and starts serving them.
pub(super) struct Acceptor<F> {
    pub(super) handler: Rc<ConnectionHandler>,
    pub(super) factory: F,
    /// Connections since the start.
    pub(super) accepted: Cell<u64>,
    /// Permits for connections, shared by all workers and listeners.
    pub(super) permits: Arc<Semaphore>,
    /// The table that evicts a connection when there is no permit.
    pub(super) table: Option<ConnectionTable>,
    pub(super) metrics: Arc<ListenerMetrics>,
    pub(super) closing: DrainWatcher,
    pub(super) warnings: Arc<AcceptWarnings>,
}

/// Bounds the log lines about clients that wait to be accepted by one listener, over all its
/// workers.
#[derive(Debug)]
pub(super) struct AcceptWarnings {
    accept_error: LogThrottle,
    max_connections: LogThrottle,
}

impl AcceptWarnings {
    pub(super) fn new() -> Self {
        Self {
            accept_error: LogThrottle::new(WARNING_INTERVAL),
            max_connections: LogThrottle::new(WARNING_INTERVAL),
        }
    }
}

impl<F, S> Acceptor<F>
where
    F: Fn(&ClientConnection) -> S + Clone + 'static,
    S: HttpService,
{
    /// Accepts until the server drains, then serves the connections that the kernel has accepted
    /// already.
    pub(super) async fn run(self, listener: Listener) {
        let mut closing = self.closing.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.started() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => self.serve(accepted).await,
                Err(error) => self.failed(&error).await,
            }
        }
        for accepted in listener.into_queued() {
            self.serve(accepted).await;
        }
    }

    /// Starts serving a connection as soon as it has a permit. Until then this one waits unread,
    /// and later ones wait in the kernel.
    async fn serve(&self, accepted: Accepted) {
        let permit = self.permit().await;
        let id = self.accepted.get();
        self.accepted.set(id + 1);
        let serve = |permit| {
            let (factory, closing) = (self.factory.clone(), self.closing.clone());
            let guard = ConnectionGuard::new(&self.metrics, permit, closing.clone());
            let handler = self.handler.clone();
            handler.serve(id, accepted, factory, guard, closing)
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
    /// Waits for a permit. A server with a table evicts a connection for it.
    async fn permit(&self) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return permit;
        }
        match &self.table {
            Some(table) => {
                table.evict();
                self.log_full("an older one gives way");
            }
            None => self.log_full("new clients wait"),
        }
        let permit = self.permits.clone().acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    fn log_full(&self, consequence: &str) {
        if let Some(omitted) = self.warnings.max_connections.admit_now() {
            warn!(listener = %self.handler.local, omitted, "max_connections reached: {consequence}");
        }
    }

    /// Counts a failed accept, and pauses unless the failure was one connection's own.
    async fn failed(&self, error: &io::Error) {
        self.metrics.accept_error();
        if is_of_one_connection(error) {
            return yield_now().await;
        }
        if let Some(omitted) = self.warnings.accept_error.admit_now() {
            warn!(listener = %self.handler.local, omitted, "cannot accept connections, new clients wait: {error}");
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
