//! Runs Lua scripts on servers of Redis that may be slow, gone, or wrongly configured, for requests that
//! can't wait.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use redis_client::{Address, Caller, Client, Dialling, Fault, Script, ScriptWords, Spec};
//! use tokio::net::TcpStream;
//! use tokio::time::Instant;
//!
//! fn connect(server: Address, _deadline: Instant) -> Dialling {
//!     Box::pin(async move {
//!         let stream = TcpStream::connect((&*server.host, server.port)).await;
//!         stream.map_err(|error| Fault::of_connecting(&error))
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = Spec::from_url("redis+cluster://10.0.0.1,10.0.0.2:7000", None)?;
//! let client = Client::new(spec, 1, connect, Arc::new(()));
//!
//! let add = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
//! let mut words = ScriptWords::default();
//! words.key(b"visits");
//! words.number(1_u32);
//!
//! let deadline = Instant::now() + client.spec().timeout;
//! let caller = Caller { worker: 0, client: None };
//! let answer = client.call_by(deadline, caller, &add, &words, || false).await?;
//! println!("{answer:?}");
//! # Ok(())
//! # }
//! ```
//!
//! No call connects, waits beyond its deadline, or goes to a server that is known to be out of use.
//! What the scripts decide, and what becomes of requests without an answer, is up to the program, which
//! also connects ([`Dial`]), counts and logs ([`Observer`]).
//!
//! Each worker has a connection of its own to each server, so that a call never changes threads. A
//! task of the worker makes it, and replaces it (`connector`). All workers share a server's state
//! (`node`, `breaker`). One task of one worker finds the servers (`topology`).

mod batch;
mod breaker;
mod connection;
mod readiness;
mod fault;
mod state_log;
mod connector;
mod server_map;
mod node;
mod observer;
mod places;
mod script;
mod slot;
mod spec;
mod topology;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

pub use self::batch::Command;
#[doc(hidden)]
pub use self::connection::answers::answers;
pub use self::connection::{CONNECT_DEADLINE, Dial, Dialling};
pub use self::fault::{Fault, FaultKind, LONGEST_DETAIL};
pub use self::observer::{Observer, Operation, State};
pub use self::places::Caller;
use self::places::{Place, Places};
pub use self::script::{Script, ScriptWords};
pub use self::slot::slot;
pub use self::spec::{Address, Login, Password, Spec, Target, Tls, UrlError};

use self::connection::ConnectOptions;
use self::node::Node;
use self::server_map::{ServerMap, Topology};
use self::state_log::StateLog;

/// The most redirects that a call follows.
const MAX_REDIRECTS: u32 = 2;

/// How long the store counts as crowded after a call that got no place. The first one is logged.
const CROWDED_FOR: Duration = Duration::from_secs(60);

/// The client of one store, for all workers. A drop closes its connections.
#[derive(Debug)]
pub struct Client(Arc<Shared>);

/// The state shared by the client's tasks.
#[derive(Debug)]
struct Shared {
    spec: Spec,
    options: ConnectOptions,
    observer: Arc<dyn Observer>,
    map: ArcSwap<ServerMap>,
    /// Signals a changed map.
    map_changed: watch::Sender<()>,
    /// The right to look for servers.
    discovery_permit: Semaphore,
    /// Signals a new connection, or a changed state of a server.
    changes: watch::Sender<()>,
    /// The scripts that every server gets before calls: a list that only grows.
    scripts: watch::Sender<Arc<[Script]>>,
    /// Signals that servers or slots may have moved.
    topology_changed: Notify,
    /// The reason why discovery fails.
    discovery_error: Mutex<Option<Fault>>,
    state_log: Mutex<StateLog>,
    /// The last call that got no place.
    crowded_at: Mutex<Option<Instant>>,
    /// One for each worker: true while its tasks run.
    started: Box<[AtomicBool]>,
    closing: CancellationToken,
}

