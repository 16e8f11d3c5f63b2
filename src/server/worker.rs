//! One thread with its runtime: accepts connections on its own sockets, and serves them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, mem};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use super::acceptor::Acceptor;
use super::client_rules::CurrentRules;
use super::connection::{ConnectionHandler, http2};
use super::connection_bounds::ConnectionBounds;
use super::drain::ShutdownWatcher;
use super::factory::{ServiceFactory, WorkerHook};
use super::listener::ListenerSettings;
use super::spec::ClientSpec;
use crate::net::drain::{DrainController, DrainStage, DrainWatcher};
use crate::net::listener::{BoundSocket, Listener};
use crate::net::socket::StreamAddress;

/// How long work on other threads, which services wait for, may go on after the last connection.
const LAST_BLOCKING_TASKS: Duration = Duration::from_secs(1);

/// One of a worker's listeners: a new one with its sockets, or one that the worker has.
#[derive(Debug)]
pub(super) struct WorkerListener {
    pub(super) settings: Arc<ListenerSettings>,
    pub(super) sockets: Option<Vec<BoundSocket>>,
}

/// What a running worker is asked for.
pub(super) enum WorkerOrder {
    /// Take over a change.
    Update(WorkerUpdate),
    /// Send a handle to each socket, with the address of its listener.
    Share(UnboundedSender<io::Result<(StreamAddress, BoundSocket)>>),
    /// Have the connections finish.
    Finish,
}

/// A change of a running worker.
pub(super) struct WorkerUpdate {
    /// Bounds for new connections.
    pub(super) client: ClientSpec,
    /// All listeners. Those that are missing end; connections to these and to changed ones finish.
    pub(super) listeners: Vec<WorkerListener>,
    /// How long connections may take for that.
    pub(super) deadline: Duration,
    /// The addresses whose clients in the kernel's queue are left to another process.
    pub(super) left: Vec<StreamAddress>,
    /// Dropped when the sockets of listeners that end are closed.
    pub(super) done: Sender<()>,
}

/// A worker before its thread starts.
pub(super) struct Worker {
    pub(super) index: usize,
    pub(super) listeners: Vec<WorkerListener>,
    pub(super) updates: UnboundedReceiver<WorkerOrder>,
    pub(super) client: ClientSpec,
    pub(super) client_rules: CurrentRules,
    pub(super) bounds: Arc<ConnectionBounds>,
    pub(super) lifetime: ShutdownWatcher,
    pub(super) before_serving: WorkerHook,
    pub(super) after_serving: WorkerHook,
}

/// A listener that accepts.
struct ActiveListener {
    settings: Arc<ListenerSettings>,
    sockets: Vec<Weak<Listener>>,
    handler: Rc<RefCell<Rc<ConnectionHandler>>>,
    /// Drains the acceptors.
    accepting: DrainController,
    /// Drains the connections.
    connections: DrainController,
}

/// The listeners of a running worker.
#[derive(Default)]
struct Listeners {
    active: Vec<ActiveListener>,
    /// The drains of listeners, which reloads use.
    draining: Vec<DrainController>,
    /// Connections since the start.
    accepted: Rc<Cell<u64>>,
}

impl Listeners {
    /// Sends a handle to each socket.
    fn share(&self, shared: &UnboundedSender<io::Result<(StreamAddress, BoundSocket)>>) {
        for one in &self.active {
            for socket in one.sockets.iter().filter_map(Weak::upgrade) {
                let local = one.settings.local.clone();
                // The process may have given up.
                let _ = shared.send(socket.share().map(|socket| (local, socket)));
            }
        }
    }
}

