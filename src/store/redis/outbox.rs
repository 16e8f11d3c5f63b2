//! Messages to Redis off the path of requests: settlements, abandoned queue places, and leases of
//! units in use, which are renewed and returned.
//!
//! Each worker sends its own messages, one batch after the other, so that a request's messages
//! follow its charge. Messages that could not be sent are kept, and returns of leases, which
//! name them, are repeated. Lost messages are counted; their charges stand as made, or expire.

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
use super::follow_up::{HeldLease, Settlement, SettlementReply, count_foreign_keys};
use super::script_call::{BucketCharge, LEASE_DURATION, ScriptCall};
use super::store::Store;
use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::limiter::bucket::ReservedCharge;
use crate::store::Table;

/// The interval of renewals: three may fail before a lease expires.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(2_500);
/// The interval at which messages are sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How long a return is repeated once Redis answers: what it got before it stood still may run later
/// than what comes over another connection.
const LATE_FOR: Duration = Duration::from_secs(1);
/// The most messages of a worker that wait. Further ones are lost.
const CAPACITY: usize = 16_384;
/// The most messages of a batch.
const BATCH_SIZE: usize = 256;
/// The most leases that one call renews.
const LEASES_PER_CALL: usize = 64;
/// The queue of one worker.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<VecDeque<QueuedMessage>>,
    /// Messages to send again, at most [`CAPACITY`].
    later: Mutex<Vec<QueuedMessage>>,
    wake: Notify,
    /// True while a batch is under way.
    is_busy: AtomicBool,
    is_started: AtomicBool,
    /// Leases that are renewed, by a number of their own.
    leases: Mutex<HashMap<u64, HeldLease>>,
    /// Some renewal has no answer, and may still run.
    are_renewals_in_doubt: AtomicBool,
    next: AtomicU64,
}

