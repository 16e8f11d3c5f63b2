//! Bans of keys that keep asking after refusals.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::redis::{BanKeys, Naming, SharedBans};
use super::snapshot::PolicyBans;
use super::{Bans, Store};
use crate::clock::Timestamp;
use crate::limiter::{Ban, Fingerprint, Penalty, Secret};
use crate::telemetry::metrics::{BanMetrics, TrackingMetrics};
use crate::telemetry::registry::Registry;

/// A policy's penalty, its strikes and its bans.
#[derive(Debug)]
pub struct Penalties {
    rule: Penalty,
    /// Handed on by a reload while keys have the same names.
    bans: Arc<Bans>,
    shared: Option<Shared>,
    metrics: BanMetrics,
    /// The last bans that [`take_recent`](Self::take_recent) has not taken.
    recent: Mutex<Vec<(Fingerprint, Timestamp)>>,
}

/// The most bans that are kept for somebody to take.
const MAX_RECENT: usize = 16;

/// The bans shared with other machines.
#[derive(Debug)]
struct Shared {
    bans: Arc<SharedBans>,
    naming: Naming,
}

impl Penalties {
    /// The penalty of a policy. Bans of the earlier ruleset stay; with Redis, bans are shared under
    /// the policy's label.
    pub(crate) fn new(
        rule: Penalty,
        (policy, label): (&str, &str),
        before: Option<&Self>,
        store: &Store,
        registry: &Registry,
    ) -> Self {
        let metrics = BanMetrics::new(registry, policy);
        let store = store.redis();
        let naming = store.map(|store| store.naming());
        let before = before.filter(|before| before.naming() == naming);
        let new = || {
            let bans = store.map_or_else(Bans::default, |store| Bans::shared(store.node()));
            Arc::new(bans.with_metrics(&TrackingMetrics::new(registry, policy)))
        };
        let bans = before.map_or_else(new, |before| Arc::clone(&before.bans));
        let shared = store.map(|store| {
            let before = before.and_then(Self::shared_bans);
            Shared {
                bans: store.share_bans(before, label, rule.clone(), &bans, metrics.clone()),
                naming: store.naming().clone(),
            }
        });
        Penalties {
            rule,
            bans,
            shared,
            metrics,
            recent: Mutex::default(),
        }
    }

    /// The keys that were banned since the last call, at most 16, and the ends of the bans.
    pub fn take_recent(&self) -> Vec<(Fingerprint, Timestamp)> {
        std::mem::take(&mut *self.recent.lock())
    }

    /// The number of bans since the start of the process.
    pub fn bans_so_far(&self) -> u64 {
        self.metrics.count()
    }

    /// The number of keys whose ban is in force at `now`.
    pub fn banned_keys(&self, now: Timestamp) -> usize {
        self.bans.banned_keys(&self.rule, now)
    }

    /// Bounds the memory of strikes and bans, in bytes.
    pub(crate) fn set_room(&self, bytes: usize) {
        self.bans.set_capacity(bytes);
    }

    fn naming(&self) -> Option<&Naming> {
        self.shared.as_ref().map(|shared| &shared.naming)
    }

    /// True if other machines learn of bans.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    fn shared_bans(&self) -> Option<&Arc<SharedBans>> {
        Some(&self.shared.as_ref()?.bans)
    }

    /// Strikes and bans for the snapshot file. Keys are fingerprints under `secret`, unless bans
    /// are shared.
    pub(crate) fn to_keep<'a>(
        &'a self,
        policy: &'a str,
        key: &'a str,
        secret: Secret,
    ) -> PolicyBans<'a> {
        PolicyBans {
            policy,
            key,
            secret: self.secret().unwrap_or(secret),
            rule: &self.rule,
            bans: &self.bans,
        }
    }

    /// Applies this penalty to bans of other machines from now on. Returns the shared bans, if
    /// there are any.
    pub(super) fn follow(&self) -> Option<&Arc<SharedBans>> {
        let shared = self.shared_bans()?;
        shared.set_rule(self.rule.clone());
        Some(shared)
    }

    /// The secret of banned keys' fingerprints, the same on all machines that share bans; `None` if
    /// they are the keys of the buckets.
    pub(crate) fn secret(&self) -> Option<Secret> {
        self.naming().map(Naming::secret)
    }

    /// The end of the key's ban, if it is banned.
    pub(crate) fn banned_until(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        self.bans.banned_until(&self.rule, key, now)
    }

    /// The key's ban, if it is banned.
    pub(crate) fn ban_of(&self, key: Fingerprint, now: Timestamp) -> Option<Ban> {
        self.bans.ban_of(&self.rule, key, now)
    }

    /// The end of the ban that a refusal of this key would cause.
    pub(crate) fn next_ban(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        self.bans.next_ban(&self.rule, key, now)
    }

    /// Forgets the strikes and bans of a key on this machine.
    pub(crate) fn lift(&self, key: Fingerprint) {
        self.bans.lift(key);
    }

    /// The keys in Redis of shared bans, and the time for which machines may report a ban.
    pub(super) fn shared_names(&self) -> Option<(&BanKeys, Duration)> {
        let shared = self.shared_bans()?;
        let (_, within) = self.rule.strikes();
        let longest = self.rule.lengths().iter().max().copied();
        Some((shared.names(), longest.unwrap_or_default() + within))
    }

    /// The refusals that cause a ban, and the time within which they count.
    pub(crate) fn strikes(&self) -> (u32, Duration) {
        self.rule.strikes()
    }

    /// Counts a refusal of this key. Returns the end of the ban that results, or that another
    /// request caused since.
    pub(crate) fn strike(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let until = self.bans.strike(&self.rule, key, now);
        if let Some(until) = until {
            self.metrics.banned();
            let mut recent = self.recent.lock();
            if recent.len() < MAX_RECENT {
                recent.push((key, until));
            }
        }
        until.or_else(|| self.banned_until(key, now))
    }
}
