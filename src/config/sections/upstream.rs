//! Upstreams: endpoints, time-outs, TLS.

mod ejection;
mod health;
mod retries;

use std::collections::{HashMap, HashSet};

use http::uri::Authority;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::balance::{self, Balance};
use crate::config::compile::{Compiler, MAX_CERTIFICATE_FILE};
use crate::config::schema::{Config, DAY, HOUR, SECOND, Timeout};
use crate::config::validate::{report_empty, report_repeated};
use crate::config::value::{Duration, FilePath, Flag, OriginUrl, ServerName, UpstreamRef, Whole};
use crate::config::words::words;
use crate::config::{Code, Finding, Findings, List, Located, NodeId};
use crate::files::{self, VersionedFile};
use crate::http::connection::Scheme;
pub use ejection::{Ejection, EjectionRules, Off};
pub use health::Health;
pub use retries::Retries;

use crate::upstream::{
    ClientTls, ClusterSpec, ClusterTimeouts, ConnectionLimits, EndpointSpec, HostHeader, RetrySpec,
    Roots, TargetSpec, UpstreamProtocol, UpstreamSpec,
};

/// An upstream, under its name in `upstreams`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Its servers: URLs, or mappings with `url` and `weight`.
    #[schemars(length(min = 1))]
    pub endpoints: List<Endpoint>,
    /// How requests are shared among the addresses of the endpoints.
    #[serde(default)]
    pub balance: Located<Balance>,
    /// The version of HTTP.
    #[serde(default)]
    pub protocol: Located<UpstreamProtocol>,
    /// `true` sends the `Host` of the client to the upstream, `false` that of the endpoint's URL.
    #[serde(default)]
    pub preserve_host: Located<Flag<true>>,
    /// How often the names of endpoints are looked up, `1s` to `1d`.
    #[serde(default)]
    pub resolve_every: Located<ResolveInterval>,
    /// `true` sends a header of the PROXY protocol, version 2, at the start of each connection. A
    /// connection then carries one request.
    #[serde(default)]
    pub send_proxy_protocol: Located<Flag<false>>,
    /// How long it may take.
    #[serde(default)]
    pub timeouts: Located<UpstreamTimeouts>,
    /// Bounds of kept connections.
    #[serde(default)]
    pub connections: Located<UpstreamConnections>,
    /// When an address that fails is left out, and for how long; `off` for never.
    #[serde(default)]
    pub ejection: Located<Ejection>,
    /// Requests of the proxy's own, by which addresses that are not well are found and left out.
    /// None unless given.
    #[serde(default)]
    pub health: Option<Located<Health>>,
    /// The time in which an address that returns, or is new beside others, gets its whole share of
    /// the requests, `0s` to `1h`.
    #[serde(default)]
    pub slow_start: Located<SlowStart>,
    /// Further attempts at requests that fail.
    #[serde(default)]
    pub retries: Located<Retries>,
    /// TLS towards endpoints with `https`.
    #[serde(default)]
    pub tls: Located<UpstreamTls>,
}

words! {
    /// The version of HTTP with an upstream.
    "UpstreamProtocol" for UpstreamProtocol {
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2: by ALPN over TLS, with prior knowledge otherwise.
        Http2 = "h2",
        /// The version that the server chooses by ALPN; HTTP/1.1 without TLS.
        Auto = "auto",
    }
}

/// A server of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(from = "EndpointForm")]
pub struct Endpoint {
    /// Scheme, host and port, or a Unix socket.
    pub url: Located<OriginUrl>,
    /// Its share of the requests, in proportion to the others'.
    pub weight: Located<Weight>,
}

/// The time between two lookups of a name.
pub type ResolveInterval = Duration<SECOND, DAY, { 30 * SECOND }>;

/// The time in which an address gets its whole share of the requests.
pub type SlowStart = Duration<0, HOUR, { 30 * SECOND }>;

/// The share of an endpoint, 1 to 256.
pub type Weight = Whole<1, 256>;

