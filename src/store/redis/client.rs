//! The long-lived client: scripts run on servers that may be slow, gone, or not what they should be.
//!
//! No call ever connects, waits beyond its deadline, or is sent to a server that is known to be of no use. What the
//! scripts decide, and what becomes of a request without an answer, is not here.
//!
//! Each worker has a connection of its own to each server, so that a call never changes threads; a task of the worker
//! makes it and makes it again (`link`). Whether a server is of use is known to all (`node`, [`breaker`]). Which
//! servers there are is found by one task of one worker (`topology`).

mod batch;
pub mod breaker;
mod connection;
mod readiness;
pub mod fault;
mod state_log;
mod connector;
mod server_map;
mod call_metrics;
mod node;
mod script;
mod slot;
mod spec;
mod state;
mod topology;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::{ToRedisArgs, Value};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub use self::batch::Command;
pub use self::fault::{Fault, FaultKind};
pub use self::script::Script;
pub use self::slot::slot;
pub use self::spec::{
    Address, DEFAULT_BATCH_TIMEOUT, DEFAULT_PREFIX, DEFAULT_TIMEOUT, Login, Password, Spec, Target,
    UrlError,
};
pub use self::state::State;

use self::call_metrics::{CallMetrics, Operation};
use self::connection::ConnectOptions;
use self::node::{Health, Node};
use self::server_map::{ServerMap, Topology};
use self::state_log::StateLog;
use crate::clock::{Clock, Timestamp};
use crate::telemetry::metrics::StoreMetrics;

/// So often a call follows a slot to another server.
const HOPS: u32 = 2;

/// The client of one store, for all workers. Its connections end with it.
#[derive(Debug)]
pub struct Client(Arc<Shared>);

/// What the client's tasks have in common.
#[derive(Debug)]
struct Shared {
    spec: Spec,
    dialect: ConnectOptions,
    clock: Arc<Clock>,
    meter: CallMetrics,
    map: ArcSwap<ServerMap>,
    /// The map has changed.
    mapped: watch::Sender<()>,
    /// Whoever has it looks for the servers.
    looking: Semaphore,
    /// A connection was made, or the state of a server has changed.
    changes: watch::Sender<()>,
    /// The scripts that every server is given before calls are sent to it: a list that only grows.
    scripts: watch::Sender<Arc<[Script]>>,
    /// Something is not where it was.
    amiss: Notify,
    /// Why the servers cannot be found.
    blind: Mutex<Option<Fault>>,
    journal: Mutex<StateLog>,
    /// By worker, whether its tasks run.
    started: Box<[AtomicBool]>,
    closing: CancellationToken,
    workers: usize,
}

impl Client {
    /// A client for so many workers. Connects nowhere yet.
    pub fn new(spec: Spec, workers: usize, clock: Arc<Clock>, metrics: StoreMetrics) -> Self {
        let dialect = ConnectOptions {
            login: spec.login.clone(),
            database: spec.database,
            tls: spec.tls.clone(),
            mode: match spec.target {
                Target::Cluster(_) => "cluster",
                Target::Single(_) | Target::Sentinel { .. } => "standalone",
            },
        };
        let map = match &spec.target {
            Target::Single(address) => {
                let layout = Topology::Single(address.clone());
                ServerMap::of(&layout, &ServerMap::default(), &spec.prefix, workers)
            }
            Target::Cluster(_) | Target::Sentinel { .. } => ServerMap::default(),
        };
        Self(Arc::new(Shared {
            spec,
            dialect,
            clock,
            meter: CallMetrics::new(metrics),
            map: ArcSwap::from_pointee(map),
            mapped: watch::Sender::new(()),
            changes: watch::Sender::new(()),
            scripts: watch::Sender::new([connector::PROBE.clone()].into()),
            looking: Semaphore::new(1),
            amiss: Notify::new(),
            blind: Mutex::default(),
            journal: Mutex::default(),
            started: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            closing: CancellationToken::new(),
            workers,
        }))
    }

    /// Begins to connect for this worker, on the runtime of the caller; to be called when the worker starts, so that its
    /// first request finds a connection. Does nothing a second time.
    ///
    /// # Panics
    /// Outside a runtime, or if there are fewer workers.
    pub fn start(&self, worker: usize) {
        if !self.0.started[worker].swap(true, AcqRel) {
            let running = WorkerTasks(Arc::clone(&self.0), worker);
            tokio::spawn(running.serve());
        }
    }

