//! Upstreams: their endpoints, and draining them.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::audit::{self, Action, Change, Extent, Target};
use super::auth::Actor;
use super::json::{Json, Names, Reason};
use super::problem_details::ProblemDetails;
use crate::proxy::Ruleset;
use crate::telemetry::metrics::EjectionReason;
use crate::upstream::{
    Balance, EndpointStatus, HostCondition, HostStatus, Upstream, UpstreamProtocol,
};

#[derive(Serialize)]
pub(super) struct UpstreamList {
    upstreams: Vec<UpstreamBody>,
}

#[derive(Serialize)]
struct UpstreamBody {
    name: Arc<str>,
    /// `None` for the built-in `echo`.
    protocol: Option<&'static str>,
    balance: Option<&'static str>,
    endpoints: Vec<EndpointBody>,
}

#[derive(Serialize)]
struct EndpointBody {
    endpoint: Arc<str>,
    weight: u16,
    draining: bool,
    hosts: Vec<HostBody>,
}

#[derive(Serialize)]
struct HostBody {
    address: String,
    state: &'static str,
    /// The reason for an ejection.
    reason: Option<&'static str>,
    /// The rest of an ejection.
    for_s: Option<f64>,
    in_flight: usize,
    /// Failures in a row.
    failures: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainRequest {
    drain: bool,
    reason: Option<Reason>,
}

#[derive(Serialize)]
pub(super) struct DrainAnswer {
    upstream: Arc<str>,
    endpoint: String,
    draining: bool,
    /// True if it was not so before.
    changed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadmitRequest {
    reason: Option<Reason>,
}

#[derive(Serialize)]
pub(super) struct ReadmitAnswer {
    upstream: Arc<str>,
    endpoint: String,
    /// The addresses whose ejection has ended.
    readmitted: Vec<String>,
}

pub(super) async fn list(State(state): State<AdminState>) -> Json<UpstreamList> {
    let ruleset = state.gateway.ruleset();
    let upstreams = ruleset.upstreams.iter().map(|upstream| body(upstream));
    Json(UpstreamList {
        upstreams: upstreams.collect(),
    })
}

pub(super) async fn drain(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Names((upstream, endpoint)): Names<(String, String)>,
    Json(request): Json<DrainRequest>,
) -> Result<Json<DrainAnswer>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let upstream = find(&ruleset, &upstream)?;
    let changed = upstream.set_draining(&endpoint, request.drain);
    let changed = changed.ok_or_else(|| unknown_endpoint(upstream, &endpoint))?;
    let action = match request.drain {
        true => Action::Drain,
        false => Action::Undrain,
    };
    let change = change(action, upstream, &endpoint, request.reason.as_deref());
    audit::log(&state, &actor, &change, audit::applied(changed));
    Ok(Json(DrainAnswer {
        upstream: Arc::clone(upstream.name()),
        endpoint,
        draining: request.drain,
        changed,
    }))
}

pub(super) async fn readmit(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Names((upstream, endpoint)): Names<(String, String)>,
    Json(request): Json<ReadmitRequest>,
) -> Result<Json<ReadmitAnswer>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let upstream = find(&ruleset, &upstream)?;
    let readmitted = upstream.readmit(&endpoint);
    let readmitted = readmitted.ok_or_else(|| unknown_endpoint(upstream, &endpoint))?;
    let reason = request.reason.as_deref();
    let change = change(Action::Readmit, upstream, &endpoint, reason);
    let result = audit::applied(!readmitted.is_empty());
    audit::log(&state, &actor, &change, result);
    Ok(Json(ReadmitAnswer {
        upstream: Arc::clone(upstream.name()),
        endpoint,
        readmitted,
    }))
}

/// A change of an endpoint.
fn change<'a>(
    action: Action,
    upstream: &'a Upstream,
    endpoint: &'a str,
    reason: Option<&'a str>,
) -> Change<'a> {
    Change {
        action,
        target: Target::Endpoint {
            upstream: upstream.name(),
            endpoint,
        },
        extent: Extent::default(),
        reason,
        dry_run: false,
    }
}

