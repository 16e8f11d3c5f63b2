//! Messages to Redis off the path of requests: settlements, abandoned queue places, and leases of
//! units in use, which are renewed and returned.
//!
//! Each worker sends its own messages, one batch after the other, so that a request's messages
//! follow its charge. Returns of leases name them, and are sent again after each fault, other
//! messages only if the server has not got them. Lost messages are counted; their charges stand as
//! made, or expire.

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

use super::client::{Command, Fault, Operation};
use super::follow_up::{LeasedUnits, Settlement, SettlementReply, count_foreign_keys};
use super::script_call::{BucketCharge, ChargedRefusals, LEASE_DURATION, ScriptCall, Tier};
use super::store::Store;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Fingerprint, ReservedCharge};
use crate::store::Table;

/// The interval of renewals: three may fail before a lease expires.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(2_500);
/// The interval at which messages are sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long returns are repeated once Redis answers: what was sent to it before it stood still may
/// run later than what is sent over another connection.
const LATE_FOR: Duration = Duration::from_secs(1);
/// The most messages of a worker that wait. Further ones are lost.
const CAPACITY: usize = 16_384;
/// The most messages of a batch.
const BATCH_SIZE: usize = 256;
/// The most leases that one call renews.
const LEASES_PER_CALL: usize = 64;
/// The most calls that find a settlement's bucket under another recipe: machines with different quotas
/// may charge it in turn.
const MAX_CONVERSIONS: u32 = 8;

/// The queue of one worker.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<VecDeque<Queued>>,
    /// Messages that could not be sent, at most [`CAPACITY`], until they are queued again.
    unsent: Mutex<Vec<Queued>>,
    wake: Notify,
    /// True while a batch is under way.
    is_busy: AtomicBool,
    is_started: AtomicBool,
    /// Leases that are renewed, by a number of their own.
    leases: Mutex<HashMap<u64, HeldLease>>,
    next: AtomicU64,
    /// Returns that are sent again, at most [`CAPACITY`].
    returns: Mutex<Vec<LeaseReturn>>,
}

/// A message that waits.
#[derive(Debug)]
struct Queued {
    store: Arc<Store>,
    message: OutboxMessage,
    /// From then on, it is lost if it can't be sent.
    until: Instant,
}

/// The return of a lease that may still be there, or be taken by a call that runs late.
#[derive(Clone, Debug)]
struct LeaseReturn {
    store: Arc<Store>,
    lease: HeldLease,
    /// The end of the lease if nothing renews it.
    until: Instant,
    is_answered: bool,
}

/// A message; a settlement has the server's estimated time with it.
#[derive(Debug)]
pub(super) enum OutboxMessage {
    Settle(Box<PendingSettlement>, Timestamp),
    Leave(ScriptCall),
    GiveBack(HeldLease),
    /// The request with this id is decided: no slot refuses it any more.
    Decided {
        key: Vec<u8>,
        id: Arc<str>,
    },
}

/// Units in use under a lease.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) name: Arc<[u8]>,
    pub(super) id: Arc<str>,
    pub(super) units: u32,
    /// A charge or renewal without an answer may still take the lease.
    pub(super) is_in_doubt: bool,
}

/// A settlement that waits.
#[derive(Debug)]
pub(super) struct PendingSettlement {
    pub(super) table: Arc<Table>,
    pub(super) name: Box<[u8]>,
    pub(super) key: Fingerprint,
    pub(super) period: Option<(Timestamp, Timestamp)>,
    pub(super) reserved: ReservedCharge,
    pub(super) since: Timestamp,
    pub(super) units: u32,
    /// The algorithm that the bucket had at an instant, if not that of the table.
    pub(super) converted: Option<(Timestamp, Box<Algorithm>)>,
    pub(super) conversions: u32,
}

impl Outbox {
    fn push(&self, store: &Arc<Store>, message: OutboxMessage) {
        let mut queue = self.queue.lock();
        if queue.len() >= CAPACITY {
            return store.count_lost(message.label());
        }
        queue.push_back(Queued {
            store: Arc::clone(store),
            message,
            until: Instant::now() + LEASE_DURATION,
        });
        drop(queue);
        self.wake.notify_one();
    }

