//! Memory buckets that many machines charge: decided locally, and synchronised through Redis off
//! the path of requests.
//!
//! Each node reports its total charge to a bucket since the start of an epoch (`epoch`). A repeated
//! or lost report therefore counts nothing twice. Charges of the others are charged locally as soon
//! as they are known, into debt if nothing is left. `docs/redis.md` ("Synchronised") bounds the
//! units that may be admitted beyond a quota meanwhile.

mod epoch;
mod tracked;
mod tracker;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::time::Instant;

use self::tracked::{SyncRequest, Totals};
use self::tracker::SHARDS;
use super::client::{Client, Command, Fault, FaultKind, Operation, Script, ScriptWords, Target};
use super::foreign_key_warning::ForeignKeyWarning;
use super::reply::{ProtocolError, fields, parsed};
use super::rounds::{self, LONGEST_ROUND};
use super::script::SYNC;
use crate::clock::{Clock, Timestamp};
use crate::telemetry::metrics::{RoundResult, SyncMetrics};

pub use self::tracker::{KnownUnits, Tracker};

/// Buckets in one exchange; the worker does other work in between.
const BUCKETS_PER_EXCHANGE: usize = 512;
/// Buckets in one script, if all keys are on one server: it serves other clients in between.
const BUCKETS_PER_CALL: usize = 32;
/// Shards scanned without yielding.
const SHARDS_PER_YIELD: usize = 8;

/// Synchronises the buckets of many policies with other machines, at one interval.
#[derive(Debug)]
pub struct Synchroniser {
    client: Arc<Client>,
    script: Script,
    /// The interval of rounds.
    pub(super) interval: Duration,
    metrics: SyncMetrics,
    /// How far the server's clock is ahead, in microseconds, at the last answer.
    clock_offset: AtomicI64,
    has_server_time: AtomicBool,
    warning: ForeignKeyWarning,
    trackers: Mutex<Vec<Weak<Tracker>>>,
    /// The first shard of the next round.
    next_shard: AtomicUsize,
}

impl Synchroniser {
    /// The longest interval: an epoch has a few of them.
    pub const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

    /// Synchronises every `interval`, at most [`Synchroniser::LONGEST_INTERVAL`].
    pub fn new(client: Arc<Client>, interval: Duration, metrics: SyncMetrics) -> Self {
        Self {
            client,
            script: Script::new(SYNC),
            interval: interval.clamp(Duration::from_millis(1), Self::LONGEST_INTERVAL),
            metrics,
            clock_offset: AtomicI64::new(0),
            has_server_time: AtomicBool::new(false),
            warning: ForeignKeyWarning::default(),
            trackers: Mutex::default(),
            next_shard: AtomicUsize::new(0),
        }
    }

    /// Reports this tracker's charges from the next round on, while somebody else holds it. It
    /// leaves any other synchroniser.
    pub fn follow(&self, tracker: &Arc<Tracker>) {
        tracker.set_interval(self.interval);
        if self.has_server_time.load(Relaxed) {
            tracker.set_clock_offset(self.clock_offset.load(Relaxed));
        }
        let mut trackers = self.trackers.lock();
        let known = Arc::downgrade(tracker);
        if !trackers.iter().any(|other| other.ptr_eq(&known)) {
            trackers.push(known);
        }
    }

    /// True if it has a tracker.
    pub fn is_in_use(&self) -> bool {
        !self.followed().is_empty()
    }

    /// Its trackers that are still alive, and have not gone to another synchroniser.
    fn followed(&self) -> Vec<Arc<Tracker>> {
        let mut followed = Vec::new();
        self.trackers.lock().retain(|tracker| {
            let tracker = tracker.upgrade();
            let is_ours = tracker.filter(|tracker| tracker.interval() == self.interval);
            followed.extend(is_ours.clone());
            is_ours.is_some()
        });
        followed
    }