#[derive(Deserialize, JsonSchema)]
#[serde(
    rename = "$form",
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "a URL, or a mapping: `{ url: http://10.0.0.11:3000, weight: 2 }`"
)]
#[schemars(rename = "Endpoint", untagged)]
enum EndpointForm {
    /// A URL, with a weight of 1.
    Scalar(Located<OriginUrl>),
    /// A URL with its weight.
    Mapping {
        /// Scheme, host and port, as in `http://10.0.0.11:3000`, or `unix:/run/app.sock`.
        url: Located<OriginUrl>,
        /// Its share of the requests, in proportion to the others', 1 to 256.
        #[serde(default)]
        weight: Located<Weight>,
    },
}

impl From<EndpointForm> for Endpoint {
    fn from(form: EndpointForm) -> Self {
        match form {
            EndpointForm::Scalar(url) => Self {
                url,
                weight: Located::default(),
            },
            EndpointForm::Mapping { url, weight } => Self { url, weight },
        }
    }
}

/// `timeouts` of an upstream: each `1ms` to `1d`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamTimeouts {
    /// For a connection to be there, TLS included; 504 beyond.
    pub connect: Located<Timeout<SECOND>>,
    /// For the head of a response, at each attempt: beyond, another address is tried, or 504. None
    /// unless given.
    pub attempt: Option<Located<Timeout<SECOND>>>,
    /// For the head of a response, from the end of the request; 504 beyond.
    pub response: Located<Timeout<{ 30 * SECOND }>>,
    /// For the whole request, attempts and response included: 504 beyond, or the response is cut.
    /// None unless given.
    pub request: Option<Located<Timeout<SECOND>>>,
    /// For the next part of a body, and for the reuse of a connection.
    pub idle: Located<Timeout<{ 60 * SECOND }>>,
    /// For the next byte in either direction of a WebSocket; `idle` once either side has ended its
    /// own.
    pub tunnel: Located<Timeout<{ 3_600 * SECOND }>>,
}

/// `connections` of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamConnections {
    /// The age from which a connection is not used again, give or take 10 %, `1s` to `1w`.
    pub max_lifetime: Located<ConnectionLifetime>,
    /// The most requests over one connection, 1 to 4294967295.
    pub max_requests: Located<ConnectionRequests>,
}

/// The life of a connection to an endpoint.
pub type ConnectionLifetime = Duration<SECOND, { 7 * DAY }, HOUR>;
/// Requests over a connection to an endpoint.
pub type ConnectionRequests = Whole<1, { u32::MAX }, 100_000>;

/// `tls` of an upstream and of `store.redis`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamTls {
    /// A file with the certificates (PEM) that servers are verified against, instead of the
    /// system's.
    pub ca: Option<Located<FilePath>>,
    /// The name that servers are asked for (SNI) and verified by, instead of the host of each.
    pub server_name: Option<Located<ServerName>>,
}

pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    let used = config.routes.iter();
    let used = used.filter_map(|route| match &route.upstream.value {
        UpstreamRef::Named(name) => Some(name),
        UpstreamRef::Echo | UpstreamRef::Url(_) => None,
    });
    let used: HashSet<_> = used.collect();
    for (name, upstream) in config.upstreams.iter() {
        check_upstream(upstream, findings);
        balance::check(name, upstream, config, findings);
        if name.as_str() == "echo" {
            let message = "`echo` is the name of the built-in upstream";
            let finding = Finding::error(upstream.node, Code::Conflict, message);
            findings.add(finding.help("choose another name").at_key());
        } else if !used.contains(&name.value) {
            let message = format!("no route leads to the upstream `{}`", name.value);
            findings.add(Finding::warning(upstream.node, Code::Unused, message).at_key());
        }
    }
}

