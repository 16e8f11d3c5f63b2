//! The buckets of one Redis store, as all workers charge them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use smallvec::SmallVec;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::after::Settlement;
use super::asked::{Ask, Charge, Lease, Request};
use super::client::{self, Client, Command, Fault, FaultKind, Script, State, Target, slot};
use super::naming::Naming;
use super::script::{CHARGE, SETTLE};
use super::sync::Synchroniser;
use super::told::{Again, Nonsense, Reply, Told};
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Decision, Reserved};
use crate::store::Refusals;
use crate::telemetry::metrics::SyncMetrics;

/// How often the script may ask to be asked again: for buckets under other parameters, and for the period of a calendar that
/// has ended meanwhile.
const ROUNDS: usize = 3;

/// How often a store is asked again that has only just been begun with.
const EARLY: Duration = Duration::from_millis(1);

/// What each of some charges was told, in their order; `None` where nothing was.
pub type Decisions = SmallVec<[Option<Decision>; 4]>;

/// The buckets of one store.
#[derive(Debug)]
pub struct Store {
    client: Arc<Client>,
    naming: Naming,
    charge: Script,
    settle: Script,
    clock: Arc<Clock>,
    /// By how many microseconds its clock was ahead of this one at the last answer.
    ahead: AtomicI64,
    /// One for each interval at which buckets in memory are synchronised.
    synchronisers: Mutex<Vec<Arc<Synchroniser>>>,
}

/// Why nothing is known of a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unanswered {
    /// The store does not answer.
    #[error("the Redis store {0}")]
    Fault(Fault),
    /// It answers what nobody understands.
    #[error("the Redis store: {0}")]
    Nonsense(Nonsense),
    /// The bucket is changed by others again and again, who have other parameters for it.
    #[error("other machines have other parameters for the same buckets")]
    Contended,
}

impl Store {
    /// A store that is reached by this client.
    pub fn new(client: Client, naming: Naming, clock: Arc<Clock>) -> Self {
        Self {
            client: Arc::new(client),
            naming,
            charge: Script::new(CHARGE),
            settle: Script::new(SETTLE),
            clock,
            ahead: AtomicI64::new(0),
            synchronisers: Mutex::default(),
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

    /// Synchronises all that is to be by now, each as often as it is, for ever; to be called on one worker, and again when
    /// more is to be synchronised.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn synchronise(&self, worker: usize, clock: &Arc<Clock>) {
        let mut running = JoinSet::new();
        for synchroniser in self.synchronisers() {
            let clock = Arc::clone(clock);
            running.spawn(async move { synchroniser.run(worker, &clock).await });
        }
        while running.join_next().await.is_some() {}
    }

    /// The same once.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn synchronise_once(&self, worker: usize, clock: &Clock) {
        for synchroniser in self.synchronisers() {
            synchroniser.round(worker, clock).await;
        }
    }

    /// All that synchronise anything by now.
    fn synchronisers(&self) -> Vec<Arc<Synchroniser>> {
        let mut synchronisers = self.synchronisers.lock();
        synchronisers.retain(|synchroniser| synchroniser.is_in_use());
        synchronisers.clone()
    }

    /// Begins to connect for a worker, on whose thread this is called.
    pub fn start(&self, worker: usize) {
        self.client.start(worker);
    }

    /// Whether it is reached like this, and its buckets are called so.
    pub fn is_like(&self, client: &client::Spec, naming: &Naming) -> bool {
        self.client.spec().is_like(client) && self.naming == *naming
    }

    /// What its buckets are called.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// How the store is.
    pub fn state(&self) -> State {
        self.client.state()
    }

    /// What its clock says when this one says `now`, as far as is known.
    pub fn time_at(&self, now: Timestamp) -> Timestamp {
        match self.ahead.load(Relaxed) {
            ahead @ 0.. => now.saturating_add_micros(ahead.unsigned_abs()),
            behind => now.saturating_sub_micros(behind.unsigned_abs()),
        }
    }

    /// Decides a request by all these charges, of which the first `binding` may refuse, and makes all of them or none;
    /// returns what each was told. The instants are told as if it had been decided at `now` on this machine's clock.
    ///
    /// In a cluster it is one call for each slot, one after the other. What was charged is given back once one refuses, and
    /// nobody is told of it, nor of those that were not asked any more: `None`.
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
        charges: &[Charge<'_>],
        binding: usize,
        now: Timestamp,
    ) -> Result<Decisions, Unanswered> {
        let deadline = Instant::now() + self.client.spec().timeout;
        let slots = self.slots(charges);
        if slots.len() <= 1 {
            let told = self.charge_together(deadline, worker, charges, binding, now);
            let told = told.await?;
            return Ok(told.verdict.decisions.into_iter().map(Some).collect());
        }
        let mut decisions: Decisions = charges.iter().map(|_| None).collect();
        let mut given_back = Vec::new();
        for places in slots {
            let part: Vec<_> = places.iter().map(|&place| charges[place]).collect();
            let part_binding = places.iter().filter(|place| **place < binding).count();
            let told = self.charge_together(deadline, worker, &part, part_binding, now);
            let told = told.await;
            let Ok(told) = told else {
                self.give_back(worker, given_back);
                return told.map(|_| decisions);
            };
            if !told.verdict.is_admitted() {
                decisions.fill(None);
                self.give_back(worker, std::mem::take(&mut given_back));
            }
            for (place, decision) in places.into_iter().zip(&told.verdict.decisions) {
                decisions[place] = Some(*decision);
            }
            if !told.verdict.is_admitted() {
                break;
            }
            given_back.extend(self.reversals(&part, &told));
        }
        Ok(decisions)
    }

