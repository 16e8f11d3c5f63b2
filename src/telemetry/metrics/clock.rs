//! Steps of the wall clock.

use crate::telemetry::registry::{Counter, Gauge, handle_set};

handle_set! {
    /// Counts steps of the wall clock. Clones share the counters.
    #[derive(Clone)]
    ClockMetrics() {
        /// Steps forward.
        pub forward: Counter = counter("sluicegate_clock_steps_total", "forward"),
        /// Steps back.
        pub back: Counter = counter("sluicegate_clock_steps_total", "back"),
        /// How far the wall clock is ahead of the clock of limits, in seconds.
        pub lead: Gauge = gauge("sluicegate_clock_lead_seconds"),
    }
}
