//! The buckets of one Redis store, shared by all workers.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::algorithm_check::AlgorithmCheck;
use super::client::{
    self, Caller, Client, Command, Fault, FaultKind, Operation, Script, Target, slot,
};
use super::multi_slot::{BucketReplies, MultiSlotCharge, group_by_slot};
use super::naming::Naming;
use super::outbox::{self, Outbox, OutboxMessage};
use super::reply::{BucketReply, ChargeReply, ProtocolError, ScriptReply};
use super::script::{ALGORITHMS, Procedure, SYNC, Scripts};
use super::script_call::{BucketCharge, ChargeRequest, ScriptCall};
use super::steering::SteeringFeed;
use super::sync::Synchroniser;
use crate::clock::{Clock, Timestamp};
use crate::store::{Ask, Penalties};
use crate::telemetry::metrics::{StoreMetrics, SyncMetrics};

/// One Redis store and its background work.
#[derive(Debug)]
pub struct Store {
    client: Arc<Client>,
    pub(super) metrics: Arc<StoreMetrics>,
    naming: Naming,
    scripts: Scripts,
    pub(super) clock: Arc<Clock>,
    /// One for each worker.
    pub(super) outboxes: Box<[Arc<Outbox>]>,
    /// An id that no other process and no other store of this process has. It makes lease ids unique among
    /// processes, with `leases` unique within this one.
    pub(in crate::store) node: u64,
    leases: AtomicU64,
    /// How far the server's clock is ahead of the local clock, in microseconds, at the last answer.
    clock_offset: AtomicI64,
    /// One for each synchronisation interval.
    synchronisers: Mutex<Vec<Arc<Synchroniser>>>,
    pub(super) bans: Mutex<Vec<Weak<Penalties>>>,
    /// The first round of each subject is over.
    pub(super) first_round_over: watch::Sender<bool>,
    pub(super) algorithm_check: AlgorithmCheck,
    pub(super) steering: SteeringFeed,
}

/// The reason why a request has no decision.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChargeError {
    /// The store gives no answer.
    #[error("the Redis store {0}")]
    Fault(Fault),
    /// The answer is not one of the script's.
    #[error("the Redis store: {0}")]
    Protocol(ProtocolError),
    /// The deadline passed before a call met the calendar period of its window.
    #[error("the clock of the Redis store was in another calendar period at each call")]
    OtherPeriod,
}

impl Store {
    /// A store behind this client, whose calls count in the metrics.
    pub fn new(
        client: Client,
        metrics: Arc<StoreMetrics>,
        naming: Naming,
        clock: Arc<Clock>,
    ) -> Self {
        let workers = 0..client.workers();
        let client = Arc::new(client);
        Self {
            outboxes: workers.map(|_| Arc::default()).collect(),
            algorithm_check: AlgorithmCheck::new(Arc::clone(&client)),
            client,
            metrics,
            naming,
            scripts: Scripts::default(),
            node: client::random(),
            leases: AtomicU64::new(0),
            clock,
            clock_offset: AtomicI64::new(0),
            synchronisers: Mutex::default(),
            bans: Mutex::default(),
            first_round_over: watch::Sender::new(false),
            steering: SteeringFeed::default(),
        }
    }

    /// The synchroniser of memory buckets for this interval.
    pub fn synchroniser(&self, interval: Duration, metrics: &SyncMetrics) -> Arc<Synchroniser> {
        let mut synchronisers = self.synchronisers.lock();
        let mut known = synchronisers.iter();
        if let Some(known) = known.find(|known| known.interval == interval) {
            return Arc::clone(known);
        }
        let client = Arc::clone(&self.client);
        let new = Arc::new(Synchroniser::new(client, interval, metrics.clone()));
        synchronisers.push(Arc::clone(&new));
        new
    }

    /// Waits for the end of the first round with the other machines, whether it succeeds or fails.
    pub async fn first_round(&self) {
        // The sender lives as long as the store.
        let _ = self
            .first_round_over
            .subscribe()
            .wait_for(|is_over| *is_over)
            .await;
    }

    pub(super) fn synchronisers(&self) -> Vec<Arc<Synchroniser>> {
        let mut synchronisers = self.synchronisers.lock();
        synchronisers.retain(|synchroniser| synchroniser.is_in_use());
        synchronisers.clone()
    }

    /// Starts connecting for a worker. Call it on that worker's thread.
    pub fn start(self: &Arc<Self>, worker: usize) {
        self.client.start(worker);
        self.start_outbox(worker);
    }

