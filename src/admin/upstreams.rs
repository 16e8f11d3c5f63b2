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

/// The upstreams of which nothing works.
pub(super) fn down(ruleset: &Ruleset) -> impl Iterator<Item = &Arc<str>> {
    let upstreams = ruleset.upstreams.iter();
    let down = upstreams.filter(|upstream| is_down(&upstream.status()));
    down.map(|upstream| upstream.name())
}

pub(super) const DOWN: &str = "no address works";

/// The endpoints whose names don't resolve, for people.
pub(super) fn unresolved_names(ruleset: &Ruleset) -> Vec<String> {
    endpoint_problems(ruleset, |upstream, endpoint| {
        unresolved(upstream, endpoint).into_iter().collect()
    })
}

/// The addresses that fail, for people.
pub(super) fn failing_hosts(ruleset: &Ruleset) -> Vec<String> {
    endpoint_problems(ruleset, |upstream, endpoint| {
        let hosts = endpoint.hosts.iter();
        hosts
            .filter_map(|host| host_problem(upstream, host))
            .collect()
    })
}

fn endpoint_problems(
    ruleset: &Ruleset,
    find: impl Fn(&str, &EndpointStatus) -> Vec<String>,
) -> Vec<String> {
    let upstreams = ruleset.upstreams.iter().flat_map(|upstream| {
        let endpoints = upstream.status().into_iter();
        endpoints.flat_map(|endpoint| find(upstream.name(), &endpoint))
    });
    upstreams.collect()
}

/// Returns true if no endpoint has an address that works. Those that drain do not count, unless all
/// do.
fn is_down(endpoints: &[EndpointStatus]) -> bool {
    let works = |one: &EndpointStatus| one.hosts.iter().any(|host| host.condition.works());
    // Before the first lookup has ended, it is not known.
    let is_known = |one: &EndpointStatus| !one.hosts.is_empty() || one.unresolved.is_some();
    !endpoints.is_empty() && endpoints.iter().all(is_known) && !endpoints.iter().any(works)
}

fn unresolved(upstream: &str, endpoint: &EndpointStatus) -> Option<String> {
    let (label, error) = (&endpoint.label, endpoint.unresolved.as_ref()?);
    let known = match endpoint.hosts.len() {
        0 => "",
        _ => ". Its last known addresses are used",
    };
    Some(format!(
        "upstream {upstream}: {label} does not resolve: {error}{known}"
    ))
}

fn host_problem(upstream: &str, host: &HostStatus) -> Option<String> {
    let address = &host.address;
    let problem = match host.condition {
        HostCondition::Ejected { reason, left } => format!(
            "is ejected: {}; it is tried again in {} s",
            reason_text(reason),
            left.as_secs() + 1
        ),
        HostCondition::Failing(reason) => {
            format!("fails, and is used all the same: {}", reason_text(reason))
        }
        HostCondition::Unhealthy => "fails its health checks".to_owned(),
        HostCondition::Probation => {
            "was ejected, and works again once a request to it succeeds".to_owned()
        }
        HostCondition::Available | HostCondition::Draining => return None,
    };
    Some(format!("upstream {upstream}: {address} {problem}"))
}
