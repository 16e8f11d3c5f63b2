//! What Redis is told off the path of requests: what they cost in the end, places in line that are given up, and units in use,
//! which are renewed as long as they are in use, and given back.
//!
//! Each worker runs its own, one batch after the other, so that what is told of a request comes after what it has asked.
//! Nothing is tried again: what is lost is counted, and stands as it was charged, or expires.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::client::{Command, Fault};
use super::follow_up::{LeasedUnits, Settlement, SettlementReply, left_alone};
use super::script_call::{BucketCharge, ChargedRefusals, ScriptCall, Tier};
use super::store::Store;
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Reserved};
use crate::store::Table;

/// For how long units in use stay taken that nobody renews: so long those of a proxy are lost that is killed.
pub(super) const LEASE: Duration = Duration::from_secs(10);
/// How often leases are renewed: three times may fail before one expires.
const RENEWAL: Duration = Duration::from_millis(2_500);
/// The most errands of a worker that wait. What comes beyond is lost.
const MOST: usize = 16_384;
/// The most of a batch.
const AT_ONCE: usize = 256;
/// The most leases that one call renews.
const RENEWED_AT_ONCE: usize = 64;

/// What is to be told for one worker.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<VecDeque<(Arc<Store>, OutboxMessage)>>,
    wake: Notify,
    /// Whether a batch is under way.
    is_busy: AtomicBool,
    is_started: AtomicBool,
    /// The units in use that are renewed.
    held: Mutex<HashMap<u64, HeldLease>>,
    next: AtomicU64,
}

/// One thing to tell.
#[derive(Debug)]
pub(super) enum OutboxMessage {
    Settle(Box<PendingSettlement>, Timestamp),
    Leave(ScriptCall),
    GiveBack(HeldLease),
}

/// Units in use.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) name: Arc<[u8]>,
    pub(super) id: Arc<str>,
    pub(super) units: u32,
}

/// A charge that is to be settled, as [`Settlement`] borrows it.
#[derive(Debug)]
pub(super) struct PendingSettlement {
    pub(super) table: Arc<Table>,
    pub(super) name: Box<[u8]>,
    pub(super) key: Fingerprint,
    pub(super) period: Option<(Timestamp, Timestamp)>,
    pub(super) reserved: Reserved,
    pub(super) since: Timestamp,
    pub(super) units: u32,
}

impl Outbox {
    fn push(&self, store: &Arc<Store>, errand: OutboxMessage) {
        let mut queue = self.queue.lock();
        if queue.len() >= MOST {
            return store.lost(errand.what());
        }
        queue.push_back((Arc::clone(store), errand));
        drop(queue);
        self.wake.notify_one();
    }

    /// Has these units renewed until they are let go; returns under what number.
    pub(super) fn hold(&self, held: HeldLease) -> u64 {
        let number = self.next.fetch_add(1, Relaxed);
        self.held.lock().insert(number, held);
        number
    }

    /// Renews them no more.
    pub(super) fn let_go(&self, number: u64) {
        self.held.lock().remove(&number);
    }

    fn take(&self) -> Vec<(Arc<Store>, OutboxMessage)> {
        let mut queue = self.queue.lock();
        let most = queue.len().min(AT_ONCE);
        queue.drain(..most).collect()
    }

    fn is_idle(&self) -> bool {
        self.queue.lock().is_empty() && !self.is_busy.load(Relaxed)
    }
}

impl Store {
    /// Has this told for a worker.
    pub(super) fn tell(self: &Arc<Self>, worker: usize, errand: OutboxMessage) {
        self.errands(worker).push(self, errand);
    }

    /// Begins to run the errands of a worker, on its runtime. Does nothing a second time.
    pub(super) fn start_errands(self: &Arc<Self>, worker: usize) {
        let errands = self.errands(worker);
        if !errands.is_started.swap(true, AcqRel) {
            let running = OutboxTask(Arc::clone(errands));
            tokio::spawn(running.run(Arc::downgrade(self), worker));
        }
    }

    /// Waits until all is told of a worker, or this instant.
    pub async fn last_words(&self, worker: usize, until: Instant) {
        const LOOKS: Duration = Duration::from_millis(1);
        let errands = self.errands(worker);
        let told = async {
            while !errands.is_idle() {
                tokio::time::sleep(LOOKS).await;
            }
        };
        let _ = timeout_at(until, told).await;
    }

