//! Upstreams: a file for each of their mappings.

mod balance;
mod connections;
mod endpoints;
mod failures;
mod health;
mod tls;

use std::collections::{HashMap, HashSet};

use strum::VariantNames;

pub use balance::Balance;
pub use connections::UpstreamConnections;
pub use endpoints::Endpoint;
pub use failures::{Ejection, Retries, UpstreamTimeouts};
pub use health::Health;
pub use tls::UpstreamTls;

use crate::config::sections::prelude::*;
use crate::upstream::{ClusterSpec, UpstreamSpec};

/// An upstream, under its name in `upstreams`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
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
    /// How many connections there may be, and how long they are kept.
    #[serde(default)]
    pub connections: Located<UpstreamConnections>,
    /// When an address that fails is ejected, and for how long; `off` for never.
    #[serde(default)]
    pub ejection: Located<Ejection>,
    /// Requests of the proxy's own, which find addresses that fail; these get no others.
    /// None unless given.
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

/// The time between two lookups of a name.
pub type ResolveInterval = Duration<SECOND, DAY, { 30 * SECOND }>;

/// The time in which an address gets its whole share of the requests.
pub type SlowStart = Duration<0, HOUR, { 30 * SECOND }>;

impl Upstream {
    /// Returns true if an endpoint has TLS.
    pub(in crate::config) fn has_tls(&self) -> bool {
        let mut endpoints = self.endpoints.iter();
        endpoints.any(|endpoint| endpoint.url.scheme == Scheme::Https)
    }
}

pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let routes = config.routes.iter();
    let mut used: HashSet<_> = routes.filter_map(|route| route.upstream_name()).collect();
    used.extend(config.limited_upstreams().filter_map(|one| one.name()));
    for (name, upstream) in config.upstreams.iter() {
        endpoints::check(upstream, findings);
        check_protocol(upstream, findings);
        connections::check(upstream, findings);
        failures::check(upstream, findings);
        health::check(upstream, findings);
        tls::check(upstream, findings);
        balance::check(name, upstream, config, findings);
        if BuiltIn::VARIANTS.contains(&name.as_str()) {
            let message = format!("`{name}` is the name of a built-in upstream");
            let finding = conflict(upstream.node, message);
            findings.add(finding.help("choose another name").at_key());
        } else if !used.contains(&name.value) {
            let message = format!("no route leads to the upstream `{name}`");
            findings.add(Finding::warning(upstream.node, Code::Unused, message).at_key());
        }
    }
}

/// The finding on the name of an upstream that isn't there.
pub(crate) fn unknown_upstream(
    name: &Name,
    node: NodeId,
    config: &Config,
    findings: &Findings<'_>,
) -> Option<Finding> {
    if config.upstreams.contains_key(name.as_str()) {
        return None;
    }
    let known = config.upstreams.keys().map(|name| name.as_str());
    let known: Vec<_> = known.chain(BuiltIn::VARIANTS.iter().copied()).collect();
    let help = match findings.nearest(name.as_str(), &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "define it under `upstreams`, or name a URL; known are {}",
            nearest::list(&known)
        ),
    };
    let message = format!("there is no upstream `{name}`");
    let finding = Finding::error(node, Code::UnknownName, message);
    Some(finding.help(help))
}

fn check_protocol(upstream: &Upstream, findings: &Findings<'_>) {
    let protocol = &upstream.protocol;
    if upstream.send_proxy_protocol.get() && protocol.value != UpstreamProtocol::Http1 {
        let message = "connections of HTTP/2 are shared, and a PROXY header names one client";
        let node = upstream.send_proxy_protocol.node;
        let finding = conflict(node, message).related(protocol.node, "the version of HTTP");
        findings.add(finding.help("remove `protocol`, or `send_proxy_protocol`"));
    }
    if !upstream.has_tls() && protocol.value == UpstreamProtocol::Auto {
        let message = "`auto` is HTTP/1.1 for endpoints without TLS";
        let finding = warn_no_effect(protocol.node, message);
        findings.add(finding.help("write `h2` if the endpoints speak HTTP/2, or remove it"));
    }
}

/// The compiled upstreams by name or URL.
#[derive(Default)]
pub(crate) struct Upstreams {
    pub(crate) specs: Vec<UpstreamSpec>,
    known: HashMap<String, usize>,
}

impl Compiler<'_> {
    /// The index of an upstream; compiles it at first use.
    pub(crate) fn upstream(
        &mut self,
        config: &Config,
        upstreams: &mut Upstreams,
        wanted: &Located<UpstreamRef>,
    ) -> usize {
        let name = wanted.value.to_string();
        if let Some(&index) = upstreams.known.get(&name) {
            return index;
        }
        let cluster = match &wanted.value {
            // Nothing is forwarded.
            _ if self.key_files != KeyFiles::Needed => None,
            UpstreamRef::BuiltIn(_) => None,
            UpstreamRef::Url(url) => {
                let (value, node) = (url.clone(), wanted.node);
                let endpoint = Endpoint {
                    url: Located { value, node },
                    ..Endpoint::default()
                };
                let in_place = Upstream {
                    endpoints: vec![endpoint.into()].into(),
                    ..Upstream::default()
                };
                Some(self.cluster(&in_place))
            }
            // A check has reported unknown names.
            UpstreamRef::Named(name) => {
                let upstream = config.upstreams.get(name.as_str());
                upstream.map(|upstream| self.cluster(upstream))
            }
        };
        let index = upstreams.specs.len();
        upstreams.specs.push(UpstreamSpec {
            name: name.clone(),
            cluster,
        });
        upstreams.known.insert(name, index);
        index
    }

    fn cluster(&mut self, upstream: &Upstream) -> ClusterSpec {
        let endpoints = upstream.endpoints.iter().filter_map(|endpoint| {
            let spec = self.endpoint(&endpoint.url, upstream)?;
            Some((spec, endpoint.weight.get() as u16))
        });
        ClusterSpec {
            endpoints: endpoints.collect(),
            balance: upstream.balance.compile(),
            preserves_host: upstream.preserve_host.get(),
            timeouts: failures::timeouts(&upstream.timeouts),
            ejection: failures::ejection(&upstream.ejection),
            health: upstream.health.as_deref().map(health::compile),
            slow_start: upstream.slow_start.get(),
            retries: failures::retries(upstream),
            connections: connections::compile(&upstream.connections),
            bound: connections::compile_bound(upstream),
            resolve_every: upstream.resolve_every.get(),
        }
    }
}
