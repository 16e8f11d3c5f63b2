//! Limits that tag: a request beyond their quota or a soft limit is forwarded with a header field
//! that says so.
//!
//! They charge only requests that all other limits admit: in Redis in the same call, in memory
//! afterwards.

use super::Admission;
use super::context::AdmissionInputs;
use super::mode::Enforcement;
use crate::http::headers::Headers;
use crate::proxy::ruleset::Route;
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
        admission.reserve(&mut held.reservations);
    }
    admission.record_tags(&tags, inputs.route, first);
}

impl Admission {
    /// Adds the decisions of limits that tag, and counts what these did since the record `first`.
    fn record_tags(&mut self, tags: &ChargeResult, route: &Route, first: usize) {
        let decided = self.result.buckets.len();
        self.result.buckets.extend(tags.buckets.iter().copied());
        for decision in &tags.verdict.decisions {
            self.result.verdict.push_shadowed(*decision);
        }
        self.note_decisions(decided, |_| true);
        for place in first..self.records.len() {
            let record = self.records[place];
            self.count(&record, route, false);
        }
    }
}

/// The decision on a request beyond the quota.
pub(super) fn beyond(effect: Enforcement) -> LimitDecision {
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
