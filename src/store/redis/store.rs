//! The buckets of one Redis store, as all workers charge them.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::algorithm_check::AlgorithmCheck;
use super::bans::SharedBans;
use super::client::{self, Client, Command, Fault, FaultKind, Script, State, Target, slot};
use super::config_drift::ConfigDrift;
use super::multi_slot::{BucketReplies, MultiSlotCharge, SlotGroup};
use super::naming::Naming;
use super::outbox::{self, Outbox};
use super::reply::{ChargeReply, ProtocolError, RetryInputs, ScriptReply};
use super::script::{ALGORITHMS, Procedure, SYNC, Scripts};
use super::script_call::{BucketCharge, ChargeRequest, Lease, ScriptCall};
use super::sync::Synchroniser;
use crate::clock::{Clock, Timestamp};
use crate::store::Refusals;
use crate::telemetry::metrics::SyncMetrics;

/// How long requests may still begin by the policies before, when others take their place.
const HAND_OVER: Duration = Duration::from_millis(50);

/// The keys of a call.
type Keys<'a> = SmallVec<[&'a [u8]; 4]>;

/// The buckets of one store.
#[derive(Debug)]
pub struct Store {
    client: Arc<Client>,
    naming: Naming,
    scripts: Scripts,
    clock: Arc<Clock>,
    /// By worker.
    errands: Box<[Arc<Outbox>]>,
    /// What no other process has in the ids of its leases, and what no other of this one has.
    node: u64,
    leases: AtomicU64,
    /// By how many microseconds its clock was ahead of this one at the last answer.
    ahead: AtomicI64,
    /// One for each interval at which buckets in memory are synchronised.
    synchronisers: Mutex<Vec<Arc<Synchroniser>>>,
    bans: Mutex<Vec<Weak<SharedBans>>>,
    /// The first rounds by which buckets and bans are synchronised are over.
    has_heard: watch::Sender<bool>,
    leftovers: ConfigDrift,
    algorithm_check: AlgorithmCheck,
}

/// Why nothing is known of a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChargeError {
    /// The store does not answer.
    #[error("the Redis store {0}")]
    Fault(Fault),
    /// It answers what nobody understands.
    #[error("the Redis store: {0}")]
    Protocol(ProtocolError),
    /// There was no time to carry over what is there, or it is changed by others again and again, who have other parameters for it.
    #[error(
        "the buckets that are there are under other parameters, and could not be carried over in time"
    )]
    Contended,
}

impl Store {
    /// A store that is reached by this client.
    pub fn new(client: Client, naming: Naming, clock: Arc<Clock>) -> Self {
        let workers = 0..client.workers();
        let client = Arc::new(client);
        Self {
            errands: workers.map(|_| Arc::default()).collect(),
            algorithm_check: AlgorithmCheck::new(Arc::clone(&client)),
            client,
            naming,
            scripts: Scripts::default(),
            node: client::random(),
            leases: AtomicU64::new(0),
            clock,
            ahead: AtomicI64::new(0),
            synchronisers: Mutex::default(),
            bans: Mutex::default(),
            has_heard: watch::Sender::new(false),
            leftovers: ConfigDrift::default(),
        }
    }

    /// What synchronises buckets in memory so often.
    pub fn synchroniser(&self, interval: Duration, metrics: &SyncMetrics) -> Arc<Synchroniser> {
        let mut synchronisers = self.synchronisers.lock();
        let mut known = synchronisers.iter();
        if let Some(known) = known.find(|known| known.interval() == interval) {
            return Arc::clone(known);
        }
        let client = Arc::clone(&self.client);
        let new = Arc::new(Synchroniser::new(client, interval, metrics.clone()));
        synchronisers.push(Arc::clone(&new));
        new
    }

