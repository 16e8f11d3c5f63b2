//! The buckets of a policy, and where they live: in memory, in memory synchronised with other
//! machines, or in Redis. Only this layer asks where.

use std::sync::Arc;
use std::time::Duration;

use super::redis::{AlgorithmKind, RefusalCache, bucket_label};
use super::redis_binding::RedisBinding;
use super::sync_recorder::SyncRecorder;
use super::{Charge, HomeIdentity, HomeSpec, OnStoreError, Probe, Store, Table};
use crate::clock::Timestamp;
use crate::limiter::{
    Algorithm, BucketFacts, BucketView, Decision, Fingerprint, Secret, WindowEnd,
};
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{InUseMetrics, TrackingMetrics};
use crate::telemetry::registry::Registry;

/// The buckets of a policy, one for each key.
#[derive(Debug)]
pub struct Buckets {
    /// Buckets in memory. A policy in Redis charges them while Redis does not answer.
    pub table: Arc<Table>,
    pub(super) home: Home,
    /// Gauge of permits in use, for algorithms that return them.
    pub(super) in_use: Option<InUseMetrics>,
    /// The buckets of the next overflow tier, which requests charge if these cannot pay.
    pub(super) overflow: Option<Arc<Buckets>>,
}

/// The place of buckets.
#[derive(Debug)]
pub(super) enum Home {
    Memory,
    /// In memory. Other machines learn of charges.
    Synchronised(SyncRecorder),
    Redis(RedisBinding),
}

/// Spec of the buckets of a policy.
#[derive(Debug)]
pub struct BucketsSpec<'a> {
    /// The place of the buckets.
    pub home: HomeSpec,
    /// Their name on all machines.
    pub label: &'a str,
    /// The buckets before a reload, if their charges stay valid.
    pub before: Option<&'a Buckets>,
    /// The buckets of the next overflow tier.
    pub overflow: Option<Arc<Buckets>>,
    /// Longest time to remember a refusal of Redis.
    pub refusal_cache: Duration,
    /// Memory for remembered refusals, in bytes.
    pub refusal_bytes: usize,
}

impl Buckets {
    /// The buckets of `table` that live where `spec` says.
    pub fn new(
        store: &Store,
        table: Arc<Table>,
        spec: BucketsSpec<'_>,
        registry: &Registry,
    ) -> Self {
        let label = bucket_label(spec.label, table.algorithm());
        let recorder = |interval| {
            let naming = store.redis()?.naming();
            let before = spec.before.and_then(Self::sync_recorder);
            SyncRecorder::new(&label, &table, (naming, interval), before, registry)
        };
        let home = match spec.home {
            HomeSpec::Memory => Home::Memory,
            HomeSpec::Synchronised(interval) => {
                recorder(interval).map_or(Home::Memory, Home::Synchronised)
            }
            HomeSpec::Redis(on_error) => {
                let metrics = TrackingMetrics::new(registry, table.policy());
                let refusals = RefusalCache::new(spec.refusal_cache, spec.refusal_bytes);
                let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
                Home::Redis(RedisBinding {
                    on_error,
                    refusals: refusals.counting(&metrics),
                    undecided_log: LogThrottle::with_backoff(second, minute),
                    label,
                })
            }
        };
        let is_concurrency = table.algorithm().is_concurrency();
        Buckets {
            in_use: is_concurrency.then(|| InUseMetrics::new(registry, table.policy())),
            home,
            overflow: spec.overflow,
            table,
        }
    }

    /// The algorithm of all buckets.
    pub fn algorithm(&self) -> &Algorithm {
        self.table.algorithm()
    }

    /// The decision of the bucket of `key` in memory, without charging. `window_end` is that of a
    /// window that a charge opens, if requests decide it.
    pub fn peek(
        &self,
        key: Fingerprint,
        cost: u32,
        window_end: Option<WindowEnd>,
        now: Timestamp,
    ) -> Decision {
        let charge = Charge {
            table: &self.table,
            key,
            cost,
            window_end,
        };
        charge.peek(now)
    }

    /// The bucket of `key` in memory, for people to look at.
    pub fn view(
        &self,
        key: Fingerprint,
        window_end: Option<WindowEnd>,
        now: Timestamp,
    ) -> BucketView {
        let charge = Charge {
            table: &self.table,
            key,
            cost: 0,
            window_end,
        };
        charge.view(now)
    }

    /// Where the buckets live.
    pub fn home(&self) -> HomeSpec {
        match &self.home {
            Home::Memory => HomeSpec::Memory,
            Home::Synchronised(recorder) => HomeSpec::Synchronised(recorder.interval),
            Home::Redis(binding) => HomeSpec::Redis(binding.on_error),
        }
    }

