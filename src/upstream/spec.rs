//! The settings of upstreams, as the configuration is compiled to them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Balance, ClientTls, EjectionSpec, HealthSpec, RetrySpec};
use crate::net::dial::DialAddress;

/// The settings of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamSpec {
    /// Its name in the configuration, or its URL if a route gives that.
    pub name: String,
    /// The target of its requests.
    pub target: TargetSpec,
}

/// The target of an upstream's requests.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// The built-in origin, which responds with the request.
    Echo,
    /// The proxy, which responds with the state of the caller's limits.
    Status,
    /// Servers.
    Cluster(Box<ClusterSpec>),
}

/// The servers of an upstream.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The load-balancing algorithm.
    pub balance: Balance,
    /// At least one, with its weight from 1 to 256.
    pub endpoints: Vec<(EndpointSpec, u16)>,
    /// The Host of forwarded requests.
    pub host: HostHeader,
    /// Time-outs for the servers.
    pub timeouts: ClusterTimeouts,
    /// Bounds of kept connections.
    pub connections: ConnectionLimits,
    /// The bound of the requests in flight at each host, if there is one.
    pub bound: Option<ConnectionBound>,
    /// The time between two lookups of a name.
    pub resolve_every: Duration,
    /// The rules by which hosts are ejected, if any is.
    pub ejection: Option<EjectionSpec>,
    /// The rules by which hosts are checked, if any is.
    pub health: Option<HealthSpec>,
    /// The time in which a host that returns, or is new beside others, gets its whole share.
    pub slow_start: Duration,
    /// Further attempts at failed requests.
    pub retries: RetrySpec,
}

/// The identity of an endpoint. Equal endpoints of an upstream share their connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Host and port; the scheme's port by default. `localhost` with a Unix socket.
    pub authority: Authority,
    /// The path of its Unix socket, instead of an address.
    pub socket: Option<Arc<Path>>,
    /// Set if the URL's scheme is `https`.
    pub tls: Option<ClientTls>,
    /// The version of HTTP.
    pub protocol: UpstreamProtocol,
    /// Connections begin with a header of the PROXY protocol, and carry one request each.
    pub sends_proxy_header: bool,
}

/// The version of HTTP with an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN over TLS, with prior knowledge otherwise.
    #[serde(rename = "h2")]
    Http2,
    /// The version that the server chooses by ALPN; HTTP/1.1 without TLS.
    Auto,
}

impl UpstreamProtocol {
    /// The protocols to offer (RFC 7301), the preferred first.
    pub(super) fn alpn(self) -> Vec<Vec<u8>> {
        let (http2, http1) = (ALPN_HTTP2.to_vec(), b"http/1.1".to_vec());
        match self {
            Self::Http1 => vec![http1],
            Self::Http2 => vec![http2],
            Self::Auto => vec![http2, http1],
        }
    }
}

/// The name of HTTP/2 in ALPN.
pub(super) const ALPN_HTTP2: &[u8] = b"h2";

impl EndpointSpec {
    /// Its name in metrics and logs, and true with TLS. No two endpoints of an upstream share both.
    pub(super) fn origin(&self) -> (String, bool) {
        let label = match &self.socket {
            Some(path) => DialAddress::Unix(Arc::clone(path)).to_string(),
            None => self.authority.to_string(),
        };
        (label, self.tls.is_some())
    }

    /// Its name or address, without brackets, and its port.
    pub(super) fn name_and_port(&self) -> (&str, u16) {
        let default_port = if self.tls.is_some() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        (self.authority.host().trim_matches(['[', ']']), port)
    }
}

/// Bounds of connections that carry one request after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The age from which a connection is not used again, give or take 10 %.
    pub max_lifetime: Duration,
    /// The most requests over one connection.
    pub max_requests: u32,
}

/// The bound of the requests in flight at each host, and of those that wait for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBound {
    /// The most requests in flight at a host: over HTTP/1.1, the connections to it.
    pub max: u32,
    /// The most requests to the upstream that wait.
    pub max_pending: u32,
    /// The longest wait of a request, all its attempts together.
    pub max_wait: Duration,
}

/// The Host of forwarded requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// The request's own.
    Preserve,
    /// The endpoint's own.
    Endpoint,
}

/// Time-outs of an exchange with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTimeouts {
    /// For TCP and TLS together; also for the first answer about a name.
    pub connect: Duration,
    /// For each attempt at a response's head, if bounded beside `response`.
    pub attempt: Option<Duration>,
    /// For the whole request, to the last byte of its response, if bounded.
    pub request: Option<Duration>,
    /// From the request's head to the response's.
    pub response: Duration,
    /// Between two parts of a response's body, or of a tunnel with one direction open; and how long
    /// an unused connection is kept.
    pub idle: Duration,
    /// Without a byte in either direction of a tunnel.
    pub tunnel: Duration,
}
