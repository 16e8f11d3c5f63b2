//! Upstreams: their endpoints, and draining them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actor::Actor;
use super::audit::{self, Action, Change};
use super::json::{Json, Names, Reason};
use super::problem::{Finding, labels};
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use super::totals::{RecentTraffic, Traffic};
use crate::proxy::Ruleset;
use crate::upstream::{
    Balance, Cluster, EndpointStatus, HostState, HostStatus, Upstream, UpstreamProtocol,
};

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
    /// Computes the answer and changes nothing.
    #[serde(default)]
    dry_run: bool,
}

/// The end of ejections.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadmitRequest {
    reason: Option<Reason>,
    /// Computes the answer and changes nothing.
    #[serde(default)]
    dry_run: bool,
}

/// An endpoint after a change.
#[derive(Serialize, JsonSchema)]
pub(super) struct EndpointAnswer {
    /// The upstream.
    upstream: Arc<str>,
    /// The endpoint.
    endpoint: String,
    /// True if it drains now.
    draining: bool,
    /// It was not so before.
    changed: bool,
    /// The addresses whose ejection has ended; none if none was ejected.
    readmitted: Vec<String>,
    /// Effects on requests, as sentences.
    effect: Vec<String>,
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
    Names(path): Names<EndpointPath>,
    Json(request): Json<DrainRequest>,
) -> Result<Json<EndpointAnswer>, ProblemDetails> {
    let action = if request.drain {
        Action::Drain
    } else {
        Action::Undrain
    };
    let change = Change::new(action, request.reason.as_deref());
    change_endpoint(&state, &actor, path, change, request.dry_run)
}

pub(super) async fn readmit(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Names(path): Names<EndpointPath>,
    Json(request): Json<ReadmitRequest>,
) -> Result<Json<EndpointAnswer>, ProblemDetails> {
    let change = Change::new(Action::Readmit, request.reason.as_deref());
    change_endpoint(&state, &actor, path, change, request.dry_run)
}

/// Begins or ends a drain, or ends ejections, as the end of a drain does, too.
fn change_endpoint(
    state: &AdminState,
    actor: &Actor,
    EndpointPath { name, endpoint }: EndpointPath,
    change: Change<'_>,
    dry_run: bool,
) -> Result<Json<EndpointAnswer>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let (upstream, cluster) = find(&ruleset, &name, &endpoint)?;
    let (action, all) = (change.action, upstream.status());
    let was_draining = (all.iter()).any(|one| *one.label == *endpoint && one.is_draining);
    let ejected = cluster.ejected(&endpoint);
    let readmitted = ejected
        .filter(|_| action != Action::Drain)
        .unwrap_or_default();
    let draining = match action {
        Action::Readmit => was_draining,
        action => action == Action::Drain,
    };
    match action {
        _ if dry_run => (),
        Action::Readmit => drop(cluster.readmit(&endpoint)),
        _ => _ = cluster.set_draining(&endpoint, draining),
    }
    let changed = draining != was_draining || action == Action::Readmit && !readmitted.is_empty();
    let change = Change {
        upstream: Some(upstream.name()),
        endpoint: Some(&endpoint),
        dry_run,
        ..change
    };
    audit::log(state, actor, change, audit::result(dry_run, changed));
    let effect = match action {
        Action::Drain => drain_effect(&all, &endpoint),
        _ => readmit_effect(cluster, &readmitted),
    };
    Ok(Json(EndpointAnswer {
        upstream: Arc::clone(upstream.name()),
        endpoint,
        draining,
        changed,
        readmitted,
        effect,
    }))
}

/// The requests that end at an endpoint that begins to drain, and what is left for others.
fn drain_effect(all: &[EndpointStatus], label: &str) -> Vec<String> {
    let (drained, others): (Vec<_>, Vec<_>) = all.iter().partition(|one| *one.label == *label);
    let hosts = drained.iter().flat_map(|endpoint| &endpoint.hosts);
    let in_flight: usize = hosts.map(|host| host.in_flight).sum();
    let left = match others.iter().filter(|one| one.works()).count() {
        0 => "no other endpoint works: all requests get 503".to_owned(),
        left => format!("{left} of {} endpoints are left", all.len()),
    };
    vec![format!("{in_flight} requests in flight end there"), left]
}

