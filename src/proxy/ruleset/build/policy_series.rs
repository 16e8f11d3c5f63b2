//! The metric series of policies that are read at each scrape, and their settings.

use std::sync::{Arc, Weak};

use super::Builder;
use crate::clock::Timestamp;
use crate::proxy::ruleset::Quota;
use crate::store::{Penalties, Steering, Table};
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
    pub(super) fn key_gauges(
        &self,
        policy: &str,
        penalties: Option<&Arc<Penalties>>,
        steering: &Steering,
    ) -> KeyGauges {
        let clock = || Arc::clone(&self.context.clock);
        let (banned, granted) = (Arc::clone(steering.keys()), Arc::clone(steering.keys()));
        let by_penalty = penalties.map(|penalties| {
            let (penalties, clock) = (Arc::clone(penalties), clock());
            Box::new(move || penalties.banned_keys(clock.now())) as _
        });
        let (banned_clock, granted_clock) = (clock(), clock());
        let counts = KeyCounts {
            banned_by_penalty: by_penalty,
            banned_by_operator: Box::new(move || banned.banned_keys(banned_clock.now())),
            granted: Box::new(move || granted.granted_keys(granted_clock.now())),
        };
        KeyGauges::new(&self.context.registry, policy, counts)
    }

    pub(super) fn policy_info(&self, policy: &str, key_parts: &[String], quota: &Quota) -> Gauge {
        let info = PolicyInfo {
            policy,
            algorithm: quota.algorithm().kind(),
            quota: &quota.text,
            key: &key_parts.join(", "),
            store: quota.buckets.home.name(),
        };
        info.show(&self.context.registry)
    }
}
