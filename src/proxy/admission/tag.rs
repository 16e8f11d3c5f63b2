//! Limits that tag: a request beyond their quota is forwarded with a header field that says so.
//!
//! They decide after the other limits have admitted the request, independently of each other.

use crate::http::headers::Headers;

use super::Admission;
use super::applicability::Applicability;
use super::context::AdmissionInputs;
use super::mode::Enforcement;
use super::note_near;
use super::settle::UnsettledCharge;
use crate::limiter::Decision;
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::Head;
use crate::store::{ChargeResult, ChargeSet, OnStoreError, Store};
use crate::telemetry::metrics::LimitDecision;

/// The decisions of the limits that tag.
#[derive(Debug, Default)]
pub(crate) struct TagDecisions {
    /// True if one of them applied.
    pub applied: bool,
    /// The numbers of the limits that the request exceeds.
    exceeded: Vec<u16>,
    /// The numbers of the limits in shadow that the request exceeds.
    shadowed: Vec<u16>,
}

impl TagDecisions {
    /// True if the request exceeds the limit with this number.
    pub(crate) fn exceeds(&self, number: u16) -> bool {
        self.exceeded.contains(&number)
    }

    /// The numbers of the limits in shadow that the request exceeds.
    pub(crate) fn shadowed(&self) -> &[u16] {
        &self.shadowed
    }
}

/// Charges the limits that tag, except those that Redis has decided on. `admission` keeps what they
/// hold until the request ends.
pub(crate) fn decide_tags(inputs: &AdmissionInputs<'_>, admission: &mut Admission) -> TagDecisions {
    let mut tagged = TagDecisions::default();
    let replies = std::mem::take(&mut admission.result.tags);
    // Without Redis, memory decides if the policy says so.
    let is_decided = |(_, reply): &(u16, Result<_, _>)| *reply != Err(OnStoreError::Local);
    let mut replies = replies.into_iter().filter(is_decided).peekable();
    for (number, limit) in inputs.route.tags_for(inputs.head) {
        let decision = match replies.next_if(|(tag, _)| *tag == number) {
            Some((_, Ok(decision))) => Some(said(&decision, limit, inputs.head)),
            Some((_, Err(OnStoreError::Refuse))) => Some(beyond(limit, inputs.head)),
            Some((_, Err(_))) => Some(LimitDecision::Error),
            None => decide((number, limit), inputs, admission),
        };
        if let Some(decision) = decision {
            limit.metrics.record(decision);
            tagged.applied |= decision != LimitDecision::Exempt;
        }
        match decision {
            Some(LimitDecision::Tagged) => tagged.exceeded.push(number),
            Some(LimitDecision::Shadowed) => tagged.shadowed.push(number),
            _ => {}
        }
    }
    tagged
}

/// Charges one limit in memory; `None` if it does not apply to the request.
fn decide(
    (number, limit): (u16, &Limit),
    inputs: &AdmissionInputs<'_>,
    admission: &mut Admission,
) -> Option<LimitDecision> {
    let head = inputs.head;
    let bucket = match limit.evaluate(inputs.secret, head) {
        Applicability::Bucket(key, place) => (key, place),
        Applicability::Elsewhere => return None,
        Applicability::Exempt | Applicability::Skipped => return Some(LimitDecision::Exempt),
        Applicability::Keyless => return Some(beyond(limit, head)),
    };
    let Ok(cost) = limit.spec.cost.of(head) else {
        return Some(beyond(limit, head));
    };
    let mut set = ChargeSet::new(&Store::Memory, inputs, inputs.now);
    set.push(
        inputs.charge(number, bucket, cost, Enforcement::Enforced),
        true,
    );
    let mut result = ChargeResult::default();
    set.charge(&mut result);
    admission.result.in_use.append(&mut result.in_use);
    let reservations = result.reservations.into_iter();
    let reserved = reservations.map(|(limit, one)| UnsettledCharge::new(limit, one));
    admission.reserved_charges.extend(reserved);
    let decision = result.verdict.decision();
    decision.map(|decision| said(decision, limit, head))
}

/// Counts a decision.
fn said(decision: &Decision, limit: &Limit, head: &Head<'_>) -> LimitDecision {
    if !decision.is_admitted() {
        return beyond(limit, head);
    }
    note_near(limit, decision);
    LimitDecision::Allowed
}

/// The decision on a request beyond the quota.
fn beyond(limit: &Limit, head: &Head<'_>) -> LimitDecision {
    match limit.enforcement(head) {
        Enforcement::Enforced => LimitDecision::Tagged,
        Enforcement::Shadowed => LimitDecision::Shadowed,
    }
}

/// Writes the tags for the upstream. Fields of the client are removed: an upstream believes them.
pub(crate) fn write(route: &Route, tagged: &TagDecisions, headers: &mut Headers) {
    let tags = route.tags().iter();
    for tag in tags.filter_map(|limit| limit.policy.action.tag()) {
        headers.remove(&tag.name);
    }
    let exceeded = tagged.exceeded.iter().map(|&number| route.limit(number));
    for tag in exceeded.filter_map(|limit| limit.policy.action.tag()) {
        headers.append(&tag.name, tag.value.clone());
    }
}
