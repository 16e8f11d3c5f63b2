//! Buckets in memory that many machines charge: decided here, and synchronised through Redis off the path of requests.
//!
//! Each node tells what it has charged to a bucket in all since an epoch began (`epoch`), so that whoever is told twice, or
//! has not answered, counts nothing twice. What the others have charged is charged here as soon as it is known, into debt
//! where nothing is left. `docs/redis.md` ("Synchronised") derives what may be admitted beyond a quota meanwhile.

mod epoch;
mod pending_report;
mod tracked;
mod tracker;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{RedisWrite, ToRedisArgs, Value};
use tokio::time::{Instant, sleep_until};

use self::tracked::Totals;
use self::tracker::{SHARDS, SyncRequest};
use super::client::{Client, Command, Fault, FaultKind, Script, Target, random};
use super::reply::{ProtocolError, fields, number};
use super::script::SYNC;
use crate::clock::{Clock, Timestamp};
use crate::telemetry::metrics::{RoundResult, SyncMetrics};

pub use self::pending_report::PendingReport;
pub use self::tracker::Tracker;

/// So many buckets are asked about at once; the worker goes on with other things in between.
const AT_ONCE: usize = 512;
/// So many are told of in one script, where all keys are on one server: it serves others in between.
const TOGETHER: usize = 32;
/// So many shards are looked through at once.
const LOOKS: usize = 8;
/// A round that takes longer than this is left, and the next begins where it ended.
const LONGEST: Duration = Duration::from_secs(1);

/// Synchronises the buckets of many policies with those of other machines, all of them so often.
#[derive(Debug)]
pub struct Synchroniser {
    client: Arc<Client>,
    script: Script,
    interval: Duration,
    metrics: SyncMetrics,
    /// By how many microseconds the server's clock was ahead at the last answer.
    ahead: AtomicI64,
    knows_time: AtomicBool,
    /// Whether a message about keys that are not ours was written.
    has_complained: AtomicBool,
    trackers: Mutex<Vec<Weak<Tracker>>>,
    /// The shard that the next round begins with.
    hand: AtomicUsize,
}

impl Synchroniser {
    /// The longest interval: in an epoch there are a few.
    pub const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

    /// Synchronises every `interval`, at most [`Synchroniser::LONGEST_INTERVAL`].
    pub fn new(client: Arc<Client>, interval: Duration, metrics: SyncMetrics) -> Self {
        Self {
            client,
            script: Script::new(SYNC),
            interval: interval.clamp(Duration::from_millis(1), Self::LONGEST_INTERVAL),
            metrics,
            ahead: AtomicI64::new(0),
            knows_time: AtomicBool::new(false),
            has_complained: AtomicBool::new(false),
            trackers: Mutex::default(),
            hand: AtomicUsize::new(0),
        }
    }

    /// Tells what this tracker notes from the next round on, as long as somebody has it. Nobody else does so any more.
    pub fn follow(&self, tracker: &Arc<Tracker>) {
        tracker.set_interval(self.interval);
        if self.knows_time.load(Relaxed) {
            tracker.set_ahead(self.ahead.load(Relaxed));
        }
        let mut trackers = self.trackers.lock();
        let known = Arc::downgrade(tracker);
        if !trackers.iter().any(|other| other.ptr_eq(&known)) {
            trackers.push(known);
        }
    }

    /// How often it does.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Whether it follows anybody.
    pub fn is_in_use(&self) -> bool {
        !self.followed().is_empty()
    }

    /// Those who are still there, and are not followed by another.
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

