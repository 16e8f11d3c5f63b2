//! The built-in upstream `status`: its response is the state of the caller's limits, in the form of
//! GitHub's `/rate_limit`. Looking at limits charges nothing.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::exchange::Exchange;
use super::ruleset::{Quota, Route};
use super::target::RequestTarget;
use crate::clock::Timestamp;
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};
use crate::limiter::Decision;
use crate::proxy::admission::AdmissionInputs;
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::answers::limit_headers::{self, AppliedPolicy};
use crate::proxy::body::{ResponseBody, json_response};
use crate::rules::{Head, ResponseOrigin};
use crate::store::{ChargeId, ChargeResult, ChargeSet, PolicyCharge, Role};

/// A reported policy, the caller's quota, and the state of the caller's bucket.
struct ReportedPolicy<'a> {
    name: &'a str,
    quota: &'a Quota,
    /// The decision on a request of no units, with the key's granted units. It is a refusal while
    /// the key is banned. `None` if Redis does not answer.
    decision: Option<Decision>,
    /// The end of the key's ban.
    banned_until: Option<Timestamp>,
}

/// Responds with the state of the caller's limits.
pub(super) async fn respond(
    exchange: &mut Exchange,
    request: &Request<RequestBody>,
    target: &RequestTarget,
) -> Response<ResponseBody> {
    let (context, route, now) = (&exchange.context, exchange.route(), exchange.forwarded);
    let ruleset = context.ruleset.whole();
    let token = context.token(route, request.headers());
    let head = target.head(request, context.sender(&context.client, request.headers()));
    let head = Head {
        is_any_target: true,
        ..head
            .with_token(token.as_ref())
            .with_client(context.known_client())
    };
    let inputs = AdmissionInputs {
        may_wait: false,
        limits: &route.reported,
        ..AdmissionInputs::new(&ruleset.store, route, &head, now)
    };
    let charges = charges(&inputs);
    let mut result = ChargeResult::default();
    let pending = {
        let mut set = ChargeSet::new(&ruleset.store, &inputs, now);
        charges.iter().for_each(|charge| set.push(*charge));
        set.peek(&mut result)
    };
    if let Some(pending) = pending {
        // What Redis doesn't tell has no decision.
        _ = pending
            .decide(context.caller(), inputs.limits, &mut result)
            .await;
    }
    context.count_identity();
    let reported = charges.iter().map(|charge| {
        let limit = &route.reported[usize::from(charge.id.limit)];
        ReportedPolicy {
            name: &limit.policy.name,
            quota: limit.quota(charge.id.place),
            decision: result.known_decision(charge.id.limit),
            banned_until: charge.banned_until,
        }
    });
    let reported: Vec<_> = reported.collect();
    let report = report(&reported, now);
    let mut response = json_response(StatusCode::OK, "application/json", report);
    let applied: Vec<_> = reported
        .iter()
        .filter_map(|one| one.beside(route))
        .collect();
    if let Some(deciding) = limit_headers::index_of_deciding(applied.iter()) {
        let headers = response.headers_mut();
        limit_headers::write(&ruleset.styles, &applied, deciding, now, headers);
    }
    exchange.author = ResponseOrigin::Proxy;
    response
}

/// Charges of no units to the caller's buckets, of the limits that responses may speak of. Each decides
/// by itself, as a tag does.
fn charges(inputs: &AdmissionInputs<'_>) -> Vec<PolicyCharge> {
    let limits = (0_u16..).zip(inputs.limits);
    let charges = limits.filter_map(|(number, limit)| {
        let effect = |place| limit.enforcement(place, inputs.head);
        match limit.evaluate(inputs.head) {
            Applicability::Bucket(key, place)
                if limit.is_disclosed(ChargeId::new(number, place))
                    && effect(place) == Enforcement::Enforced =>
            {
                let charge = inputs.charge(number, key, place, 0, Role::Tags);
                Some(PolicyCharge {
                    settles: false,
                    ..charge
                })
            }
            _ => None,
        }
    });
    charges.collect()
}

impl ReportedPolicy<'_> {
    /// The policy for the fields of the response, unless it is a limit of the route itself, which
    /// writes them.
    fn beside(&self, route: &Route) -> Option<AppliedPolicy<'_>> {
        let mut own = route.limits.iter();
        if own.any(|limit| *limit.policy.name == *self.name) {
            None
        } else {
            self.applied()
        }
    }

    /// `None` if its bucket is not known.
    fn applied(&self) -> Option<AppliedPolicy<'_>> {
        let decision = self.decision.as_ref()?;
        Some(self.quota.applied(decision))
    }

    fn to_json(&self, now: Timestamp) -> Value {
        let mut json = match self.applied() {
            Some(applied) => {
                let (used, remaining) = (applied.used(), applied.remaining());
                let mut json = json!({
                    "limit": used + remaining,
                    "used": used,
                    "remaining": remaining,
                    "reset": applied.reset_at(now).map(whole_seconds),
                });
                if remaining == 0 {
                    let wait = applied.more_at(now);
                    json["retry_after"] = json!(wait.map(|at| limit_headers::retry_after(at, now)));
                }
                json
            }
            None => json!({
                "limit": self.quota.algorithm().capacity(),
                "error": "unavailable",
            }),
        };
        if let Some(until) = self.banned_until {
            json["banned_until"] = whole_seconds(until).into();
        }
        let decision = self.decision.as_ref();
        let stated = decision.and_then(|decision| self.quota.stated_text(decision));
        json["quota"] = stated.unwrap_or_else(|| self.quota.text.clone()).into();
        json
    }
}

/// Seconds since the epoch, rounded up, as GitHub has resets.
fn whole_seconds(instant: Timestamp) -> u64 {
    instant.as_micros().div_ceil(1_000_000)
}

/// The body: `{ "resources": { POLICY: { "limit": 100, .. } } }`.
fn report(reported: &[ReportedPolicy<'_>], now: Timestamp) -> Bytes {
    let resources = reported.iter();
    let resources = resources.map(|one| (one.name.to_owned(), one.to_json(now)));
    let report = json!({ "resources": resources.collect::<Map<_, _>>() });
    Bytes::from(format!("{report}\n"))
}