    /// Renews this lease until [`Outbox::stop_renewing`] with the returned number.
    pub(super) fn start_renewing(&self, lease: HeldLease) -> u64 {
        let number = self.next.fetch_add(1, Relaxed);
        self.leases.lock().insert(number, lease);
        number
    }

    /// Ends the renewals. Returns true if one of them may still run.
    pub(super) fn stop_renewing(&self, number: u64) -> bool {
        let lease = self.leases.lock().remove(&number);
        lease.is_some_and(|lease| lease.is_in_doubt)
    }

    /// Returns a lease again later. `is_answered` if Redis has answered to its first return.
    fn return_again(&self, store: &Arc<Store>, lease: HeldLease, is_answered: bool) {
        let mut returns = self.returns.lock();
        if returns.len() >= CAPACITY {
            return store.count_lost("permit");
        }
        let left = if is_answered {
            LATE_FOR
        } else {
            LEASE_DURATION
        };
        returns.push(LeaseReturn {
            store: Arc::clone(store),
            lease,
            until: Instant::now() + left,
            is_answered,
        });
    }

    fn take(&self) -> Vec<Queued> {
        let mut queue = self.queue.lock();
        let most = queue.len().min(BATCH_SIZE);
        queue.drain(..most).collect()
    }

    fn has_retries(&self) -> bool {
        !self.returns.lock().is_empty() || !self.unsent.lock().is_empty()
    }

    fn is_idle(&self) -> bool {
        self.queue.lock().is_empty() && !self.is_busy.load(Relaxed)
    }
}

impl Store {
    /// Queues a message of a worker.
    pub(super) fn enqueue(self: &Arc<Self>, worker: usize, message: OutboxMessage) {
        self.outbox(worker).push(self, message);
    }

    /// Starts sending a worker's messages on its runtime. A second call does nothing.
    pub(super) fn start_outbox(self: &Arc<Self>, worker: usize) {
        let outbox = self.outbox(worker);
        if !outbox.is_started.swap(true, AcqRel) {
            let running = OutboxTask(Arc::clone(outbox));
            tokio::spawn(running.run(Arc::downgrade(self), worker));
        }
    }