    /// The identity of their home, if `store` is that of their ruleset.
    pub(crate) fn identity<'a>(&self, store: &'a Store) -> HomeIdentity<'a> {
        match (&self.home, store.redis()) {
            (Home::Synchronised(_), Some(store)) => HomeIdentity::Synchronised(store.naming()),
            (Home::Redis(_), Some(store)) => HomeIdentity::Redis(store.naming(), store.database()),
            _ => HomeIdentity::Memory,
        }
    }

    /// The name of their home: `memory`, `synchronised` or `redis`.
    pub fn home_name(&self) -> &'static str {
        match &self.home {
            Home::Memory => "memory",
            Home::Synchronised(_) => "synchronised",
            Home::Redis(_) => "redis",
        }
    }

    /// The bucket of `key` in memory in the numbers of a decision.
    pub fn facts(&self, key: Fingerprint, probe: Probe, now: Timestamp) -> BucketFacts {
        let charge = Charge {
            table: &self.table,
            key,
            cost: probe.cost,
            window_end: probe.window_end,
        };
        charge.facts(now)
    }

    /// True if memory has a bucket of `key`, or one of its further overflow tiers. A bucket that is
    /// whole again is dropped in time.
    pub(super) fn contains(&self, key: Fingerprint, now: Timestamp) -> bool {
        self.tiers().any(|tier| tier.table.contains(key, now))
    }

    /// Makes the buckets of `key` in memory whole, with those of further overflow tiers. False if
    /// requests return their units.
    pub fn reset(&self, key: Fingerprint) -> bool {
        self.tiers().all(|tier| tier.table.reset(key))
    }

    /// Makes the buckets of `key` in memory whole, since an operator has reset them at `at`, in the
    /// time of the store. Reports to other machines start from zero.
    pub(super) fn reset_at(&self, key: Fingerprint, at: Timestamp, now: Timestamp) {
        for tier in self.tiers() {
            let recorder = tier.sync_recorder();
            if recorder.is_none_or(|recorder| recorder.tracker.restart(key, at, now)) {
                tier.table.reset(key);
            }
        }
    }

    /// The time for which machines have to know of a reset of synchronised buckets.
    pub(super) fn reset_kept(&self) -> Duration {
        let recorders = self.tiers().filter_map(Self::sync_recorder);
        let kept = recorders.map(|recorder| recorder.tracker.reset_kept());
        kept.max().unwrap_or_default()
    }

    /// The units of `key` in memory that requests in flight have in use, or are still to settle.
    pub fn units_in_flight(&self, key: Fingerprint) -> u64 {
        self.tiers()
            .map(|tier| tier.table.units_in_flight(key))
            .sum()
    }

    /// These buckets, and those of further overflow tiers.
    pub(super) fn tiers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |tier| tier.overflow.as_deref())
    }

    /// True if requests are charged in Redis.
    pub fn is_in_redis(&self) -> bool {
        self.redis().is_some()
    }

    /// True if other machines learn of charges in memory.
    pub fn is_synchronised(&self) -> bool {
        self.sync_recorder().is_some()
    }

    /// The interval at which other machines learn of charges in memory, if they do.
    pub fn sync_interval(&self) -> Option<Duration> {
        Some(self.sync_recorder()?.interval)
    }

    /// True if requests are refused while Redis does not answer.
    pub fn refuses_without_store(&self) -> bool {
        self.redis()
            .is_some_and(|redis| redis.on_error == OnStoreError::Refuse)
    }

    /// The secret of the keys' fingerprints, if all machines need the same.
    pub fn secret(&self) -> Option<Secret> {
        self.sync_recorder()?.secret(self.table.algorithm())
    }

    /// Sets the memory for what is tracked of keys for other machines, in bytes.
    pub fn set_tracking_room(&self, bytes: usize) {
        if let Some(recorder) = self.sync_recorder() {
            recorder.tracker.set_room(bytes);
        }
    }

    /// The kind of the buckets in Redis.
    pub(super) fn redis_kind(&self) -> Option<AlgorithmKind> {
        self.redis()
            .map(|_| AlgorithmKind::of(self.table.algorithm()))
    }

    pub(super) fn redis(&self) -> Option<&RedisBinding> {
        match &self.home {
            Home::Redis(binding) => Some(binding),
            Home::Memory | Home::Synchronised(_) => None,
        }
    }

    pub(super) fn sync_recorder(&self) -> Option<&SyncRecorder> {
        match &self.home {
            Home::Synchronised(recorder) => Some(recorder),
            Home::Memory | Home::Redis(_) => None,
        }
    }
}
