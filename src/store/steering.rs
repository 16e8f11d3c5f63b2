//! Actions of operators on single keys of a policy: bans, granted units, resets.
//!
//! Requests look for their key only while some key of the policy is steered. Bans and grants are no
//! cells of the policy's table: a full table drops none of them. `keys` has them in memory; `shared`
//! tells them to the machines that share the policy's buckets.

mod keys;
mod shared;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::shared::{SharedKey, SharedSteering};
use super::operator_action::{Attribution, KeyChange, KeyRule, OperatorActionKind};
use super::{Buckets, BucketsSpec, Home, OnStoreError, Penalties, Probe, Store};
use crate::clock::Timestamp;
use crate::limiter::bucket::{BucketFacts, Grant};
use crate::limiter::{Cell, Fingerprint, KeyParts, Secret};
use crate::telemetry::registry::Registry;

pub use keys::{Steered, SteeredKeys, TooManyKeys};

/// A policy's steered keys, and the buckets of their granted units.
#[derive(Debug)]
pub struct Steering {
    keys: Arc<SteeredKeys>,
    /// The store of other machines, if the policy's buckets are shared.
    shared: Option<SharedSteering>,
    grants: OnceLock<Arc<Buckets>>,
}

/// A key that an operator looks at or steers.
#[derive(Debug)]
pub struct SteeringKey<'a> {
    /// The fingerprint of its bucket in memory.
    bucket: Fingerprint,
    /// The fingerprint under which it is steered.
    key: Fingerprint,
    /// The buckets of its quota.
    buckets: &'a Arc<Buckets>,
    /// The key on all machines, if they share its buckets.
    shared: Option<SharedKey<'a>>,
}

/// The state of a key.
#[derive(Clone, Debug)]
pub struct SteeredFacts {
    /// Its bucket, and those of further overflow tiers.
    pub buckets: Vec<BucketFacts>,
    /// True if the store has one of these. A key that asks nothing loses its bucket once that is
    /// whole.
    pub has_bucket: bool,
    /// Its granted units.
    pub granted: Option<KeyRule>,
    /// Its ban by an operator.
    pub ban: Option<KeyRule>,
}

/// The reason why a key is not steered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SteeringError {
    /// There is no room for another key.
    #[error(transparent)]
    TooManyKeys(#[from] TooManyKeys),
    /// Redis does not answer, or not as it should.
    #[error("the Redis store {0}")]
    Store(String),
}

impl Steering {
    /// The steering of a policy whose buckets are in `home`. The steered keys of the earlier ruleset stay
    /// if its buckets do.
    pub(crate) fn new(
        policy: &str,
        home: Home,
        store: &Store,
        before: Option<&Self>,
        registry: &Registry,
    ) -> Self {
        let shared = SharedSteering::new(policy, home, store);
        let home = shared.as_ref().map_or(Home::Memory, |shared| shared.home);
        let stays = |before: &&Self| {
            let naming =
                |of: &Option<SharedSteering>| of.as_ref().map(|one| one.store.naming().clone());
            before.keys.home.into_str() == home.into_str()
                && naming(&before.shared) == naming(&shared)
        };
        let before = before.filter(stays);
        let new = || Arc::new(SteeredKeys::new(policy, home, registry));
        let steering = Self {
            keys: before.map_or_else(new, |before| Arc::clone(&before.keys)),
            shared,
            grants: OnceLock::new(),
        };
        if let Some(grants) = before.and_then(|before| before.grants.get()) {
            steering
                .grants
                .get_or_init(|| steering.make_grants(Some(grants)));
        }
        steering
    }

    /// The steered keys.
    pub fn keys(&self) -> &Arc<SteeredKeys> {
        &self.keys
    }

    /// The label of the policy on all machines, if they share its keys.
    pub(super) fn label(&self) -> Option<&str> {
        self.shared.as_ref().map(|shared| &*shared.label)
    }

    /// The buckets of granted units, if there were any.
    pub fn known_grants(&self) -> Option<&Arc<Buckets>> {
        self.grants.get()
    }

    /// The secret of the keys' fingerprints, if machines share them.
    pub(crate) fn secret(&self) -> Option<Secret> {
        let shared = self.shared.as_ref();
        shared.map(|shared| shared.store.naming().secret())
    }

    /// The ban and the granted units of the request that charges `buckets` under the fingerprint
    /// `bucket`; `None` if its key is not steered.
    /// `write` writes the parts of its key; false without a key.
    #[inline]
    pub(crate) fn find(
        &self,
        bucket: Fingerprint,
        buckets: &Buckets,
        now: Timestamp,
        write: impl FnOnce(&mut dyn KeyParts) -> bool,
    ) -> Option<Steered> {
        if !self.keys.is_any() {
            return None;
        }
        let key = match &self.shared {
            None => bucket,
            Some(shared) => shared.store.naming().key(|hasher| write(hasher))?,
        };
        self.find_key(key, bucket, buckets, now)
    }

    fn find_key(
        &self,
        key: Fingerprint,
        bucket: Fingerprint,
        buckets: &Buckets,
        now: Timestamp,
    ) -> Option<Steered> {
        let found = self.keys.find(key, now)?;
        if found.granted_until.is_some() {
            self.grants();
        }
        if found.is_applied {
            return Some(found);
        }
        // What this machine has heard of reaches the buckets in memory with a request, which finds them.
        let reset = |at| buckets.reset_at(bucket, at, now);
        let grant = |one: &KeyRule| {
            let cell = match one.units {
                0 => Cell::EMPTY,
                units => Grant::cell(units, one.until),
            };
            let table = &self.grants().table;
            if !table.start(bucket, cell, now) {
                let policy = table.policy();
                tracing::warn!(policy, "a grant finds no room on this machine");
            }
        };
        self.keys.apply_to_buckets(key, reset, grant);
        Some(found)
    }

