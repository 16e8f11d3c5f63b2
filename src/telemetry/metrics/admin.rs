//! The admin API: refused callers, and readers of streams.

use strum::{IntoStaticStr, VariantArray};

use super::families::{ADMIN_REFUSED, ADMIN_STREAM_READERS};
use crate::telemetry::registry::{CounterSet, Gauge, GaugeGuard, Registry};

/// The reason why the admin API refuses a caller, as the `reason` label has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AdminRefusal {
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

/// A stream that callers read, as the `stream` label has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AdminStream {
    /// Figures, one message a second.
    Live,
    /// Events of the running process.
    Events,
}

/// Figures of the admin API. Clones count together.
#[derive(Clone, Debug)]
pub struct AdminMetrics {
    refused: CounterSet,
    /// One for each [`AdminStream`].
    readers: [Gauge; AdminStream::VARIANTS.len()],
}

impl AdminMetrics {
    /// Makes the handles: their series are there from the start.
    pub fn new(registry: &Registry) -> Self {
        let reason = |index: usize| AdminRefusal::VARIANTS[index].into();
        let count = AdminRefusal::VARIANTS.len();
        let readers = |index: usize| {
            let stream: &str = AdminStream::VARIANTS[index].into();
            registry.gauge(&ADMIN_STREAM_READERS, &[stream])
        };
        Self {
            refused: registry.counter_set(&ADMIN_REFUSED, &[], count, reason),
            readers: std::array::from_fn(readers),
        }
    }

    /// Counts a refused request.
    pub fn refused(&self, reason: AdminRefusal) {
        self.refused.increment(reason as usize);
    }

    /// Counts a reader of a stream until the guard is dropped.
    pub fn reader(&self, stream: AdminStream) -> GaugeGuard {
        self.readers[stream as usize].hold(1)
    }
}