    /// Runs the script with these keys and arguments, on the server that has the keys, and returns its answer, within
    /// [`Spec::timeout`]. In a cluster all keys share a slot.
    ///
    /// The script runs at most once unless the server says that it has not run it. After [`FaultKind::Timeout`] and
    /// [`FaultKind::Lost`] nobody knows whether it ran.
    ///
    /// # Errors
    /// Why there is no answer: at once where the server is known to be of no use.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn call<K: AsRef<[u8]>, A: ToRedisArgs>(
        &self,
        worker: usize,
        script: &Script,
        keys: &[K],
        args: &[A],
    ) -> Result<Value, Fault> {
        let deadline = Instant::now() + self.0.spec.timeout;
        self.call_by(deadline, worker, script, keys, args).await
    }

    /// The same within a deadline of the caller's.
    ///
    /// # Errors
    /// As [`Client::call`].
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn call_by<K: AsRef<[u8]>, A: ToRedisArgs>(
        &self,
        deadline: Instant,
        worker: usize,
        script: &Script,
        keys: &[K],
        args: &[A],
    ) -> Result<Value, Fault> {
        self.start(worker);
        self.0.call(worker, deadline, script, keys, args).await
    }

    /// What it knows.
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    /// For how many workers it is.
    pub fn workers(&self) -> usize {
        self.0.workers
    }

    /// Counts that this was not told to the store: one of those that the metrics' documentation lists.
    pub(super) fn lost(&self, what: &'static str) {
        self.0.meter.lost(what);
    }

    /// Whether some server is in use: without one no call is answered.
    pub fn is_reachable(&self) -> bool {
        let map = self.0.map.load();
        let mut nodes = map.nodes.iter();
        nodes.any(|node| node.outlook() == Health::Well)
    }

    /// What can be said of the store now.
    pub fn state(&self) -> State {
        self.0.state()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.closing.cancel();
    }
}

/// The tasks of one worker; they end with its runtime, or with the client.
struct WorkerTasks(Arc<Shared>, usize);

impl WorkerTasks {
    async fn serve(self) {
        let shared = &self.0;
        let mut tasks = JoinSet::new();
        if !matches!(shared.spec.target, Target::Single(_)) {
            tasks.spawn(topology::follow(Arc::clone(shared)));
        }
        let links = shared.keep_links(self.1, &mut tasks);
        shared.closing.run_until_cancelled(links).await;
    }
}

impl Drop for WorkerTasks {
    fn drop(&mut self) {
        self.0.started[self.1].store(false, Release);
    }
}

impl Shared {
    /// Keeps a task for each server of the map.
    async fn keep_links(self: &Arc<Self>, worker: usize, tasks: &mut JoinSet<()>) {
        let mut mapped = self.mapped.subscribe();
        let mut links = Vec::<(Arc<Node>, tokio::task::AbortHandle)>::new();
        loop {
            mapped.mark_unchanged();
            let map = self.map.load_full();
            let is_there = |node: &Arc<Node>| map.nodes.iter().any(|it| Arc::ptr_eq(it, node));
            links
                .extract_if(.., |(node, _)| !is_there(node))
                .for_each(|(_, task)| task.abort());
            for node in &map.nodes {
                if !links.iter().any(|(it, _)| Arc::ptr_eq(it, node)) {
                    let link = connector::keep(Arc::clone(self), Arc::clone(node), worker);
                    links.push((Arc::clone(node), tasks.spawn(link)));
                }
            }
            while tasks.try_join_next().is_some() {}
            if mapped.changed().await.is_err() {
                return;
            }
        }
    }

