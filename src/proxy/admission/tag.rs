//! Limits that tag: a request beyond their quota or a soft limit is forwarded with a header field
//! that says so.
//!
//! They decide together with the other limits, and charge only requests that these admit.

use super::Admission;
use super::mode::Enforcement;
use crate::http::headers::Headers;
use crate::proxy::ruleset::Route;
use crate::telemetry::metrics::LimitDecision;

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
