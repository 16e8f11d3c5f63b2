//! Stores of buckets, and the step that decides and charges a request.
//!
//! [`Buckets`] are those of one policy. Tables of `limiter` keep them in this process, [`redis`]
//! keeps them in Redis, with the same decisions. `bounded_map` holds keys beside buckets for both.
//! `limiter` interprets the buckets.

mod bounded_map;
mod buckets;
mod charge_list;
mod charge_result;
mod charge_set;
mod in_use;
mod memory;
mod operator_action;
mod penalties;
mod pending_charge;
mod policy_charge;
pub mod redis;
mod spec;
mod steering;
mod sync_recorder;

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::clock::Clock;
use crate::limiter::AlgorithmKind;
use crate::telemetry::metrics::StoreMetrics;
use crate::telemetry::registry::Registry;
use redis::client::{Client, dial};
use redis::{AlgorithmKinds, Procedure};

pub use bounded_map::TrackingBudget;
pub use buckets::{Buckets, BucketsSpec};
pub use charge_result::{ChargeResult, DecidedBucket, QueuePlace, Reservation, WithoutStore};
pub use charge_set::ChargeSet;
pub use in_use::{Acquired, InUse, PermitPlace};
pub use memory::{
    Ask, Charge, MemoryRequest, OnFull, Refusals, Role, Table, TableBudget, charge_into,
    divide_memory, snapshot,
};
pub use operator_action::{Attribution, KeyChange, KeyRule, OperatorActionKind};
pub use penalties::Penalties;
pub use pending_charge::{PendingCharge, Undecided};
pub use policy_charge::{ChargeId, ChargeSource, ChargedLimits, Payer, PolicyCharge, Probe};
pub use redis::{KnownUnits, client::Caller};
pub(crate) use spec::StoreNames;
pub use spec::{Home, OnStoreError, StoreSpec};
pub use steering::{Steered, SteeredFacts, SteeredKeys, Steering, SteeringError, SteeringKey};
pub use sync_recorder::tracker_series;

/// The store of a ruleset. Clones are one.
#[derive(Clone, Debug, Default)]
pub enum Store {
    /// All buckets are in this process, and no other machine knows of them.
    #[default]
    Memory,
    /// Some buckets are in Redis or are synchronised through it.
    Redis(Arc<redis::Store>),
}

/// A Redis store that others may drop.
pub type WeakStore = Weak<redis::Store>;

impl Store {
    /// The store of this spec: `before` with its connections, if it is the same.
    pub fn new(
        spec: &StoreSpec,
        workers: usize,
        before: &Self,
        clock: &Arc<Clock>,
        registry: &Registry,
    ) -> Self {
        if let Self::Redis(before) = before
            && before.is_same_as(&spec.client, &spec.naming)
        {
            return Self::Redis(Arc::clone(before));
        }
        let client = spec.client.clone();
        // One more for the thread that synchronises, and the last for the admin thread.
        let workers = workers + 2;
        let metrics = Arc::new(StoreMetrics::new(registry));
        let client = Client::new(client, workers, dial, Arc::clone(&metrics) as _);
        let store = redis::Store::new(client, metrics, spec.naming.clone(), Arc::clone(clock));
        Self::Redis(Arc::new(store))
    }

    /// The Redis of the store, if it has one.
    pub fn redis(&self) -> Option<&Arc<redis::Store>> {
        match self {
            Self::Memory => None,
            Self::Redis(store) => Some(store),
        }
    }

    /// The names of buckets in the store's Redis, if it has one.
    pub(crate) fn names(&self) -> Option<StoreNames<'_>> {
        self.redis().map(|store| StoreNames {
            naming: store.naming(),
            database: store.client().spec().database,
        })
    }

    /// A reference that does not keep the store; `None` for memory.
    pub fn downgrade(&self) -> Option<Weak<redis::Store>> {
        self.redis().map(Arc::downgrade)
    }

    /// The share of keys whose buckets cannot be charged now.
    pub fn unreachable_share(&self) -> f64 {
        self.redis()
            .map_or(0.0, |store| store.client().unreachable_share())
    }

    /// Waits until a worker's messages are sent, or until this instant.
    pub async fn flush(&self, worker: usize, until: Instant) {
        if let Self::Redis(store) = self {
            store.flush_outbox(worker, until).await;
        }
    }

    /// Loads all scripts that requests may call into the Redis servers. Each route is given by the
    /// buckets of its limits; a limit's charges may be settled.
    ///
    /// Conditions, exceptions and the slots of a cluster decide which limits share a call, so each
    /// subset of a route's kinds has its own script.
    pub fn load_scripts<'a, R>(&self, routes: impl Iterator<Item = R>, shares_bans: bool)
    where
        R: Iterator<Item = (&'a Buckets, bool)>,
    {
        let Self::Redis(store) = self else { return };
        let mut procedures: HashSet<_> =
            shares_bans.then_some(Procedure::Ban).into_iter().collect();
        for route in routes {
            let mut kinds = HashSet::new();
            for (buckets, settles) in route {
                let Some(kind) = buckets.redis_kind() else {
                    continue;
                };
                kinds.insert(kind);
                procedures.extend(match kind {
                    AlgorithmKind::Concurrency => Some(Procedure::Lease),
                    AlgorithmKind::LeakyBucket => Some(Procedure::Leave),
                    _ => None,
                });
                procedures.extend(settles.then_some(Procedure::Settle(kind)));
            }
            let kinds: AlgorithmKinds = kinds.into_iter().collect();
            procedures.extend(kinds.subsets().map(Procedure::Charge));
        }
        store.load_scripts(procedures.into_iter());
    }

    /// Directs the charges of other machines to these buckets, if they are synchronised.
    fn follow_buckets(&self, buckets: &Buckets) {
        if let (Self::Redis(store), Some(recorder)) = (self, &buckets.sync_recorder) {
            recorder.tracker.set_table(Arc::clone(&buckets.table));
            let rounds = store.synchroniser(recorder.interval, &recorder.rounds);
            rounds.follow(&recorder.tracker);
        }
    }

    /// Directs the charges of other machines to these buckets, and shares these bans, and what
    /// operators do to keys of these policies, only. `algorithms` are those of policies that other machines know, by name.
    pub fn follow<'a>(
        &self,
        buckets: impl Iterator<Item = &'a Buckets>,
        penalties: impl Iterator<Item = &'a Arc<Penalties>>,
        steering: impl Iterator<Item = &'a Steering> + Clone,
        algorithms: impl Iterator<Item = (&'a str, &'a str)>,
    ) {
        let Self::Redis(store) = self else { return };
        for buckets in buckets {
            self.follow_buckets(buckets);
        }
        let steering = || steering.clone();
        for grants in steering().filter_map(Steering::known_grants) {
            self.follow_buckets(grants);
        }
        let policies = steering().filter_map(|one| Some((one.label()?, one)));
        store.follow_steering(policies.map(|(label, one)| (label, Arc::downgrade(one.keys()))));
        store.follow_bans(penalties);
        store.check_algorithms(algorithms);
    }
}
