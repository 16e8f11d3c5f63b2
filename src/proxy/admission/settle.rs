//! Settlement: the response states what a request costs, and corrects the charges that were
//! reserved.

use std::sync::Arc;

use http::StatusCode;
use http::header::{ACCEPT_ENCODING, CONNECTION, HeaderValue, TE};

use super::Admission;
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::{
    BodyEnd, CostSource, Estimate, ReportedCost, ResponseOrigin, SettlementRule, UsageScan,
};
use crate::store::Reservation;
use crate::telemetry::metrics::SettlementResult;

/// A charge that the response settles. Dropped, the reserved charge stays.
#[derive(Debug)]
pub(super) struct UnsettledCharge {
    /// The number of the limit.
    pub(super) limit: u16,
    pub(super) reservation: Reservation,
    pub(super) estimate: Estimate,
    /// The body scan, if the body states the cost.
    pub(super) usage: Option<Box<UsageScan>>,
}

/// The head of the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHead<'a> {
    pub status: StatusCode,
    pub author: ResponseOrigin,
    pub headers: &'a Headers,
    /// Costs that a log line states, by policy.
    pub recorded: &'a [(String, u32)],
}

/// The end of the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseEnd<'a> {
    /// `None` without a response.
    pub status: Option<StatusCode>,
    /// The number of body bytes.
    pub bytes: u64,
    pub body: BodyEnd<'a>,
}

/// The settlement of one exchange.
pub(crate) struct Settling<'a> {
    pub route: &'a Route,
    pub now: Timestamp,
    /// Collects the costs that the response states, by policy.
    pub stated: &'a mut Vec<(Arc<str>, u32)>,
}

impl Admission {
    pub(crate) fn has_reserved_charges(&self) -> bool {
        !self.reserved_charges.is_empty()
    }

    /// Returns true if a charge needs the usage of streams, for which requests have to ask.
    pub(crate) fn needs_usage(&self, route: &Route) -> bool {
        self.settlements(route).any(|one| !one.inputs().is_empty())
    }

    fn settlements<'r>(&self, route: &'r Route) -> impl Iterator<Item = &'r SettlementRule> {
        let limits = self.reserved_charges.iter().map(|charge| charge.limit);
        limits.filter_map(|limit| route.limit(limit).spec.settlement.as_ref())
    }

    /// Asks the upstream for what the response needs to state all costs: a body that isn't compressed,
    /// and trailers.
    pub(crate) fn ask_for_costs(&self, route: &Route, headers: &mut Headers) {
        let (mut plain_body, mut trailers) = (false, false);
        for settlement in self.settlements(route) {
            plain_body |= matches!(settlement.by, CostSource::Json(_));
            trailers |= matches!(settlement.by, CostSource::Trailer(_));
        }
        if plain_body {
            let identity = const { HeaderValue::from_static("identity") };
            headers.insert(ACCEPT_ENCODING, identity);
        }
        // A client that takes trailers has already sent this.
        if trailers && !headers.contains(TE) {
            headers.append(TE, const { HeaderValue::from_static("trailers") });
            headers.append(CONNECTION, const { HeaderValue::from_static("te") });
        }
    }

    /// Settles the charges whose cost the response head states.
    pub(crate) fn settle_by_head(
        &mut self,
        answered: ResponseHead<'_>,
        settling: &mut Settling<'_>,
    ) {
        for mut charge in std::mem::take(&mut self.reserved_charges) {
            let limit = settling.route.limit(charge.limit);
            let Some(settlement) = &limit.spec.settlement else {
                continue;
            };
            let reserved = charge.estimate.reserved;
            let cost = match head_cost(limit, settlement, reserved, answered) {
                Some(cost) => cost,
                None => match settlement.usage_scan(answered.headers) {
                    Ok(usage) => {
                        charge.usage = usage.map(Box::new);
                        self.reserved_charges.push(charge);
                        continue;
                    }
                    Err(cost) => cost,
                },
            };
            settling.settle(charge, settlement, cost, Some(answered.status));
        }
    }

    /// Scans a piece of the body, and settles the charges whose last cost it states.
    pub(crate) fn settle_by_piece(
        &mut self,
        piece: &[u8],
        ended: ResponseEnd<'_>,
        settling: &mut Settling<'_>,
    ) {
        let is_complete = |charge: &mut UnsettledCharge| {
            charge.usage.as_mut().is_some_and(|usage| {
                usage.feed(piece);
                usage.is_complete()
            })
        };
        for charge in self.reserved_charges.extract_if(.., is_complete) {
            settle_end(charge, ended, settling);
        }
    }

    /// Settles the remaining charges at the end of the response.
    pub(crate) fn settle_by_body(&mut self, ended: ResponseEnd<'_>, settling: &mut Settling<'_>) {
        for charge in self.reserved_charges.drain(..) {
            settle_end(charge, ended, settling);
        }
    }
}

