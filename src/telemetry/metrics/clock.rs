//! Steps of the wall clock.

use super::families::{CLOCK_LEAD, CLOCK_STEPS};
use crate::telemetry::registry::{Counter, Gauge, Registry};

/// Counts steps of the wall clock. Clones share the counters.
#[derive(Clone, Debug)]
pub struct ClockMetrics {
    /// Steps forward.
    pub forward: Counter,
    /// Steps back.
    pub back: Counter,
    /// How far the wall clock is ahead of the clock of limits, in seconds.
    pub lead: Gauge,
}

impl ClockMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            forward: registry.counter(&CLOCK_STEPS, &["forward"]),
            back: registry.counter(&CLOCK_STEPS, &["back"]),
            lead: registry.gauge(&CLOCK_LEAD, &[]),
        }
    }
}
