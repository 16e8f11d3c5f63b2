//! Bans of keys that keep asking after refusals.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::redis::{BanKeys, ForeignKeyWarning, Naming};
use super::{Bans, Store};
use crate::clock::Timestamp;
use crate::limiter::{Ban, Fingerprint, Penalty, Secret};
use crate::telemetry::metrics::{self, TrackingMetrics};
use crate::telemetry::registry::{Counter, Registry};

/// A policy's penalty, its strikes and its bans.
#[derive(Debug)]
pub struct Penalties {
    pub(super) rule: Penalty,
    /// Handed on by a reload while keys have the same names.
    pub(super) bans: Arc<Bans>,
    shared: Option<Shared>,
    /// The bans since the start of the process.
    pub(super) counter: Counter,
    /// The last bans that [`take_recent`](Self::take_recent) has not taken.
    recent: Mutex<Vec<(Fingerprint, Timestamp)>>,
}

/// The most bans that are kept for somebody to take.
const MAX_RECENT: usize = 16;

/// The names under which other machines share the bans.
#[derive(Debug)]
struct Shared {
    names: BanKeys,
    naming: Naming,
    warning: ForeignKeyWarning,
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
        let counter = metrics::bans(registry, policy);
        let store = store.redis();
        let naming = store.map(|store| store.naming());
        let before = before.filter(|before| before.naming() == naming);
        let new = || {
            let bans = store.map_or_else(Bans::default, |store| Bans::shared(store.node()));
            Arc::new(bans.with_metrics(&TrackingMetrics::new(registry, policy)))
        };
        let bans = before.map_or_else(new, |before| Arc::clone(&before.bans));
        let shared = naming.map(|naming| Shared {
            names: BanKeys::new(naming, label),
            naming: naming.clone(),
            warning: ForeignKeyWarning::new("bans cannot be shared"),
        });
        Penalties {
            rule,
            bans,
            shared,
            counter,
            recent: Mutex::default(),
        }
    }

    /// The warning that the bans cannot be shared, if they should be.
    pub(super) fn warning(&self) -> Option<&ForeignKeyWarning> {
        Some(&self.shared.as_ref()?.warning)
    }

    /// The keys that were banned since the last call, at most 16, and the ends of the bans.
    pub fn take_recent(&self) -> Vec<(Fingerprint, Timestamp)> {
        std::mem::take(&mut *self.recent.lock())
    }

    /// The number of bans since the start of the process.
    pub fn bans_so_far(&self) -> u64 {
        self.counter.get()
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

    /// The rule, and the strikes and bans of all keys.
    pub(crate) fn known(&self) -> (&Penalty, &Bans) {
        (&self.rule, &self.bans)
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

    /// The keys in Redis of shared bans.
    pub(super) fn names(&self) -> Option<&BanKeys> {
        self.shared.as_ref().map(|shared| &shared.names)
    }

    /// The time for which machines may report a ban.
    pub(super) fn reported_for(&self) -> Duration {
        let longest = self.rule.lengths().iter().max().copied();
        longest.unwrap_or_default() + self.rule.strikes().1
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
            self.counter.increment();
            let mut recent = self.recent.lock();
            if recent.len() < MAX_RECENT {
                recent.push((key, until));
            }
        }
        until.or_else(|| self.banned_until(key, now))
    }
}
