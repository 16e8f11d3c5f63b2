//! Limits that tag: a request beyond their quota is forwarded with a header field that says so.
//!
//! They decide after the other limits have admitted the request, independently of each other.

use crate::http::headers::Headers;

use super::applicability::Applicability;
use super::in_flight::InFlightGuard;
use super::mode::Enforcement;
use super::note_near;
use super::settle::{
    self, AnyReservation, RequestedFields, ReservedCharge, ResponseEnd, ResponseHead, Settling,
};
use super::sync_charges;
use crate::clock::Timestamp;
use crate::limiter::{Decision, Secret};
use crate::proxy::ruleset::{Limit, OnStoreError, Route};
use crate::rules::Head;
use crate::store::redis;
use crate::store::{Charge, Refusals, SettleableCharge, charge_all, charge_and_reserve};
use crate::telemetry::metrics::LimitDecision;

/// The decisions of the limits that tag.
#[derive(Debug, Default)]
pub(crate) struct TagDecisions {
    /// True if one of them applied.
    pub applied: bool,
    /// The places of the limits that the request exceeds.
    exceeded: Vec<usize>,
    /// Units in use, returned when the request ends.
    taken: Vec<InFlightGuard>,
    /// Charges that the response settles.
    reserved_charges: Vec<ReservedCharge>,
}

/// The decision of a limit with its bucket in Redis.
#[derive(Debug)]
pub(crate) struct RedisTagDecision {
    pub place: usize,
    pub said: RedisAnswer,
    /// Units in use, returned when the request ends.
    pub taken: Option<InFlightGuard>,
    /// The charge that the response settles.
    pub due: Option<redis::Reservation>,
}

#[derive(Debug)]
pub(crate) enum RedisAnswer {
    Decided(Decision),
    /// Redis did not answer; the policy's `on_store_error` decides.
    Unknown(OnStoreError),
}

/// Charges the limits that tag, except those that Redis has decided on.
pub(crate) fn decide_tags(
    route: &Route,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
    told: Vec<RedisTagDecision>,
) -> TagDecisions {
    let mut tagged = TagDecisions::default();
    let mut told = told
        .into_iter()
        .filter(RedisTagDecision::is_known)
        .peekable();
    for (place, limit) in route.tags_for(head).iter().enumerate() {
        let decision = match told.next_if(|told| told.place == place) {
            Some(told) => Some(tagged.keep(told, limit, head)),
            None => tagged.decide((place, limit), secret, head, now),
        };
        if let Some(decision) = decision {
            limit.metrics.record(decision);
            tagged.applied |= decision != LimitDecision::Exempt;
        }
        if decision == Some(LimitDecision::Tagged) {
            tagged.exceeded.push(place);
        }
    }
    tagged
}

impl RedisTagDecision {
    /// False if memory decides in place of Redis.
    fn is_known(&self) -> bool {
        !matches!(self.said, RedisAnswer::Unknown(OnStoreError::Local))
    }
}

impl RedisAnswer {
    fn of(&self, limit: &Limit, head: &Head<'_>) -> LimitDecision {
        match self {
            Self::Decided(decision) if decision.is_admitted() => {
                note_near(limit, decision);
                LimitDecision::Allowed
            }
            Self::Decided(_) | Self::Unknown(OnStoreError::Refuse) => beyond(limit, head),
            Self::Unknown(OnStoreError::Admit | OnStoreError::Local) => LimitDecision::Error,
        }
    }
}

impl TagDecisions {
    /// Applies the decision of Redis.
    fn keep(&mut self, told: RedisTagDecision, limit: &Limit, head: &Head<'_>) -> LimitDecision {
        let due = told.due.map(AnyReservation::InRedis);
        let due = due.map(|due| ReservedCharge::new(told.place, due));
        self.taken.extend(told.taken);
        self.reserved_charges.extend(due);
        told.said.of(limit, head)
    }

