//! The admin API: refused callers.

use strum::{IntoStaticStr, VariantArray};

use super::families::ADMIN_REFUSED;
use crate::telemetry::registry::{CounterSet, Registry};

/// The reason why the admin API refuses a caller, as the `reason` label has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AdminRefusal {
    /// No token, or an unknown one.
    Unauthenticated,
    /// The token may not do this.
    Forbidden,
    /// A page of another origin sent the request.
    CrossOrigin,
}

/// Figures of the admin API. Clones count together.
#[derive(Clone, Debug)]
pub struct AdminMetrics {
    refused: CounterSet,
}

impl AdminMetrics {
    /// Makes the handles: their series are there from the start.
    pub fn new(registry: &Registry) -> Self {
        let reason = |index: usize| AdminRefusal::VARIANTS[index].into();
        let count = AdminRefusal::VARIANTS.len();
        Self {
            refused: registry.counter_set(&ADMIN_REFUSED, &[], count, reason),
        }
    }

    /// Counts a refused request.
    pub fn refused(&self, reason: AdminRefusal) {
        self.refused.increment(reason as usize);
    }
}
