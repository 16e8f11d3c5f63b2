//! Listeners, TLS and connections: from a socket to requests handed to one service, and back.
//!
//! N workers are N threads, each with a single-threaded runtime and its own socket for every
//! listener, so that a request never changes threads. The service decides about requests: this
//! layer knows no routes and no limits. A reload adds, changes and ends listeners (`server/change.rs`).

mod acceptor;
mod change;
mod client_rules;
mod connection;
mod connection_bounds;
mod connection_guard;
pub mod drain;
mod factory;
mod hand_over;
mod idle_list;
mod listener;
mod preamble;
mod spec;
pub mod tls;
mod worker;

use std::io::Error as IoError;
use std::sync::{Arc, mpsc};
use std::thread::{Builder as ThreadBuilder, JoinHandle};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::change::RunningListener;
pub use self::change::ServerChange;
pub use self::client_rules::{ClientRules, CurrentRules};
#[cfg(any(fuzzing, test))]
pub(crate) use self::connection::in_memory;
pub use self::connection_bounds::ConnectionBounds;
use self::drain::ShutdownHandle;
pub use self::factory::{ServiceFactory, WorkerHook, no_hook};
pub use self::hand_over::{SharedListener, SuspendedListeners};
#[cfg(any(fuzzing, test))]
pub(crate) use self::preamble::read as read_preamble;
pub use self::spec::{
    ClientSpec, ConnectionLife, HalfClose, ListenerSpec, Protocols, ServerSpec, Timeouts,
};
use self::worker::{Worker, WorkerListener, WorkerOrder};
use crate::net::listener::passed::{ListenerName, PassedSockets};
use crate::net::listener::{BindError, bind};
use crate::net::socket::StreamAddress;
use crate::telemetry::registry::Registry;

/// A running server. Dropping it closes all connections at once.
#[derive(Debug)]
pub struct Server {
    /// Their socket files are removed when the workers have ended.
    listeners: Vec<RunningListener>,
    name: &'static str,
    client: ClientSpec,
    shutdown: ShutdownHandle,
    threads: Vec<JoinHandle<()>>,
    updates: Vec<UnboundedSender<WorkerOrder>>,
    bounds: Arc<ConnectionBounds>,
    registry: Registry,
}

impl Server {
    /// Starts the workers for these sockets. `factory` makes the service of each connection,
    /// on the thread of its worker. The service may fail a request to have the connection closed
    /// (in HTTP/2, the stream reset) without an answer. Each worker awaits
    /// `before_serving(index)` before it accepts connections, and `after_serving(index)` when they
    /// have ended. Earlier clients wait in the kernel's queue.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started; then nothing runs.
    pub fn start_with(
        bound: BoundListeners,
        factory: impl ServiceFactory + Send,
        before_serving: WorkerHook,
        after_serving: WorkerHook,
    ) -> Result<Self, StartError> {
        let spec = bound.spec;
        let workers = spec.workers.get();
        let bounds = ConnectionBounds::new(&spec.client, workers, spec.max_exchange);
        let bounds = Arc::new(bounds);
        let mut server = Self {
            listeners: bound.listeners,
            name: spec.name,
            client: spec.client,
            shutdown: ShutdownHandle::new(),
            threads: Vec::new(),
            updates: Vec::new(),
            bounds: bounds.clone(),
            registry: bound.registry,
        };
        let (started, starts) = mpsc::channel();
        for (index, listeners) in bound.by_worker.into_iter().enumerate() {
            let (started, factory) = (started.clone(), factory.clone());
            let (sender, updates) = unbounded_channel();
            server.updates.push(sender);
            let worker = Worker {
                index,
                listeners,
                updates,
                client: spec.client,
                client_rules: spec.client_rules.clone(),
                bounds: bounds.clone(),
                lifetime: server.shutdown.watcher.clone(),
                before_serving: before_serving.clone(),
                after_serving: after_serving.clone(),
            };
            let thread = ThreadBuilder::new().name(format!("{}-{index}", spec.name));
            let thread = thread.spawn(move || worker.run(factory, &started));
            server.threads.push(thread.map_err(StartError::Thread)?);
        }
        drop(started);
        starts
            .into_iter()
            .take(workers)
            .collect::<Result<(), _>>()
            .map_err(StartError::Thread)?;
        Ok(server)
    }

    /// Returns the bound addresses, in the order of the spec.
    pub fn addresses(&self) -> Vec<StreamAddress> {
        let listeners = self.listeners.iter();
        listeners.map(|one| one.settings.local.clone()).collect()
    }

    /// Returns the bounds of its connections.
    pub fn bounds(&self) -> Arc<ConnectionBounds> {
        self.bounds.clone()
    }

    /// Returns the handle that ends this server.
    pub fn shutdown(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Waits, blocking, until the server has been ended through its [`ShutdownHandle`].
    pub fn join(mut self) {
        self.join_threads();
    }

    fn join_threads(&mut self) {
        for thread in self.threads.drain(..) {
            // The panic hook has logged a worker's panic.
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

/// The listening sockets of a server, before it starts. Clients wait in the kernel's queue.
#[derive(Debug)]
pub struct BoundListeners {
    spec: ServerSpec,
    listeners: Vec<RunningListener>,
    by_worker: Vec<Vec<WorkerListener>>,
    registry: Registry,
}

impl BoundListeners {
    /// Binds all listeners of `spec`, except those that have `passed` sockets.
    ///
    /// # Errors
    ///
    /// The first address that cannot be bound.
    pub fn bind(
        spec: ServerSpec,
        registry: &Registry,
        passed: &mut PassedSockets,
    ) -> Result<Self, StartError> {
        let (mut listeners, mut by_worker) = (Vec::new(), Vec::new());
        let workers = spec.workers.get();
        by_worker.resize_with(workers, Vec::new);
        for listener in &spec.listeners {
            let name = ListenerName {
                server: spec.name.to_owned(),
                address: listener.address.clone(),
            };
            let taken = passed.take(&name, workers);
            let taken = taken.map_err(|source| BindError {
                address: listener.address.clone(),
                source,
            })?;
            let bound = match taken {
                Some(bound) => bound,
                None => {
                    let others: Vec<_> = passed.addresses().cloned().collect();
                    bind(&listener.address, workers, &others)?
                }
            };
            let running = RunningListener::new(listener.clone(), bound, registry, &mut by_worker);
            listeners.push(running);
        }
        Ok(Self {
            spec,
            listeners,
            by_worker,
            registry: registry.clone(),
        })
    }
}

/// Reasons why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A thread or its runtime cannot be created.
    #[error("cannot start a worker: {0}")]
    Thread(#[source] IoError),
}

#[cfg(test)]
mod tests;
