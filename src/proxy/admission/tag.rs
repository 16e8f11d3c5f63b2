//! Limits that tag: a request beyond their quota or a soft limit is forwarded with a header field
//! that says so.
//!
//! They charge only requests that all other limits admit: in Redis in the same call, in memory
//! afterwards.

use super::Admission;
use super::context::AdmissionInputs;
use super::mode::Enforcement;
use crate::store::{ChargeResult, ChargeSet, Store};
use crate::telemetry::metrics::LimitDecision;

/// Charges the limits in memory that tag, of a request that all others admit.
pub(crate) fn charge_tags(inputs: &AdmissionInputs<'_>, admission: &mut Admission) {
    if inputs.route.tags().is_empty() {
        return;
    }
    let first = admission.records.len();
    let mut set = ChargeSet::new(&Store::Memory, inputs, inputs.now);
    inputs.add_tags(&mut set, admission, |limit| !inputs.decides_later(limit));
    let mut tags = ChargeResult::default();
    set.charge(&mut tags);
    if let Some(held) = tags.held() {
        admission.result.held_mut().in_use.append(&mut held.in_use);
        admission.reserve(&mut held.reservations, inputs);
    }
    let result = &mut admission.result;
    let decided = result.buckets.len();
    result.buckets.append(&mut tags.buckets);
    for decision in tags.verdict.decisions {
        result.verdict.push_shadowed(decision);
    }
    admission.note_decisions(decided, |_| true);
    for record in &admission.records[first..] {
        admission.count(record, inputs.route, false);
    }
}

/// The decision on a request beyond the quota.
pub(super) fn beyond(effect: Enforcement) -> LimitDecision {
    match effect {
        Enforcement::Enforced => LimitDecision::Tagged,
        Enforcement::Shadowed => LimitDecision::Shadowed,
    }
}
