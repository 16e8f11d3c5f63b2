//! Changes of a running server: listeners are added, changed and removed, and bounds take effect.
//!
//! [`Server::plan`] does whatever may fail, and changes nothing that serves.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::listener::ListenerSettings;
use super::spec::{ClientSpec, ListenerSpec};
use super::worker::{WorkerListener, WorkerOrder, WorkerUpdate};
use super::{Server, StartError};
use crate::net::listener::{self, Bound, BoundSocket, SocketFile};
use crate::net::socket::StreamAddress;
use crate::telemetry::metrics::ListenerMetrics;
use crate::telemetry::registry::Registry;

/// How long the sockets of removed listeners may take to close. Until then the next reload cannot
/// bind their addresses.
const LAST_ACCEPTS: Duration = Duration::from_secs(1);

/// A listener that clients reach.
#[derive(Debug)]
pub(super) struct RunningListener {
    pub(super) settings: Arc<ListenerSettings>,
    pub(super) file: Option<SocketFile>,
}

/// A change that cannot fail. New addresses are bound: their clients wait in the kernel's queue.
#[derive(Debug)]
pub struct ServerChange {
    client: ClientSpec,
    /// All listeners, with the sockets of new ones.
    listeners: Vec<(ListenerSpec, Option<Bound>)>,
}

impl Server {
    /// The bounds for new connections.
    pub fn client(&self) -> ClientSpec {
        self.client
    }

    /// Binds the addresses that this server does not listen on yet.
    ///
    /// # Errors
    ///
    /// The first address that cannot be bound.
    pub fn plan(
        &self,
        listeners: &[ListenerSpec],
        client: ClientSpec,
    ) -> Result<ServerChange, StartError> {
        let own = self.addresses();
        let mut running: Vec<_> = self.listeners.iter().collect();
        let listeners = listeners.iter().map(|wanted| {
            let kept = running
                .iter()
                .position(|one| one.settings.spec.address == wanted.address);
            let bound = match kept {
                Some(kept) => {
                    running.swap_remove(kept);
                    None
                }
                None => Some(listener::bind(&wanted.address, self.updates.len(), &own)?),
            };
            Ok((wanted.clone(), bound))
        });
        Ok(ServerChange {
            client,
            listeners: listeners.collect::<Result<_, StartError>>()?,
        })
    }

    /// Makes a change of this server. Connections to listeners that end, or that have other settings
    /// than certificates now, finish within `deadline`; all others go on as they began.
    pub async fn adopt(&mut self, change: ServerChange, deadline: Duration) {
        let ServerChange { client, listeners } = change;
        self.client = client;
        self.bounds.adopt(&client);
        let mut before = mem::take(&mut self.listeners);
        let mut by_worker = self.no_listeners();
        for (spec, bound) in listeners {
            let kept = before
                .iter()
                .position(|one| one.settings.spec.address == spec.address);
            let running = match (bound, kept) {
                (Some(bound), _) => {
                    tracing::info!(address = %bound.address, "listening");
                    RunningListener::new(spec, bound, &self.registry, &mut by_worker)
                }
                (None, Some(kept)) => before.swap_remove(kept).change(spec, &mut by_worker),
                (None, None) => continue,
            };
            self.listeners.push(running);
        }
        self.update_workers(by_worker, deadline, &[]).await;
        for removed in before {
            tracing::info!(address = %removed.settings.local, "no longer listening");
        }
    }

    /// No listener for any worker.
    pub(super) fn no_listeners(&self) -> Vec<Vec<WorkerListener>> {
        self.updates.iter().map(|_| Vec::new()).collect()
    }

    /// Gives the workers their listeners, and waits until the sockets of all others are closed. Clients of
    /// the addresses that are `left` stay in the kernel's queue.
    pub(super) async fn update_workers(
        &self,
        by_worker: Vec<Vec<WorkerListener>>,
        deadline: Duration,
        left: &[StreamAddress],
    ) {
        let (done, mut closed) = mpsc::channel(1);
        for (worker, listeners) in self.updates.iter().zip(by_worker) {
            // A worker that is gone has no listeners.
            let _ = worker.send(WorkerOrder::Update(WorkerUpdate {
                client: self.client,
                listeners,
                deadline,
                left: left.to_vec(),
                done: done.clone(),
            }));
        }
        drop(done);
        let _ = timeout(LAST_ACCEPTS, closed.recv()).await;
    }
}

/// Gives each worker its part of the sockets.
pub(super) fn deal(
    settings: &Arc<ListenerSettings>,
    sockets: Vec<BoundSocket>,
    by_worker: &mut [Vec<WorkerListener>],
) {
    let mut parts: Vec<Vec<BoundSocket>> = Vec::new();
    parts.resize_with(by_worker.len(), Vec::new);
    for (index, socket) in sockets.into_iter().enumerate() {
        parts[index % by_worker.len()].push(socket);
    }
    for (listeners, part) in by_worker.iter_mut().zip(parts) {
        listeners.push(WorkerListener {
            settings: settings.clone(),
            sockets: Some(part),
        });
    }
}

impl RunningListener {
    /// A new listener, whose sockets the workers get.
    pub(super) fn new(
        spec: ListenerSpec,
        bound: Bound,
        registry: &Registry,
        by_worker: &mut [Vec<WorkerListener>],
    ) -> Self {
        let settings = Arc::new(ListenerSettings {
            spec,
            metrics: Arc::new(ListenerMetrics::new(registry, &bound.address.to_string())),
            warnings: Arc::default(),
            local: bound.address,
        });
        deal(&settings, bound.sockets, by_worker);
        Self {
            settings,
            file: bound.file,
        }
    }

    /// A listener that stays, with another spec for its address.
    fn change(mut self, spec: ListenerSpec, by_worker: &mut [Vec<WorkerListener>]) -> Self {
        let running = &self.settings.spec;
        if !running.differs_only_in_certificates(&spec) {
            self.settings = Arc::new(ListenerSettings {
                spec,
                ..ListenerSettings::clone(&self.settings)
            });
        } else if let (Some(running), Some(wanted)) = (&running.tls, &spec.tls) {
            running.adopt(wanted);
        }
        for listeners in by_worker {
            listeners.push(WorkerListener {
                settings: self.settings.clone(),
                sockets: None,
            });
        }
        self
    }
}
