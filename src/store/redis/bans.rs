//! Bans that many machines share.
//!
//! Each machine counts its own refusals, and bans by them at once. Off the path of requests it
//! reports refused keys to Redis, which bans keys that all machines together refused too often
//! (`script/bans.lua`). It also reads the bans of other machines.

mod report;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use tokio::time::Instant;

use super::client::{Client, Command, Fault, FaultKind, Operation};
use super::exchange::{ForeignKeyWarning, LONGEST_ROUND};
use super::store::Store;
use crate::clock::{Clock, Timestamp};
use crate::limiter::Penalty;
use crate::store::Bans;
use crate::store::memory::BanBatch;
use crate::telemetry::metrics::BanMetrics;

#[cfg(test)]
pub use self::report::AnnouncedBan;
pub use self::report::{BanKeys, BanReply, BanReport};

/// The interval of rounds.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// The most keys of a policy in one call: the server serves other clients in between.
const KEYS_PER_CALL: usize = 32;
/// The most calls of a round for a policy: the bound of the server's load in a flood of refusals.
const MAX_CALLS: usize = 8;

/// The bans of one policy, shared by all machines under its name.
#[derive(Debug)]
pub struct SharedBans {
    client: Arc<Client>,
    names: BanKeys,
    rule: ArcSwap<Penalty>,
    bans: Arc<Bans>,
    metrics: BanMetrics,
    /// The last announcement read; `None` before the first answer.
    read: Mutex<Option<Vec<u8>>>,
    warning: ForeignKeyWarning,
}

impl SharedBans {
    /// Bans by this rule from now on.
    pub fn set_rule(&self, rule: Penalty) {
        self.rule.store(Arc::new(rule));
    }

    /// The keys in Redis of the policy's bans.
    pub(in crate::store) fn names(&self) -> &BanKeys {
        &self.names
    }

    /// The next keys to report.
    fn next_report(&self, now: Timestamp) -> BanBatch<'_> {
        self.bans.take_report(&self.rule.load(), now, KEYS_PER_CALL)
    }

    /// The call that reports these keys and reads new announcements.
    fn command(&self, store: &Store, taken: &BanBatch<'_>, now: Timestamp) -> Command {
        let read = self.read.lock();
        let report = BanReport {
            names: &self.names,
            rule: &self.rule.load(),
            node: self.bans.node(),
            keys: &taken.keys,
            read: read.as_deref().unwrap_or_default(),
            here: now,
            now: None,
        };
        store.command(&report.script_call())
    }

    /// Applies the answer; returns true if there is more to read or to report.
    ///
    /// # Errors
    /// If the report failed, or a part of it.
    fn apply_reply(
        &self,
        taken: BanBatch<'_>,
        answer: Result<Value, Fault>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let reply = BanReply::read(&answer?).map_err(|error| FaultKind::Script.with(error))?;
        taken.confirm();
        let rule = self.rule.load();
        let read = self.read.lock().replace(reply.read.clone());
        let has_forgotten = |read: &Vec<u8>| reply.read.is_empty() && !read.is_empty();
        // The server may never have known the bans that this machine reported before.
        if read.as_ref().is_none_or(has_forgotten) {
            self.bans.report_again(&rule, now);
        }
        for one in &reply.bans {
            let ban = one.ban(now);
            if ban.number == 0 {
                self.bans.lift(one.key);
                continue;
            }
            if self.bans.merge_ban(&rule, one.key, ban, now) && one.is_own {
                self.metrics.banned();
            }
        }
        if let Some(failure) = reply.failure {
            return Err(FaultKind::Script.with(failure));
        }
        self.warning.rearm();
        Ok(Some(reply.read) != read || self.bans.unreported() > 0)
    }
}

impl Store {
    /// The shared bans of the policy with this label, to be [followed](Self::follow_bans). If
    /// `before` has the same bans, it is returned and keeps its rule until [another is
    /// set](SharedBans::set_rule).
    pub fn share_bans(
        &self,
        before: Option<&Arc<SharedBans>>,
        label: &str,
        rule: Penalty,
        bans: &Arc<Bans>,
        metrics: BanMetrics,
    ) -> Arc<SharedBans> {
        let client = self.client();
        let is_same = |before: &&Arc<SharedBans>| {
            Arc::ptr_eq(&before.client, client) && Arc::ptr_eq(&before.bans, bans)
        };
        if let Some(before) = before.filter(is_same) {
            return Arc::clone(before);
        }
        Arc::new(SharedBans {
            client: Arc::clone(client),
            names: BanKeys::new(self.naming(), label),
            rule: ArcSwap::from_pointee(rule),
            bans: Arc::clone(bans),
            metrics,
            read: Mutex::default(),
            warning: ForeignKeyWarning::new("bans cannot be shared"),
        })
    }

    /// Reports all remaining bans and strikes at the end of the process.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub(super) async fn report_remaining_bans(&self, worker: usize, clock: &Clock) {
        let mut before = usize::MAX;
        loop {
            self.run_ban_round(worker, clock).await;
            let followed = self.followed_bans();
            let untold = followed.iter().map(|one| one.bans.unreported()).sum();
            if untold == 0 || untold >= before {
                return;
            }
            before = untold;
        }
    }

    /// Runs one round: reports strikes, and reads bans.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub(super) async fn run_ban_round(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let mut left = self.followed_bans();
        for _ in 0..MAX_CALLS {
            if left.is_empty() || started.elapsed() > LONGEST_ROUND {
                return;
            }
            let now = clock.now();
            let taken: Vec<_> = left.iter().map(|one| one.next_report(now)).collect();
            let commands = left.iter().zip(&taken);
            let commands = commands.map(|(one, taken)| one.command(self, taken, now));
            let answers = self
                .client()
                .batch(Operation::Background, worker, commands.collect())
                .await;
            let now = clock.now();
            let all = left.iter().zip(taken).zip(answers);
            let has_more = all.map(|((one, taken), answer)| {
                let has_more = one.apply_reply(taken, answer, now);
                let has_more = has_more.inspect_err(|fault| one.warning.log(fault));
                has_more.unwrap_or(false).then(|| Arc::clone(one))
            });
            let has_more: Vec<_> = has_more.flatten().collect();
            left = has_more;
        }
    }
}
