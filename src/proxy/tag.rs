//! Limits that refuse nothing: a request beyond their quota is forwarded with a header field that says so.
//!
//! They are asked after all others have admitted the request, each for itself: what one says keeps no other
//! from being charged.

use http::header::HeaderMap;

use super::admission::note_near;
use super::meeting::Meeting;
use super::mode::Stance;
use super::snapshot::{Limit, Route};
use super::taken::Taken;
use crate::clock::Timestamp;
use crate::limiter::Secret;
use crate::rules::Head;
use crate::store::{Charge, charge_all};
use crate::telemetry::metrics::LimitDecision;

/// What the limits that tag made of a request.
#[derive(Debug, Default)]
pub(super) struct Tagged {
    /// The places, among them, of those that it exceeds.
    exceeded: Vec<usize>,
    /// What comes back when it ends.
    taken: Vec<Taken>,
}

/// Charges the request to the limits of its route that tag.
pub(super) fn tagged(route: &Route, secret: &Secret, head: &Head<'_>, now: Timestamp) -> Tagged {
    let mut tagged = Tagged::default();
    for (place, limit) in route.tags_of(head).iter().enumerate() {
        let decision = decide(limit, secret, head, now, &mut tagged.taken);
        if let Some(decision) = decision {
            limit.metrics.record(decision);
        }
        if decision == Some(LimitDecision::Tagged) {
            tagged.exceeded.push(place);
        }
    }
    tagged
}

/// `None` where the limit is for other requests.
fn decide(
    limit: &Limit,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
    taken: &mut Vec<Taken>,
) -> Option<LimitDecision> {
    let (key, chosen) = match limit.meet(secret, head) {
        Meeting::Bucket(key, chosen) => (key, chosen),
        Meeting::Elsewhere => return None,
        Meeting::Exempt | Meeting::Skipped => return Some(LimitDecision::Exempt),
        Meeting::Keyless => return Some(beyond(limit, head)),
    };
    let Ok(cost) = limit.cost.of(head) else {
        return Some(beyond(limit, head));
    };
    let charge = Charge {
        table: &limit.chosen(chosen).table,
        key,
        cost,
    };
    let verdict = charge_all(&[charge], now);
    if !verdict.is_admitted() {
        return Some(beyond(limit, head));
    }
    taken.extend(Taken::of(limit.chosen(chosen), &charge));
    if let Some(decision) = verdict.decision() {
        note_near(limit, decision);
    }
    Some(LimitDecision::Allowed)
}

/// What a request is beyond the quota of this limit.
fn beyond(limit: &Limit, head: &Head<'_>) -> LimitDecision {
    match limit.policy.mode.stance(&limit.descriptor, head) {
        Stance::Binds => LimitDecision::Tagged,
        Stance::Watches => LimitDecision::Shadowed,
    }
}

/// Tells the upstream which limits the request exceeds. What a client wrote in such a field goes: an upstream
/// believes it.
pub(super) fn write(route: &Route, tagged: &Tagged, headers: &mut HeaderMap) {
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
