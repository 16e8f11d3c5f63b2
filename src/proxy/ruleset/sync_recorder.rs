//! Policies with buckets in memory that are synchronised with those of other machines.

use std::sync::Arc;
use std::time::Duration;

use crate::limiter::{Algorithm, Secret, Start};
use crate::rules::{Descriptor, Head};
use crate::store::redis::{BucketName, Naming, Tracker};
use crate::telemetry::metrics::{SyncMetrics, TrackerMetrics};

/// A policy's part in synchronisation.
#[derive(Debug)]
pub struct SyncRecorder {
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) naming: Naming,
    /// The time between two reports to Redis.
    pub(crate) interval: Duration,
    pub(crate) rounds: SyncMetrics,
    /// Metrics of all policies with this name.
    pub(crate) metrics: Option<TrackerMetrics>,
}

impl SyncRecorder {
    /// The secret of fingerprints, if all machines need the same fingerprint of a key.
    pub(crate) fn secret(&self, algorithm: &Algorithm) -> Option<Secret> {
        let by_key = matches!(algorithm, Algorithm::FixedWindow(window)
            if matches!(window.start(), Start::Staggered));
        by_key.then(|| self.naming.secret())
    }

    /// The name of the request's bucket on all machines.
    pub(crate) fn name(&self, descriptor: &Descriptor, head: &Head<'_>) -> BucketName {
        let mut builder = self.naming.name_builder();
        // A request without a key has no bucket.
        let _ = descriptor.feed(head, &mut builder);
        builder.name(self.tracker.label())
    }
}