impl Client {
    /// A client for this number of workers. Connects nowhere yet.
    pub fn new(spec: Spec, workers: usize, dial: Dial, observer: Arc<dyn Observer>) -> Self {
        let options = ConnectOptions {
            dial,
            name: spec.name,
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
                let topology = Topology::Single(address.clone());
                ServerMap::new(&topology, &ServerMap::default(), &spec.prefix, workers)
            }
            Target::Cluster(_) | Target::Sentinel { .. } => ServerMap::default(),
        };
        Self(Arc::new(Shared {
            spec,
            options,
            observer,
            map: ArcSwap::from_pointee(map),
            map_changed: watch::Sender::new(()),
            changes: watch::Sender::new(()),
            scripts: watch::Sender::new([connector::PROBE.clone()].into()),
            discovery_permit: Semaphore::new(1),
            topology_changed: Notify::new(),
            discovery_error: Mutex::default(),
            state_log: Mutex::default(),
            crowded_at: Mutex::default(),
            started: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            closing: CancellationToken::new(),
        }))
    }

    /// Starts connecting for this worker, on the caller's runtime. Call it when the worker starts,
    /// so that its first request finds a connection. A second call does nothing.
    ///
    /// # Panics
    /// Outside a runtime, or if there are fewer workers.
    pub fn start(&self, worker: usize) {
        if !self.0.started[worker].swap(true, AcqRel) {
            let running = WorkerTasks(Arc::clone(&self.0), worker);
            tokio::spawn(running.serve());
        }
    }

    /// Runs the script on the server that has its keys, and returns its answer, within the caller's
    /// deadline. In a cluster all keys share a slot. If too many calls are under way, it waits in
    /// turn with the calls of other clients, and is [`FaultKind::Crowded`] if it `is_over` then.
    ///
    /// The script runs at most once, unless the server reports that it has not run it. After
    /// [`FaultKind::Timeout`] and [`FaultKind::Lost`] it may have run.
    ///
    /// # Errors
    /// The reason for the missing answer, at once if the server is known to be out of use.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn call_by(
        &self,
        mut deadline: Instant,
        caller: Caller,
        script: &Script,
        words: &ScriptWords,
        is_over: impl Fn() -> bool,
    ) -> Result<Value, Fault> {
        let (Caller { worker, client }, shared) = (caller, &*self.0);
        self.start(worker);
        let unsent = |_: &Fault| shared.observer.unsent(Operation::Call);
        let found = shared.connection(worker, deadline, || shared.route(words.keys()));
        let found = found.await;
        let (mut node, mut connection) = found.inspect_err(unsent)?;
        let mut is_asking = false;
        for hop in 0..=MAX_REDIRECTS {
            if hop > 0 {
                connection = node.connection(worker).inspect_err(unsent)?;
            }
            let started = Instant::now();
            let patience = deadline.saturating_duration_since(Instant::now());
            let waiting = wait_in_turn(&connection.places, client, patience);
            let Some(place) = waiting.await else {
                return Err(shared.record_crowded(started));
            };
            // The wait for other calls is none for the server.
            deadline = Instant::now() + patience;
            if is_over() {
                return Err(FaultKind::Crowded.fault());
            }
            let answer = async {
                if is_asking {
                    connection.run_after_asking(script, words).await
                } else {
                    connection.run(script, words).await
                }
            };
            let answer = in_time(deadline, answer).await;
            if answer.is_ok() {
                place.answered();
            }
            let fault = answer.as_ref().err();
            shared.record_outcome(Operation::Call, &node, started, fault);
            let Some(redirect) = fault.and_then(Fault::redirect) else {
                return answer;
            };
            shared.topology_changed.notify_one();
            let next = shared.map.load().at(&redirect.to).cloned();
            match next {
                Some(next) => node = next,
                None => return answer,
            }
            is_asking = redirect.is_asking;
        }
        Err(FaultKind::Moved.fault())
    }

    /// The client's specification.
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.0.started.len()
    }

    /// The share of keys whose server is out of use, of which no call is answered.
    pub fn unreachable_share(&self) -> f64 {
        self.0.map.load().unreachable_share()
    }

    /// The state of the store.
    pub fn state(&self) -> State {
        self.0.state()
    }

    /// True if some call of the last minute got no place within its deadline.
    pub fn is_crowded(&self) -> bool {
        self.0.is_crowded()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.closing.cancel();
    }
}

/// How many times as long as for its answer a call waits for its place, while others are answered.
const MOST_TURNS: u32 = 10;

/// A place, once it is the client's turn; `None` if too many wait, or no call was answered lately.
async fn wait_in_turn(
    places: &Arc<Places>,
    client: Option<IpAddr>,
    patience: Duration,
) -> Option<Place> {
    let mut place = pin!(places.take(client));
    for _ in 0..MOST_TURNS {
        let answers = places.answers();
        if let Ok(place) = timeout(patience, place.as_mut()).await {
            return place;
        }
        if places.answers() == answers {
            break;
        }
    }
    None
}

/// The answer by the deadline.
async fn in_time(
    deadline: Instant,
    answer: impl Future<Output = Result<Value, Fault>>,
) -> Result<Value, Fault> {
    let mut answer = pin!(answer);
    if let Ok(answered) = timeout_at(deadline, answer.as_mut()).await {
        return answered;
    }
    // A busy worker may not have read yet what has come in time.
    yield_now().await;
    let late = timeout_at(deadline, answer).await;
    late.unwrap_or(Err(FaultKind::Timeout.fault()))
}