    async fn call<K: AsRef<[u8]>, A: ToRedisArgs>(
        &self,
        worker: usize,
        deadline: Instant,
        script: &Script,
        keys: &[K],
        args: &[A],
    ) -> Result<Value, Fault> {
        let unsent = |_: &Fault| self.meter.unsent(Operation::Call);
        let found = self.connection(worker, deadline, || self.route(keys)).await;
        let (mut node, mut live) = found.inspect_err(unsent)?;
        let mut is_asking = false;
        for hop in 0..=HOPS {
            if hop > 0 {
                live = node.live(worker).inspect_err(unsent)?;
            }
            let _place = live.enter().inspect_err(unsent)?;
            let started = self.clock.now();
            let answer = async {
                match is_asking {
                    false => live.run(script, keys, args).await,
                    true => live.ask(script, keys, args).await,
                }
            };
            let answer = timeout_at(deadline, answer)
                .await
                .unwrap_or(Err(FaultKind::Timeout.bare()));
            self.learn(Operation::Call, &node, started, &answer);
            let Some(redirect) = answer.as_ref().err().and_then(Fault::redirect) else {
                return answer;
            };
            self.amiss.notify_one();
            let next = self.map.load().at(&redirect.to).cloned();
            match next {
                Some(next) => node = next,
                None => return answer,
            }
            is_asking = redirect.is_asking;
        }
        Err(FaultKind::Moved.bare())
    }

    /// The server that has these keys. Where none is known, because nobody says which there are, that is why.
    fn route<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Arc<Node>, Fault> {
        let map = self.map.load();
        map.route(keys).cloned().map_err(|fault| match fault.kind {
            FaultKind::Connecting => self.blind.lock().clone().unwrap_or(fault),
            _ => fault,
        })
    }

    /// What an answer says of the server.
    fn learn(&self, op: Operation, node: &Node, started: Timestamp, answer: &Result<Value, Fault>) {
        let now = self.clock.now();
        let fault = answer.as_ref().err();
        self.meter
            .sent(op, fault.map(|fault| fault.kind), now.since(started));
        match fault {
            None => node.answered(),
            Some(fault) if fault.kind == FaultKind::Timeout => {
                node.timed_out(started, now);
                self.changed();
            }
            Some(fault) if fault.kind.is_of_the_server() => {
                self.failed(node, started, fault.clone());
            }
            // The connection's own task sees that it is gone.
            Some(fault) if fault.kind == FaultKind::Lost => {}
            Some(_) => node.answered(),
        }
    }

    fn failed(&self, node: &Node, started: Timestamp, fault: Fault) {
        node.failed(started, self.clock.now(), fault);
        self.changed();
    }

    /// Takes over where the servers are.
    fn arrange(&self, layout: &Topology) {
        let old = self.map.load();
        let map = ServerMap::of(layout, &old, &self.spec.prefix, self.workers);
        *self.blind.lock() = None;
        if !map.is_as(&old) {
            self.map.store(Arc::new(map));
            self.mapped.send_replace(());
        }
        self.changed();
    }

    /// Nobody says where the servers are. Those that are known go on.
    fn lost_sight(&self, fault: Fault) {
        *self.blind.lock() = Some(fault);
        self.changed();
    }

    fn all_well(&self) -> bool {
        self.state() == State::Up
    }

    fn state(&self) -> State {
        let map = self.map.load();
        let mut state = State::Up;
        for node in &map.nodes {
            match node.outlook() {
                Health::Well => {}
                Health::Starting => state = State::Starting,
                Health::Faulty(fault) => {
                    let server = Some(node.address.clone());
                    return State::Down { server, fault };
                }
            }
        }
        let blind = self.blind.lock().clone();
        match (map.nodes.is_empty(), blind) {
            (true, None) => State::Starting,
            (true, Some(fault)) => State::Down {
                server: None,
                fault,
            },
            (false, _) => state,
        }
    }

    /// Tells whoever has to know how things are now.
    fn changed(&self) {
        self.changes.send_replace(());
        let mut journal = self.journal.lock();
        let state = self.state();
        self.meter.set_up(state == State::Up);
        if matches!(state, State::Down { .. }) {
            self.amiss.notify_one();
        }
        if !journal.is_news(self.clock.now(), &state) {
            return;
        }
        let target = &self.spec.target;
        match &state {
            State::Starting => {}
            State::Up => tracing::info!(store = %target, "the Redis store is in use"),
            State::Down { server, fault } => {
                let server = server.as_ref().map(tracing::field::display);
                let advice = fault.kind.advice();
                tracing::warn!(store = %target, server, advice, "the Redis store is out of use: it {fault}");
            }
        }
    }
}

/// A number that nobody foresees.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
