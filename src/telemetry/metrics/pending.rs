//! Requests that wait for a slot at a host of their upstream.

use crate::telemetry::registry::{Counters, Gauge, Histogram, handle_set, label_values};

handle_set! {
    /// The waiting requests of an upstream with `connections.max`. Handles of the same name count
    /// together.
    PendingMetrics(upstream) {
        /// Requests that wait.
        pub pending: Gauge = gauge("sluicegate_upstream_pending"),
        /// The time for which requests have waited for their slots.
        pub wait: Histogram = histogram("sluicegate_upstream_pending_seconds"),
        /// Requests that got no slot.
        pub refused: Counters<PendingRefusal> = counters("sluicegate_upstream_pending_refused_total"),
    }
}

label_values! {
    /// The reason why a request that needs a slot gets none: the `reason` label.
    PendingRefusal {
        /// As many requests as may wait do so.
        Full,
        /// It has waited as long as it may.
        Timeout,
        /// The time for the whole request was over.
        Deadline,
    }
}