fn check_upstream(upstream: &Upstream, findings: &Findings<'_>) {
    let help = "name one server at least: `endpoints: [http://10.0.0.11:3000]`";
    report_empty(&upstream.endpoints, findings, help);
    let urls = upstream.endpoints.iter();
    let urls = urls.map(|endpoint| (endpoint.url.to_string(), endpoint.url.node));
    report_repeated(urls, findings, |url| {
        (
            format!("`{url}` twice in one upstream"),
            "remove one of them; `weight` gives it a larger share",
        )
    });
    check_effects(upstream, findings);
    if upstream.send_proxy_protocol.get() && upstream.protocol.value != UpstreamProtocol::Http1 {
        let message = "connections of HTTP/2 are shared, and a PROXY header names one client";
        let node = upstream.send_proxy_protocol.node;
        let finding = Finding::error(node, Code::Conflict, message);
        let finding = finding.related(upstream.protocol.node, "the version of HTTP");
        findings.add(finding.help("remove `protocol`, or `send_proxy_protocol`"));
    }
    ejection::check(&upstream.ejection, findings);
    health::check(upstream, findings);
    retries::check(&upstream.retries, findings);
    let tls = &upstream.tls;
    let mut endpoints = upstream.endpoints.iter();
    let encrypted = endpoints.any(|endpoint| endpoint.url.scheme == Scheme::Https);
    let protocol = &upstream.protocol;
    if !encrypted && protocol.value == UpstreamProtocol::Auto {
        let message = "`auto` is HTTP/1.1 for endpoints without TLS";
        let finding = Finding::warning(protocol.node, Code::NoEffect, message);
        findings.add(finding.help("write `h2` if the endpoints speak HTTP/2, or remove it"));
    }
    if !encrypted && (tls.ca.is_some() || tls.server_name.is_some()) {
        let message = "`tls` without an endpoint that uses it";
        let finding = Finding::error(tls.node, Code::NoEffect, message);
        findings
            .add(finding.help("write the URLs of the endpoints with `https://`, or remove `tls`"));
    }
}

/// Warns of settings without an effect on these endpoints.
fn check_effects(upstream: &Upstream, findings: &Findings<'_>) {
    let endpoints: Vec<_> = upstream.endpoints.iter().collect();
    if let [only] = endpoints[..]
        && only.weight.node != NodeId::ABSENT
    {
        let message = "the weight of the only endpoint";
        let finding = Finding::warning(only.weight.node, Code::NoEffect, message);
        findings.add(finding.help("remove it: all requests go to this endpoint"));
    }
    let every = upstream.resolve_every.node;
    if every != NodeId::ABSENT && endpoints.iter().all(|endpoint| endpoint.url.is_address()) {
        let finding = Finding::warning(every, Code::NoEffect, "no endpoint has a name to look up");
        findings.add(finding.help("remove `resolve_every`"));
    }
}

/// The compiled upstreams by name or URL.
#[derive(Default)]
pub(in crate::config) struct Upstreams {
    specs: Vec<UpstreamSpec>,
    known: HashMap<String, usize>,
    are_stand_ins: bool,
}

impl Upstreams {
    /// Compiles every upstream to `echo`, for callers that forward nothing. No file is read.
    pub(in crate::config) fn stand_ins() -> Self {
        Upstreams {
            are_stand_ins: true,
            ..Upstreams::default()
        }
    }

    pub(in crate::config) fn into_specs(self) -> Vec<UpstreamSpec> {
        self.specs
    }
}