    /// `None` if the limit does not apply to the request.
    fn decide(
        &mut self,
        (place, limit): (usize, &Limit),
        secret: &Secret,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Option<LimitDecision> {
        let (key, chosen) = match limit.evaluate(secret, head) {
            Applicability::Bucket(key, chosen) => (key, chosen),
            Applicability::Elsewhere => return None,
            Applicability::Exempt | Applicability::Skipped => return Some(LimitDecision::Exempt),
            Applicability::Keyless => return Some(beyond(limit, head)),
        };
        let Ok(cost) = limit.spec.cost.of(head) else {
            return Some(beyond(limit, head));
        };
        let policy = limit.chosen(chosen);
        let table = &policy.table;
        let charge = Charge {
            table,
            key,
            cost,
            window_end: policy.window_end(head, now),
        };
        let settled = [SettleableCharge {
            index: 0,
            table,
            key,
            cost,
        }];
        let settled = &settled[..usize::from(limit.spec.settlement.is_some())];
        let (verdict, mut reserved) =
            charge_and_reserve(settled, now, || charge_all(&[charge], now));
        let decision = &verdict.decisions[0];
        let is_charged = decision.is_admitted() || table.refusals() == Refusals::Charged;
        let charged = is_charged.then_some((&charge, decision));
        let its = reserved.first_mut().map(|(_, its)| its);
        sync_charges::record_one((limit, chosen), head, charged, now, its);
        if !verdict.is_admitted() {
            return Some(beyond(limit, head));
        }
        self.taken
            .extend(InFlightGuard::of(limit.chosen(chosen), &charge));
        let due = |(_, reservation)| ReservedCharge::new(place, AnyReservation::Here(reservation));
        self.reserved_charges.extend(reserved.into_iter().map(due));
        if let Some(decision) = verdict.decision() {
            note_near(limit, decision);
        }
        Some(LimitDecision::Allowed)
    }

    /// Settles the charges whose cost the response head states.
    pub(crate) fn settle_by_head(
        &mut self,
        answered: ResponseHead<'_>,
        settling: &mut Settling<'_>,
    ) {
        let route = settling.route;
        settle::settle_head(&mut self.reserved_charges, &route.tags, answered, settling);
    }

    /// Scans a piece of the body, and settles the charges whose cost it states.
    pub(crate) fn settle_by_piece(
        &mut self,
        piece: &[u8],
        ended: ResponseEnd<'_>,
        settling: &mut Settling<'_>,
    ) {
        let route = settling.route;
        settle::settle_piece(
            &mut self.reserved_charges,
            &route.tags,
            piece,
            ended,
            settling,
        );
    }

    /// Settles the remaining charges at the end of the response.
    pub(crate) fn settle_by_body(&mut self, ended: ResponseEnd<'_>, settling: &mut Settling<'_>) {
        let route = settling.route;
        settle::settle_end(&mut self.reserved_charges, &route.tags, ended, settling);
    }

    /// Notes the fields that the upstream must send so that the response can settle all charges.
    pub(crate) fn note_requested_fields(&self, route: &Route, wanted: &mut RequestedFields) {
        wanted.note(&self.reserved_charges, &route.tags);
    }

    pub(crate) fn has_reserved_charges(&self) -> bool {
        !self.reserved_charges.is_empty()
    }
}

/// The decision on a request beyond the quota.
fn beyond(limit: &Limit, head: &Head<'_>) -> LimitDecision {
    match limit.policy.mode.enforcement(&limit.spec.descriptor, head) {
        Enforcement::Enforced => LimitDecision::Tagged,
        Enforcement::Shadowed => LimitDecision::Shadowed,
    }
}

/// Writes the tags for the upstream. Fields of the client are removed: an upstream believes them.
pub(crate) fn write(route: &Route, tagged: &TagDecisions, headers: &mut Headers) {
    for tag in route
        .tags
        .iter()
        .filter_map(|limit| limit.policy.action.tag())
    {
        headers.remove(&tag.name);
    }
    let exceeded = tagged.exceeded.iter().map(|&place| &route.tags[place]);
    for tag in exceeded.filter_map(|limit| limit.policy.action.tag()) {
        headers.append(&tag.name, tag.value.clone());
    }
}
