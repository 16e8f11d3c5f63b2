//! Policies with buckets in memory that are synchronised with those of other machines.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::redis::{NameBuilder, Naming, Tracker};
use super::{Buckets, Table};
use crate::limiter::{Algorithm, Secret};
use crate::telemetry::metrics::{self, ReadCount, SyncMetrics, TrackingMetrics};
use crate::telemetry::registry::{Observer, Registry};

/// A policy's part in synchronisation.
#[derive(Debug)]
pub(super) struct SyncRecorder {
    pub(super) tracker: Arc<Tracker>,
    naming: Naming,
    /// The time between two reports to Redis.
    pub(super) interval: Duration,
    pub(super) rounds: SyncMetrics,
}

impl SyncRecorder {
    /// The recorder of charges to `table`, which goes on with the tracker of `before` if it can.
    /// `None` for algorithms that machines cannot synchronise.
    pub(super) fn new(
        label: &str,
        table: &Arc<Table>,
        (naming, interval): (&Naming, Duration),
        before: Option<&Self>,
        registry: &Registry,
    ) -> Option<Self> {
        let tracker = before
            .filter(|before| before.naming == *naming)
            .map(|before| &before.tracker)
            .filter(|tracker| tracker.can_continue_with(table.algorithm()));
        let tracker = match tracker {
            Some(tracker) => Arc::clone(tracker),
            None => {
                let mut tracker = Tracker::new(label, Arc::clone(table))?;
                tracker.count_evictions(&TrackingMetrics::new(registry, table.policy()));
                Arc::new(tracker)
            }
        };
        Some(SyncRecorder {
            tracker,
            naming: naming.clone(),
            interval,
            rounds: SyncMetrics::new(registry),
        })
    }

    /// The secret of fingerprints, if all machines need the same fingerprint of a key.
    pub(super) fn secret(&self, algorithm: &Algorithm) -> Option<Secret> {
        (algorithm.is_staggered()).then(|| self.naming.secret())
    }

    /// The name on all machines of the bucket whose key `write_key` writes.
    pub(super) fn name(&self, write_key: impl FnOnce(&mut NameBuilder<'_>)) -> Vec<u8> {
        let mut builder = self.naming.name_builder();
        write_key(&mut builder);
        builder.name(&self.tracker.label)
    }
}

/// Shows what is tracked of these buckets of a policy for other machines; nothing if none is
/// synchronised.
pub fn tracker_series<'a>(
    policy: &str,
    buckets: impl Iterator<Item = &'a Buckets>,
    registry: &Registry,
) -> Vec<Observer> {
    let recorders = buckets.filter_map(|one| one.sync_recorder.as_ref());
    let trackers: Vec<_> = recorders.map(|one| Arc::downgrade(&one.tracker)).collect();
    if trackers.is_empty() {
        return Vec::new();
    }
    let sum = |count: fn(&Tracker) -> u64| -> ReadCount {
        let trackers = trackers.clone();
        Box::new(move || {
            let trackers = trackers.iter().filter_map(Weak::upgrade);
            trackers.map(|tracker| count(&tracker)).sum()
        })
    };
    let keys = sum(|tracker| tracker.keys() as u64);
    vec![
        metrics::sync_keys(registry, policy, keys),
        metrics::sync_untracked(registry, policy, sum(Tracker::untracked)),
    ]
}