/// The cost that the head states.
fn head_cost(
    limit: &Limit,
    settlement: &SettlementRule,
    reserved: u32,
    answered: ResponseHead<'_>,
) -> Option<ReportedCost> {
    let status = answered.status.as_u16();
    let cost = settlement.by_head(reserved, status, answered.author, answered.headers);
    if cost == Some(ReportedCost::NotCounted) {
        return cost;
    }
    let name = &*limit.policy.name;
    let mut recorded = answered.recorded.iter();
    // A candidate has the cost of its policy.
    let recorded =
        recorded.find(|(policy, _)| name.strip_suffix("/candidate").unwrap_or(name) == policy);
    let recorded = recorded.and_then(|&(_, units)| settlement.by_record(units));
    recorded.or(cost)
}

/// Settles a charge at the end of the response.
fn settle_end(mut charge: UnsettledCharge, ended: ResponseEnd<'_>, settling: &mut Settling<'_>) {
    let limit = settling.route.limit(charge.limit);
    if let Some(settlement) = &limit.spec.settlement {
        let (estimate, usage) = (charge.estimate, charge.usage.as_deref_mut());
        let cost = match ended.status {
            Some(_) => settlement.by_body(estimate, usage, ended.bytes, ended.body),
            None => ReportedCost::NoResponse {
                stated: estimate.least,
            },
        };
        settling.settle(charge, settlement, cost, ended.status);
    }
}

impl Settling<'_> {
    /// Replaces the reserved charge by the stated cost, and counts it. Without a cost, the charge
    /// stays.
    fn settle(
        &mut self,
        charge: UnsettledCharge,
        settlement: &SettlementRule,
        cost: ReportedCost,
        status: Option<StatusCode>,
    ) {
        let limit = self.route.limit(charge.limit);
        let Estimate {
            reserved, least, ..
        } = charge.estimate;
        let is_success = status.is_some_and(|status| status.is_success());
        let least = least * u32::from(is_success);
        let (units, result) = match cost {
            ReportedCost::Units(units) => (units, SettlementResult::Settled),
            ReportedCost::NotCounted => (0, SettlementResult::Settled),
            ReportedCost::Missing => (reserved.max(least), SettlementResult::Missing),
            ReportedCost::Malformed => (reserved.max(least), SettlementResult::Malformed),
            ReportedCost::NoResponse { stated } => {
                (stated.max(reserved), SettlementResult::NoResponse)
            }
        };
        charge.reservation.settle(units, self.now);
        let is_charged = matches!(cost, ReportedCost::Units(_)) || units > reserved;
        if settlement.by.is_stated() && is_charged {
            self.stated.push((Arc::clone(&limit.policy.name), units));
        }
        if let Some(settlements) = &limit.policy.settlements {
            settlements.metrics.record(result);
            settlements.units.add(units.into());
            // Error responses rarely state a cost: one of them would use up the only line.
            let is_unexpected = match result {
                SettlementResult::Missing => is_success,
                SettlementResult::Malformed => true,
                SettlementResult::Settled | SettlementResult::NoResponse => false,
            };
            if is_unexpected && settlements.is_first_to_log() {
                tracing::warn!(
                    policy = &*limit.policy.name,
                    route = &*self.route.name,
                    status = status.map(|status| status.as_u16()),
                    result = result.as_str(),
                    source = settlement.by.to_string(),
                    reserved,
                    "a response states no cost, and its estimate stays charged; \
                     further ones are only counted in sluicegate_limit_settlements_total"
                );
            }
        }
    }
}