    /// Waits until a worker's messages are sent, or until this instant.
    pub async fn flush_outbox(&self, worker: usize, until: Instant) {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        let outbox = self.outbox(worker);
        let flushed = async {
            while !outbox.is_idle() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = timeout_at(until, flushed).await;
    }

    /// Sends one batch; returns true if more messages wait.
    async fn send_batch(&self, outbox: &Outbox, worker: usize) -> bool {
        outbox.is_busy.store(true, Relaxed);
        let (batch, commands): (Vec<_>, Vec<_>) = outbox
            .take()
            .into_iter()
            .filter_map(|one| Some((one.message.command(self)?, one)))
            .map(|(command, one)| (one, command))
            .unzip();
        if !batch.is_empty() {
            let answers = self
                .client()
                .batch(Operation::FollowUp, worker, commands)
                .await;
            for (one, answer) in batch.into_iter().zip(answers) {
                let mut unsent = outbox.unsent.lock();
                let is_kept = answer.as_ref().is_err_and(|fault| fault.is_unsent)
                    && !matches!(one.message, OutboxMessage::GiveBack(_))
                    && Instant::now() < one.until
                    && unsent.len() < CAPACITY;
                if is_kept {
                    unsent.push(one);
                } else {
                    drop(unsent);
                    one.store.apply_answer(worker, one.message, answer);
                }
            }
        }
        outbox.is_busy.store(false, Relaxed);
        !outbox.is_idle()
    }

    fn apply_answer(
        self: &Arc<Self>,
        worker: usize,
        message: OutboxMessage,
        answer: Result<Value, Fault>,
    ) {
        match (answer, message) {
            (answer, OutboxMessage::GiveBack(lease)) => {
                if answer.is_err() || lease.is_in_doubt {
                    self.outbox(worker)
                        .return_again(self, lease, answer.is_ok());
                }
            }
            (Err(_), message) => self.count_lost(message.label()),
            (Ok(reply), OutboxMessage::Settle(pending, estimated_now)) => {
                self.apply_settlement(worker, pending, estimated_now, &reply)
            }
            (Ok(_), OutboxMessage::Leave(_) | OutboxMessage::Decided { .. }) => {}
        }
    }

    fn apply_settlement(
        self: &Arc<Self>,
        worker: usize,
        mut pending: Box<PendingSettlement>,
        estimated_now: Timestamp,
        reply: &Value,
    ) {
        let Some(settlement) = pending.settlement() else {
            return self.count_lost("settlement");
        };
        match settlement.read(reply) {
            Ok(SettlementReply::Settled) => self.drift.record_write(&settlement.charge, self.now()),
            // The other quota's window has ended: once more under its own.
            Ok(SettlementReply::Retry(at))
                if pending.converted.is_some() && pending.conversions < MAX_CONVERSIONS =>
            {
                pending.converted = None;
                pending.conversions += 1;
                self.enqueue(worker, OutboxMessage::Settle(pending, at));
            }
            // The calendar period was wrong: once more with the server's.
            Ok(SettlementReply::Retry(at)) if at > estimated_now => {
                self.enqueue(worker, OutboxMessage::Settle(pending, at));
            }
            Ok(SettlementReply::Converted(at, algorithm)) => {
                if pending.convert(at, algorithm) {
                    self.enqueue(worker, OutboxMessage::Settle(pending, at));
                } else {
                    self.count_lost("settlement")
                }
            }
            Ok(SettlementReply::Retry(_)) | Err(_) => self.count_lost("settlement"),
        }
    }

    async fn renew(self: &Arc<Self>, outbox: &Outbox, worker: usize) {
        let leases = outbox.leases.lock().clone().into_iter().collect();
        let renew = |leases: &[LeasedUnits<'_>]| ScriptCall::renew_leases(leases, LEASE_DURATION);
        let op = Operation::Background;
        let answers = self.call_leases(op, worker, leases, |(_, lease)| lease, renew);
        for (leases, answer) in answers.await {
            let lost = answer
                .as_ref()
                .map_or(leases.len(), |reply| count_foreign_keys(reply));
            (0..lost).for_each(|_| self.count_lost("renewal"));
            for (number, lease) in leases.into_iter().filter(|_| answer.is_err()) {
                // The renewal may still run, also after the return.
                match outbox.leases.lock().get_mut(&number) {
                    Some(lease) => lease.is_in_doubt = true,
                    None => outbox.return_again(self, lease, false),
                }
            }
        }
    }

    /// Sends returns again, until Redis has answered for a while or the lease has ended.
    async fn return_leases(&self, outbox: &Outbox, worker: usize) {
        let now = Instant::now();
        let (left, over) = std::mem::take(&mut *outbox.returns.lock())
            .into_iter()
            .partition::<Vec<_>, _>(|one| now < one.until);
        let lost = over.iter().filter(|one| !one.is_answered);
        lost.for_each(|one| one.store.count_lost("permit"));
        let op = Operation::FollowUp;
        let answers = self.call_leases(
            op,
            worker,
            left,
            |one| &one.lease,
            ScriptCall::release_leases,
        );
        for (mut left, answer) in answers.await {
            for one in &mut left {
                if answer.is_ok() && !one.is_answered {
                    one.is_answered = true;
                    one.until = Instant::now() + LATE_FOR;
                }
            }
            outbox.returns.lock().extend(left);
        }
    }

    /// Calls Redis about these leases. Returns those of each call with its answer.
    async fn call_leases<T>(
        &self,
        op: Operation,
        worker: usize,
        mut all: Vec<T>,
        lease: impl Fn(&T) -> &HeldLease,
        call: impl Fn(&[LeasedUnits<'_>]) -> ScriptCall,
    ) -> Vec<(Vec<T>, Result<Value, Fault>)> {
        if all.is_empty() {
            return Vec::new();
        }
        // The keys of one call share a slot.
        let slot = |one: &T| self.slot_of(&lease(one).name);
        all.sort_by_cached_key(slot);
        let slots = all.chunk_by(|one, next| slot(one) == slot(next));
        let chunks = slots.flat_map(|slot| slot.chunks(LEASES_PER_CALL));
        let (lengths, commands): (Vec<_>, Vec<_>) = chunks
            .map(|chunk| {
                let units: Vec<_> = chunk.iter().map(|one| lease(one).units()).collect();
                (chunk.len(), self.command(&call(&units)))
            })
            .unzip();
        let answers = self.client().batch(op, worker, commands).await;
        let mut all = all.into_iter();
        let chunks = lengths
            .into_iter()
            .map(|length| all.by_ref().take(length).collect());
        chunks.zip(answers).collect()
    }
}

impl OutboxMessage {
    /// The label of its loss in the metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::Settle(..) => "settlement",
            Self::Leave(_) => "place",
            Self::GiveBack(_) => "permit",
            Self::Decided { .. } => "decision",
        }
    }

    fn command(&self, store: &Store) -> Option<Command> {
        match self {
            Self::Settle(pending, estimated_now) => {
                let call = pending.settlement()?.script_call(*estimated_now)?;
                Some(store.command(&call))
            }
            Self::Leave(call) => Some(store.command(call)),
            Self::GiveBack(lease) => {
                let call = ScriptCall::release_leases(&[lease.units()]);
                Some(store.command(&call))
            }
            Self::Decided { key, id } => Some(decided(key, id)),
        }
    }
}

/// The command that tells that the request with this id is decided.
pub(super) fn decided(key: &[u8], id: &str) -> Command {
    let mut command = redis::cmd("ZREM");
    command.arg(key).arg(id);
    Command::new(key, command)
}

impl HeldLease {
    fn units(&self) -> LeasedUnits<'_> {
        LeasedUnits {
            name: &self.name,
            id: &self.id,
            units: self.units,
        }
    }
}

impl PendingSettlement {
    /// The settlement of the bucket as it was found last. `None` if its algorithm can't settle.
    fn settlement(&self) -> Option<Settlement<'_>> {
        let made = Settlement {
            charge: BucketCharge {
                algorithm: self.table.algorithm(),
                name: &self.name,
                key: self.key,
                cost: self.reserved.units,
                required: 0,
                kept: 0,
                charged_refusals: ChargedRefusals::None,
                settles: true,
                period: self.period,
                tier: Tier::First,
            },
            reserved: self.reserved,
            units: self.units,
            // Without a charge, nothing is unsettled.
            since: (self.reserved.units > 0).then_some(self.since),
        };
        match &self.converted {
            Some((at, algorithm)) => made.converted(algorithm, *at),
            None => Some(made),
        }
    }

