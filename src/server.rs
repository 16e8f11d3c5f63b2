//! Listeners, TLS and connections: from a socket to requests handed to one service, and back.
//!
//! N workers are N threads, each with a single-threaded runtime and its own socket for every listener,
//! so that a request never changes threads. What becomes of a request is the service's business: this
//! layer knows no routes and no limits. Sockets live as long as the server; a reload changes certificates
//! (see [`tls::Tls::adopt`]) and whatever the service looks up.

mod acceptor;
mod connection;
mod connection_table;
pub mod drain;
mod connection_guard;
mod service;
pub mod tls;
mod worker;

use std::{
    io::Error as IoError,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    thread::{Builder as ThreadBuilder, JoinHandle},
    time::Duration,
};

use tokio::sync::Semaphore;

pub use self::connection_table::{ConnectionTable, WatchedService};
pub use self::service::HttpService;
use self::{
    acceptor::AcceptWarnings,
    drain::Shutdown,
    tls::Tls,
    worker::{BoundListener, Worker},
};
use crate::{
    http::connection::ClientConnection,
    net::listener::{self, BindError},
    telemetry::{metrics::ListenerMetrics, registry::Registry},
};

/// What a server is to do.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What its threads are called, with a number behind; at most 12 bytes of it are seen.
    pub name: &'static str,
    /// How many threads serve.
    pub workers: NonZeroUsize,
    /// Where clients connect.
    pub listeners: Vec<ListenerSpec>,
    /// Bounds for clients, the same on all listeners.
    pub client: ClientSpec,
    /// The connections of which one gives way when there are `max_connections`. For one worker with one listener of
    /// HTTP/1, whose service the table [watches](ConnectionTable::watch).
    pub table: Option<ConnectionTable>,
}

impl Spec {
    /// A server with one worker for operators, at `address`: clear text, and bounds that suit people
    /// and their monitoring. Older connections, as `table` knows them, give way to new ones.
    pub fn admin(address: SocketAddr, table: ConnectionTable) -> Self {
        Spec {
            name: "admin",
            workers: NonZeroUsize::MIN,
            listeners: vec![ListenerSpec {
                address,
                // One answer at a time: in HTTP/2 a connection may have a hundred.
                protocols: Protocols::Http1,
                tls: None,
            }],
            client: ClientSpec {
                timeouts: Timeouts {
                    head: Duration::from_secs(2),
                    body: Duration::from_secs(10),
                    idle: Duration::from_secs(60),
                },
                max_head: 16 * 1024,
                max_connections: 256,
                half_close: HalfClose::default(),
            },
            table: Some(table),
        }
    }
}

/// An address that clients connect to.
#[derive(Clone, Debug)]
pub struct ListenerSpec {
    /// Where; port 0 takes a free one.
    pub address: SocketAddr,
    /// The versions of HTTP that are spoken.
    pub protocols: Protocols,
    /// Encryption, loaded with the same `protocols`; without it, clear text.
    pub tls: Option<Tls>,
}

/// Versions of HTTP that a listener speaks: by ALPN over TLS; in clear text HTTP/2 is taken from clients
/// that know beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1 (and 1.0) only.
    Http1,
    /// HTTP/2 only.
    Http2,
    /// Both, HTTP/2 preferred.
    Both,
}

impl Protocols {
    fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
            Self::Both => &[b"h2", b"http/1.1"],
        }
    }
}

/// Bounds towards clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSpec {
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The most bytes of a request's head; more is answered 431.
    pub max_head: usize,
    /// Connections served at once, over all listeners; further ones wait, unread.
    pub max_connections: usize,
    /// How long half-closing clients are waited for.
    pub half_close: HalfClose,
}

/// How long a client that has ended its side of the connection is given for its answer: it may have half-closed, or
/// be gone, which only a write would tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClose {
    /// The answer has to begin, or to go on, within this time.
    Grace(Duration),
    /// As long as any other client.
    Serve,
}

impl Default for HalfClose {
    fn default() -> Self {
        Self::Grace(Duration::from_secs(1))
    }
}

/// How long a connection waits for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a whole head, from its first byte; for the first, from connecting, with the TLS handshake. Also for heads of frames.
    pub head: Duration,
    /// For a client that takes nothing of its response.
    pub body: Duration,
    /// For the next request.
    pub idle: Duration,
}

