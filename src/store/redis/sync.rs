//! Buckets in memory that many machines charge: decided here, and synchronised through Redis off the path of requests.
//!
//! Each node tells what it has charged to a bucket in all since an epoch began (`epoch`), so that whoever is told twice, or
//! has not answered, counts nothing twice. What the others have charged is charged here as soon as it is known, into debt
//! where nothing is left. `docs/redis.md` ("Synchronised") derives what may be admitted beyond a quota meanwhile.

mod epoch;
mod tracked;
mod tracker;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::time::{Instant, sleep_until};

use self::epoch::Epochs;
use self::tracker::{Question, SHARDS};
use super::client::{Client, Command, Fault, FaultKind, Script, random};
use super::script::SYNC;
use crate::clock::{Clock, Timestamp};
use crate::store::Table;

pub use self::tracker::Tracker;

/// So many buckets are asked about at once; the worker goes on with other things in between.
const AT_ONCE: usize = 512;
/// So many shards are looked through at once.
const LOOKS: usize = 8;
/// A round that takes longer than this is left, and the next begins where it ended.
const LONGEST: Duration = Duration::from_secs(1);

/// Synchronises the buckets of many policies with those of other machines.
#[derive(Debug)]
pub struct Synchroniser {
    client: Arc<Client>,
    script: Script,
    interval: Duration,
    node: Box<str>,
    /// By how many microseconds the server's clock was ahead at the last answer.
    ahead: Arc<AtomicI64>,
    knows_time: AtomicBool,
    /// Whether a message about keys that are not ours was written.
    has_complained: AtomicBool,
    trackers: Mutex<Vec<Weak<Tracker>>>,
    rounds: AtomicU64,
    /// The shard that the next round begins with.
    hand: AtomicUsize,
}

impl Synchroniser {
    /// The longest interval: in an epoch there are a few.
    pub const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

    /// Synchronises every `interval`, at most [`Synchroniser::LONGEST_INTERVAL`]. `node` is this process and no other, not
    /// even an earlier one on this machine: a random number.
    pub fn new(client: Arc<Client>, interval: Duration, node: u64) -> Self {
        Self {
            client,
            script: Script::new(SYNC),
            interval: interval.clamp(Duration::from_millis(1), Self::LONGEST_INTERVAL),
            node: format!("{node:016x}").into(),
            ahead: Arc::default(),
            knows_time: AtomicBool::new(false),
            has_complained: AtomicBool::new(false),
            trackers: Mutex::default(),
            rounds: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    /// What notes the charges to a table, as long as somebody has it; `None` for algorithms whose buckets machines cannot
    /// charge for each other ([`Algorithm::can_charge_elsewhere`](crate::limiter::Algorithm::can_charge_elsewhere)).
    ///
    /// The label tells the tables of a configuration apart. Who comes with a label that somebody still has, and epochs of the
    /// same length, gets the same tracker, with all that it knows: to be called when the table takes the other's
    /// [place](Table::replaced_by).
    pub fn track(&self, label: &str, table: Arc<Table>) -> Option<Arc<Tracker>> {
        let epochs = Epochs::of(table.algorithm())?;
        let mut trackers = self.trackers.lock();
        trackers.retain(|tracker| tracker.strong_count() > 0);
        let is_same =
            |tracker: &Arc<Tracker>| tracker.label() == label && tracker.epochs() == epochs;
        if let Some(tracker) = trackers.iter().filter_map(Weak::upgrade).find(is_same) {
            tracker.set_table(table);
            return Some(tracker);
        }
        let ahead = Arc::clone(&self.ahead);
        let tracker = Arc::new(Tracker::new(label, epochs, table, ahead));
        trackers.push(Arc::downgrade(&tracker));
        Some(tracker)
    }

    /// Synchronises for ever, on this worker's connection; to be spawned once, on its runtime.
    ///
    /// Rounds begin an interval apart, or up to an eighth of it less, so that machines do not come all at the same instant; one
    /// that would begin before the last has ended is left out.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn run(&self, worker: usize, clock: &Clock) {
        let mut next = Instant::now() + self.part_of(self.interval);
        loop {
            sleep_until(next).await;
            self.round(worker, clock).await;
            let now = Instant::now();
            while next <= now {
                next += self.interval - self.part_of(self.interval / 8);
            }
        }
    }

    /// Tells and asks once all that is due, within about a second and the deadline of a batch; also to be called when the
    /// process ends, for what was charged last.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn round(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let round = self.rounds.fetch_add(1, Relaxed);
        if !self.knows_time.load(Relaxed) && !self.learn_time(worker, clock).await {
            return;
        }
        let trackers: Vec<_> = self
            .trackers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let places = trackers.len() * SHARDS;
        let mut asked = Vec::new();
        for looked in 1..=places {
            let place = self.hand.fetch_add(1, Relaxed) % places;
            let tracker = &trackers[place / SHARDS];
            let mut questions = Vec::new();
            tracker.due(place % SHARDS, round, clock.now(), &mut questions);
            asked.extend(questions.into_iter().map(|question| (tracker, question)));
            if asked.len() >= AT_ONCE || looked == places {
                let are_answered = self.ask(worker, clock, round, &asked).await;
                asked.clear();
                if !are_answered || started.elapsed() > LONGEST {
                    return;
                }
            } else if looked % LOOKS == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether the store answers anything.
    async fn ask(
        &self,
        worker: usize,
        clock: &Clock,
        round: u64,
        asked: &[(&Arc<Tracker>, Question)],
    ) -> bool {
        let Some((_, first)) = asked.first() else {
            return true;
        };
        let mut commands = vec![time(&first.name)];
        commands.extend(asked.iter().map(|(_, question)| self.command(question)));
        let sent = clock.now();
        let mut answers = self.client.batch(worker, commands).await.into_iter();
        if let Some(Ok(time)) = answers.next() {
            self.note_time(time, sent);
        }
        let mut are_answered = false;
        let now = clock.now();
        for ((tracker, question), answer) in asked.iter().zip(answers) {
            are_answered |= is_answer(&answer);
            match answer.map(redis::from_redis_value) {
                Ok(Ok(others)) => tracker.answered(question, others, round, now),
                Ok(Err(_)) => {}
                Err(fault) => self.complain(&fault),
            }
        }
        are_answered
    }

    fn command(&self, question: &Question) -> Command {
        let (own, lasts) = (
            question.own.min(MOST_UNITS).to_string(),
            question.lasts.to_string(),
        );
        Command::script(
            &self.script,
            &[&question.name],
            &[&*self.node, &own, &lasts],
        )
    }

    /// Epochs are the server's: without its time nothing is told.
    async fn learn_time(&self, worker: usize, clock: &Clock) -> bool {
        let sent = clock.now();
        let answers = self.client.batch(worker, vec![time(&*self.node)]).await;
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

    /// Any part of it.
    fn part_of(&self, span: Duration) -> Duration {
        span * (random() >> 40) as u32 / (1 << 24)
    }
}

/// Beyond this a script no longer counts exactly.
const MOST_UNITS: u64 = 1 << 48;

/// Asks for the time of the server that has this key.
fn time(key: impl AsRef<[u8]>) -> Command {
    Command::new(key, redis::cmd("TIME"))
}

/// Whether the server said anything.
fn is_answer(answer: &Result<Value, Fault>) -> bool {
    answer
        .as_ref()
        .map_or_else(|fault| fault.kind == FaultKind::Script, |_| true)
}

#[cfg(test)]
mod tests;
