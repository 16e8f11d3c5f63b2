//! The export of spans.

use crate::telemetry::registry::{Counter, Counters, handle_set, label_values};

label_values! {
    /// The reason for the loss of spans, as the `reason` label has it.
    SpanLoss {
        /// The queue was full.
        QueueFull,
        /// The collector did not answer in time, or not at all.
        Unreachable,
        /// The collector refused them.
        Refused,
    }
}

handle_set! {
    /// Spans that were exported, and those that were lost. Handles of one registry count together.
    SpanMetrics() {
        /// Spans that the collector has taken.
        pub exported: Counter = counter("sluicegate_trace_spans_exported_total"),
        /// Lost spans.
        pub dropped: Counters<SpanLoss> = counters("sluicegate_trace_spans_dropped_total"),
    }
}
