//! The accept loop of one worker on one listener. It ends when the server drains, never on an
//! error.

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{spawn_local, yield_now},
    time::sleep,
};
use tracing::warn;

use super::{
    ConnectionTable, HttpService, connection::ConnectionHandler, connection_guard::ConnectionGuard,
    drain::DrainWatcher,
};
use crate::{
    http::connection::{ClientConnection, Scheme},
    telemetry::{log_throttle::LogThrottle, metrics::ListenerMetrics},
};

/// The pause after a failed accept for want of resources. The kernel does not report when they are
/// free again; retrying so often costs nothing.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Accepts connections and starts serving them.
pub(super) struct Acceptor<F> {
    pub(super) worker: usize,
    pub(super) local: SocketAddr,
    pub(super) protocol: Rc<ConnectionHandler>,
    pub(super) factory: F,
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
    pub(super) async fn run(self, listener: TcpListener) {
        let mut closing = self.closing.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.started() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.serve(stream, peer).await,
                Err(error) => self.failed(&error).await,
            }
        }
        if let Ok(listener) = listener.into_std() {
            while let Ok((stream, peer)) = listener.accept() {
                if stream.set_nonblocking(true).is_ok()
                    && let Ok(stream) = TcpStream::from_std(stream)
                {
                    self.serve(stream, peer).await;
                }
            }
        }
    }

    /// Starts serving a connection as soon as it has a permit. Until then this one waits unread,
    /// and later ones wait in the kernel.
    async fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
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
        };
        let connection = ClientConnection {
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            local: self.local,
            scheme: Scheme::Http,
            server_name: None,
            worker: self.worker,
            informational: None,
        };
        let (protocol, factory) = (self.protocol.clone(), self.factory.clone());
        let closing = self.closing.clone();
        let new_guard = |permit| ConnectionGuard::new(&self.metrics, permit, self.closing.clone());
        match &self.table {
            None => {
                let guard = new_guard(Some(permit));
                spawn_local(protocol.serve(stream, connection, factory, guard, closing));
            }
            Some(table) => {
                // Before it is served: the next client may need its permit at once.
                let mut membership = table.enter(connection.peer, Some(permit));
                let served = protocol.serve(stream, connection, factory, new_guard(None), closing);
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
    }
}

impl<F> Acceptor<F> {
    fn log_full(&self, consequence: &str) {
        if let Some(omitted) = self.warnings.max_connections.admit_now() {
            warn!(listener = %self.local, omitted, "max_connections reached: {consequence}");
        }
    }

    /// Counts a failed accept, and pauses unless the failure was one connection's own.
    async fn failed(&self, error: &io::Error) {
        self.metrics.accept_error();
        if is_of_one_connection(error) {
            return yield_now().await;
        }
        if let Some(omitted) = self.warnings.accept_error.admit_now() {
            warn!(listener = %self.local, omitted, "cannot accept connections, new clients wait: {error}");
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