impl Compiler<'_> {
    /// The index of an upstream; compiles it at first use.
    pub(in crate::config) fn upstream(
        &mut self,
        config: &Config,
        upstreams: &mut Upstreams,
        wanted: &Located<UpstreamRef>,
    ) -> usize {
        let name = wanted.value.to_string();
        if let Some(&index) = upstreams.known.get(&name) {
            return index;
        }
        let target = match &wanted.value {
            _ if upstreams.are_stand_ins => TargetSpec::Echo,
            UpstreamRef::Echo => TargetSpec::Echo,
            UpstreamRef::Url(url) => {
                let endpoint = Endpoint {
                    url: Located {
                        value: url.clone(),
                        node: wanted.node,
                    },
                    weight: Located::default(),
                };
                let in_place = Upstream {
                    endpoints: vec![endpoint.into()].into(),
                    ..Upstream::default()
                };
                self.endpoints(&in_place)
            }
            UpstreamRef::Named(name) => match config.upstreams.get(name.as_str()) {
                Some(upstream) => self.endpoints(upstream),
                // A check has reported the name; nothing compiled beside an error ever runs.
                None => TargetSpec::Echo,
            },
        };
        let index = upstreams.specs.len();
        upstreams.specs.push(UpstreamSpec {
            name: name.clone(),
            target,
        });
        upstreams.known.insert(name, index);
        index
    }

    fn endpoints(&mut self, upstream: &Upstream) -> TargetSpec {
        let endpoints = upstream.endpoints.iter().filter_map(|endpoint| {
            let spec = self.endpoint(&endpoint.url, upstream)?;
            Some((spec, endpoint.weight.get() as u16))
        });
        TargetSpec::Cluster(Box::new(ClusterSpec {
            endpoints: endpoints.collect(),
            balance: upstream.balance.compile(),
            host: match upstream.preserve_host.get() {
                true => HostHeader::Preserve,
                false => HostHeader::Endpoint,
            },
            timeouts: ClusterTimeouts {
                connect: upstream.timeouts.connect.get(),
                response: upstream.timeouts.response.get(),
                idle: upstream.timeouts.idle.get(),
                tunnel: upstream.timeouts.tunnel.get(),
                attempt: upstream.timeouts.attempt.as_ref().map(|time| time.get()),
                request: upstream.timeouts.request.as_ref().map(|time| time.get()),
            },
            ejection: ejection::compile(&upstream.ejection),
            health: upstream.health.as_deref().map(health::compile),
            slow_start: upstream.slow_start.get(),
            retries: RetrySpec {
                is_http2: upstream.protocol.value != UpstreamProtocol::Http1,
                ..retries::compile(&upstream.retries)
            },
            connections: ConnectionLimits {
                max_lifetime: upstream.connections.max_lifetime.get(),
                max_requests: upstream.connections.max_requests.get(),
            },
            resolve_every: upstream.resolve_every.get(),
        }))
    }

    fn endpoint(&mut self, url: &Located<OriginUrl>, upstream: &Upstream) -> Option<EndpointSpec> {
        let text = url.value.to_string();
        let authority = match (&url.socket, text.split_once("://")) {
            (None, Some((_, authority))) => authority,
            _ => "localhost",
        };
        let tls = match url.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(self.client_tls(url, &upstream.tls)?),
        };
        match Authority::try_from(authority) {
            Ok(authority) => Some(EndpointSpec {
                authority,
                socket: url.socket.clone(),
                tls,
                protocol: upstream.protocol.value,
                sends_proxy_header: upstream.send_proxy_protocol.get(),
            }),
            Err(error) => {
                self.findings.push(Finding::error(
                    url.node,
                    Code::InvalidValue,
                    error.to_string(),
                ));
                None
            }
        }
    }

    /// The certificates that servers are verified against; `None` with a finding.
    pub(in crate::config) fn roots(&mut self, tls: &UpstreamTls) -> Option<Roots> {
        let Some(ca) = &tls.ca else {
            return Some(Roots::System);
        };
        let path = self.loaded.resolve(ca.as_path());
        self.files.push(VersionedFile::new(path.clone()));
        match files::read(&path, MAX_CERTIFICATE_FILE) {
            Ok(content) => Some(Roots::Pem { path, content }),
            Err(error) => {
                self.unreadable(&path, ca.node, &error);
                None
            }
        }
    }

    fn client_tls(&mut self, url: &Located<OriginUrl>, tls: &UpstreamTls) -> Option<ClientTls> {
        let roots = self.roots(tls)?;
        let name = tls.server_name.as_ref();
        let name = name.map_or(url.host.as_str(), |name| name.as_str());
        let node = tls.ca.as_ref().map_or(url.node, |ca| ca.node);
        ClientTls::new(name, roots)
            .map_err(|error| {
                self.findings
                    .push(Finding::error(node, Code::InvalidValue, error.to_string()));
            })
            .ok()
    }
}
