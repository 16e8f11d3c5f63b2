//! `health` of an upstream: addresses are checked, and those that fail get no requests.

use std::sync::Arc;

use crate::config::sections::prelude::*;
use crate::upstream::{HealthRequest, HealthSpec};

/// `health` of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Health {
    /// The path of a GET, with a query if wanted.
    pub path: Option<Located<OriginForm>>,
    /// Instead of `path`: the name of a service, or `""` for the whole server, to ask
    /// `grpc.health.v1.Health/Check` for. Needs `protocol: h2`, or `auto` with TLS.
    pub grpc: Option<Located<GrpcService>>,
    /// The time between two checks of an address, give or take 10 %, `1s` to `1h`.
    pub every: Located<Duration<SECOND, HOUR, { 5 * SECOND }>>,
    /// For a whole check, from the connection to the answer, `1ms` to `1h`.
    pub timeout: Located<Duration<1, HOUR, { 2 * SECOND }>>,
    /// Failures in a row after which an address gets no more requests, 1 to 100.
    pub unhealthy_after: Located<Whole<1, 100, 2>>,
    /// Successes in a row after which it is back, 1 to 100.
    pub healthy_after: Located<Whole<1, 100, 2>>,
    /// The statuses of an address that is well, if it is asked by a GET.
    #[serde(default = "successes")]
    #[schemars(length(min = 1))]
    pub status: List<Statuses<200>>,
    /// The `Host` of the request; that of the endpoint's URL by default.
    pub host: Option<Located<HostField>>,
}

fn successes() -> List<Statuses<200>> {
    vec![Located::from(Statuses::new(200, 399))].into()
}

pub(super) fn check(upstream: &Upstream, findings: &Findings<'_>) {
    let Some(health) = &upstream.health else {
        return;
    };
    let help = "name the statuses of an address that is well: `status: [200-399]`";
    report_empty(&health.status, findings, help);
    report_twice(&health.status, findings);
    let ways = options!(health, grpc, path);
    let none = missing(health.node, "neither `path` nor `grpc`");
    let none = none.help("write `path: /healthz`, or `grpc: \"\"` for gRPC");
    let way = exactly_one(&ways, none, "keep one of them", findings);
    if let (Some("grpc"), Some(grpc)) = (way, &health.grpc) {
        check_grpc(upstream, health, grpc.node, findings);
    }
}

fn check_grpc(upstream: &Upstream, health: &Health, grpc: NodeId, findings: &Findings<'_>) {
    let finding = conflict(health.status.node, "`status` of a check by `grpc`");
    let finding = finding.related(grpc, "expects `SERVING`");
    findings.add(finding.help("remove `status`"));
    let mut endpoints = upstream.endpoints.iter();
    let protocol = &upstream.protocol;
    let reason = match protocol.value {
        UpstreamProtocol::Http2 => return,
        UpstreamProtocol::Http1 => "gRPC needs HTTP/2, and `protocol` is `http1`",
        UpstreamProtocol::Auto if endpoints.all(|one| one.url.scheme == Scheme::Https) => return,
        UpstreamProtocol::Auto => {
            "gRPC needs HTTP/2, and `protocol: auto` is HTTP/1.1 for endpoints without TLS"
        }
    };
    let finding = conflict(grpc, reason).related(protocol.node, "the version of HTTP");
    findings.add(finding.help("write `protocol: h2` in the upstream"));
}

pub(super) fn compile(health: &Health) -> Arc<HealthSpec> {
    let statuses = health.status.iter().map(|one| one.range()).collect();
    let path = health.path.as_deref().cloned().unwrap_or_default();
    Arc::new(HealthSpec {
        request: match &health.grpc {
            Some(service) => HealthRequest::Grpc {
                service: service.to_string(),
            },
            None => HealthRequest::Get {
                path: path.get().clone(),
                statuses,
            },
        },
        host: health.host.as_ref().map(|host| host.get().clone()),
        every: health.every.get(),
        timeout: health.timeout.get(),
        unhealthy_after: health.unhealthy_after.get(),
        healthy_after: health.healthy_after.get(),
    })
}