    /// Synchronises for ever, on this worker's connection; to be spawned once, on its runtime.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn run(&self, worker: usize, clock: &Clock) {
        let mut rounds = Rounds::every(self.interval);
        loop {
            rounds.begin().await;
            self.round(worker, clock).await;
        }
    }

    /// Tells all that was not told yet: to be called when the process ends, and nothing is charged any more.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn last_round(&self, worker: usize, clock: &Clock) {
        for tracker in self.followed() {
            tracker.tell_all();
        }
        self.round(worker, clock).await;
    }

    /// Tells and asks once all that is due, within about a second and the deadline of a batch.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn round(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let result = self.look_around(worker, clock, started).await;
        self.metrics.record(result, started.elapsed());
    }

    async fn look_around(&self, worker: usize, clock: &Clock, started: Instant) -> RoundResult {
        let trackers = self.followed();
        for tracker in &trackers {
            tracker.begin_round(clock.now());
        }
        if !self.knows_time.load(Relaxed) && !self.learn_time(worker, clock).await {
            return RoundResult::Failed;
        }
        for tracker in &trackers {
            tracker.set_ahead(self.ahead.load(Relaxed));
        }
        let places = trackers.len() * SHARDS;
        let mut asked = Vec::new();
        for looked in 1..=places {
            let place = self.hand.fetch_add(1, Relaxed) % places;
            let tracker = &trackers[place / SHARDS];
            let mut questions = Vec::new();
            tracker.due(place % SHARDS, clock.now(), &mut questions);
            asked.extend(questions.into_iter().map(|question| (tracker, question)));
            if asked.len() >= AT_ONCE || looked == places {
                if !self.ask(worker, clock, &asked).await {
                    return RoundResult::Failed;
                }
                asked.clear();
                if started.elapsed() > LONGEST && looked < places {
                    return RoundResult::Cut;
                }
            } else if looked % LOOKS == 0 {
                tokio::task::yield_now().await;
            }
        }
        RoundResult::Ok
    }

    /// Whether the store answers anything.
    async fn ask(&self, worker: usize, clock: &Clock, asked: &[PendingRequest<'_>]) -> bool {
        let Some((_, first)) = asked.first() else {
            return true;
        };
        // In a cluster no two buckets share a slot, but by chance.
        let together = match self.client.spec().target {
            Target::Cluster(_) => 1,
            Target::Single(_) | Target::Sentinel { .. } => TOGETHER,
        };
        let groups = || {
            asked
                .chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other))
                .flat_map(|of_one| of_one.chunks(together))
        };
        let mut commands = vec![time(&first.name)];
        commands.extend(groups().map(|group| self.command(group)));
        let sent = clock.now();
        let mut answers = self.client.batch(worker, commands).await.into_iter();
        if let Some(Ok(time)) = answers.next() {
            self.note_time(time, sent);
        }
        let mut are_answered = false;
        let now = clock.now();
        for (group, answer) in groups().zip(answers) {
            are_answered |= is_answer(&answer);
            let told = answer.and_then(|reply| self.answered(group, &reply, now));
            if let Err(fault) = told {
                self.complain(&fault);
            }
        }
        are_answered
    }

    fn command(&self, group: &[PendingRequest<'_>]) -> Command {
        let names: Vec<_> = group.iter().map(|(_, question)| &question.name).collect();
        Command::script(&self.script, &names, &[SyncArguments(group)])
    }

    /// # Errors
    /// When not all of the reply is about buckets.
    fn answered(
        &self,
        group: &[PendingRequest<'_>],
        reply: &Value,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let malformed = |nonsense: ProtocolError| FaultKind::Script.with(nonsense);
        let fields = fields(reply).map_err(malformed)?;
        let &[units, failure] = &*fields else {
            return Err(malformed(ProtocolError::Malformed));
        };
        let mut units = units.split(|byte| *byte == b' ');
        for (tracker, question) in group {
            match units.next().unwrap_or_default() {
                b"-" => {}
                units => tracker.answered(question, totals(units).map_err(malformed)?, now),
            }
        }
        match failure {
            [] => Ok(()),
            why => Err(FaultKind::Script.with(String::from_utf8_lossy(why))),
        }
    }

    /// Epochs are the server's: without its time nothing is told.
    async fn learn_time(&self, worker: usize, clock: &Clock) -> bool {
        let sent = clock.now();
        let answers = self
            .client
            .batch(worker, vec![time(&self.client.spec().prefix[..])])
            .await;
        for time in answers.into_iter().flatten() {
            self.note_time(time, sent);
        }
        self.knows_time.load(Relaxed)
    }

    /// Faults of the server are told of by the client; keys that are not ours, once.
    fn complain(&self, fault: &Fault) {
        if fault.kind == FaultKind::Script && !self.has_complained.swap(true, Relaxed) {
            let advice = fault.kind.advice();
            tracing::warn!(
                advice,
                "buckets cannot be synchronised: the Redis store {fault}"
            );
        }
    }

    fn note_time(&self, time: Value, sent: Timestamp) {
        if let Ok((seconds, micros)) = redis::from_redis_value::<(i64, i64)>(time) {
            let there = seconds.saturating_mul(1_000_000).saturating_add(micros);
            let here = i64::try_from(sent.as_micros()).unwrap_or(i64::MAX);
            self.ahead.store(there.saturating_sub(here), Relaxed);
            self.knows_time.store(true, Relaxed);
        }
    }
}

/// Rounds that begin an interval apart, or up to an eighth of it less, so that machines do not come all at the same instant. One
/// that would begin before the last has ended is left out.
#[derive(Debug)]
pub(super) struct Rounds {
    interval: Duration,
    next: Instant,
}

impl Rounds {
    pub(super) fn every(interval: Duration) -> Self {
        Self {
            interval,
            next: Instant::now() + any_part_of(interval),
        }
    }

    /// Waits until the next begins.
    pub(super) async fn begin(&mut self) {
        let now = Instant::now();
        while self.next <= now {
            self.next += self.interval - any_part_of(self.interval / 8);
        }
        sleep_until(self.next).await;
    }
}

fn any_part_of(span: Duration) -> Duration {
    span * (random() >> 40) as u32 / (1 << 24)
}

/// What is asked, and who hears the answer.
type PendingRequest<'a> = (&'a Arc<Tracker>, SyncRequest);