/// The tasks of one worker. They end with its runtime, or with the client.
struct WorkerTasks(Arc<Shared>, usize);

impl WorkerTasks {
    async fn serve(self) {
        let shared = &self.0;
        let mut tasks = JoinSet::new();
        if !matches!(shared.spec.target, Target::Single(_)) {
            tasks.spawn(topology::keep_discovering(Arc::clone(shared)));
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
        let mut map_changed = self.map_changed.subscribe();
        let mut links = Vec::<(Arc<Node>, tokio::task::AbortHandle)>::new();
        loop {
            map_changed.mark_unchanged();
            let map = self.map.load_full();
            let is_there = |node: &Arc<Node>| map.nodes.iter().any(|it| Arc::ptr_eq(it, node));
            links
                .extract_if(.., |(node, _)| !is_there(node))
                .for_each(|(_, task)| task.abort());
            for node in &map.nodes {
                if !links.iter().any(|(it, _)| Arc::ptr_eq(it, node)) {
                    let link = connector::maintain(Arc::clone(self), Arc::clone(node), worker);
                    links.push((Arc::clone(node), tasks.spawn(link)));
                }
            }
            while tasks.try_join_next().is_some() {}
            if map_changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// The server that has these keys. If no server is known because discovery fails, its error is
    /// returned.
    fn route<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<Arc<Node>, Fault> {
        let map = self.map.load();
        map.route(keys).cloned().map_err(|fault| match fault.kind {
            FaultKind::Connecting => self.discovery_error.lock().clone().unwrap_or(fault),
            _ => fault,
        })
    }

    /// Updates observer and breaker by an answer.
    fn record_outcome(&self, op: Operation, node: &Node, started: Instant, fault: Option<&Fault>) {
        let now = Instant::now();
        self.observer
            .sent(op, fault.map(|fault| fault.kind), now - started);
        match fault {
            None => node.record_answer(),
            Some(fault) if fault.kind == FaultKind::Timeout || fault.kind.is_server_fault() => {
                self.record_failure(node, started, fault.clone());
            }
            // The connection's own task notices its end.
            Some(fault) if fault.kind == FaultKind::Lost => {}
            Some(_) => node.record_answer(),
        }
    }

    fn is_crowded(&self) -> bool {
        let at = *self.crowded_at.lock();
        at.is_some_and(|at| at.elapsed() < CROWDED_FOR)
    }

    /// Reports a call that got no place.
    fn record_crowded(&self, started: Instant) -> Fault {
        let kind = FaultKind::Crowded;
        self.observer
            .sent(Operation::Call, Some(kind), started.elapsed());
        if !self.is_crowded() {
            self.observer.crowded(&self.spec.target);
        }
        *self.crowded_at.lock() = Some(Instant::now());
        kind.fault()
    }

    fn record_failure(&self, node: &Node, started: Instant, fault: Fault) {
        node.record_failure(started, Instant::now(), fault);
        self.publish_state();
    }

    /// Applies a newly found topology.
    fn apply_topology(&self, topology: &Topology) {
        let old = self.map.load();
        let map = ServerMap::new(topology, &old, &self.spec.prefix, self.started.len());
        *self.discovery_error.lock() = None;
        if !map.is_same(&old) {
            self.map.store(Arc::new(map));
            self.map_changed.send_replace(());
        }
        self.publish_state();
    }

    /// Records that discovery failed. Known servers stay in use.
    fn discovery_failed(&self, fault: Fault) {
        *self.discovery_error.lock() = Some(fault);
        self.publish_state();
    }

    fn is_up(&self) -> bool {
        self.state() == State::Up
    }

    fn state(&self) -> State {
        let map = self.map.load();
        let mut state = State::Up;
        for node in &map.nodes {
            match node.state() {
                State::Up => {}
                State::Starting => state = State::Starting,
                down => return down,
            }
        }
        let discovery_error = self.discovery_error.lock().clone();
        match (map.nodes.is_empty(), discovery_error) {
            (true, None) => State::Starting,
            (true, Some(fault)) => State::Down {
                server: None,
                fault,
            },
            (false, _) => state,
        }
    }

    /// Publishes the state to waiting tasks and the observer.
    fn publish_state(&self) {
        self.changes.send_replace(());
        let mut state_log = self.state_log.lock();
        let state = self.state();
        self.observer.set_up(state == State::Up);
        if matches!(state, State::Down { .. }) {
            self.topology_changed.notify_one();
        }
        if state_log.should_log(Instant::now(), &state) {
            self.observer.changed(&self.spec.target, &state);
        }
    }
}

/// An unpredictable number.
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}
