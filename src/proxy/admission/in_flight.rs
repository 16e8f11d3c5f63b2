//! Units in use by a request in flight. They return when the request ends, however it ends.

use crate::proxy::ruleset::Policy;
use crate::store::redis::LeaseGuard;
use crate::store::{Charge, Permit};
use crate::telemetry::metrics::{InUseMetrics, UnitsInUse};

/// Units in use, returned on drop.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    // In this order: the units are free before waiters learn of it.
    _permit: Option<Permit>,
    _lending: Option<LeaseGuard>,
    _counted: Option<UnitsInUse>,
}

impl InFlightGuard {
    /// The guard of an admitted charge; `None` if time returns its units. To be called once for a
    /// charge.
    pub(crate) fn of(policy: &Policy, charge: &Charge<'_>) -> Option<Self> {
        let in_use = policy.in_use_metrics.as_ref()?;
        Some(Self::of_permit(charge.permit()?, in_use, charge.cost))
    }

    /// The guard of a permit's units.
    pub(crate) fn of_permit(permit: Permit, in_use: &InUseMetrics, units: u32) -> Self {
        InFlightGuard {
            _permit: Some(permit),
            _lending: None,
            _counted: Some(in_use.take(units)),
        }
    }

    /// The guard of units under a lease in Redis, counted by `in_use` if no table counts them.
    pub(crate) fn of_lease(lending: LeaseGuard, in_use: Option<&InUseMetrics>, units: u32) -> Self {
        InFlightGuard {
            _permit: None,
            _lending: Some(lending),
            _counted: in_use.map(|in_use| in_use.take(units)),
        }
    }
}
