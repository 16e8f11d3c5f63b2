//! Bans of keys that keep asking after refusals.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Penalty, Secret};
use crate::rules::{Descriptor, Head, Key};
use crate::store::Bans;
use crate::store::redis::{Naming, SharedBans, Store};
use crate::store::snapshot::PolicyBans;
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
}

/// The bans shared with other machines.
#[derive(Debug)]
struct Shared {
    bans: Arc<SharedBans>,
    naming: Naming,
}

impl Penalties {
    /// Builds the penalty of a policy. Bans of the earlier ruleset stay; with a store, bans are
    /// shared under the policy's label.
    pub(crate) fn new(
        rule: Penalty,
        (policy, label): (&str, &str),
        before: Option<&Self>,
        store: Option<&Store>,
        registry: &Registry,
    ) -> Self {
        let metrics = BanMetrics::new(registry, policy);
        let naming = store.map(Store::naming);
        let before = before.filter(|before| before.naming() == naming);
        let new = || {
            let bans = store.map_or_else(Bans::default, |store| Bans::shared(store.node()));
            Arc::new(bans.with_metrics(&TrackingMetrics::new(registry, policy)))
        };
        let bans = before.map_or_else(new, |before| Arc::clone(&before.bans));
        let shared = store.map(|store| {
            let before = before.and_then(Self::shared);
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
        }
    }

    /// Bounds the memory of strikes and bans, in bytes.
    pub(crate) fn set_room(&self, bytes: usize) {
        self.bans.set_capacity(bytes);
    }

    fn naming(&self) -> Option<&Naming> {
        self.shared.as_ref().map(|shared| &shared.naming)
    }

    /// The bans shared with other machines, if they are.
    pub(crate) fn shared(&self) -> Option<&Arc<SharedBans>> {
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
            secret: self.naming().map_or(secret, Naming::secret),
            rule: &self.rule,
            bans: &self.bans,
        }
    }

    /// Applies this penalty to bans of other machines from now on. Returns the shared bans, if
    /// there are any.
    pub(crate) fn follow(&self) -> Option<&Arc<SharedBans>> {
        let shared = self.shared()?;
        shared.set_rule(self.rule.clone());
        Some(shared)
    }

    /// The key to ban for a request that charges `key`: the same on all machines that share bans.
    pub(crate) fn ban_key(
        &self,
        descriptor: &Descriptor,
        head: &Head<'_>,
        key: Fingerprint,
    ) -> Fingerprint {
        let naming = self.naming();
        match naming.map(|naming| descriptor.fingerprint(&naming.secret(), head)) {
            Some(Key::Bucket(ban_key)) => ban_key,
            _ => key,
        }
    }

    /// The end of the key's ban, if it is banned.
    pub(crate) fn banned_until(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        self.bans.banned_until(&self.rule, key, now)
    }

    /// Counts a refusal of this key. Returns the end of the ban that results, or that another
    /// request caused since.
    pub(crate) fn strike(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let until = self.bans.strike(&self.rule, key, now);
        if until.is_some() {
            self.metrics.banned();
        }
        until.or_else(|| self.banned_until(key, now))
    }
}