impl Worker {
    /// Serves, once `before_serving` is over, until the server ends. Sends on `started` the reason
    /// why it cannot serve, if any.
    pub(super) fn run(self, factory: impl ServiceFactory, started: &mpsc::Sender<io::Result<()>>) {
        let mut builder = Builder::new_current_thread();
        match builder.enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => {
                let (index, after_serving) = (self.index, self.after_serving.clone());
                runtime.block_on(async {
                    self.serve(factory, started).await;
                    after_serving(index).await;
                });
                // Drops all tasks that are left. A blocking one cannot be cancelled.
                runtime.shutdown_timeout(LAST_BLOCKING_TASKS);
            }
            Err(error) => drop(started.send(Err(error))),
        }
    }

    async fn serve(mut self, factory: impl ServiceFactory, started: &mpsc::Sender<io::Result<()>>) {
        let mut listeners = Listeners::default();
        let mut acceptors = Vec::new();
        for WorkerListener { settings, sockets } in mem::take(&mut self.listeners) {
            let sockets = sockets.unwrap_or_default();
            match self.accept(&mut listeners, settings, sockets, &factory) {
                Ok(accepting) => acceptors.extend(accepting),
                Err(error) => return drop(started.send(Err(error))),
            }
        }
        // The server may have been dropped already: `lifetime` reports that next.
        let _ = started.send(Ok(()));
        tokio::select! {
            () = (self.before_serving)(self.index) => {}
            _ = self.lifetime.draining() => {}
        }
        if self.lifetime.stage.stage() == DrainStage::Cut {
            // It has never served: clients that wait are another process's, if one has the sockets.
            return;
        }
        acceptors
            .into_iter()
            .for_each(|acceptor| drop(spawn_local(acceptor)));
        let until = loop {
            tokio::select! {
                until = self.lifetime.draining() => break until,
                Some(order) = self.updates.recv() => match order {
                    WorkerOrder::Update(update) => self.update(&mut listeners, update, &factory),
                    WorkerOrder::Share(sockets) => listeners.share(&sockets),
                    WorkerOrder::Finish => for one in &listeners.active {
                        one.connections.begin(DrainStage::Finish);
                    },
                },
            }
        };
        self.drain(listeners, until).await;
    }

    /// Drains all listeners, and waits for their connections.
    async fn drain(mut self, listeners: Listeners, until: Instant) {
        let active = listeners.active.into_iter();
        let mut all = listeners.draining;
        all.extend(active.flat_map(|one| [one.accepting, one.connections]));
        for one in &all {
            one.begin(DrainStage::Finish);
            let one = one.clone();
            spawn_local(async move { one.end_by(until).await });
        }
        let mut lifetime = self.lifetime.clone();
        let finished = async {
            lifetime.stage.reached(DrainStage::Close).await;
            all.iter().for_each(|one| one.begin(DrainStage::Close));
            for one in &all {
                one.closed().await;
            }
        };
        tokio::select! {
            biased;
            () = sleep_until(until) => warn!(worker = self.index, "drain deadline: connections are dropped"),
            () = finished => {}
            () = self.lifetime.stage.reached(DrainStage::Cut) => {}
        }
        // The connections' tasks end with this worker, and their requests have to know why.
        all.iter().for_each(|one| one.begin(DrainStage::Cut));
    }

    /// Takes over a change.
    fn update(
        &mut self,
        listeners: &mut Listeners,
        update: WorkerUpdate,
        factory: &impl ServiceFactory,
    ) {
        let until = Instant::now() + update.deadline;
        self.client = update.client;
        listeners.draining.retain(|one| !one.is_closed());
        let mut before = mem::take(&mut listeners.active);
        for WorkerListener { settings, sockets } in update.listeners {
            let is_it = |one: &ActiveListener| one.settings.local == settings.local;
            let Some(sockets) = sockets else {
                if let Some(place) = before.iter().position(is_it) {
                    let mut kept = before.swap_remove(place);
                    let changed = self.change(&mut kept, settings);
                    let changed = changed.map(|connections| end_by(connections, until));
                    listeners.draining.extend(changed);
                    listeners.active.push(kept);
                }
                continue;
            };
            let address = settings.local.clone();
            match self.accept(listeners, settings, sockets, factory) {
                Ok(acceptors) => acceptors.for_each(|acceptor| drop(spawn_local(acceptor))),
                Err(error) => error!(%address, worker = self.index, "cannot listen: {error}"),
            }
        }
        for removed in before {
            let is_left = update.left.contains(&removed.settings.local);
            removed.accepting.begin(if is_left {
                DrainStage::Leave
            } else {
                DrainStage::Close
            });
            let done = update.done.clone();
            let closed = removed.accepting.clone();
            spawn_local(async move {
                closed.closed().await;
                drop(done);
            });
            for one in [removed.accepting, removed.connections] {
                listeners.draining.push(end_by(one, until));
            }
        }
    }

    /// Uses the settings, and the worker's bounds, for the next connections. Returns the drain of
    /// those before, if the settings have changed.
    fn change(
        &self,
        listener: &mut ActiveListener,
        settings: Arc<ListenerSettings>,
    ) -> Option<DrainController> {
        let mut handler = listener.handler.borrow_mut();
        if Arc::ptr_eq(&settings, &listener.settings) {
            *handler = self.handler(&settings, handler.drain.clone());
            return None;
        }
        let (connections, drain) = DrainController::new();
        *handler = self.handler(&settings, drain);
        listener.settings = settings;
        Some(mem::replace(&mut listener.connections, connections))
    }

    /// Adds a listener. Returns the futures that accept clients on its sockets until it drains.
    fn accept<F: ServiceFactory>(
        &self,
        listeners: &mut Listeners,
        settings: Arc<ListenerSettings>,
        sockets: Vec<BoundSocket>,
        factory: &F,
    ) -> io::Result<impl Iterator<Item = impl Future<Output = ()> + use<F>> + use<F>> {
        let sockets = sockets
            .into_iter()
            .map(|socket| Listener::new(socket).map(Rc::new));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        let (accepting, closing) = DrainController::new();
        let (connections, drain) = DrainController::new();
        let handler = Rc::new(RefCell::new(self.handler(&settings, drain)));
        let acceptor = Acceptor {
            handler: handler.clone(),
            factory: factory.clone(),
            accepted: listeners.accepted.clone(),
            bounds: self.bounds.clone(),
            closing,
        };
        listeners.active.push(ActiveListener {
            settings,
            sockets: sockets.iter().map(Rc::downgrade).collect(),
            handler,
            accepting,
            connections,
        });
        Ok(sockets
            .into_iter()
            .map(move |socket| acceptor.clone().run(socket)))
    }

    fn handler(
        &self,
        settings: &Arc<ListenerSettings>,
        drain: DrainWatcher,
    ) -> Rc<ConnectionHandler> {
        Rc::new(ConnectionHandler {
            worker: self.index,
            settings: settings.clone(),
            http2: http2::builder(&self.client),
            client: self.client,
            client_rules: self.client_rules.clone(),
            drain,
        })
    }
}

/// Has connections finish, and cuts off those that have not `until` then.
fn end_by(connections: DrainController, until: Instant) -> DrainController {
    connections.begin(DrainStage::Finish);
    let ending = connections.clone();
    spawn_local(async move {
        if ending.end_by(until).await {
            warn!("drain deadline of a listener that a reload changed: connections are dropped");
        }
    });
    connections
}
