//! Upstreams: retries that may go on for long, bounds that cost connections, options without an
//! effect, and gRPC over HTTP/1.1.

use super::Finding;
use crate::config::NodeId;
use crate::config::diagnostic::Code;
use crate::config::schema::{Config, Ejection, Upstream};
use crate::config::value::{UpstreamRef, Workers};
use crate::upstream::UpstreamProtocol;

/// All lints about upstreams.
pub(super) fn options(config: &Config) -> Vec<Finding> {
    let upstreams = config.upstreams.values();
    let findings = upstreams.flat_map(|upstream| {
        let endless = retries_without_deadline(upstream).into_iter();
        let late = late_attempts(upstream).into_iter();
        let of_one_address = options_of_one_address(upstream);
        let few = few_connections(config, upstream);
        endless.chain(late).chain(few).chain(of_one_address)
    });
    findings.collect()
}

/// Warns of routes for gRPC, which needs HTTP/2, to upstreams that speak HTTP/1.1.
pub(super) fn grpc_over_http1(config: &Config) -> Vec<Finding> {
    let findings = config.routes.iter().filter_map(|route| {
        let grpc = route.matches.grpc.as_ref()?;
        let protocol = match &route.upstream.value {
            UpstreamRef::Echo | UpstreamRef::Status => return None,
            UpstreamRef::Url(_) => UpstreamProtocol::default(),
            UpstreamRef::Named(name) => config.upstreams.get(name.as_str())?.protocol.value,
        };
        let message = "gRPC needs HTTP/2, and the upstream speaks HTTP/1.1";
        let finding = Finding::warning(grpc.node, Code::NoEffect, message);
        let finding = finding.related(route.upstream.node, "the upstream");
        (protocol == UpstreamProtocol::Http1).then(|| {
            finding.help("write `protocol: h2` in the upstream, which has to be in `upstreams`")
        })
    });
    findings.collect()
}

/// Warns of retries that the user asks for, each of which may take the whole time for a response.
fn retries_without_deadline(upstream: &Upstream) -> Option<Finding> {
    let (retries, timeouts) = (&upstream.retries, &upstream.timeouts);
    let attempts = retries.attempts.get();
    let is_bounded = timeouts.request.is_some() || timeouts.attempt.is_some();
    if retries.node == NodeId::ABSENT || attempts == 0 || is_bounded {
        return None;
    }
    let longest = timeouts.response.get() * (attempts + 1);
    let message = format!("a request may take {longest:?} until it fails");
    let finding = Finding::warning(retries.node, Code::RetriesWithoutDeadline, message);
    let finding = finding
        .at_key()
        .related(timeouts.response.node, "the time of each attempt");
    Some(finding.help("bound it: `timeouts: { request: 30s }`, or each attempt: `{ attempt: 5s }`"))
}

/// Warns of a time for each attempt that is not over before the whole request is.
fn late_attempts(upstream: &Upstream) -> Option<Finding> {
    let timeouts = &upstream.timeouts;
    let (attempt, request) = (timeouts.attempt.as_ref()?, timeouts.request.as_ref()?);
    let finding = Finding::warning(
        attempt.node,
        Code::NoEffect,
        "the whole request ends before an attempt does",
    );
    let finding = finding.related(request.node, "the time of the whole request");
    (attempt.get() >= request.get())
        .then(|| finding.help("set less than `request`, so that there is time for another attempt"))
}

/// Warns of a bound for which workers close each other's connections, where that costs handshakes.
fn few_connections(config: &Config, upstream: &Upstream) -> Option<Finding> {
    let (max, Workers::Fixed(workers)) = (upstream.connections.max.as_ref()?, config.workers.value)
    else {
        return None;
    };
    let is_shared = upstream.protocol.value == UpstreamProtocol::Http2;
    if !upstream.has_tls() || is_shared || max.get() >= u32::from(workers.get()) {
        return None;
    }
    let message = format!("{workers} workers, and at most {} connections", max.get());
    let finding = Finding::warning(max.node, Code::FewConnections, message);
    let finding = finding.at_key().related(config.workers.node, "the workers");
    Some(finding.help("raise it, start fewer workers, or share connections: `protocol: h2`"))
}

/// Warns of options that need another address where there is one.
fn options_of_one_address(upstream: &Upstream) -> Vec<Finding> {
    let [endpoint] = upstream.endpoints.as_slice() else {
        return Vec::new();
    };
    // A name may have several addresses.
    if !endpoint.url.is_address() {
        return Vec::new();
    }
    let is_ejecting = matches!(upstream.ejection.value, Ejection::On(_));
    let health = upstream.health.as_ref();
    let options = [
        ("ejection", upstream.ejection.node, is_ejecting),
        (
            "retries",
            upstream.retries.node,
            upstream.retries.attempts.get() > 0,
        ),
        (
            "health",
            health.map_or(NodeId::ABSENT, |health| health.node),
            true,
        ),
    ];
    let given = options
        .into_iter()
        .filter(|(_, node, is_on)| *node != NodeId::ABSENT && *is_on);
    let findings = given.map(|(option, node, _)| {
        let message = format!("`{option}` with a single address");
        let finding = Finding::warning(node, Code::NoEffect, message).at_key();
        let finding = finding.related(upstream.endpoints.node, "the address");
        finding.help("it needs another one to send requests to: add an endpoint, or remove it")
    });
    findings.collect()
}
