//! Limits that tag: a request beyond their quota or a soft limit is forwarded with a header field
//! that says so.
//!
//! They decide after the other limits have admitted the request, independently of each other.

use crate::http::headers::Headers;

use super::applicability::Applicability;
use super::context::AdmissionInputs;
use super::mode::Enforcement;
use super::{Admission, note_near};
use crate::limiter::Decision;
use crate::proxy::ruleset::{Limit, Route};
use crate::store::{ChargeResult, ChargeSet, OnStoreError, Store};
use crate::telemetry::metrics::LimitDecision;

/// Charges the limits that tag, except those that Redis has decided on. `admission` keeps what they
/// did, and what they hold until the request ends.
pub(crate) fn decide_tags(inputs: &AdmissionInputs<'_>, admission: &mut Admission) {
    if inputs.route.tags().is_empty() {
        return;
    }
    let held = admission.result.held();
    let replies = held
        .map(|held| std::mem::take(&mut held.tags))
        .unwrap_or_default();
    // Without Redis, memory decides if the policy says so.
    let is_decided = |(_, reply): &(u16, Result<_, _>)| *reply != Err(OnStoreError::Local);
    let mut replies = replies.into_iter().filter(is_decided).peekable();
    for (number, limit) in inputs.route.tags_for(inputs.head) {
        let word = match replies.next_if(|(tag, _)| *tag == number) {
            Some((_, Ok(decision))) => Some(word_of(&decision, effect(limit, inputs), limit)),
            Some((_, Err(OnStoreError::Refuse))) => Some(beyond(effect(limit, inputs))),
            Some((_, Err(_))) => Some(LimitDecision::Error),
            None => decide((number, limit), inputs, admission),
        };
        if let Some(word) = word {
            limit.metrics.record(word);
            admission.note(number, word);
        }
    }
}

/// The effect of a limit's decision in Redis.
fn effect(limit: &Limit, inputs: &AdmissionInputs<'_>) -> Enforcement {
    let place = limit.evaluate(inputs.secret, inputs.head).place();
    limit.enforcement(place, inputs.head)
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
        Applicability::Keyless(place) => return Some(beyond(limit.enforcement(place, head))),
    };
    let effect = limit.enforcement(bucket.1, head);
    let Ok(cost) = limit.spec.cost.of(head) else {
        return Some(beyond(effect));
    };
    let mut set = ChargeSet::new(&Store::Memory, inputs, inputs.now);
    set.push(
        inputs.charge(number, bucket, cost, Enforcement::Enforced),
        true,
    );
    let mut result = ChargeResult::default();
    set.charge(&mut result);
    if let Some(held) = result.held() {
        admission.result.held_mut().in_use.append(&mut held.in_use);
        admission.reserve(&mut held.reservations);
    }
    let decision = result.verdict.decision();
    decision.map(|decision| word_of(decision, effect, limit))
}

/// A decision in a word, counted if it leaves little of the quota.
fn word_of(decision: &Decision, effect: Enforcement, limit: &Limit) -> LimitDecision {
    if !decision.is_admitted() {
        return beyond(effect);
    }
    note_near(limit, decision);
    LimitDecision::Allowed
}

/// The decision on a request beyond the quota.
fn beyond(effect: Enforcement) -> LimitDecision {
    match effect {
        Enforcement::Enforced => LimitDecision::Tagged,
        Enforcement::Shadowed => LimitDecision::Shadowed,
    }
}

/// Writes the tags for the upstream.
pub(crate) fn write(route: &Route, admission: Option<&Admission>, headers: &mut Headers) {
    let Some(admission) = admission else { return };
    let records = admission.records().iter();
    for record in records.filter(|record| record.word == LimitDecision::Tagged) {
        let action = route
            .limit(record.limit)
            .action(admission.charge_of(record));
        if let Some(tag) = action.tag() {
            headers.append(&tag.name, tag.value.clone());
        }
    }
}
