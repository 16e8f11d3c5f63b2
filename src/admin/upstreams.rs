//! Upstreams: their endpoints, and draining them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actor::Actor;
use super::audit::{self, Action, Change};
use super::json::{Json, Names, Reason};
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use super::totals::{RecentTraffic, Traffic};
use crate::proxy::Ruleset;
use crate::telemetry::metrics::EjectionReason;
use crate::upstream::{Balance, EndpointStatus, HostState, HostStatus, Upstream, UpstreamProtocol};

/// All upstreams.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamList {
    /// In the order of the configuration.
    pub upstreams: Vec<UpstreamStatus>,
}

/// An upstream.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The version of HTTP; `null` for the built-in `echo`.
    #[schemars(extend("enum" = ["http/1.1", "h2", "auto", null]))]
    #[serde(skip_deserializing)]
    protocol: Option<&'static str>,
    /// The load-balancing algorithm.
    #[serde(skip_deserializing)]
    balance: Option<Balance>,
    /// Its endpoints.
    pub endpoints: Vec<EndpointStatus>,
    /// Its answers over the last 10 to 20 s. Null in the first 10 s after the start.
    pub recent: Option<RecentTraffic>,
}

/// An endpoint of an upstream, in a path.
#[derive(Deserialize, JsonSchema)]
pub(super) struct EndpointPath {
    /// The name in the configuration.
    #[schemars(length(min = 1))]
    name: String,
    /// Its host and port, or its socket, as the configuration writes it.
    #[schemars(length(min = 1))]
    endpoint: String,
}

/// The start or the end of a drain.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainRequest {
    /// `true`: no new requests; those in flight end.
    drain: bool,
    reason: Option<Reason>,
}

/// An endpoint that drains, or does not.
#[derive(Serialize, JsonSchema)]
pub(super) struct DrainAnswer {
    /// The upstream.
    upstream: Arc<str>,
    /// The endpoint.
    endpoint: String,
    /// True if it drains now.
    draining: bool,
    /// It was not so before.
    changed: bool,
}

/// Nothing but a reason.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadmitRequest {
    reason: Option<Reason>,
}

/// An endpoint whose ejections have ended.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReadmitAnswer {
    /// The upstream.
    upstream: Arc<str>,
    /// The endpoint.
    endpoint: String,
    /// The addresses whose ejection has ended; none if none was ejected.
    readmitted: Vec<String>,
}

pub(super) async fn list(State(state): State<AdminState>) -> Json<UpstreamList> {
    let ruleset = state.gateway.ruleset();
    let now = state.clock.now();
    let recent = |upstream: &Upstream| {
        let traffic = Traffic::of_upstream(upstream.metrics());
        state.history.since(now, |before, seconds| {
            traffic.rates_since(before.upstreams.get(upstream.name()), seconds)
        })
    };
    let upstreams = ruleset.upstreams.iter();
    let upstreams = upstreams.map(|upstream| status(upstream, recent(upstream)));
    Json(UpstreamList {
        upstreams: upstreams.collect(),
    })
}

pub(super) async fn drain(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Names(EndpointPath { name, endpoint }): Names<EndpointPath>,
    Json(request): Json<DrainRequest>,
) -> Result<Json<DrainAnswer>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let upstream = find(&ruleset, &name)?;
    let changed = upstream
        .cluster()
        .and_then(|one| one.set_draining(&endpoint, request.drain));
    let changed = changed.ok_or_else(|| unknown_endpoint(upstream, &endpoint))?;
    let action = if request.drain {
        Action::Drain
    } else {
        Action::Undrain
    };
    let change = change(action, upstream, &endpoint, request.reason.as_deref());
    audit::log(&state, &actor, change, audit::applied(changed));
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
    Names(EndpointPath { name, endpoint }): Names<EndpointPath>,
    Json(request): Json<ReadmitRequest>,
) -> Result<Json<ReadmitAnswer>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let upstream = find(&ruleset, &name)?;
    let readmitted = upstream.cluster().and_then(|one| one.readmit(&endpoint));
    let readmitted = readmitted.ok_or_else(|| unknown_endpoint(upstream, &endpoint))?;
    let reason = request.reason.as_deref();
    let change = change(Action::Readmit, upstream, &endpoint, reason);
    let result = audit::applied(!readmitted.is_empty());
    audit::log(&state, &actor, change, result);
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
        upstream: Some(upstream.name()),
        endpoint: Some(endpoint),
        ..Change::new(action, reason)
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

fn status(upstream: &Upstream, recent: Option<RecentTraffic>) -> UpstreamStatus {
    let endpoints = upstream.status();
    UpstreamStatus {
        name: Arc::clone(upstream.name()),
        protocol: endpoints.first().map(|endpoint| match endpoint.protocol {
            UpstreamProtocol::Http1 => "http/1.1",
            UpstreamProtocol::Http2 => "h2",
            UpstreamProtocol::Auto => "auto",
        }),
        balance: upstream.cluster().map(|one| one.spec().balance),
        endpoints,
        recent,
    }
}

/// The reason for an ejection, for people.
const fn reason_text(reason: EjectionReason) -> &'static str {
    match reason {
        EjectionReason::ConnectFailure => "it accepts no connections",
        EjectionReason::ConsecutiveFailures => "too many requests in a row failed",
        EjectionReason::FailureRate => "too large a part of its requests failed",
        EjectionReason::Stalled => "it answered no request, while others did",
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
    let endpoints = endpoints(ruleset);
    let unresolved = endpoints.filter_map(|(upstream, endpoint)| unresolved(upstream, &endpoint));
    unresolved.collect()
}

/// The addresses that fail, for people.
pub(super) fn failing_hosts(ruleset: &Ruleset) -> Vec<String> {
    let hosts = endpoints(ruleset).flat_map(|(upstream, endpoint)| {
        let hosts = endpoint.hosts.into_iter();
        hosts.filter_map(move |host| host_problem(upstream, &host))
    });
    hosts.collect()
}

/// All endpoints, with the names of their upstreams.
fn endpoints(ruleset: &Ruleset) -> impl Iterator<Item = (&Arc<str>, EndpointStatus)> {
    ruleset.upstreams.iter().flat_map(|upstream| {
        let endpoints = upstream.status().into_iter();
        endpoints.map(|endpoint| (upstream.name(), endpoint))
    })
}

/// Returns true if no endpoint has an address that works. Those that drain do not count, unless all
/// do.
fn is_down(endpoints: &[EndpointStatus]) -> bool {
    let works = |one: &EndpointStatus| one.hosts.iter().any(|host| host.state.works());
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
    let why = host.fault.map_or("", reason_text);
    let problem = match host.state {
        HostState::Ejected => format!(
            "is ejected: {why}; it is tried again in {} s",
            host.for_s.unwrap_or_default() as u64 + 1
        ),
        HostState::Failing => {
            format!("fails, but is still tried, because too few others work: {why}")
        }
        HostState::Unhealthy => "fails its health checks".to_owned(),
        HostState::Probation => {
            "was ejected, and works again once a request to it succeeds".to_owned()
        }
        HostState::Available | HostState::Draining => return None,
    };
    Some(format!("upstream {upstream}: {address} {problem}"))
}
