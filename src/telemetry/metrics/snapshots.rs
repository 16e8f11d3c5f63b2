//! Snapshots of buckets: how saving them went.

use super::families::{SNAPSHOT_LAST_SUCCESS, SNAPSHOT_UNREAD, SNAPSHOTS};
use crate::telemetry::registry::{Counter, Gauge, Registry};

/// The history of snapshots. Its series are there as long as it is.
#[derive(Debug)]
pub struct SnapshotMetrics {
    succeeded: Counter,
    /// Snapshots that could not be written.
    pub failed: Counter,
    last_success: Gauge,
    unread: Gauge,
}

impl SnapshotMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            succeeded: registry.counter(&SNAPSHOTS, &["success"]),
            failed: registry.counter(&SNAPSHOTS, &["failure"]),
            last_success: registry.gauge(&SNAPSHOT_LAST_SUCCESS, &[]),
            unread: registry.gauge(&SNAPSHOT_UNREAD, &[]),
        }
    }

    /// Shows if there is a snapshot that could not be read.
    pub fn set_unread(&self, is_unread: bool) {
        self.unread.set(is_unread.into());
    }

    /// Counts a snapshot of what was so many microseconds after the Unix epoch.
    pub fn saved(&self, micros: u64) {
        self.succeeded.increment();
        self.last_success.set((micros / 1_000_000) as i64);
    }
}
