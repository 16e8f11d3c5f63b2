//! Steps of the wall clock.

use super::families::CLOCK_STEPS;
use crate::telemetry::registry::{Counter, Registry};

/// Counts steps of the wall clock. Clones share the counters.
#[derive(Clone, Debug)]
pub struct ClockMetrics {
    forward: Counter,
    back: Counter,
}

impl ClockMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            forward: registry.counter(&CLOCK_STEPS, &["forward"]),
            back: registry.counter(&CLOCK_STEPS, &["back"]),
        }
    }

    /// Counts a step in this direction: `forward` or `back`.
    pub fn stepped(&self, direction: &str) {
        match direction {
            "forward" => self.forward.increment(),
            _ => self.back.increment(),
        }
    }
}
