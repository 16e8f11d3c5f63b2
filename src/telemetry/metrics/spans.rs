//! The export of spans.

use strum::{IntoStaticStr, VariantArray};

use super::families::{SPANS_DROPPED, SPANS_EXPORTED};
use crate::telemetry::registry::{Counter, CounterSet, Registry};

/// The reason for the loss of spans, as the `reason` label has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SpanLoss {
    /// The queue was full.
    QueueFull,
    /// The collector did not answer in time, or not at all.
    Unreachable,
    /// The collector refused them.
    Refused,
}

/// Spans that were exported, and those that were lost. Handles of one registry count together.
#[derive(Debug)]
pub struct SpanMetrics {
    exported: Counter,
    dropped: CounterSet,
}

impl SpanMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        let reason = |index: usize| SpanLoss::VARIANTS[index].into();
        let count = SpanLoss::VARIANTS.len();
        Self {
            exported: registry.counter(&SPANS_EXPORTED, &[]),
            dropped: registry.counter_set(&SPANS_DROPPED, &[], count, reason),
        }
    }

    /// Counts spans that the collector has taken.
    pub fn exported(&self, spans: u64) {
        self.exported.add(spans);
    }

    /// Counts lost spans.
    pub fn dropped(&self, reason: SpanLoss, spans: u64) {
        self.dropped.add(reason as usize, spans);
    }
}