fn find<'a>(ruleset: &'a Ruleset, name: &str) -> Result<&'a Upstream, ProblemDetails> {
    let upstreams = || ruleset.upstreams.iter();
    let found = upstreams().find(|upstream| **upstream.name() == *name);
    found.map(|found| &**found).ok_or_else(|| {
        let known: Vec<_> = upstreams().map(|upstream| &**upstream.name()).collect();
        ProblemDetails::unknown_name("upstream", name, &known)
    })
}

fn unknown_endpoint(upstream: &Upstream, label: &str) -> ProblemDetails {
    let endpoints = upstream.endpoints().iter();
    let known: Vec<_> = endpoints.map(|endpoint| &**endpoint.label()).collect();
    ProblemDetails::unknown_name("endpoint", label, &known)
}

fn body(upstream: &Upstream) -> UpstreamBody {
    let endpoints = upstream.status();
    let protocol = endpoints.first().map(|endpoint| match endpoint.protocol {
        UpstreamProtocol::Http1 => "http/1.1",
        UpstreamProtocol::Http2 => "h2",
        UpstreamProtocol::Auto => "auto",
    });
    UpstreamBody {
        name: Arc::clone(upstream.name()),
        protocol,
        balance: upstream.balance().map(|balance| match balance {
            Balance::RoundRobin => "round_robin",
            Balance::LeastRequests => "least_requests",
            Balance::Random => "random",
            Balance::Hash => "hash",
        }),
        endpoints: endpoints.into_iter().map(EndpointBody::from).collect(),
    }
}

impl From<EndpointStatus> for EndpointBody {
    fn from(status: EndpointStatus) -> Self {
        Self {
            endpoint: status.label,
            weight: status.weight,
            draining: status.is_draining,
            hosts: status.hosts.into_iter().map(HostBody::from).collect(),
        }
    }
}

impl From<HostStatus> for HostBody {
    fn from(status: HostStatus) -> Self {
        let (state, reason, left) = condition_words(status.condition);
        Self {
            address: status.address,
            state,
            reason,
            for_s: left.map(|left| left.as_secs_f64()),
            in_flight: status.in_flight,
            failures: status.failures,
        }
    }
}

/// The state in a word, the reason, and the rest of an ejection.
pub(super) fn condition_words(
    condition: HostCondition,
) -> (&'static str, Option<&'static str>, Option<Duration>) {
    match condition {
        HostCondition::Available => ("available", None, None),
        HostCondition::Ejected { reason, left } => ("ejected", Some(reason.as_str()), Some(left)),
        HostCondition::Unhealthy => ("unhealthy", Some("health_check"), None),
        HostCondition::Failing(reason) => ("failing", Some(reason.as_str()), None),
        HostCondition::Probation => ("probation", None, None),
        HostCondition::Draining => ("draining", None, None),
    }
}

/// The reason for an ejection, for people.
const fn reason_text(reason: EjectionReason) -> &'static str {
    match reason {
        EjectionReason::ConnectFailure => "it took no connection",
        EjectionReason::ConsecutiveFailures => "too many requests in a row failed",
        EjectionReason::FailureRate => "too large a part of its requests failed",
        EjectionReason::Stalled => "it answered nobody, while others did",
        EjectionReason::Probation => "its first request after an ejection failed",
    }
}

/// The hosts that are left out for their failures or their health, for people.
pub(super) fn problems(ruleset: &Ruleset) -> Vec<String> {
    let upstreams = ruleset.upstreams.iter();
    let problems = upstreams.flat_map(|upstream| {
        let name = Arc::clone(upstream.name());
        let hosts = upstream.status().into_iter().flat_map(|one| one.hosts);
        hosts.filter_map(move |host| {
            let address = host.address;
            match host.condition {
                HostCondition::Ejected { reason, left } => Some(format!(
                    "upstream {name}: {address} is ejected: {}; it is tried again in {} s",
                    reason_text(reason),
                    left.as_secs() + 1
                )),
                HostCondition::Failing(reason) => Some(format!(
                    "upstream {name}: {address} fails, and is used since no other is better or too \
                     many are ejected: {}",
                    reason_text(reason)
                )),
                HostCondition::Unhealthy => Some(format!(
                    "upstream {name}: {address} fails its health checks"
                )),
                HostCondition::Available | HostCondition::Probation | HostCondition::Draining => {
                    None
                }
            }
        })
    });
    problems.collect()
}