    /// Notes the algorithm that the bucket had at `at`. False if it is not to be tried again.
    fn convert(&mut self, at: Timestamp, algorithm: Box<Algorithm>) -> bool {
        let is_own = algorithm.encode() == self.table.algorithm().encode();
        self.converted = (!is_own).then_some((at, algorithm));
        self.conversions += 1;
        self.conversions <= MAX_CONVERSIONS && self.settlement().is_some()
    }
}

/// The sending task of one worker. It ends with the runtime, or with the store.
struct OutboxTask(Arc<Outbox>);

impl OutboxTask {
    async fn run(self, store: Weak<Store>, worker: usize) {
        let mut next = Instant::now() + RENEWAL_INTERVAL;
        let mut next_retry = Instant::now();
        let mut has_more = false;
        loop {
            if !has_more {
                let until = if self.0.has_retries() {
                    next.min(next_retry)
                } else {
                    next
                };
                let _ = timeout_at(until, self.0.wake.notified()).await;
            }
            let Some(store) = store.upgrade() else { return };
            if Instant::now() >= next_retry {
                store.return_leases(&self.0, worker).await;
                self.0.queue.lock().extend(self.0.unsent.lock().drain(..));
                next_retry = Instant::now() + RETRY_INTERVAL;
            }
            has_more = store.send_batch(&self.0, worker).await;
            // Renewals are on time however many messages wait.
            if Instant::now() >= next {
                store.renew(&self.0, worker).await;
                next = Instant::now() + RENEWAL_INTERVAL;
            }
        }
    }
}

impl Drop for OutboxTask {
    fn drop(&mut self) {
        self.0.is_started.store(false, Release);
    }
}
