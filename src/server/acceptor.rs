//! The accept loop of one worker on one listener. It ends when the server drains, never on an error.

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use http_body::Body;
use hyper::{Request, body::Incoming, service::Service};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::spawn_local,
    time::{Instant, sleep},
};
use tracing::{info, warn};

use super::{connection::Protocol, drain::Closing, tracked::Held};
use crate::{
    http_ext::connection::{Connection, Scheme},
    telemetry::metrics::ListenerMetrics,
};

/// Waits after failures to accept for want of resources: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often it is logged that there is no place for clients.
const FULL_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Accepts connections and starts serving them.
pub(super) struct Acceptor<F> {
    pub(super) worker: usize,
    pub(super) local: SocketAddr,
    pub(super) protocol: Rc<Protocol>,
    pub(super) factory: F,
    /// Places for connections, shared by all workers and listeners.
    pub(super) places: Arc<Semaphore>,
    pub(super) metrics: ListenerMetrics,
    pub(super) closing: Closing,
    /// When it was last logged that there is no place.
    pub(super) full_logged: Option<Instant>,
}

impl<F, S, B> Acceptor<F>
where
    F: Fn(&Connection) -> S + Clone + 'static,
    S: Service<Request<Incoming>, Response = hyper::Response<B>> + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Accepts until the server drains, then serves what the kernel has accepted already.
    pub(super) async fn run(mut self, listener: TcpListener) {
        let mut trouble = Trouble::default();
        let mut closing = self.closing.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.started() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    trouble.over(self.local);
                    self.serve(stream, peer).await;
                }
                Err(error) => {
                    self.metrics.accept_error();
                    trouble.pause(self.local, &error).await;
                }
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

    /// Starts serving one connection as soon as there is a place for it. While there is none, this one
    /// waits unread, and those behind it in the kernel.
    async fn serve(&mut self, stream: TcpStream, peer: SocketAddr) {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                self.log_full();
                let place = self.places.clone().acquire_owned().await;
                place.expect("the semaphore is never closed")
            }
        };
        let held = Held::new(&self.metrics, place, self.closing.clone());
        let connection = Connection {
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            local: self.local,
            scheme: Scheme::Http,
            server_name: None,
            worker: self.worker,
        };
        let (protocol, factory) = (self.protocol.clone(), self.factory.clone());
        let closing = self.closing.clone();
        spawn_local(protocol.serve(stream, connection, factory, held, closing));
    }
}

impl<F> Acceptor<F> {
    fn log_full(&mut self) {
        let lately = |at: Instant| at.elapsed() < FULL_LOGGED_EVERY;
        if !self.full_logged.is_some_and(lately) {
            self.full_logged = Some(Instant::now());
            warn!(listener = %self.local, "max_connections reached: new clients wait");
        }
    }
}

/// A run of failures to accept: logged once, waited for ever longer, within a bound.
#[derive(Debug, Default)]
struct Trouble {
    failures: u64,
    pause: Duration,
}

impl Trouble {
    /// Notes a failure, and waits unless it was the one connection's own.
    async fn pause(&mut self, local: SocketAddr, error: &io::Error) {
        if is_of_one_connection(error) {
            return tokio::task::yield_now().await;
        }
        if self.failures == 0 {
            warn!(listener = %local, "cannot accept connections, will keep trying: {error}");
        }
        self.failures += 1;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        sleep(self.pause).await;
    }

    /// Notes a success.
    fn over(&mut self, local: SocketAddr) {
        if self.failures > 0 {
            info!(listener = %local, "accepting connections again after {} failures", self.failures);
            *self = Self::default();
        }
    }
}

/// Returns whether accept(2) reports what became of one connection, so that the next may be well.
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
