//! The metric series of policies that are read at each scrape, and their settings.

use std::sync::{Arc, Weak};

use super::Builder;
use crate::clock::Timestamp;
use crate::proxy::ruleset::Policy;
use crate::store::Table;
use crate::telemetry::metrics::{
    KeyCounts, KeyGauges, PolicyInfo, PolicyMetrics, ReadCount, TableFigures, WaitMetrics,
};
use crate::telemetry::registry::Gauge;

impl Builder<'_> {
    pub(super) fn policy_metrics(&self, name: &str, tables: &[Arc<Table>]) -> PolicyMetrics {
        let registry = &self.context.registry;
        let mut algorithms = tables.iter().map(|table| table.algorithm());
        let delays = algorithms.any(|one| one.delays() || one.queueing().is_some());
        let waits = delays.then(|| WaitMetrics::new(registry, name));
        let sum = |count: fn(&Table, Timestamp) -> u64| -> ReadCount {
            let tables: Vec<_> = tables.iter().map(Arc::downgrade).collect();
            let clock = Arc::clone(&self.context.clock);
            Box::new(move || {
                let tables = tables.iter().filter_map(Weak::upgrade);
                tables.map(|table| count(&table, clock.now())).sum()
            })
        };
        let figures = TableFigures {
            buckets: sum(|table, now| table.live(now) as u64),
            evictions: sum(|table, _| table.evictions()),
            unrecorded: sum(|table, _| table.unrecorded()),
        };
        PolicyMetrics::new(registry, name, figures).with_waits(waits)
    }

    /// The numbers of keys that are banned, and that have granted units.
    pub(super) fn key_gauges(&self, policy: &Policy) -> Option<KeyGauges> {
        let keys = policy.steering.as_ref()?.keys();
        let (banned, granted) = (Arc::clone(keys), Arc::clone(keys));
        let clock = || Arc::clone(&self.context.clock);
        let all = policy.all().into_iter();
        let penalties: Vec<_> = all.filter_map(|one| one.penalties.clone()).collect();
        let by_penalty = (!penalties.is_empty()).then(|| {
            let clock = clock();
            Box::new(move || {
                let now = clock.now();
                penalties.iter().map(|one| one.banned_keys(now)).sum()
            }) as _
        });
        let (banned_clock, granted_clock) = (clock(), clock());
        let counts = KeyCounts {
            banned_by_penalty: by_penalty,
            banned_by_operator: Box::new(move || banned.banned_keys(banned_clock.now())),
            granted: Box::new(move || granted.granted_keys(granted_clock.now())),
        };
        let registry = &self.context.registry;
        Some(KeyGauges::new(registry, &policy.name, counts))
    }

    pub(super) fn policy_info(&self, policy: &Policy) -> Gauge {
        let buckets = &policy.buckets;
        let info = PolicyInfo {
            policy: &policy.name,
            algorithm: buckets.algorithm().kind(),
            quota: &policy.quota,
            key: &policy.key_parts.join(", "),
            store: buckets.home.name(),
        };
        info.show(&self.context.registry)
    }
}