/// The addresses that get requests again, and the requests that wait for one.
fn readmit_effect(cluster: &Cluster, ejected: &[String]) -> Vec<String> {
    let again = match ejected {
        [] => "no address was ejected".to_owned(),
        ejected => format!("{} gets requests again", ejected.join(", ")),
    };
    match cluster.waiting() {
        0 => vec![again],
        waiting => vec![again, format!("{waiting} requests wait for an address")],
    }
}

/// An upstream that has the endpoint with this label.
fn find<'a>(
    ruleset: &'a Ruleset,
    name: &str,
    label: &str,
) -> Result<(&'a Upstream, &'a Cluster), ProblemDetails> {
    let upstreams = || ruleset.upstreams.iter();
    let Some(upstream) = upstreams().find(|upstream| **upstream.name() == *name) else {
        let known: Vec<_> = upstreams().map(|upstream| &**upstream.name()).collect();
        return Err(ProblemDetails::unknown_name("upstream", name, &known));
    };
    let known = upstream.endpoints().iter();
    let known: Vec<_> = known.map(|endpoint| &**endpoint.label()).collect();
    let cluster = upstream.cluster().filter(|_| known.contains(&label));
    let cluster = cluster.ok_or_else(|| ProblemDetails::unknown_name("endpoint", label, &known))?;
    Ok((upstream, cluster))
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

/// The upstreams of which nothing works.
pub(super) fn down(ruleset: &Ruleset) -> impl Iterator<Item = &Arc<str>> {
    let upstreams = ruleset.upstreams.iter();
    let down = upstreams.filter(|upstream| is_down(&upstream.status()));
    down.map(|upstream| upstream.name())
}

pub(super) const DOWN: &str = "no address works";

/// The problems of upstreams of which nothing works.
pub(super) fn without_address(ruleset: &Ruleset) -> Vec<Finding> {
    let down = down(ruleset).map(|name| {
        let text = format!("upstream {name}: {DOWN}");
        (labels([("upstream", name)]), text)
    });
    down.collect()
}

/// The problems of endpoints whose names don't resolve.
pub(super) fn unresolved_names(ruleset: &Ruleset) -> Vec<Finding> {
    let endpoints = endpoints(ruleset);
    let unresolved = endpoints.filter_map(|(upstream, endpoint)| unresolved(upstream, &endpoint));
    unresolved.collect()
}

/// The problems of addresses that fail.
pub(super) fn failing_hosts(ruleset: &Ruleset) -> Vec<Finding> {
    let hosts = endpoints(ruleset).flat_map(|(upstream, endpoint)| {
        let EndpointStatus { label, hosts, .. } = endpoint;
        let hosts = hosts.into_iter();
        hosts.filter_map(move |host| host_problem(upstream, &label, &host))
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
    // Before the first lookup has ended, it is not known.
    let is_known = |one: &EndpointStatus| !one.hosts.is_empty() || one.unresolved.is_some();
    !endpoints.is_empty()
        && endpoints.iter().all(is_known)
        && !endpoints.iter().any(EndpointStatus::works)
}

fn unresolved(upstream: &str, endpoint: &EndpointStatus) -> Option<Finding> {
    let (label, error) = (&endpoint.label, endpoint.unresolved.as_ref()?);
    let known = match endpoint.hosts.len() {
        0 => "",
        _ => ". Its last known addresses are used",
    };
    let text = format!("upstream {upstream}: {label} does not resolve: {error}{known}");
    Some((labels([("upstream", upstream), ("endpoint", label)]), text))
}

fn host_problem(upstream: &str, label: &str, host: &HostStatus) -> Option<Finding> {
    if matches!(host.state, HostState::Available | HostState::Draining) {
        return None;
    }
    let (address, state) = (&host.address, &host.text);
    let again = host.for_s.map_or_else(String::new, |rest| {
        format!("; it is tried again in {} s", rest as u64 + 1)
    });
    let text = format!("upstream {upstream}: {address} is {state}{again}");
    let labels = labels([
        ("upstream", upstream),
        ("endpoint", label),
        ("address", address),
    ]);
    Some((labels, text))
}
