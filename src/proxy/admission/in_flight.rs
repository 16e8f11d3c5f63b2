//! What a request in flight has taken of a limit, and gives back when it ends, however it ends.

use crate::proxy::ruleset::Policy;
use crate::store::redis::LeaseGuard;
use crate::store::{Charge, Permit};
use crate::telemetry::metrics::{InUseMetrics, UnitsInUse};

/// Units that come back when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    // In this order: what is told to be free is so.
    _permit: Option<Permit>,
    _lending: Option<LeaseGuard>,
    _counted: Option<UnitsInUse>,
}

impl InFlightGuard {
    /// What gives back the units of a charge that this policy has admitted; `None` where they come back with time.
    /// To be asked for once.
    pub(crate) fn of(policy: &Policy, charge: &Charge<'_>) -> Option<Self> {
        let in_use = policy.in_use.as_ref()?;
        Some(Self::granted(charge.permit()?, in_use, charge.cost))
    }

    /// What gives back so many units that this permit has taken.
    pub(crate) fn granted(permit: Permit, in_use: &InUseMetrics, units: u32) -> Self {
        InFlightGuard {
            _permit: Some(permit),
            _lending: None,
            _counted: Some(in_use.take(units)),
        }
    }

    /// What gives back so many units that Redis has lent; counted where they are nowhere else.
    pub(crate) fn lent(lending: LeaseGuard, in_use: Option<&InUseMetrics>, units: u32) -> Self {
        InFlightGuard {
            _permit: None,
            _lending: Some(lending),
            _counted: in_use.map(|in_use| in_use.take(units)),
        }
    }
}
