//! Exchanges state with other machines, off the path of requests: charges, bans, actions of operators
//! and algorithms. The store runs the same loop for each of these subjects, so that a long round of
//! one delays no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::client::{Command, random};
use super::store::Store;
use super::sync::Synchroniser;
use super::{algorithm_check, bans, steering};
use crate::clock::{Clock, Timestamp};

/// The longest round. The next begins where it ended.
pub(super) const LONGEST_ROUND: Duration = Duration::from_secs(1);

/// A subject that machines exchange through Redis.
#[derive(Debug)]
enum Subject {
    /// Charges to synchronised buckets, at one interval.
    Charges(Arc<Synchroniser>),
    Bans,
    OperatorActions,
    Algorithms,
}

impl Store {
    /// Exchanges all subjects with other machines, without end. Call it on one worker, and again
    /// after a reload. The first rounds of a process begin once the worker is connected, or after
    /// `patience`; those after a reload at a random instant of their interval.
    ///
    /// # Panics
    /// As [`Client::start`](super::client::Client::start).
    pub async fn converse(self: &Arc<Self>, worker: usize, clock: &Arc<Clock>, patience: Duration) {
        let subjects: Vec<_> = self.subjects().collect();
        if subjects.is_empty() {
            return;
        }
        let is_first = !*self.first_round_over.borrow();
        if is_first {
            self.client().start(worker);
            let connected = self.client().connected(worker..worker + 1);
            let _ = timeout(patience, connected).await;
        }
        // A start waits for all but checks.
        let awaited = subjects.iter().filter(|one| !one.is_check()).count();
        let left = Arc::new(AtomicUsize::new(awaited));
        if awaited == 0 {
            self.first_round_over.send_replace(true);
        }
        let mut running = JoinSet::new();
        for subject in subjects {
            let (store, clock, left) = (Arc::clone(self), Arc::clone(clock), Arc::clone(&left));
            running.spawn(async move {
                if is_first || subject.is_check() {
                    store.round(&subject, worker, &clock).await;
                }
                if !subject.is_check() && left.fetch_sub(1, AcqRel) == 1 {
                    store.first_round_over.send_replace(true);
                }
                let mut rounds = RoundTimer::every(subject.interval());
                loop {
                    rounds.begin().await;
                    store.round(&subject, worker, &clock).await;
                }
            });
        }
        while running.join_next().await.is_some() {}
    }

    /// Reports the last charges and bans at the end of the process.
    ///
    /// # Panics
    /// As [`Client::start`](super::client::Client::start).
    pub async fn last_rounds(&self, worker: usize, clock: &Clock) {
        for synchroniser in self.synchronisers() {
            synchroniser.last_round(worker, clock).await;
        }
        self.report_remaining_bans(worker, clock).await;
    }

    /// The subjects that the running policies have.
    fn subjects(&self) -> impl Iterator<Item = Subject> {
        let charges = self.synchronisers().into_iter().map(Subject::Charges);
        let others = [
            (!self.followed_bans().is_empty()).then_some(Subject::Bans),
            self.follows_steering().then_some(Subject::OperatorActions),
            (!self.algorithm_check.is_empty()).then_some(Subject::Algorithms),
        ];
        charges.chain(others.into_iter().flatten())
    }

    async fn round(&self, subject: &Subject, worker: usize, clock: &Clock) {
        match subject {
            Subject::Charges(synchroniser) => synchroniser.round(worker, clock).await,
            Subject::Bans => self.run_ban_round(worker, clock).await,
            Subject::OperatorActions => self.read_announcements(worker, clock).await,
            Subject::Algorithms => self.algorithm_check.compare(worker).await,
        }
    }
}

impl Subject {
    /// Returns true for a check, which each ruleset begins with and nothing waits for.
    const fn is_check(&self) -> bool {
        matches!(self, Self::Algorithms)
    }

    /// The time between the beginnings of two rounds.
    fn interval(&self) -> Duration {
        match self {
            Self::Charges(synchroniser) => synchroniser.interval,
            Self::Bans => bans::INTERVAL,
            Self::OperatorActions => steering::INTERVAL,
            Self::Algorithms => algorithm_check::INTERVAL,
        }
    }
}

/// The command TIME for the server that has this key.
pub(super) fn time(key: impl AsRef<[u8]>) -> Command {
    Command::new(key, redis::cmd("TIME"))
}

/// How far the server's clock is ahead, in microseconds, by its answer to a [`time`] that was sent
/// at `sent`; `None` if that is no time.
pub(super) fn clock_offset(time: Value, sent: Timestamp) -> Option<i64> {
    let (seconds, micros) = redis::from_redis_value::<(i64, i64)>(time).ok()?;
    let server = seconds.saturating_mul(1_000_000).saturating_add(micros);
    let local = i64::try_from(sent.as_micros()).unwrap_or(i64::MAX);
    Some(server.saturating_sub(local))
}

/// A timer of rounds that begin an interval apart, or up to an eighth less, so that machines do not
/// come all at once. A round is skipped if the last is still running.
#[derive(Debug)]
struct RoundTimer {
    interval: Duration,
    next: Instant,
}

impl RoundTimer {
    fn every(interval: Duration) -> Self {
        Self {
            interval,
            next: Instant::now() + random_part_of(interval),
        }
    }

    /// Waits for the next round.
    async fn begin(&mut self) {
        let now = Instant::now();
        while self.next <= now {
            self.next += self.interval - random_part_of(self.interval / 8);
        }
        sleep_until(self.next).await;
    }
}

fn random_part_of(span: Duration) -> Duration {
    span * (random() >> 40) as u32 / (1 << 24)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn announcements_are_read_at_least_every_interval() {
        // The documented second has room for two rounds and a slow answer.
        assert!(steering::INTERVAL * 4 <= Duration::from_secs(1));
        let mut rounds = RoundTimer::every(steering::INTERVAL);
        for round_millis in [0, 1, 249, 250, 251, 700, 0, 0].repeat(20) {
            let ended = Instant::now();
            rounds.begin().await;
            let pause = ended.elapsed();
            assert!(pause <= steering::INTERVAL, "{pause:?} after a round");
            sleep(Duration::from_millis(round_millis)).await;
        }
    }
}
