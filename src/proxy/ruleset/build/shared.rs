//! State of policies that other machines know: names, charges, bans.

use std::sync::Arc;

use super::Builder;
use crate::clock::Timestamp;
use crate::limiter::{KeyParts, Secret};
use crate::proxy::admission::penalties::Penalties;
use crate::proxy::ruleset::sync_recorder::SyncRecorder;
use crate::proxy::ruleset::{Limit, Policy, PolicySpec, Ruleset};
use crate::store::redis::{Tracker, bucket_label};
use crate::store::{Table, TrackingBudget};
use crate::telemetry::metrics::{SyncFigures, SyncMetrics, TrackerMetrics, TrackingMetrics};
use crate::telemetry::registry::Registry;

impl Builder<'_> {
    /// Builds the recorder of charges to this table. Its tracker is the previous one if the table
    /// is, or takes its place.
    pub(super) fn synchronised(
        &self,
        spec: &PolicySpec,
        label: &str,
        table: &Arc<Table>,
    ) -> Option<SyncRecorder> {
        let (store, interval) = (self.redis.as_ref()?, spec.sync?);
        let goes_on = |before: &Policy| {
            let is_its = |(old, new): &(Arc<Table>, Arc<Table>)| {
                Arc::ptr_eq(old, &before.table) && Arc::ptr_eq(new, table)
            };
            Arc::ptr_eq(&before.table, table) || self.successions.iter().any(is_its)
        };
        let before = self
            .previous_policies
            .get(&(spec.name.as_str(), spec.key.as_str()));
        let before = before.filter(|before| goes_on(before));
        let tracker = before
            .and_then(|before| before.sync_recorder.as_ref())
            .filter(|one| one.naming == *store.naming())
            .map(|one| Arc::clone(&one.tracker))
            .filter(|tracker| tracker.can_continue_with(table.algorithm()));
        let label = bucket_label(label, table.algorithm());
        let registry = &self.surroundings.registry;
        let new = || {
            let tracker = Tracker::new(&label, Arc::clone(table))?;
            Some(Arc::new(
                tracker.counting(&TrackingMetrics::new(registry, &spec.name)),
            ))
        };
        let tracker = tracker.or_else(new)?;
        let metrics = SyncMetrics::new(registry);
        Some(SyncRecorder {
            tracker,
            naming: store.naming().clone(),
            interval,
            rounds: metrics,
            metrics: None,
        })
    }
}

impl Ruleset {
    /// Directs the charges of other machines to the tables of this ruleset, and shares the bans of
    /// its policies only.
    pub(super) fn follow(&self, now: Timestamp) {
        let Some(redis) = &self.redis else { return };
        for policy in self.policies.iter().flat_map(|policy| policy.all()) {
            if let Some(synchronised) = &policy.sync_recorder {
                synchronised.tracker.set_table(Arc::clone(&policy.table));
                let rounds = redis.synchroniser(synchronised.interval, &synchronised.rounds);
                rounds.follow(&synchronised.tracker);
            }
        }
        let penalties = self.policies.iter();
        let penalties = penalties.filter_map(|policy| policy.penalties.as_ref());
        let bans: Vec<_> = penalties.filter_map(Penalties::follow).collect();
        redis.follow_bans(&bans);
        redis.check_algorithms(self.policies.iter().filter_map(algorithm_in_redis));
        redis.reloaded(now);
    }
}

impl Ruleset {
    /// Sets the memory for what each policy keeps of keys beside their buckets.
    pub(super) fn set_tracking_room(&self, room: TrackingBudget) {
        for policy in self.policies.iter().flat_map(|policy| policy.all()) {
            let bytes = room.bytes(policy.table.keys());
            if let Some(synchronised) = &policy.sync_recorder {
                synchronised.tracker.set_room(bytes);
            }
            if let Some(penalties) = &policy.penalties {
                penalties.set_room(bytes);
            }
        }
    }
}

/// The name and the algorithm of a policy that Redis knows. Overflow buckets and overrides have the
/// same algorithm.
fn algorithm_in_redis(policy: &Arc<Policy>) -> Option<(&str, &'static str)> {
    let is_known = policy.shared.is_some() || policy.sync_recorder.is_some();
    is_known.then(|| (&*policy.name, policy.table.algorithm().kind()))
}

/// The name of an override in Redis. It differs from all names of policies, which have no slash.
pub(super) fn label_of_override(spec: &PolicySpec) -> Box<str> {
    let mut hasher = Secret::from_key([0, 0]).wide_hasher();
    hasher.part(0, spec.key.as_bytes());
    format!("{}/{:08x}", spec.name, hasher.finish() as u32).into()
}

/// A limit shares its charges with other machines.
pub(super) fn is_synchronised(limits: &[Limit]) -> bool {
    let mut limits = limits.iter();
    limits.any(|limit| limit.policy.sync_recorder.is_some())
}

/// Exports the number of keys in the trackers of a policy and of all policies with its name.
pub(super) fn tracker_metrics(policy: &Policy, registry: &Registry) -> Option<TrackerMetrics> {
    let all = policy.all().into_iter();
    let synchronised = all.filter_map(|one| one.sync_recorder.as_ref());
    let trackers: Vec<_> = synchronised
        .map(|one| Arc::downgrade(&one.tracker))
        .collect();
    if trackers.is_empty() {
        return None;
    }
    Some(TrackerMetrics::new(registry, &policy.name, move || {
        let mut figures = SyncFigures::default();
        for tracker in trackers.iter().filter_map(std::sync::Weak::upgrade) {
            figures.keys += tracker.keys() as u64;
            figures.untracked += tracker.untracked();
        }
        figures
    }))
}
