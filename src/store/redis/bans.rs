//! Bans that many machines share.
//!
//! Each machine counts its own refusals, and bans by them at once. Off the path of requests it
//! reports refused keys to Redis, which bans keys that all machines together refused too often
//! (`script/bans.lua`). It also reads the bans of other machines.

mod report;

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::client::{Command, Fault, FaultKind};
use super::rounds::LONGEST_ROUND;
use super::store::Store;
use crate::clock::{Clock, Timestamp};
use crate::store::penalties::{BanBatch, Penalties};

pub use self::report::{BanKeys, BanReply, BanReport};

#[cfg(test)]
pub use self::report::AnnouncedBan;

/// The interval of rounds.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// The most keys of a policy in one call: the server serves other clients in between.
const KEYS_PER_CALL: usize = 32;
/// The most calls of a round for a policy: the bound of the server's load in a flood of refusals.
const MAX_CALLS: usize = 8;

impl Store {
    /// Shares the bans of these policies, and no others, from the next round on, while somebody
    /// else still holds them.
    pub fn follow_bans<'a>(&self, policies: impl Iterator<Item = &'a Arc<Penalties>>) {
        let shared = policies.filter(|one| one.is_shared());
        *self.bans.lock() = shared.map(Arc::downgrade).collect();
    }

    pub(super) fn followed_bans(&self) -> Vec<Arc<Penalties>> {
        let bans = self.bans.lock();
        bans.iter().filter_map(Weak::upgrade).collect()
    }

    /// The call that reports these keys of a policy, and reads new announcements.
    fn ban_command(&self, of: &Penalties, taken: &BanBatch<'_>, now: Timestamp) -> Option<Command> {
        let report = BanReport {
            names: &of.shared.as_ref()?.names,
            rule: &of.rule,
            node: of.node(),
            keys: &taken.keys,
            read: &of.last_read(),
            here: now,
        };
        Some(self.command(&report.script_call()))
    }

    /// Reports all remaining bans and strikes at the end of the process.
    ///
    /// # Panics
    /// As [`Client::start`](super::client::Client::start).
    pub(super) async fn report_remaining_bans(&self, worker: usize, clock: &Clock) {
        let mut before = usize::MAX;
        loop {
            self.run_ban_round(worker, clock).await;
            let followed = self.followed_bans();
            let untold = followed.iter().map(|one| one.unreported()).sum();
            if untold == 0 || untold >= before {
                return;
            }
            before = untold;
        }
    }

    /// Runs one round: reports strikes, and reads bans.
    ///
    /// # Panics
    /// As [`Client::start`](super::client::Client::start).
    pub(super) async fn run_ban_round(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let mut left = self.followed_bans();
        for _ in 0..MAX_CALLS {
            if left.is_empty() || started.elapsed() > LONGEST_ROUND {
                return;
            }
            let sent = clock.now();
            let now = sent;
            let reports = left.iter().map(|one| one.take_report(now, KEYS_PER_CALL));
            let taken: Vec<_> = reports.collect();
            let commands = left.iter().zip(&taken);
            let commands = commands.filter_map(|(one, taken)| self.ban_command(one, taken, now));
            let answers = self.background(worker, commands.collect()).await;
            let now = clock.now();
            let all = left.iter().zip(taken).zip(answers);
            let has_more = all.map(|((one, taken), answer)| {
                let has_more = apply_reply(one, taken, answer, (sent, now));
                if let Some(shared) = &one.shared {
                    (shared.warning).note(has_more.as_ref().err(), "bans cannot be shared");
                }
                has_more.unwrap_or(false).then(|| Arc::clone(one))
            });
            let has_more: Vec<_> = has_more.flatten().collect();
            left = has_more;
        }
    }
}

/// Applies the answer to a report that was sent at an instant before now; returns true if there is more to read or to report.
///
/// # Errors
/// If the report failed, or a part of it.
fn apply_reply(
    of: &Penalties,
    taken: BanBatch<'_>,
    answer: Result<Value, Fault>,
    (sent, now): (Timestamp, Timestamp),
) -> Result<bool, Fault> {
    let reply = BanReply::read(&answer?)?;
    taken.confirm();
    let before = of.record_read(&reply.read);
    let has_forgotten = |before: &Vec<u8>| reply.read.is_empty() && !before.is_empty();
    // The server may never have known the bans that this machine reported before.
    if before.as_ref().is_none_or(has_forgotten) {
        of.report_again(now);
    }
    for one in &reply.bans {
        let ban = one.ban(now);
        if ban.number == 0 {
            // The end of such an announcement is the instant of the lifting.
            of.lift_before(one.key, one.ban(sent).until, now);
            continue;
        }
        if of.merge_ban(one.key, ban, now) && one.is_own {
            of.counter.increment();
        }
    }
    match reply.failure {
        Some(failure) => Err(FaultKind::Script.with(failure)),
        None => Ok(Some(reply.read) != before || of.unreported() > 0),
    }
}
