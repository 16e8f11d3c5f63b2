//! Bans of keys that go on asking though they are refused.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Penalty, Secret};
use crate::rules::{Descriptor, Head, Key};
use crate::store::Bans;
use crate::store::redis::{Naming, SharedBans, Store};
use crate::store::snapshot::PolicyBans;
use crate::telemetry::metrics::{BanMetrics, TrackingMetrics};
use crate::telemetry::registry::Registry;

/// What a policy does to keys that it has refused too often.
#[derive(Debug)]
pub struct Penalties {
    rule: Penalty,
    /// Found again at a reload, as long as keys are called the same.
    bans: Arc<Bans>,
    shared: Option<Shared>,
    metrics: BanMetrics,
}

/// Where other machines hear of them.
#[derive(Debug)]
struct Shared {
    bans: Arc<SharedBans>,
    naming: Naming,
}

impl Penalties {
    /// By this rule, with the bans of the policy before; shared with the machines that call it so in that store.
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
            Arc::new(bans.counting(&TrackingMetrics::new(registry, policy)))
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

    /// Has room for so many bytes of strikes and bans.
    pub(crate) fn set_room(&self, bytes: usize) {
        self.bans.set_room(bytes);
    }

    fn naming(&self) -> Option<&Naming> {
        self.shared.as_ref().map(|shared| &shared.naming)
    }

    /// What other machines are told of and hear of, if they do.
    pub(crate) fn shared(&self) -> Option<&Arc<SharedBans>> {
        Some(&self.shared.as_ref()?.bans)
    }

    /// The strikes and bans, to be saved or restored, of the policy with this name and key. Keys are turned into
    /// fingerprints with `secret` unless other machines hear of its bans.
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

    /// Has other machines' bans be counted by this rule from now on. Returns what they are told of, if anything.
    pub(crate) fn follow(&self) -> Option<&Arc<SharedBans>> {
        let shared = self.shared()?;
        shared.set_rule(self.rule.clone());
        Some(shared)
    }

    /// The key that is banned for a request that charges `key`: the same on all machines that share bans.
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

    /// The end of the ban of this key, if it is banned.
    pub(crate) fn banned_until(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        self.bans.banned_until(&self.rule, key, now)
    }

    /// Counts a refusal of this key; the end of the ban that it brings about, or another request has since.
    pub(crate) fn strike(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let until = self.bans.strike(&self.rule, key, now);
        if until.is_some() {
            self.metrics.banned();
        }
        until.or_else(|| self.banned_until(key, now))
    }
}