    /// Loads the scripts of these procedures, and of synchronisation, into the servers.
    pub fn load_scripts(&self, procedures: impl Iterator<Item = Procedure>) {
        let scripts = procedures.map(|procedure| self.scripts.get(procedure).clone());
        let scripts: Vec<_> = scripts.chain([SYNC, ALGORITHMS].map(Script::new)).collect();
        self.client.load_scripts(&scripts);
    }

    /// A lease id that no other request has.
    pub fn new_lease(&self) -> Arc<str> {
        let number = self.leases.fetch_add(1, Relaxed);
        format!("{:016x}{number:x}", self.node).into()
    }

    /// Compares the algorithms of these policies with other nodes, each by the label that all nodes
    /// use.
    pub fn check_algorithms<'a>(&self, policies: impl Iterator<Item = (&'a str, &'a str)>) {
        self.algorithm_check.follow(policies);
    }

    /// The client, which knows the state of the servers.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(super) fn command(&self, call: &ScriptCall) -> Command {
        Command::script(self.scripts.get(call.procedure), &call.words)
    }

    /// Sends commands that no request waits for.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub(super) async fn background(
        &self,
        worker: usize,
        commands: Vec<Command>,
    ) -> Vec<Result<Value, Fault>> {
        (self.client)
            .batch(Operation::Background, worker, commands)
            .await
    }

    /// The cluster slot of a bucket; always 0 outside a cluster.
    pub(super) fn slot_of(&self, name: &[u8]) -> u16 {
        if self.is_cluster() { slot(name) } else { 0 }
    }

    fn is_cluster(&self) -> bool {
        matches!(self.client.spec().target, Target::Cluster(_))
    }

    /// The instant by which a request that is undecided at `now` is decided.
    pub fn decided_by(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.client.spec().timeout)
    }

    /// True if the store has this client specification and this naming.
    pub fn is_same_as(&self, client: &client::Spec, naming: &Naming) -> bool {
        self.client.spec() == client && self.naming == *naming
    }

    /// The naming of its buckets.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// The server's time at the local instant `now`, estimated from the last answer.
    pub fn server_time_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add_signed(self.clock_offset.load(Relaxed))
    }

    /// Decides a request by all these charges, of which the first `enforced` may refuse, and makes
    /// all of them or none. The reply has one entry for each charge, with instants of the local
    /// clock, as if decided at `now`.
    ///
    /// In a cluster each slot takes a call of its own, one after the other. After a refusal the
    /// earlier charges are given back, and the later slots are not called: their entries are
    /// `None`. Charges that count refusals are made in all slots. Units in use are taken under
    /// `lease`, and stay taken after a refusal elsewhere.
    ///
    /// # Errors
    /// If the store does not answer within the deadline, which covers all calls. The charge may
    /// have been made anyway.
    ///
    /// # Panics
    /// Outside a runtime, or if there is no such worker.
    pub async fn charge(
        self: &Arc<Self>,
        caller: Caller,
        (buckets, enforced): (&[BucketCharge<'_>], usize),
        ask: Ask,
        lease: &str,
        now: Timestamp,
        is_over: impl Fn() -> bool,
    ) -> Result<BucketReplies, ChargeError> {
        let worker = caller.worker;
        self.start_outbox(worker);
        let deadline = Instant::now() + self.client.spec().timeout;
        let groups = group_by_slot(buckets, |name| self.slot_of(name));
        if groups.len() <= 1 {
            let request = ChargeRequest {
                lease,
                ask,
                ..self.request(buckets, enforced, now)
            };
            let reply = self.charge_in_one_call(deadline, caller, &request, now, is_over);
            return Ok(reply.await?.replies.into_iter().map(Some).collect());
        }
        let mut request = MultiSlotCharge::new(buckets, enforced, ask);
        let id = self.new_lease();
        for (place, group) in groups.iter().enumerate() {
            let Some(slot_call) = request.call_for(group) else {
                continue;
            };
            let is_last = place + 1 == groups.len() || request.is_refused;
            let charge_request = ChargeRequest {
                lease,
                ask: request.ask(),
                undecided: if is_last { "" } else { &id },
                ..self.request(&slot_call.buckets, slot_call.enforced, now)
            };
            let reply = self
                .charge_in_one_call(deadline, caller, &charge_request, now, || false)
                .await
                .inspect_err(|_| self.give_back(worker, &id, &mut request))?;
            request.apply_reply(&slot_call, &reply);
            if request.is_refused {
                self.give_back(worker, &id, &mut request);
            }
        }
        for key in request.undecided {
            let id = Arc::clone(&id);
            self.enqueue(worker, OutboxMessage::Decided { key, id });
        }
        Ok(request.replies)
    }

    /// The replies on these charges, which are not made, in the order of their first buckets, with
    /// instants of the local clock as if decided at `now`. In a cluster each slot takes a call of
    /// its own, one after the other.
    ///
    /// # Panics
    /// Outside a runtime, or if there is no such worker.
    pub async fn peek(
        &self,
        caller: Caller,
        buckets: &[BucketCharge<'_>],
        ask: Ask,
        now: Timestamp,
    ) -> Vec<Result<BucketReply, ChargeError>> {
        let deadline = Instant::now() + self.client.spec().timeout;
        let all = MultiSlotCharge::new(buckets, usize::MAX, ask);
        let mut replies = vec![Err(ChargeError::OtherPeriod); all.replies.len()];
        let groups = group_by_slot(buckets, |name| self.slot_of(name));
        for call in groups.iter().filter_map(|group| all.call_for(group)) {
            let request = ChargeRequest {
                ask,
                ..self.request(&call.buckets, call.enforced, now)
            };
            let reply = self.charge_in_one_call(deadline, caller, &request, now, || false);
            let reply = reply.await;
            for (index, &charge) in call.charges.iter().enumerate() {
                let reply = reply.as_ref().map_err(Clone::clone);
                replies[charge] = reply.map(|reply| reply.replies[index]);
            }
        }
        replies
    }

    /// Gives back the charges so far; from then on they are decided.
    fn give_back(self: &Arc<Self>, worker: usize, id: &str, request: &mut MultiSlotCharge<'_>) {
        let reversals = std::mem::take(&mut request.reversals);
        let undecided = std::mem::take(&mut request.undecided);
        if !undecided.is_empty() {
            let commands = reversals.iter().map(|call| self.command(call));
            let decided = undecided.iter().map(|key| outbox::decided(key, id));
            let commands = commands.chain(decided).collect();
            let store = Arc::clone(self);
            tokio::spawn(async move {
                let sent = store.client.batch(Operation::FollowUp, worker, commands);
                sent.await
            });
        }
    }

    /// A request with these charges, which takes no units in use and which no other slot refuses.
    fn request<'a>(
        &'a self,
        charges: &'a [BucketCharge<'a>],
        enforced: usize,
        now: Timestamp,
    ) -> ChargeRequest<'a> {
        ChargeRequest {
            charges,
            enforced,
            ask: Ask::Charge,
            estimated_now: self.server_time_at(now),
            lease: "",
            undecided: "",
            undecided_for: self.is_cluster().then_some(self.client.spec().timeout),
        }
    }

    async fn charge_in_one_call(
        &self,
        deadline: Instant,
        caller: Caller,
        request: &ChargeRequest<'_>,
        now: Timestamp,
        is_over: impl Fn() -> bool,
    ) -> Result<ChargeReply, ChargeError> {
        let mut request = *request;
        loop {
            let call = request.script_call();
            let script = self.scripts.get(call.procedure);
            let words = &call.words;
            let reply = (self.client).call_by(deadline, caller, script, words, &is_over);
            let reply = reply.await.map_err(ChargeError::Fault)?;
            match request.read(&reply, now).map_err(ChargeError::Protocol)? {
                ScriptReply::Decided(reply) => {
                    self.record_server_time(reply.at);
                    return Ok(reply);
                }
                ScriptReply::Retry(at) => request.estimated_now = at,
            }
            if Instant::now() >= deadline {
                return Err(ChargeError::OtherPeriod);
            }
        }
    }

    fn record_server_time(&self, at: Timestamp) {
        let clock_offset = at.signed_micros_since(self.clock.now());
        self.clock_offset.store(clock_offset, Relaxed);
    }
}

impl ChargeError {
    /// True if the server or its network is at fault. The client logs that once, not for each
    /// request.
    pub fn is_server_fault(&self) -> bool {
        use FaultKind::{CrossSlot, Script};
        match self {
            Self::Fault(fault) => !matches!(fault.kind, CrossSlot | Script),
            Self::Protocol(_) | Self::OtherPeriod => false,
        }
    }
}
