//! Bans that many machines share.
//!
//! Each machine counts the refusals that it gives, and bans by those at once. Off the path of requests it tells Redis of them,
//! which bans whom all together have refused too often (`script/bans.lua`), and hears of the bans of the others. What could
//! not be told is told again as long as it counts.

mod asked;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use tokio::time::Instant;

use super::client::{Client, Command, Fault, FaultKind, random};
use super::store::Store;
use super::sync::Rounds;
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Ban, Fingerprint, Penalty, Strike};
use crate::store::Bans;
use crate::telemetry::metrics::BanMetrics;

pub use self::asked::{Announced, BanNames, Heard, Strikes, Struck};

/// How often machines tell and hear of each other.
const INTERVAL: Duration = Duration::from_millis(250);
/// The most strikes of a policy that wait to be told. What comes beyond is lost for the others.
const MOST: usize = 16_384;
/// The most that one call tells of a policy.
const AT_ONCE: usize = 64;
/// A round that takes longer than this is left to the next.
const LONGEST: Duration = Duration::from_secs(1);

/// The bans of one policy, which all machines share that call it so.
#[derive(Debug)]
pub struct SharedBans {
    client: Arc<Client>,
    names: BanNames,
    rule: ArcSwap<Penalty>,
    bans: Arc<Bans>,
    metrics: BanMetrics,
    /// What no other machine has in the ids of its strikes, and how many there were here.
    node: u64,
    strikes: AtomicU64,
    untold: Mutex<VecDeque<Struck>>,
    /// The last announcement that was read.
    read: Mutex<Vec<u8>>,
    has_complained: AtomicBool,
}

impl SharedBans {
    fn new(
        client: Arc<Client>,
        names: BanNames,
        rule: Penalty,
        bans: Arc<Bans>,
        metrics: BanMetrics,
    ) -> Self {
        Self {
            client,
            names,
            rule: ArcSwap::from_pointee(rule),
            bans,
            metrics,
            node: random(),
            strikes: AtomicU64::new(0),
            untold: Mutex::default(),
            read: Mutex::default(),
            has_complained: AtomicBool::new(false),
        }
    }

    /// Has the others told of a strike that this machine has counted.
    pub fn note(&self, key: Fingerprint, strike: Strike) {
        let mut untold = self.untold.lock();
        if untold.len() >= MOST {
            return self.client.lost("strike");
        }
        let id = (self.node, self.strikes.fetch_add(1, Relaxed));
        untold.push_back(Struck { key, id, strike });
    }

    /// The next strikes to tell, but for those that count no longer.
    fn take(&self, now: Timestamp) -> Vec<Struck> {
        let (_, within) = self.rule.load().strikes();
        let mut untold = self.untold.lock();
        untold.retain(|struck| now < counts_until(&struck.strike, within));
        let most = untold.len().min(AT_ONCE);
        untold.drain(..most).collect()
    }

    /// What tells of these, and asks for what others have announced since.
    fn command(&self, store: &Store, strikes: &[Struck], now: Timestamp) -> Command {
        let strikes = Strikes {
            names: &self.names,
            rule: &self.rule.load(),
            strikes,
            read: &self.read.lock(),
            here: now,
            now: None,
        };
        store.command(&strikes.ask())
    }

    /// Takes in what came back for these; whether there is more to hear or to tell at once.
    ///
    /// # Errors
    /// When they are not told, or not all of them.
    fn answered(
        &self,
        told: Vec<Struck>,
        answer: Result<Value, Fault>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let reply = answer.inspect_err(|_| self.take_back(told))?;
        let heard = Heard::read(&reply).map_err(|nonsense| FaultKind::Script.with(nonsense))?;
        let rule = self.rule.load();
        for one in &heard.bans {
            let ban = Ban {
                number: one.number,
                until: now.saturating_add(one.left),
            };
            if self.bans.hear(&rule, one.key, ban, now) && one.is_own {
                self.metrics.banned();
            }
        }
        let read = std::mem::replace(&mut *self.read.lock(), heard.read.clone());
        let has_more = heard.read != read || !self.untold.lock().is_empty();
        match heard.failure {
            None => Ok(has_more),
            Some(failure) => Err(FaultKind::Script.with(failure)),
        }
    }

    /// Tells them again, before all others. Those that it makes too many are lost.
    fn take_back(&self, told: Vec<Struck>) {
        let mut untold = self.untold.lock();
        for one in told.into_iter().rev() {
            match untold.len() < MOST {
                true => untold.push_front(one),
                false => self.client.lost("strike"),
            }
        }
    }

    /// Faults of the server are told of by the client; keys that are not ours, once.
    fn complain(&self, fault: &Fault) {
        if fault.kind == FaultKind::Script && !self.has_complained.swap(true, Relaxed) {
            let advice = fault.kind.advice();
            tracing::warn!(advice, "bans cannot be shared: the Redis store {fault}");
        }
    }
}

/// Until when it matters to others: as a strike, or for the ban that it brought about here.
fn counts_until(strike: &Strike, within: Duration) -> Timestamp {
    let until = strike.until.unwrap_or_default();
    strike.at.saturating_add(within).max(until)
}

impl Store {
    /// The bans of a policy that is called so, which are shared from the next round on, as long as somebody has them: `before`, if
    /// they are the same, by this rule.
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
            before.rule.store(Arc::new(rule));
            return Arc::clone(before);
        }
        let names = BanNames::new(self.naming(), label);
        let bans = Arc::clone(bans);
        let new = Arc::new(SharedBans::new(
            Arc::clone(client),
            names,
            rule,
            bans,
            metrics,
        ));
        self.follow_bans(&new);
        new
    }

    /// Tells and hears of bans every [`INTERVAL`].
    pub(super) async fn share_bans_for_ever(&self, worker: usize, clock: &Clock) {
        let mut rounds = Rounds::every(INTERVAL);
        loop {
            rounds.begin().await;
            self.share_bans_once(worker, clock).await;
        }
    }

    /// Tells and hears of bans once.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub(super) async fn share_bans_once(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let mut left = self.followed_bans();
        while !left.is_empty() && started.elapsed() < LONGEST {
            let now = clock.now();
            let told: Vec<_> = left.iter().map(|bans| bans.take(now)).collect();
            let commands = left.iter().zip(&told);
            let commands = commands.map(|(bans, told)| bans.command(self, told, now));
            let answers = self.client().batch(worker, commands.collect()).await;
            let now = clock.now();
            let all = left.into_iter().zip(told).zip(answers);
            let has_more = all.map(|((bans, told), answer)| {
                let has_more = bans.answered(told, answer, now);
                let has_more = has_more.inspect_err(|fault| bans.complain(fault));
                has_more.unwrap_or(false).then_some(bans)
            });
            left = has_more.flatten().collect();
        }
    }
}