    /// The buckets of granted units. They exist from the first grant on.
    fn grants(&self) -> &Arc<Buckets> {
        self.grants.get_or_init(|| self.make_grants(None))
    }

    fn make_grants(&self, before: Option<&Arc<Buckets>>) -> Arc<Buckets> {
        let table = self.keys.grants();
        let label = self.shared.as_ref().map(|shared| shared.grant_label());
        let (store, home) = match &self.shared {
            None => (Store::Memory, Home::Memory),
            Some(shared) => (Store::Redis(Arc::clone(&shared.store)), shared.home),
        };
        let home = match home {
            // The quota's treatment of errors decides.
            Home::Redis(_) => Home::Redis(OnStoreError::Local),
            other => other,
        };
        let spec = BucketsSpec {
            home,
            label: label.as_deref().unwrap_or_default(),
            before: before.map(|before| &**before),
            overflow: None,
            refusal_cache: Duration::ZERO,
            refusal_bytes: 0,
        };
        let registry = &self.keys.registry;
        let buckets = Arc::new(Buckets::new(&store, Arc::clone(table), spec, registry));
        store.follow_buckets(&buckets);
        buckets
    }

    /// A key whose quota has these buckets, in memory under the fingerprint `bucket`. `write` writes
    /// the parts of the key.
    pub fn key<'a>(
        &'a self,
        bucket: Fingerprint,
        buckets: &'a Arc<Buckets>,
        write: impl FnOnce(&mut dyn KeyParts),
    ) -> SteeringKey<'a> {
        let shared = self.shared.as_ref().map(|steering| {
            let mut name = steering.store.naming().name_builder();
            write(&mut name);
            SharedKey {
                steering,
                name,
                buckets,
            }
        });
        SteeringKey {
            bucket,
            key: shared.as_ref().map_or(bucket, |shared| shared.name.key()),
            buckets,
            shared,
        }
    }

    /// The state of a key at `now`, with the decisions on `probe`.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn facts(
        &self,
        key: &SteeringKey<'_>,
        probe: Probe,
        now: Timestamp,
    ) -> Result<SteeredFacts, SteeringError> {
        let ban = self.keys.rule(key.key, OperatorActionKind::Ban, now);
        if let Some(shared) = &key.shared
            && key.buckets.is_in_redis()
        {
            let facts = shared.facts(probe, now).await?;
            let granted = facts.granted;
            let granted = granted.filter(|_| !self.keys.is_taken_back(key.key));
            let known = self.keys.grant_of(key.key, key.bucket, now);
            return Ok(SteeredFacts {
                ban,
                granted: granted.map(|left| match known {
                    Some(KeyRule { since, by, .. }) => KeyRule { since, by, ..left },
                    // Another machine granted them just now.
                    None => left,
                }),
                ..facts
            });
        }
        // As a request would.
        self.find_key(key.key, key.bucket, key.buckets, now);
        let tiers = key.buckets.tiers().enumerate();
        Ok(SteeredFacts {
            buckets: tiers
                .map(|(place, tier)| {
                    let demand = probe.demand_of(place);
                    tier.charge(key.bucket, demand, probe.window_end).facts(now)
                })
                .collect(),
            has_bucket: key.buckets.contains(key.bucket, now),
            granted: self.keys.grant_of(key.key, key.bucket, now),
            ban,
        })
    }

    /// Changes a key. An unban also lifts the ban by these penalties, whose key is `banned`.
    ///
    /// # Errors
    /// There is no room for another key, or the store does not answer.
    pub(crate) async fn change(
        &self,
        key: &SteeringKey<'_>,
        change: KeyChange,
        by: &Attribution,
        penalties: Option<(&Penalties, Fingerprint)>,
        now: Timestamp,
    ) -> Result<(), SteeringError> {
        let penalties = penalties.filter(|_| change == KeyChange::Unban);
        match &key.shared {
            Some(shared) => {
                if let KeyChange::Ban { .. } = change {
                    self.keys.has_room_for(key.key)?;
                }
                if let Some((penalties, banned)) = penalties {
                    shared.steering.lift(penalties, banned).await?;
                }
                shared.change(change, by, now).await?;
                if change == KeyChange::Unban {
                    // Here at once, whatever the server's clock says of a ban's age.
                    self.keys.change(key.key, change, by, now)?;
                }
            }
            None if change == KeyChange::Reset => _ = key.buckets.reset(key.bucket),
            None => self.keys.change(key.key, change, by, now)?,
        }
        if let Some((penalties, banned)) = penalties {
            penalties.lift(banned);
        }
        Ok(())
    }

    /// Ends a ban by an operator, or a grant, of the key under which it is listed.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn revoke(
        &self,
        key: Fingerprint,
        (kind, rule): (OperatorActionKind, &KeyRule),
        now: Timestamp,
    ) -> Result<(), SteeringError> {
        let (change, by) = (kind.end(rule), Attribution::default());
        match &self.shared {
            Some(shared) => shared.end(key, change, rule.until.since(now)).await?,
            None => self.keys.change(key, change, &by, now)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
