//! Charges that the response settles: what a request took of limits before it was known what it costs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::StatusCode;

use super::snapshot::{Limit, Route};
use crate::clock::Timestamp;
use crate::http_ext::headers::Headers;
use crate::rules::{Author, ReportedCost};
use crate::store::{Reservation, redis};
use crate::telemetry::metrics::{SettlementMetrics, SettlementResult};
use crate::telemetry::registry::Registry;

/// A charge that is to be settled. Dropped, it stands as it was made.
#[derive(Debug)]
pub(super) struct Due {
    /// The place of the limit among those of the route that are of its kind.
    pub place: usize,
    pub reservation: Reserved,
}

/// What was charged, where its bucket is.
#[derive(Debug)]
pub(super) enum Reserved {
    Here(Reservation),
    InRedis(redis::Reservation),
}

impl Reserved {
    /// What was charged in memory.
    pub(super) fn here_mut(&mut self) -> Option<&mut Reservation> {
        match self {
            Self::Here(reservation) => Some(reservation),
            Self::InRedis(_) => None,
        }
    }

    fn units(&self) -> u32 {
        match self {
            Self::Here(reservation) => reservation.units(),
            Self::InRedis(reservation) => reservation.units(),
        }
    }

    fn settle(self, units: u32, now: Timestamp) {
        match self {
            Self::Here(reservation) => reservation.settle(units, now),
            // At its own time, and soon.
            Self::InRedis(reservation) => reservation.settle(units),
        }
    }
}

/// Settlements of a policy, as they are counted and logged.
#[derive(Debug)]
pub struct Settlements {
    metrics: SettlementMetrics,
    /// Set by the first response that states no cost: it is the only one that is logged.
    is_logged: AtomicBool,
}

impl Settlements {
    /// The settlements of the policy with this name. Policies of the same name count together.
    pub(super) fn new(registry: &Registry, policy: &str) -> Self {
        Settlements {
            metrics: SettlementMetrics::new(registry, policy),
            is_logged: AtomicBool::new(false),
        }
    }
}

/// What settles charges: a response, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered<'a> {
    pub status: StatusCode,
    pub author: Author,
    pub headers: &'a Headers,
}

/// Settles all of `dues`, which are of these limits of the route, that the head of a response can settle.
pub(super) fn by_head(
    dues: &mut Vec<Due>,
    (route, limits): (&Route, &[Limit]),
    answered: Answered<'_>,
    now: Timestamp,
) {
    for due in std::mem::take(dues) {
        let limit = &limits[due.place];
        let Some(settlement) = &limit.settlement else {
            continue;
        };
        let reserved = due.reservation.units();
        let status = answered.status.as_u16();
        match settlement.by_head(reserved, status, answered.author, answered.headers) {
            Some(cost) => settle(due, (route, limit), cost, Some(answered.status), now),
            None => dues.push(due),
        }
    }
}

/// Settles the others, by the bytes of a response's body; without a `status` there was no response.
pub(super) fn by_bytes(
    dues: &mut Vec<Due>,
    (route, limits): (&Route, &[Limit]),
    (status, bytes): (Option<StatusCode>, u64),
    now: Timestamp,
) {
    for due in dues.drain(..) {
        let limit = &limits[due.place];
        if let Some(settlement) = &limit.settlement {
            let cost = match status {
                Some(_) => {
                    let units = settlement.by_bytes(due.reservation.units(), bytes);
                    ReportedCost::Units(units)
                }
                None => ReportedCost::NoResponse,
            };
            settle(due, (route, limit), cost, status, now);
        }
    }
}

/// Makes a charge what the request costs, and counts that; without a stated cost the charge stands.
fn settle(
    due: Due,
    (route, limit): (&Route, &Limit),
    cost: ReportedCost,
    status: Option<StatusCode>,
    now: Timestamp,
) {
    let reserved = due.reservation.units();
    let (units, result) = match cost {
        ReportedCost::Units(units) => (units, SettlementResult::Settled),
        ReportedCost::Missing => (reserved, SettlementResult::Missing),
        ReportedCost::Malformed => (reserved, SettlementResult::Malformed),
        ReportedCost::NoResponse => (reserved, SettlementResult::NoResponse),
    };
    due.reservation.settle(units, now);
    let Some(settlements) = &limit.policy.settlements else {
        return;
    };
    settlements.metrics.record(result);
    // Errors rarely state a cost: one of them would use up the only line.
    let is_unexpected = match result {
        SettlementResult::Missing => status.is_some_and(|status| status.is_success()),
        SettlementResult::Malformed => true,
        SettlementResult::Settled | SettlementResult::NoResponse => false,
    };
    if is_unexpected && !settlements.is_logged.swap(true, Relaxed) {
        tracing::warn!(
            policy = &*limit.policy.name,
            route = &*route.name,
            status = status.map(|status| status.as_u16()),
            result = result.as_str(),
            source = limit.settlement.as_ref().map(|one| one.by.to_string()),
            reserved,
            "a response states no cost, and its estimate stays charged; \
             further ones are only counted in sluicegate_limit_settlements_total"
        );
    }
}