impl Timeouts {
    fn longest(&self) -> Duration {
        self.head.max(self.body).max(self.idle)
    }
}

/// A running server. Dropping it ends it at once.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    shutdown: Shutdown,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Binds every listener and starts the workers.
    ///
    /// `factory` makes the service of each connection, on the thread of its worker. The service may fail
    /// a request to have the connection closed (in HTTP/2, the stream reset) without an answer.
    ///
    /// # Errors
    ///
    /// An address that cannot be bound, or threads that cannot be started; then nothing runs.
    pub fn start<F, S>(spec: Spec, registry: &Registry, factory: F) -> Result<Self, StartError>
    where
        F: Fn(&ClientConnection) -> S + Clone + Send + 'static,
        S: HttpService,
    {
        let nothing = |_| std::future::ready(());
        Self::start_with(spec, registry, factory, nothing, nothing)
    }

    /// The same, where each worker, by its index, awaits what `beginning` makes before it accepts connections, and what `ending`
    /// makes when they have ended. Clients that connect before wait in the kernel's queue.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_with<F, S, B, V, E, W>(
        spec: Spec,
        registry: &Registry,
        factory: F,
        beginning: B,
        ending: E,
    ) -> Result<Self, StartError>
    where
        F: Fn(&ClientConnection) -> S + Clone + Send + 'static,
        S: HttpService,
        B: Fn(usize) -> V + Clone + Send + 'static,
        V: Future<Output = ()> + 'static,
        E: Fn(usize) -> W + Clone + Send + 'static,
        W: Future<Output = ()> + 'static,
    {
        let (addresses, listeners) = bind(&spec, registry)?;
        let places = Semaphore::new(spec.client.max_connections.min(Semaphore::MAX_PERMITS));
        let places = Arc::new(places);
        let mut server = Self {
            addresses,
            shutdown: Shutdown::new(),
            threads: Vec::new(),
        };
        let (started, starts) = mpsc::channel();
        for (index, listeners) in listeners.into_iter().enumerate() {
            let (started, factory) = (started.clone(), factory.clone());
            let (beginning, ending) = (beginning.clone(), ending.clone());
            let worker = Worker {
                index,
                listeners,
                client: spec.client,
                table: spec.table.clone(),
                permits: places.clone(),
                lifetime: server.shutdown.watch(),
            };
            let thread = ThreadBuilder::new().name(format!("{}-{index}", spec.name));
            let thread = thread.spawn(move || worker.run(factory, beginning, ending, &started));
            server.threads.push(thread.map_err(StartError::Thread)?);
        }
        drop(started);
        starts
            .into_iter()
            .take(spec.workers.get())
            .collect::<Result<(), _>>()
            .map_err(StartError::Thread)?;
        Ok(server)
    }

    /// Returns where the listeners are bound, in the order of the spec.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the handle that ends this server.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Waits, blocking, until the server has been ended through its [`Shutdown`].
    pub fn join(mut self) {
        self.join_threads();
    }

    fn join_threads(&mut self) {
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.abort();
        self.join_threads();
    }
}

/// Binds all listeners: the addresses, and each worker's sockets.
fn bind(
    spec: &Spec,
    registry: &Registry,
) -> Result<(Vec<SocketAddr>, Vec<Vec<BoundListener>>), BindError> {
    let workers = spec.workers.get();
    let mut addresses = Vec::new();
    let mut by_worker: Vec<_> = std::iter::repeat_with(Vec::new).take(workers).collect();
    for listener in &spec.listeners {
        let sockets = listener::bind(listener.address, workers)?;
        let failed = |source| BindError {
            address: listener.address,
            source,
        };
        let local = sockets[0].local_addr().map_err(failed)?;
        addresses.push(local);
        let metrics = Arc::new(ListenerMetrics::new(registry, &local.to_string()));
        let warnings = Arc::new(AcceptWarnings::new());
        for (listeners, socket) in by_worker.iter_mut().zip(sockets) {
            listeners.push(BoundListener {
                local,
                socket,
                protocols: listener.protocols,
                tls: listener.tls.clone(),
                metrics: metrics.clone(),
                warnings: warnings.clone(),
            });
        }
    }
    Ok((addresses, by_worker))
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A thread or its runtime cannot be had.
    #[error("cannot start a worker: {0}")]
    Thread(#[source] IoError),
}

#[cfg(test)]
mod tests;