    /// The places of those charges that can be made by one call, by the slots in which they are.
    fn slots(&self, charges: &[Charge<'_>]) -> Vec<Vec<usize>> {
        let mut slots: Vec<(u16, Vec<usize>)> = Vec::new();
        for (place, charge) in charges.iter().enumerate() {
            let slot = match self.client.spec().target {
                Target::Cluster(_) => slot(charge.name),
                Target::Single(_) | Target::Sentinel { .. } => 0,
            };
            match slots.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, places)) => places.push(place),
                None => slots.push((slot, vec![place])),
            }
        }
        slots.into_iter().map(|(_, places)| places).collect()
    }

    /// What gives back the charges that were made.
    fn reversals(&self, charges: &[Charge<'_>], told: &Told) -> Vec<Command> {
        let made = charges.iter().zip(&told.verdict.decisions);
        let made = made.filter(|(charge, decision)| {
            let stays = charge.refusals == Refusals::Charged;
            decision.is_admitted() && !stays && charge.algorithm.shape().is_none()
        });
        let asks = made.filter_map(|(charge, decision)| {
            let settlement = Settlement {
                charge: *charge,
                reserved: Reserved {
                    cell: decision.cell,
                    at: told.at,
                    units: charge.cost,
                    // Nobody knows, of all machines: as many as there can be, so that nothing is given back twice.
                    unsettled: u64::MAX,
                },
                units: 0,
            };
            settlement.ask(told.at, None)
        });
        asks.map(|ask| Command::script(&self.settle, &ask.keys, &ask.args))
            .collect()
    }

    /// Sends them, for which no request waits.
    fn give_back(self: &Arc<Self>, worker: usize, reversals: Vec<Command>) {
        if !reversals.is_empty() {
            let store = Arc::clone(self);
            tokio::spawn(async move { store.client.batch(worker, reversals).await });
        }
    }

    async fn charge_together(
        &self,
        deadline: Instant,
        worker: usize,
        charges: &[Charge<'_>],
        binding: usize,
        now: Timestamp,
    ) -> Result<Told, Unanswered> {
        let request = Request {
            charges,
            binding,
            refusals: Refusals::Charged,
            now: None,
            around: self.time_at(now),
            lease: Lease {
                id: "",
                lasts: Duration::ZERO,
            },
        };
        let mut again = Again::default();
        for _ in 0..ROUNDS {
            let ask = request.ask(&again);
            let reply = self.call(deadline, worker, &ask).await;
            let reply = reply.map_err(Unanswered::Fault)?;
            match request.read(&reply, now).map_err(Unanswered::Nonsense)? {
                Reply::Told(told) => {
                    self.note_time(told.at);
                    return Ok(told);
                }
                Reply::Again(more) => again = more,
            }
        }
        Err(Unanswered::Contended)
    }

    /// Calls the script. A store that has only just been begun with is waited for.
    async fn call(&self, deadline: Instant, worker: usize, ask: &Ask) -> Result<Value, Fault> {
        loop {
            let (keys, args) = (&ask.keys, &ask.args);
            let call = self
                .client
                .call_by(deadline, worker, &self.charge, keys, args);
            match call.await {
                Err(fault) if fault.kind == FaultKind::Connecting && Instant::now() < deadline => {
                    sleep(EARLY).await;
                }
                answer => return answer,
            }
        }
    }

    fn note_time(&self, at: Timestamp) {
        let now = self.clock.now();
        let [at, now] =
            [at, now].map(|instant| i64::try_from(instant.as_micros()).unwrap_or(i64::MAX));
        self.ahead.store(at.saturating_sub(now), Relaxed);
    }
}

impl Unanswered {
    /// Whether it is the server that is out of use, or the way to it, which is told in the log once and not for each request.
    pub fn is_of_the_server(&self) -> bool {
        use FaultKind::{CrossSlot, Script};
        match self {
            Self::Fault(fault) => !matches!(fault.kind, CrossSlot | Script),
            Self::Nonsense(_) | Self::Contended => false,
        }
    }
}