    /// Tells a batch of what waits; whether more does.
    async fn run_errands(&self, errands: &Outbox, worker: usize) -> bool {
        errands.is_busy.store(true, Relaxed);
        let (batch, commands): (Vec<_>, Vec<_>) = errands
            .take()
            .into_iter()
            .filter_map(|one| Some((one.1.command(self)?, one)))
            .map(|(command, one)| (one, command))
            .unzip();
        if !batch.is_empty() {
            let answers = self.client().batch(worker, commands).await;
            for ((store, errand), answer) in batch.into_iter().zip(answers) {
                store.note(worker, errand, answer);
            }
        }
        errands.is_busy.store(false, Relaxed);
        !errands.is_idle()
    }

    /// Notes what became of an errand.
    fn note(self: &Arc<Self>, worker: usize, errand: OutboxMessage, answer: Result<Value, Fault>) {
        match (answer, errand) {
            (Err(_), errand) => self.lost(errand.what()),
            (Ok(reply), OutboxMessage::Settle(due, around)) => {
                match due.settlement().read(&reply) {
                    // In another period than was thought: once more, in the right one.
                    Ok(SettlementReply::Retry(at)) if at > around => {
                        self.tell(worker, OutboxMessage::Settle(due, at));
                    }
                    Ok(SettlementReply::Settled) => {
                        let now = self.now();
                        self.leftovers().wrote(&due.settlement().charge, now);
                    }
                    Ok(SettlementReply::Unchanged | SettlementReply::Retry(_)) | Err(_) => {
                        self.lost("settlement")
                    }
                }
            }
            (Ok(_), OutboxMessage::Leave(_) | OutboxMessage::GiveBack(_)) => {}
        }
    }

    /// Renews what is in use.
    async fn renew(&self, errands: &Outbox, worker: usize) {
        let mut held: Vec<_> = errands.held.lock().values().cloned().collect();
        if held.is_empty() {
            return;
        }
        // Those of one call share a slot.
        held.sort_by_cached_key(|held| self.slot_of(&held.name));
        let calls = held.chunk_by(|one, next| self.slot_of(&one.name) == self.slot_of(&next.name));
        let calls: Vec<_> = calls
            .flat_map(|slot| slot.chunks(RENEWED_AT_ONCE))
            .collect();
        let commands = calls.iter().map(|held| {
            let lent: Vec<_> = held.iter().map(HeldLease::lent).collect();
            self.command(&ScriptCall::renewal(&lent, LEASE, None))
        });
        let answers = self.client().batch(worker, commands.collect()).await;
        for (held, answer) in calls.into_iter().zip(answers) {
            let lost = answer.map_or(held.len(), |reply| left_alone(&reply));
            (0..lost).for_each(|_| self.lost("renewal"));
        }
    }
}

impl OutboxMessage {
    /// What is lost with it, as metrics say.
    fn what(&self) -> &'static str {
        match self {
            Self::Settle(..) => "settlement",
            Self::Leave(_) => "place",
            Self::GiveBack(_) => "permit",
        }
    }

    fn command(&self, store: &Store) -> Option<Command> {
        match self {
            Self::Settle(due, around) => {
                let ask = due.settlement().ask(*around, None)?;
                Some(store.command(&ask))
            }
            Self::Leave(ask) => Some(store.command(ask)),
            Self::GiveBack(held) => {
                let ask = ScriptCall::giving_back(&[held.lent()], None);
                Some(store.command(&ask))
            }
        }
    }
}

impl HeldLease {
    fn lent(&self) -> LeasedUnits<'_> {
        LeasedUnits {
            name: &self.name,
            id: &self.id,
            units: self.units,
        }
    }
}

impl PendingSettlement {
    fn settlement(&self) -> Settlement<'_> {
        Settlement {
            charge: BucketCharge {
                algorithm: self.table.algorithm(),
                name: &self.name,
                key: self.key,
                cost: self.reserved.units,
                owes: ChargedRefusals::None,
                settles: true,
                period: self.period,
                tier: Tier::First,
            },
            reserved: self.reserved,
            units: self.units,
            since: Some(self.since),
        }
    }
}

/// The errands of one worker as they are run; they end with its runtime, or with the store.
struct OutboxTask(Arc<Outbox>);

impl OutboxTask {
    async fn run(self, store: Weak<Store>, worker: usize) {
        let mut next = Instant::now() + RENEWAL;
        let mut has_more = false;
        loop {
            if !has_more {
                let _ = timeout_at(next, self.0.wake.notified()).await;
            }
            let Some(store) = store.upgrade() else { return };
            has_more = store.run_errands(&self.0, worker).await;
            // However much there is to tell.
            if Instant::now() >= next {
                store.renew(&self.0, worker).await;
                next = Instant::now() + RENEWAL;
            }
        }
    }
}

impl Drop for OutboxTask {
    fn drop(&mut self) {
        self.0.is_started.store(false, Release);
    }
}