    /// Synchronises buckets, shares bans and compares algorithms for ever; to be called on one worker, and again when policies
    /// are others. The first rounds begin once the worker is connected, or after `patience`.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn synchronise(
        self: &Arc<Self>,
        worker: usize,
        clock: &Arc<Clock>,
        patience: Duration,
    ) {
        let has_rounds = !self.synchronisers().is_empty() || !self.followed_bans().is_empty();
        if !has_rounds && self.algorithm_check.is_empty() {
            return;
        }
        if !*self.has_heard.borrow() {
            self.client.start(worker);
            let connected = self.client.connected(worker..worker + 1);
            let _ = timeout(patience, connected).await;
            self.first_rounds(worker, clock).await;
            self.has_heard.send_replace(true);
        }
        let mut running = JoinSet::new();
        if !self.followed_bans().is_empty() {
            let (store, clock) = (Arc::clone(self), Arc::clone(clock));
            running.spawn(async move { store.share_bans_for_ever(worker, &clock).await });
        }
        if !self.algorithm_check.is_empty() {
            let store = Arc::clone(self);
            running.spawn(async move { store.algorithm_check.run(worker).await });
        }
        for synchroniser in self.synchronisers() {
            let clock = Arc::clone(clock);
            running.spawn(async move { synchroniser.run(worker, &clock).await });
        }
        while running.join_next().await.is_some() {}
    }

    async fn first_rounds(self: &Arc<Self>, worker: usize, clock: &Arc<Clock>) {
        let mut rounds = JoinSet::new();
        for synchroniser in self.synchronisers() {
            let clock = Arc::clone(clock);
            rounds.spawn(async move { synchroniser.round(worker, &clock).await });
        }
        let (store, clock) = (Arc::clone(self), Arc::clone(clock));
        rounds.spawn(async move { store.share_bans_once(worker, &clock).await });
        while rounds.join_next().await.is_some() {}
    }

    /// Waits until the other machines' totals and bans have been heard for the first time, or asked for in vain.
    pub async fn heard(&self) {
        // The sender lives as long as the store.
        let _ = self.has_heard.subscribe().wait_for(|heard| *heard).await;
    }

    /// The same once.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn synchronise_once(&self, worker: usize, clock: &Clock) {
        for synchroniser in self.synchronisers() {
            synchroniser.last_round(worker, clock).await;
        }
        self.tell_last_bans(worker, clock).await;
    }

    /// All that synchronise anything by now.
    fn synchronisers(&self) -> Vec<Arc<Synchroniser>> {
        let mut synchronisers = self.synchronisers.lock();
        synchronisers.retain(|synchroniser| synchroniser.is_in_use());
        synchronisers.clone()
    }

    /// Begins to connect for a worker, on whose thread this is called.
    pub fn start(self: &Arc<Self>, worker: usize) {
        self.client.start(worker);
        self.start_errands(worker);
    }

    /// Waits until each of these workers is connected to every server in use, and every such server has the scripts.
    pub async fn connected(&self, workers: Range<usize>) {
        self.client.connected(workers).await;
    }

    /// Gives servers the scripts of these procedures, and those of the rounds, before they are called.
    pub fn load_scripts(&self, procedures: impl Iterator<Item = Procedure>) {
        let scripts = procedures.map(|procedure| self.scripts.get(procedure).clone());
        let scripts: Vec<_> = scripts.chain([SYNC, ALGORITHMS].map(Script::new)).collect();
        self.client.load_scripts(&scripts);
    }

    /// Policies may be others for requests that begin from `now` on.
    pub fn reloaded(&self, now: Timestamp) {
        let longest = self.client.spec().timeout + HAND_OVER;
        let now = self.time_at(now);
        self.leftovers.reloaded(now, now.saturating_add(longest));
    }

    /// The id of a lease that nobody else has.
    pub fn new_lease(&self) -> Arc<str> {
        let number = self.leases.fetch_add(1, Relaxed);
        format!("{:016x}{number:x}", self.node).into()
    }

    /// Tells and hears of these from the next round on, as long as somebody has them, and of no others: what requests of an
    /// earlier ruleset still do to its own is nobody else's business.
    pub fn follow_bans(&self, bans: &[&Arc<SharedBans>]) {
        *self.bans.lock() = bans.iter().copied().map(Arc::downgrade).collect();
    }

    /// Compares the algorithms of these policies, each with what all nodes call it, with those of other nodes.
    pub fn check_algorithms<'a>(&self, policies: impl Iterator<Item = (&'a str, &'static str)>) {
        self.algorithm_check.follow(policies);
    }

    /// Those who are still there.
    pub(super) fn followed_bans(&self) -> Vec<Arc<SharedBans>> {
        let bans = self.bans.lock();
        bans.iter().filter_map(Weak::upgrade).collect()
    }

    /// What no other process has, nor another store of this one.
    pub fn node(&self) -> u64 {
        self.node
    }

    /// What its clock says now, as far as is known.
    pub(super) fn now(&self) -> Timestamp {
        self.time_at(self.clock.now())
    }

    pub(super) fn leftovers(&self) -> &ConfigDrift {
        &self.leftovers
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(super) fn errands(&self, worker: usize) -> &Arc<Outbox> {
        &self.errands[worker]
    }

    /// Counts what could not be told.
    pub(super) fn lost(&self, what: &'static str) {
        self.client.lost(what);
    }

    /// What asks this in a batch.
    pub(super) fn command(&self, ask: &ScriptCall) -> Command {
        let keys: Keys<'_> = ask.keys().collect();
        Command::script(self.scripts.get(ask.procedure()), &keys, &[ask.args()])
    }

    /// The slot of a bucket; one where there are none.
    pub(super) fn slot_of(&self, name: &[u8]) -> u16 {
        match self.client.spec().target {
            Target::Cluster(_) => slot(name),
            Target::Single(_) | Target::Sentinel { .. } => 0,
        }
    }

    /// Whether it is reached like this, and its buckets are called so.
    pub fn is_like(&self, client: &client::Spec, naming: &Naming) -> bool {
        self.client.spec().is_like(client) && self.naming == *naming
    }

    /// What its buckets are called.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// Whether some server is in use.
    pub fn is_reachable(&self) -> bool {
        self.client.is_reachable()
    }

    /// How the store is.
    pub fn state(&self) -> State {
        self.client.state()
    }

    /// What its clock says when this one says `now`, as far as is known.
    pub fn time_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add_signed(self.ahead.load(Relaxed))
    }

    /// Decides a request by all these charges, of which the first `binding` may refuse, and makes all of them or none;
    /// returns what each was told. The instants are told as if it had been decided at `now` on this machine's clock.
    ///
    /// In a cluster it is one call for each slot, one after the other. What was charged is given back once one refuses, and
    /// nobody is told of it, nor of those that were not asked any more: `None`. Where refusals are charged, all are asked.
    /// Units in use are taken under this lease, and stay taken then.
    ///
    /// # Errors
    /// When the store does not say what it decided within its deadline, which is one for all calls. It may have charged all
    /// the same.
    ///
    /// # Panics
    /// Outside a runtime, or if there is no such worker.
    pub async fn charge(
        self: &Arc<Self>,
        worker: usize,
        buckets: &[BucketCharge<'_>],
        binding: usize,
        lease: &str,
        now: Timestamp,
    ) -> Result<BucketReplies, ChargeError> {
        self.start_errands(worker);
        let deadline = Instant::now() + self.client.spec().timeout;
        let parts = SlotGroup::all(buckets, |name| self.slot_of(name));
        if parts.len() <= 1 {
            let told = self.charge_together(deadline, worker, buckets, binding, lease, now);
            return Ok(told.await?.said(buckets).map(Some).collect());
        }
        let mut request = MultiSlotCharge::new(buckets, binding);
        for part in &parts {
            let Some(asked) = request.ask(part) else {
                continue;
            };
            let (buckets, binding) = (&asked.buckets, asked.binding);
            let told = self.charge_together(deadline, worker, buckets, binding, lease, now);
            let told = told
                .await
                .inspect_err(|_| self.give_back(worker, &request.take_reversals()))?;
            request.note(&asked, &told);
            if request.is_refused() {
                self.give_back(worker, &request.take_reversals());
            }
        }
        Ok(request.into_answers())
    }

    /// Sends them, for which no request waits.
    fn give_back(self: &Arc<Self>, worker: usize, reversals: &[ScriptCall]) {
        if !reversals.is_empty() {
            let commands = reversals.iter().map(|ask| self.command(ask)).collect();
            let store = Arc::clone(self);
            tokio::spawn(async move { store.client.batch(worker, commands).await });
        }
    }

    async fn charge_together(
        &self,
        deadline: Instant,
        worker: usize,
        charges: &[BucketCharge<'_>],
        binding: usize,
        id: &str,
        now: Timestamp,
    ) -> Result<ChargeReply, ChargeError> {
        let request = ChargeRequest {
            charges,
            binding,
            refusals: Refusals::Charged,
            now: None,
            around: self.time_at(now),
            leftovers: Some(&self.leftovers),
            lease: Lease {
                id,
                lasts: outbox::LEASE,
            },
        };
        let mut again = RetryInputs::default();
        // The script asks to be asked again about buckets under other parameters, which others that have those may charge in
        // between, and about the period of a calendar that has ended meanwhile.
        loop {
            let ask = request.ask(&again);
            let reply = self.call(deadline, worker, &ask).await;
            let reply = reply.map_err(ChargeError::Fault)?;
            match request.read(&reply, now).map_err(ChargeError::Protocol)? {
                ScriptReply::Decided(told) => {
                    self.note_time(told.at);
                    for place in again.left() {
                        self.leftovers.wrote(&charges[place], told.at);
                    }
                    return Ok(told);
                }
                ScriptReply::Retry(more) => again = more,
            }
            if Instant::now() >= deadline {
                return Err(ChargeError::Contended);
            }
        }
    }

    /// Calls the script.
    async fn call(
        &self,
        deadline: Instant,
        worker: usize,
        ask: &ScriptCall,
    ) -> Result<Value, Fault> {
        let script = self.scripts.get(ask.procedure());
        let (keys, args): (Keys<'_>, _) = (ask.keys().collect(), [ask.args()]);
        let call = self.client.call_by(deadline, worker, script, &keys, &args);
        call.await
    }

    fn note_time(&self, at: Timestamp) {
        let ahead = at.signed_micros_since(self.clock.now());
        self.ahead.store(ahead, Relaxed);
    }
}

impl ChargeError {
    /// Whether it is the server that is out of use, or the way to it, which is told in the log once and not for each request.
    pub fn is_of_the_server(&self) -> bool {
        use FaultKind::{CrossSlot, Script};
        match self {
            Self::Fault(fault) => !matches!(fault.kind, CrossSlot | Script),
            Self::Protocol(_) | Self::Contended => false,
        }
    }
}
