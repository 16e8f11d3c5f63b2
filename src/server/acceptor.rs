//! The accept loop of one worker on one listener. It ends when the server drains or a reload removes
//! the listener, never on an error.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{spawn_local, yield_now};
use tokio::time::sleep;
use tracing::warn;

use super::connection::ConnectionHandler;
use super::connection_bounds::ConnectionBounds;
use super::connection_guard::ConnectionGuard;
use super::factory::ServiceFactory;
use crate::net::drain::{DrainStage, DrainWatcher};
use crate::net::file_budget;
use crate::net::listener::{Accepted, Listener};
use crate::net::peer_address::PeerAddress;

/// The pause after a failed accept for want of resources. The kernel does not report when they are
/// free again; retrying so often costs nothing.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections and starts serving them.
#[derive(Clone)]
pub(super) struct Acceptor<F> {
    /// For the next connections; a reload replaces it.
    pub(super) handler: Rc<RefCell<Rc<ConnectionHandler>>>,
    pub(super) factory: F,
    /// Connections of the worker since the start.
    pub(super) accepted: Rc<Cell<u64>>,
    /// The bounds of connections, shared by all workers and listeners.
    pub(super) bounds: Arc<ConnectionBounds>,
    /// Its own drain, not that of its connections.
    pub(super) closing: DrainWatcher,
}

impl<F: ServiceFactory> Acceptor<F> {
    /// Accepts until its drain, then serves the connections that the kernel has accepted already, unless
    /// they are left to another process.
    pub(super) async fn run(self, listener: Rc<Listener>) {
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
        if closing.stage() == DrainStage::Leave {
            return;
        }
        let queued = Rc::into_inner(listener)
            .into_iter()
            .flat_map(Listener::into_queued);
        for accepted in queued {
            self.serve(accepted).await;
        }
    }

    /// Starts serving a connection as soon as it has a permit. Until then this one waits unread,
    /// and later ones wait in the kernel. Closes the connection if its client has too many.
    async fn serve(&self, accepted: Accepted) {
        let Ok(client) = self.count_client(accepted.peer) else {
            return;
        };
        let acquiring = self
            .bounds
            .acquire(|consequence| self.log_full(consequence));
        acquiring.await;
        let id = self.accepted.get();
        self.accepted.set(id + 1);
        let handler = self.handler();
        let (metrics, drain) = (&handler.settings.metrics, handler.drain.clone());
        let guard = ConnectionGuard::new(&self.bounds, handler.worker, client, metrics, drain);
        spawn_local(handler.serve(id, accepted, self.factory.clone(), guard));
    }

    fn handler(&self) -> Rc<ConnectionHandler> {
        self.handler.borrow().clone()
    }

    /// Counts the connection of a client that is known already.
    fn count_client(&self, peer: PeerAddress) -> io::Result<Option<IpAddr>> {
        let handler = self.handler();
        if handler.expects_header(peer) {
            return Ok(None);
        }
        let rules = handler.client_rules.load();
        let (bounds, settings) = (&self.bounds, &handler.settings);
        let counted = bounds.count_client(peer, &rules.client_ip, &settings.metrics);
        counted.inspect_err(|_| settings.log_refused(peer))
    }

    fn log_full(&self, consequence: &str) {
        let settings = &self.handler().settings;
        if let Some(omitted) = settings.warnings.max_connections.admit_now() {
            warn!(listener = %settings.local, omitted, "max_connections reached: {consequence}");
        }
    }

    /// Counts a failed accept, and pauses unless the failure was one connection's own.
    async fn failed(&self, error: &io::Error) {
        use io::ErrorKind::{
            ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted,
            NetworkDown, NetworkUnreachable, PermissionDenied, TimedOut,
        };
        let settings = self.handler().settings.clone();
        settings.metrics.accept_errors.increment();
        // accept(2) reports the failure of one connection, so that the next may succeed.
        if let ConnectionAborted | ConnectionRefused | ConnectionReset | HostUnreachable
        | Interrupted | NetworkDown | NetworkUnreachable | PermissionDenied | TimedOut =
            error.kind()
        {
            return yield_now().await;
        }
        file_budget::UPSTREAMS.note_shortage(error);
        if let Some(omitted) = settings.warnings.accept_error.admit_now() {
            warn!(listener = %settings.local, omitted, "cannot accept connections, new clients wait: {error}");
        }
        sleep(ACCEPT_RETRY_PAUSE).await;
    }
}