/// What is told with the questions of one tracker: its node, for how long that is of interest, and what it has charged to each bucket.
struct SyncArguments<'a>(&'a [PendingRequest<'a>]);

impl ToRedisArgs for SyncArguments<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let Some((tracker, _)) = self.0.first() else {
            return;
        };
        let questions = || self.0.iter().map(|(_, question)| question);
        let lasts = questions().map(|question| question.lasts).max();
        let mut units = Vec::with_capacity(self.0.len() * 4);
        for question in questions() {
            let own = question.own.min(MOST_UNITS);
            units.extend_from_slice(itoa::Buffer::new().format(own).as_bytes());
            units.push(b' ');
        }
        tracker.node().write_redis_args(out);
        lasts.unwrap_or_default().write_redis_args(out);
        out.write_arg(&units);
    }
}

/// Beyond this a script no longer counts exactly.
const MOST_UNITS: u64 = 1 << 48;

/// Asks for the time of the server that has this key.
fn time(key: impl AsRef<[u8]>) -> Command {
    Command::new(key, redis::cmd("TIME"))
}

/// The totals of one key: `OTHERS,OWN`.
fn totals(units: &[u8]) -> Result<Totals, ProtocolError> {
    let comma = units.iter().position(|byte| *byte == b',');
    let (others, own) = units.split_at(comma.ok_or(ProtocolError::Malformed)?);
    Ok(Totals {
        others: number(others)?,
        own: number(&own[1..])?,
    })
}

/// Whether the server said anything.
fn is_answer(answer: &Result<Value, Fault>) -> bool {
    answer
        .as_ref()
        .map_or_else(|fault| fault.kind == FaultKind::Script, |_| true)
}

#[cfg(test)]
mod tests;
