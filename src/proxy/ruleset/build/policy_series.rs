//! The metric series of policies that are read at each scrape, and their settings.

use std::sync::{Arc, Weak};

use super::Builder;
use crate::clock::Timestamp;
use crate::proxy::ruleset::Quota;
use crate::store::{OperatorActionKind, Penalties, Steering, Table};
use crate::telemetry::metrics::{self, PolicyInfo, PolicyMetrics, ReadCount};
use crate::telemetry::registry::{Gauge, Observer};

impl Builder<'_> {
    pub(super) fn policy_metrics(
        &self,
        name: &str,
        tables: &[Arc<Table>],
        waits: bool,
    ) -> PolicyMetrics {
        let mut algorithms = tables.iter().map(|table| table.algorithm());
        let delays = waits || algorithms.any(|one| one.delays() || one.queueing().is_some());
        PolicyMetrics::new(&self.context.registry, name, delays)
    }

    /// The figures of the policy's tables.
    pub(super) fn table_series(&self, policy: &str, tables: &[Arc<Table>]) -> [Observer; 3] {
        let registry = &self.context.registry;
        let sum = |count: fn(&Table, Timestamp) -> u64| -> ReadCount {
            let tables: Vec<_> = tables.iter().map(Arc::downgrade).collect();
            let clock = Arc::clone(&self.context.clock);
            Box::new(move || {
                let tables = tables.iter().filter_map(Weak::upgrade);
                tables.map(|table| count(&table, clock.now())).sum()
            })
        };
        [
            metrics::buckets(registry, policy, sum(|table, now| table.live(now) as u64)),
            metrics::evictions(registry, policy, sum(|table, _| table.evictions())),
            metrics::unrecorded(registry, policy, sum(|table, _| table.unrecorded())),
        ]
    }

    /// The numbers of keys that are banned, and that have granted units.
    pub(super) fn key_series(
        &self,
        policy: &str,
        penalties: Option<&Arc<Penalties>>,
        steering: &Steering,
    ) -> Vec<Observer> {
        let registry = &self.context.registry;
        let steered = |kind| -> ReadCount {
            let (keys, clock) = (Arc::clone(steering.keys()), Arc::clone(&self.context.clock));
            Box::new(move || keys.count(kind, clock.now()) as u64)
        };
        let by_penalty = penalties.map(|penalties| {
            let (penalties, clock) = (Arc::clone(penalties), Arc::clone(&self.context.clock));
            let count = Box::new(move || penalties.banned_keys(clock.now()) as u64);
            metrics::banned_keys(registry, policy, "penalty", count)
        });
        let by_operator = steered(OperatorActionKind::Ban);
        let of_operators = [
            metrics::banned_keys(registry, policy, "operator", by_operator),
            metrics::granted_keys(registry, policy, steered(OperatorActionKind::Grant)),
        ];
        by_penalty.into_iter().chain(of_operators).collect()
    }

    pub(super) fn policy_info(&self, policy: &str, key_parts: &[String], quota: &Quota) -> Gauge {
        let info = PolicyInfo {
            policy,
            algorithm: quota.algorithm().kind(),
            quota: &quota.text,
            key: &key_parts.join(", "),
            store: quota.buckets.home.into_str(),
        };
        info.show(&self.context.registry)
    }
}
