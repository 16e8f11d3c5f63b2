//! Limits that tag: a request beyond their quota or a soft limit is forwarded with a header field
//! that says so.
//!
//! They decide together with the other limits, and charge only requests that these admit.

use super::context::AdmissionInputs;
use super::mode::Enforcement;
use super::record::LimitRecord;
use super::{Admission, note_near};
use crate::http::headers::Headers;
use crate::proxy::ruleset::Route;
use crate::store::Role;
use crate::telemetry::metrics::LimitDecision;

impl Admission {
    /// Records the decisions of the limits that tag.
    pub(super) fn record_tags(&mut self, inputs: &AdmissionInputs<'_>) {
        let result = &self.result;
        let decided = result.buckets.iter().zip(&result.verdict.decisions);
        for (tag, decision) in decided.filter(|(one, _)| one.role == Role::Tags) {
            let limit = inputs.route.limit(tag.id.limit);
            let word = if decision.is_admitted() {
                note_near(limit, decision);
                LimitDecision::Allowed
            } else {
                beyond(limit.enforcement(tag.id.place, inputs.head))
            };
            self.records.push(LimitRecord {
                limit: tag.id.limit,
                word,
                place: None,
            });
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
