//! Snapshots of buckets: how saving them went.

use crate::telemetry::registry::{Counter, Gauge, handle_set};

handle_set! {
    /// The history of snapshots. Its series are there as long as it is.
    SnapshotMetrics() {
        succeeded: Counter = counter("sluicegate_snapshots_total", "success"),
        /// Snapshots that could not be written.
        pub failed: Counter = counter("sluicegate_snapshots_total", "failure"),
        last_success: Gauge = gauge("sluicegate_snapshot_last_success_timestamp_seconds"),
        unread: Gauge = gauge("sluicegate_snapshot_unread"),
    }
}

impl SnapshotMetrics {
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
