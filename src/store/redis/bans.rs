//! Bans that many machines share.
//!
//! Each machine counts the refusals that it gives, and bans by those at once. Off the path of requests it tells Redis what it knows of
//! those whom it has refused, which bans whom all together have refused too often (`script/bans.lua`), and hears of the bans of the others.

mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use tokio::time::Instant;

use super::client::{Client, Command, Fault, FaultKind};
use super::store::Store;
use super::sync::Rounds;
use crate::clock::{Clock, Timestamp};
use crate::limiter::Penalty;
use crate::store::Bans;
use crate::store::bans::Taken;
use crate::telemetry::metrics::BanMetrics;

pub use self::report::{AnnouncedBan, BanKeys, BanReply, BanReport};

/// How often machines tell and hear of each other.
const INTERVAL: Duration = Duration::from_millis(250);
/// The most keys of a policy that one call tells of: the server serves others in between.
const AT_ONCE: usize = 32;
/// The most calls that a round makes for a policy: so much of the server a flood of refusals can take.
const CALLS: usize = 8;
/// A round that takes longer than this is left to the next.
const LONGEST: Duration = Duration::from_secs(1);

/// The bans of one policy, which all machines share that call it so.
#[derive(Debug)]
pub struct SharedBans {
    client: Arc<Client>,
    names: BanKeys,
    rule: ArcSwap<Penalty>,
    bans: Arc<Bans>,
    metrics: BanMetrics,
    /// The last announcement that was read, once the server has been heard.
    read: Mutex<Option<Vec<u8>>>,
    has_complained: AtomicBool,
}

impl SharedBans {
    /// Bans by this rule from now on.
    pub fn set_rule(&self, rule: Penalty) {
        self.rule.store(Arc::new(rule));
    }

    /// The next keys of which others are to be told.
    fn take(&self, now: Timestamp) -> Taken<'_> {
        self.bans.take(&self.rule.load(), now, AT_ONCE)
    }

    /// What tells of these keys, and asks for what others have announced since.
    fn command(&self, store: &Store, taken: &Taken<'_>, now: Timestamp) -> Command {
        let read = self.read.lock();
        let strikes = BanReport {
            names: &self.names,
            rule: &self.rule.load(),
            node: self.bans.node(),
            keys: &taken.keys,
            read: read.as_deref().unwrap_or_default(),
            here: now,
            now: None,
        };
        store.command(&strikes.ask())
    }

    /// Takes in what came back for these; whether there is more to hear or to tell.
    ///
    /// # Errors
    /// When they are not told, or not all of them.
    fn answered(
        &self,
        taken: Taken<'_>,
        answer: Result<Value, Fault>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let heard =
            BanReply::read(&answer?).map_err(|nonsense| FaultKind::Script.with(nonsense))?;
        taken.are_told();
        let rule = self.rule.load();
        let read = self.read.lock().replace(heard.read.clone());
        let has_forgotten = |read: &Vec<u8>| heard.read.is_empty() && !read.is_empty();
        // It may never have known of those that are known already.
        if read.as_ref().is_none_or(has_forgotten) {
            self.bans.tell_again(&rule, now);
        }
        for one in &heard.bans {
            let ban = one.ban(now);
            if self.bans.hear(&rule, one.key, ban, now) && one.is_own {
                self.metrics.banned();
            }
        }
        if let Some(failure) = heard.failure {
            return Err(FaultKind::Script.with(failure));
        }
        self.has_complained.store(false, Relaxed);
        Ok(Some(heard.read) != read || self.bans.untold() > 0)
    }

    /// Faults of the server are told of by the client; keys that are not ours, once.
    fn complain(&self, fault: &Fault) {
        if fault.kind == FaultKind::Script && !self.has_complained.swap(true, Relaxed) {
            let advice = fault.kind.advice();
            tracing::warn!(advice, "bans cannot be shared: the Redis store {fault}");
        }
    }
}

impl Store {
    /// The bans of a policy that is called so, to be [followed](Self::follow_bans): `before`, if they are the same, which keep their rule until
    /// [another is set](SharedBans::set_rule).
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
            has_complained: AtomicBool::new(false),
        })
    }

    /// Tells and hears of bans every [`INTERVAL`].
    pub(super) async fn share_bans_for_ever(&self, worker: usize, clock: &Clock) {
        let mut rounds = Rounds::every(INTERVAL);
        loop {
            rounds.begin().await;
            self.share_bans_once(worker, clock).await;
        }
    }

    /// Tells of all bans and strikes that were not told yet: to be called when the process ends.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub(super) async fn tell_last_bans(&self, worker: usize, clock: &Clock) {
        let mut before = usize::MAX;
        loop {
            self.share_bans_once(worker, clock).await;
            let followed = self.followed_bans();
            let untold = followed.iter().map(|one| one.bans.untold()).sum();
            if untold == 0 || untold >= before {
                return;
            }
            before = untold;
        }
    }

    /// Tells and hears of bans once.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub(super) async fn share_bans_once(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let mut left = self.followed_bans();
        for _ in 0..CALLS {
            if left.is_empty() || started.elapsed() > LONGEST {
                return;
            }
            let now = clock.now();
            let taken: Vec<_> = left.iter().map(|one| one.take(now)).collect();
            let commands = left.iter().zip(&taken);
            let commands = commands.map(|(one, taken)| one.command(self, taken, now));
            let answers = self.client().batch(worker, commands.collect()).await;
            let now = clock.now();
            let all = left.iter().zip(taken).zip(answers);
            let has_more = all.map(|((one, taken), answer)| {
                let has_more = one.answered(taken, answer, now);
                let has_more = has_more.inspect_err(|fault| one.complain(fault));
                has_more.unwrap_or(false).then(|| Arc::clone(one))
            });
            let has_more: Vec<_> = has_more.flatten().collect();
            left = has_more;
        }
    }
}
