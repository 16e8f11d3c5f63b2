//! The export of spans.

use super::families::{SPANS_DROPPED, SPANS_EXPORTED};
use crate::telemetry::registry::{Counter, Counters, Registry, label_values};

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

/// Spans that were exported, and those that were lost. Handles of one registry count together.
#[derive(Debug)]
pub struct SpanMetrics {
    /// Spans that the collector has taken.
    pub exported: Counter,
    /// Lost spans.
    pub dropped: Counters<SpanLoss>,
}

impl SpanMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            exported: registry.counter(&SPANS_EXPORTED, &[]),
            dropped: registry.counters(&SPANS_DROPPED, &[]),
        }
    }
}
