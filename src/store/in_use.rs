//! Units in use by a request in flight. They return when the request ends, however it ends.

use std::time::Duration;

use super::Buckets;
use super::memory::{Charge, Permit};
use super::redis::LeaseGuard;
use crate::telemetry::registry::{Gauge, GaugeGuard};

/// Units in use, returned on drop.
#[derive(Debug)]
pub struct InUse {
    // In this order: the units are free before waiters learn of it.
    _permit: Option<Permit>,
    _lease: Option<LeaseGuard>,
    _counted: Option<GaugeGuard>,
}

/// The result of asking for permits.
#[derive(Debug)]
pub enum Acquired {
    /// The charge costs nothing.
    Nothing,
    /// The queue is full.
    QueueFull,
    /// The permits.
    Permits(InUse),
    /// A place in the queue.
    Place(PermitPlace),
}

/// A place in the queue for permits. It is left when this is dropped.
#[derive(Debug)]
pub struct PermitPlace {
    permit: Permit,
    units: u32,
    in_use: Gauge,
    max_wait: Duration,
}

impl InUse {
    /// The units of an admitted charge in memory; `None` if time returns them. To be called once
    /// for a charge.
    pub(super) fn of(buckets: &Buckets, charge: &Charge<'_>) -> Option<Self> {
        let in_use = buckets.in_use.as_ref()?;
        Some(Self::of_permit(
            charge.permit()?,
            in_use,
            charge.demand.cost,
        ))
    }

    fn of_permit(permit: Permit, in_use: &Gauge, units: u32) -> Self {
        InUse {
            _permit: Some(permit),
            _lease: None,
            _counted: Some(in_use.hold(units)),
        }
    }

    /// The units under a lease in Redis, counted by `in_use` if no table counts them.
    pub(super) fn of_lease(lease: LeaseGuard, in_use: Option<&Gauge>, units: u32) -> Self {
        InUse {
            _permit: None,
            _lease: Some(lease),
            _counted: in_use.map(|in_use| in_use.hold(units)),
        }
    }
}

impl Acquired {
    /// Takes the units of a charge, or a place in the queue for them.
    pub(super) fn of(buckets: &Buckets, charge: &Charge<'_>) -> Self {
        let units = charge.demand.cost;
        if units == 0 {
            return Self::Nothing;
        }
        if u64::from(units) > charge.table.algorithm().capacity() {
            // However long it waits: it takes no place of others.
            return Self::QueueFull;
        }
        let (Some(permit), Some(in_use)) = (charge.acquire(), &buckets.in_use) else {
            return Self::QueueFull;
        };
        if !permit.has_to_wait() {
            return Self::Permits(InUse::of_permit(permit, in_use, units));
        }
        let bound = charge.table.algorithm().queueing();
        Self::Place(PermitPlace {
            permit,
            units,
            in_use: in_use.clone(),
            max_wait: bound.map_or(Duration::ZERO, |bound| bound.max_wait),
        })
    }
}

impl PermitPlace {
    /// Waits for the permits as long as the policy allows; `None` if they do not come.
    pub async fn wait(self) -> Option<InUse> {
        let acquired = self.permit.acquired();
        tokio::time::timeout(self.max_wait, acquired).await.ok()?;
        Some(InUse::of_permit(self.permit, &self.in_use, self.units))
    }
}
