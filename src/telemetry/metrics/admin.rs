//! The admin API: refused callers, and readers of streams.

use strum::VariantArray;

use crate::telemetry::registry::{Counters, Gauge, GaugeGuard, Registry, label_values};

label_values! {
    /// The reason why the admin API refuses a caller, as the `reason` label has it.
    AdminRefusal {
        /// No token, or an unknown one.
        Unauthenticated,
        /// Too many unknown tokens from the address: this one was not looked at.
        Throttled,
        /// The token may not do this.
        Forbidden,
        /// A page of another origin sent the request.
        CrossOrigin,
        /// The request names a host that the listener does not have.
        UnknownHost,
    }
}

label_values! {
    /// A stream that callers read, as the `stream` label has it.
    AdminStream {
        /// Figures, one message a second.
        Live,
        /// Events of the running process.
        Events,
    }
}

/// Figures of the admin API. Clones count together.
#[derive(Clone, Debug)]
pub struct AdminMetrics {
    /// Refused requests.
    pub refused: Counters<AdminRefusal>,
    /// One for each [`AdminStream`].
    readers: [Gauge; AdminStream::VARIANTS.len()],
}

impl AdminMetrics {
    /// Makes the handles: their series are there from the start.
    pub fn new(registry: &Registry) -> Self {
        let readers = |index: usize| {
            let stream = AdminStream::VARIANTS[index].as_str();
            registry.gauge("sluicegate_admin_stream_readers", &[stream])
        };
        Self {
            refused: registry.counters("sluicegate_admin_requests_refused_total", &[]),
            readers: std::array::from_fn(readers),
        }
    }

    /// Counts a reader of a stream until the guard is dropped.
    pub fn reader(&self, stream: AdminStream) -> GaugeGuard {
        self.readers[stream as usize].hold(1)
    }
}