/// A message that waits.
#[derive(Debug)]
struct QueuedMessage {
    store: Arc<Store>,
    message: OutboxMessage,
    /// The end of its repetitions.
    until: Instant,
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

/// A bucket in Redis that a worker has charged.
#[derive(Clone, Debug)]
pub struct ChargedBucket {
    /// The store of the bucket.
    pub store: Arc<Store>,
    /// The worker whose connection is used.
    pub worker: usize,
    /// The table with the bucket's algorithm.
    pub table: Arc<Table>,
    /// The bucket's name.
    pub name: Box<[u8]>,
    /// The bucket's key.
    pub key: Fingerprint,
    /// The units of the charge.
    pub cost: u32,
    /// The start and end of a window, if the request decides them.
    pub period: Option<(Timestamp, Timestamp)>,
}

/// A settlement that waits.
#[derive(Debug)]
pub(super) struct PendingSettlement {
    pub(super) bucket: ChargedBucket,
    pub(super) reserved: ReservedCharge,
    /// The start of the count of unsettled units; `None` if nothing was charged.
    pub(super) since: Option<Timestamp>,
    pub(super) units: u32,
}

impl Outbox {
    fn push(&self, store: &Arc<Store>, message: OutboxMessage) {
        let mut queue = self.queue.lock();
        if queue.len() >= CAPACITY {
            return store.metrics.count_lost(message.label());
        }
        queue.push_back(QueuedMessage {
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

    /// Ends the renewals of a lease. Returns true if one of them may still run.
    pub(super) fn stop_renewing(&self, number: u64) -> bool {
        self.leases.lock().remove(&number);
        self.are_renewals_in_doubt.load(Relaxed)
    }

    fn take(&self) -> Vec<QueuedMessage> {
        let mut queue = self.queue.lock();
        let most = queue.len().min(BATCH_SIZE);
        queue.drain(..most).collect()
    }

    fn is_idle(&self) -> bool {
        self.queue.lock().is_empty() && !self.is_busy.load(Relaxed)
    }
}

impl Store {
    /// Queues a message of a worker.
    pub(super) fn enqueue(self: &Arc<Self>, worker: usize, message: OutboxMessage) {
        self.outboxes[worker].push(self, message);
    }

    /// Starts sending a worker's messages on its runtime. A second call does nothing.
    pub(super) fn start_outbox(self: &Arc<Self>, worker: usize) {
        let outbox = &self.outboxes[worker];
        if !outbox.is_started.swap(true, AcqRel) {
            let running = OutboxTask(Arc::clone(outbox));
            tokio::spawn(running.run(Arc::downgrade(self), worker));
        }
    }

    /// Waits until a worker's messages are sent, or until this instant.
    pub async fn flush_outbox(&self, worker: usize, until: Instant) {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        let outbox = &self.outboxes[worker];
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
        let messages = outbox.take().into_iter();
        let (commands, batch): (Vec<_>, Vec<_>) = messages
            .filter_map(|one| Some((one.message.command(self)?, one)))
            .unzip();
        if !batch.is_empty() {
            let answers = self.client().batch(Operation::FollowUp, worker, commands);
            let answers = answers.await;
            for (mut one, answer) in batch.into_iter().zip(answers) {
                if one.is_repeated_after(&answer) && outbox.later.lock().len() < CAPACITY {
                    outbox.later.lock().push(one);
                } else {
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
        let label = message.label();
        let reply = match (answer, message) {
            (Ok(reply), OutboxMessage::Settle(pending, sent_for)) => {
                SettlementReply::read(&reply).map(|reply| (reply, pending, sent_for))
            }
            (Ok(_), _) => return,
            (Err(_), _) => return self.metrics.count_lost(label),
        };
        match reply {
            Ok((SettlementReply::Settled, ..)) => {}
            // The calendar period was wrong: once more with the server's.
            Ok((SettlementReply::Retry(at), pending, sent_for)) if at > sent_for => {
                self.enqueue(worker, OutboxMessage::Settle(pending, at));
            }
            Ok(_) | Err(_) => self.metrics.count_lost(label),
        }
    }

    async fn renew(&self, outbox: &Outbox, worker: usize) {
        let mut lease: Vec<_> = outbox.leases.lock().values().cloned().collect();
        outbox
            .are_renewals_in_doubt
            .store(!lease.is_empty(), Relaxed);
        if lease.is_empty() {
            return;
        }
        // The keys of one call share a slot.
        lease.sort_by_cached_key(|lease| self.slot_of(&lease.name));
        let calls = lease.chunk_by(|one, next| self.slot_of(&one.name) == self.slot_of(&next.name));
        let calls: Vec<_> = calls
            .flat_map(|slot| slot.chunks(LEASES_PER_CALL))
            .collect();
        let commands = calls
            .iter()
            .map(|lease| self.command(&ScriptCall::leases(lease, Some(LEASE_DURATION))));
        let answers = self.background(worker, commands.collect()).await;
        let is_in_doubt = answers.iter().any(Result::is_err);
        outbox.are_renewals_in_doubt.store(is_in_doubt, Relaxed);
        for (lease, answer) in calls.into_iter().zip(answers) {
            let lost = answer.map_or(lease.len(), |reply| count_foreign_keys(&reply));
            (0..lost).for_each(|_| self.metrics.count_lost("renewal"));
        }
    }
}

impl QueuedMessage {
    /// True if it is sent again: if it has not reached Redis, or returns a lease that a call without an
    /// answer may take later.
    fn is_repeated_after(&mut self, answer: &Result<Value, Fault>) -> bool {
        let now = Instant::now();
        let is_repeated = match (&mut self.message, answer) {
            (OutboxMessage::GiveBack(lease), Ok(_)) => {
                self.until = self.until.min(now + LATE_FOR);
                lease.is_in_doubt
            }
            (OutboxMessage::GiveBack(lease), Err(_)) => {
                lease.is_in_doubt = true;
                true
            }
            (_, answer) => answer.as_ref().is_err_and(|fault| fault.is_unsent),
        };
        is_repeated && now < self.until
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
                let settlement = Settlement {
                    charge: pending.bucket.charge(),
                    reserved: pending.reserved,
                    units: pending.units,
                    since: pending.since,
                };
                Some(store.command(&settlement.script_call(*estimated_now)?))
            }
            Self::Leave(call) => Some(store.command(call)),
            Self::GiveBack(lease) => {
                Some(store.command(&ScriptCall::leases(std::slice::from_ref(lease), None)))
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

impl ChargedBucket {
    /// The charge as it was made.
    pub(super) fn charge(&self) -> BucketCharge<'_> {
        BucketCharge {
            period: self.period,
            ..BucketCharge::new(self.table.algorithm(), &self.name, self.key, self.cost)
        }
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
                let is_waiting = !self.0.later.lock().is_empty();
                let until = if is_waiting { next_retry } else { next };
                let _ = timeout_at(until, self.0.wake.notified()).await;
            }
            let Some(store) = store.upgrade() else { return };
            if Instant::now() >= next_retry {
                self.0.queue.lock().extend(self.0.later.lock().drain(..));
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
