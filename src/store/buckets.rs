//! The buckets of a policy, and where they live: in memory, in memory synchronised with other
//! machines, or in Redis. Only this layer asks where.

use std::sync::Arc;
use std::time::Duration;

use super::redis::{RefusalCache, Tracker, bucket_label, policy_label};
use super::sync_recorder::SyncRecorder;
use super::{Charge, Home, OnStoreError, Store, Table};
use crate::clock::Timestamp;
use crate::limiter::algorithms::WindowEnd;
use crate::limiter::{Algorithm, AlgorithmKind, Demand, Fingerprint, Secret};
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{self, TrackingMetrics};
use crate::telemetry::registry::{Gauge, Registry};

/// The buckets of a policy, one for each key.
#[derive(Debug)]
pub struct Buckets {
    /// Buckets in memory. A policy in Redis charges them while Redis does not answer.
    pub table: Arc<Table>,
    /// Where the buckets live.
    pub home: Home,
    /// Tells other machines of charges in memory.
    pub(super) sync_recorder: Option<SyncRecorder>,
    pub(super) redis: Option<RedisBinding>,
    /// Gauge of permits in use, for algorithms that return them.
    pub(super) in_use: Option<Gauge>,
    /// The buckets of the next overflow tier, which requests charge if these cannot pay.
    pub(super) overflow: Option<Arc<Buckets>>,
}

/// A policy's part in Redis.
#[derive(Debug)]
pub(super) struct RedisBinding {
    /// The policy's name in keys.
    pub(super) label: Box<str>,
    /// The decision without an answer of Redis.
    pub(super) on_error: OnStoreError,
    /// Recent refusals of Redis.
    pub(super) refusals: RefusalCache,
    /// Bounds the log lines about requests that Redis did not decide.
    pub(super) undecided_log: LogThrottle,
}

/// Spec of the buckets of a policy.
#[derive(Debug)]
pub struct BucketsSpec<'a> {
    /// The place of the buckets.
    pub home: Home,
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
        let mut home = spec.home;
        let sync_recorder = home.sync_interval().and_then(|interval| {
            let naming = store.redis()?.naming();
            let before = spec.before.and_then(|one| one.sync_recorder.as_ref());
            let label = policy_label(spec.label, table.algorithm());
            SyncRecorder::new(&label, &table, (naming, interval), before, registry)
        });
        let redis = match home {
            Home::Redis(on_error) => {
                let metrics = TrackingMetrics::new(registry, table.policy());
                let mut refusals = RefusalCache::new(spec.refusal_cache, spec.refusal_bytes);
                refusals.count_evictions(&metrics);
                let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
                Some(RedisBinding {
                    on_error,
                    refusals,
                    undecided_log: LogThrottle::with_backoff(second, minute),
                    label: bucket_label(spec.label, table.algorithm()),
                })
            }
            // Machines cannot synchronise every algorithm.
            Home::Synchronised(_) if sync_recorder.is_none() => {
                home = Home::Memory;
                None
            }
            Home::Synchronised(_) | Home::Memory => None,
        };
        let is_concurrency = table.algorithm().is_concurrency();
        Buckets {
            in_use: is_concurrency.then(|| metrics::in_use(registry, table.policy())),
            home,
            sync_recorder,
            redis,
            overflow: spec.overflow,
            table,
        }
    }

    /// The algorithm of all buckets.
    pub fn algorithm(&self) -> &Algorithm {
        self.table.algorithm()
    }

    /// A charge to the bucket of `key` in memory. `window_end` is that of a window that it opens, if
    /// requests decide it.
    pub fn charge(
        &self,
        key: Fingerprint,
        demand: Demand,
        window_end: Option<WindowEnd>,
    ) -> Charge<'_> {
        Charge {
            table: &self.table,
            key,
            demand,
            window_end,
        }
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
            let recorder = tier.sync_recorder.as_ref();
            if recorder.is_none_or(|recorder| recorder.tracker.restart(key, at, now)) {
                tier.table.reset(key);
            }
        }
    }

    /// The time for which machines have to know of a reset of synchronised buckets.
    pub(super) fn reset_kept(&self) -> Duration {
        let recorders = self.tiers().filter_map(|one| one.sync_recorder.as_ref());
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
        self.redis.is_some()
    }

    /// True if other machines learn of charges in memory.
    pub fn is_synchronised(&self) -> bool {
        self.sync_recorder.is_some()
    }

    /// The known totals of synchronised buckets.
    pub fn tracker(&self) -> Option<&Tracker> {
        Some(&self.sync_recorder.as_ref()?.tracker)
    }

    /// The secret of the keys' fingerprints, if all machines need the same.
    pub fn secret(&self) -> Option<Secret> {
        let recorder = self.sync_recorder.as_ref()?;
        recorder.secret(self.table.algorithm())
    }

    /// Sets the memory for what is tracked of keys for other machines, in bytes.
    pub fn set_tracking_room(&self, bytes: usize) {
        if let Some(recorder) = &self.sync_recorder {
            recorder.tracker.set_room(bytes);
        }
    }

    /// The algorithm of machines that share the buckets: with the window, if it is part of names.
    pub fn shared_algorithm(&self) -> &str {
        let label = self.redis.as_ref().map(|binding| &*binding.label);
        label
            .and_then(|label| label.split_once(':'))
            .map_or(self.algorithm().kind(), |(_, algorithm)| algorithm)
    }

    /// The kind of the buckets in Redis.
    pub(super) fn redis_kind(&self) -> Option<AlgorithmKind> {
        self.is_in_redis().then(|| self.algorithm().into())
    }
}
