//! Limits that tag or route: a request beyond their quota is forwarded with a header field that says
//! so, or to another upstream.
//!
//! They charge only requests that all other limits admit: in Redis in the same call, in memory
//! afterwards.

use super::Admission;
use super::context::AdmissionInputs;
use crate::store::{ChargeResult, ChargeSet, Store};

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
    admission.note_decisions(inputs.route, decided, |_| true);
    for record in &admission.records[first..] {
        admission.count(record, inputs.route, false);
    }
}