    /// Reports all remaining charges at the end of the process, when nothing is charged any more.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn last_round(&self, worker: usize, clock: &Clock) {
        for tracker in self.followed() {
            tracker.report_all();
        }
        self.round(worker, clock).await;
    }

    /// Runs one round: reports and reads all that is due, within about a second and the deadline of
    /// a batch.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn round(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let result = self.run_round(worker, clock, started).await;
        self.metrics.record(result, started.elapsed());
    }

    async fn run_round(&self, worker: usize, clock: &Clock, started: Instant) -> RoundResult {
        let trackers = self.followed();
        for tracker in &trackers {
            tracker.begin_round(clock.now());
        }
        if !self.has_server_time.load(Relaxed) && !self.fetch_server_time(worker, clock).await {
            return RoundResult::Failed;
        }
        for tracker in &trackers {
            tracker.set_clock_offset(self.clock_offset.load(Relaxed));
        }
        let places = trackers.len() * SHARDS;
        let mut pending = Vec::new();
        for scanned in 1..=places {
            let place = self.next_shard.fetch_add(1, Relaxed) % places;
            let tracker = &trackers[place / SHARDS];
            let mut requests = Vec::new();
            tracker.due(place % SHARDS, clock.now(), &mut requests);
            pending.extend(requests.into_iter().map(|request| (tracker, request)));
            if pending.len() >= BUCKETS_PER_EXCHANGE || scanned == places {
                if !self.exchange(worker, clock, &pending).await {
                    return RoundResult::Failed;
                }
                pending.clear();
                if started.elapsed() > LONGEST_ROUND && scanned < places {
                    return RoundResult::Cut;
                }
            } else if scanned % SHARDS_PER_YIELD == 0 {
                tokio::task::yield_now().await;
            }
        }
        RoundResult::Ok
    }

    /// Sends these requests; returns true if the store answers anything.
    async fn exchange(&self, worker: usize, clock: &Clock, pending: &[PendingRequest<'_>]) -> bool {
        let Some((_, first)) = pending.first() else {
            return true;
        };
        // In a cluster two buckets share a slot only by chance.
        let call_size = match self.client.spec().target {
            Target::Cluster(_) => 1,
            Target::Single(_) | Target::Sentinel { .. } => BUCKETS_PER_CALL,
        };
        let groups = || {
            pending
                .chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other))
                .flat_map(|of_one| of_one.chunks(call_size))
        };
        let mut commands = vec![rounds::time(&first.name)];
        let call = |group| Command::script(&self.script, &script_words(group));
        commands.extend(groups().map(call));
        let sent = clock.now();
        let answers = self.client.batch(Operation::Background, worker, commands);
        let mut answers = answers.await.into_iter();
        if let Some(Ok(time)) = answers.next() {
            self.record_server_time(time, sent);
        }
        let mut has_answers = false;
        let now = clock.now();
        for (group, answer) in groups().zip(answers) {
            has_answers |= (answer.as_ref().err()).is_none_or(|one| one.kind == FaultKind::Script);
            let result = answer.and_then(|reply| self.apply_reply(group, &reply, now));
            if let Err(fault) = result {
                (self.warning).note(Some(&fault), "buckets cannot be synchronised");
            }
        }
        has_answers
    }

    /// # Errors
    /// If a part of the reply is not about buckets.
    fn apply_reply(
        &self,
        group: &[PendingRequest<'_>],
        reply: &Value,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let fields = fields(reply)?;
        let &[units, failure] = &*fields else {
            return Err(ProtocolError::Malformed.into());
        };
        let mut units = units.split(|byte| *byte == b' ');
        for (tracker, request) in group {
            match units.next().unwrap_or_default() {
                b"-" => {}
                [b'@', at @ ..] => {
                    let at = Timestamp::from_micros(parsed(at)?);
                    tracker.hear_reset(request.key, at);
                }
                units => tracker.apply_totals(request, totals(units)?, now),
            }
        }
        match failure {
            [] => Ok(()),
            why => Err(FaultKind::Script.with(String::from_utf8_lossy(why))),
        }
    }

    /// Reads the server's time: epochs depend on it.
    async fn fetch_server_time(&self, worker: usize, clock: &Clock) -> bool {
        let sent = clock.now();
        let question = vec![rounds::time(&self.client.spec().prefix[..])];
        let answers = self.client.batch(Operation::Background, worker, question);
        for time in answers.await.into_iter().flatten() {
            self.record_server_time(time, sent);
        }
        self.has_server_time.load(Relaxed)
    }

    fn record_server_time(&self, time: Value, sent: Timestamp) {
        if let Some(ahead) = rounds::clock_offset(time, sent) {
            self.clock_offset.store(ahead, Relaxed);
            self.has_server_time.store(true, Relaxed);
        }
    }
}

/// A request, and the tracker that takes the answer.
type PendingRequest<'a> = (&'a Arc<Tracker>, SyncRequest);

/// The call for requests of one tracker, at least one: their names, the tracker's node, the time to
/// live, its total for each bucket, and the last reset of each.
fn script_words(group: &[PendingRequest<'_>]) -> ScriptWords {
    let requests = || group.iter().map(|(_, request)| request);
    let mut words = ScriptWords::default();
    requests().for_each(|request| words.key(&request.name));
    words.text(&group[0].0.node);
    let ttl_millis = requests().map(|request| request.ttl_millis).max();
    words.number(ttl_millis.unwrap_or_default());
    let mut list = |numbers: &mut dyn Iterator<Item = u64>| {
        for number in numbers {
            let mut digits = itoa::Buffer::new();
            let word = words.next_word();
            word.extend_from_slice(digits.format(number).as_bytes());
            word.push(b' ');
        }
        words.bytes(b"");
    };
    list(&mut requests().map(|request| request.own.min(MAX_EXACT_UNITS)));
    list(&mut requests().map(|request| request.reset));
    words
}

/// The bound of exact counts in the script.
const MAX_EXACT_UNITS: u64 = 1 << 48;

/// Reads the totals of one key: `OTHERS,OWN`.
fn totals(units: &[u8]) -> Result<Totals, ProtocolError> {
    let comma = units.iter().position(|byte| *byte == b',');
    let (others, own) = units.split_at(comma.ok_or(ProtocolError::Malformed)?);
    Ok(Totals {
        others: parsed(others)?,
        own: parsed(&own[1..])?,
    })
}

#[cfg(test)]
mod tests;
