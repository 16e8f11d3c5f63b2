//! The settings of upstreams, as the configuration is compiled to them.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use derive_more::Display;
use http::StatusCode;
use http::uri::{Authority, PathAndQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tls::ClientTls;
use crate::net::socket::StreamAddress;

/// The settings of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamSpec {
    /// Its name in the configuration, or its URL if a route gives that.
    pub name: String,
    /// Its servers; `None` for the built-in `echo`, and where nothing is forwarded.
    pub cluster: Option<ClusterSpec>,
}

/// The servers of an upstream.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The load-balancing algorithm.
    pub balance: Balance,
    /// At least one, with its weight from 1 to 256.
    pub endpoints: Vec<(EndpointSpec, u16)>,
    /// Forwarded requests have the Host of the client's, not that of the endpoint.
    pub preserves_host: bool,
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
    pub health: Option<Arc<HealthSpec>>,
    /// The time in which a host that returns, or is new beside others, gets its whole share.
    pub slow_start: Duration,
    /// Further attempts at failed requests.
    pub retries: RetrySpec,
}

/// The load-balancing algorithm of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Each in turn, as often as its weight.
    #[default]
    RoundRobin,
    /// The less loaded of two random hosts (Mitzenmacher, "The Power of Two Choices", 2001).
    LeastRequests,
    /// A random host, by weight.
    Random,
    /// One host for each key, within a bound of its load (consistent hashing).
    Hash,
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
    pub(crate) fn alpn(self) -> Vec<Vec<u8>> {
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
            Some(path) => StreamAddress::Unix(Arc::clone(path)).to_string(),
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

/// The rules of ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionSpec {
    /// Failures in a row that eject a host.
    pub consecutive_failures: u32,
    /// The percentage of failed requests that ejects a host, if any does.
    pub failure_rate: Option<u32>,
    /// The length of the first ejection; each further one in a row is longer by this.
    pub base: Duration,
    /// The length of the longest ejection.
    pub max: Duration,
    /// The percentage of hosts that may be ejected at once.
    pub max_ejected: u32,
}

impl EjectionSpec {
    /// How many of `hosts` may be ejected at once: at least one of two, and never all.
    pub(super) fn most_ejected(&self, hosts: usize) -> usize {
        let share = hosts * self.max_ejected as usize / 100;
        share.max(1).min(hosts.saturating_sub(1))
    }

    /// The length of the ejection with this number in a row, from 1.
    pub(super) fn length(&self, number: u32) -> Duration {
        self.base.saturating_mul(number).min(self.max)
    }
}

/// The rules of health checks.
#[derive(Clone, Debug)]
pub struct HealthSpec {
    /// The request of each check.
    pub request: HealthRequest,
    /// Its Host; the endpoint's own unless given.
    pub host: Option<Authority>,
    /// The time between two checks of a host, give or take 10 %.
    pub every: Duration,
    /// For the whole check, from the connection to the answer.
    pub timeout: Duration,
    /// Failures in a row after which a host is unhealthy.
    pub unhealthy_after: u32,
    /// Successes in a row after which it is healthy again.
    pub healthy_after: u32,
}

/// The request of a check, and the answer of a host that is well.
#[derive(Clone, Debug)]
pub enum HealthRequest {
    /// A GET.
    Get {
        /// Its target.
        path: PathAndQuery,
        /// The statuses of a host that is well.
        statuses: Vec<RangeInclusive<u16>>,
    },
    /// A call of `grpc.health.v1.Health/Check`, which must be answered with `SERVING`.
    Grpc {
        /// The name of the service, of at most [`MAX_GRPC_SERVICE`] bytes; empty for the server.
        service: String,
    },
}

/// The longest name of a service, so that its length is one byte of the message.
pub const MAX_GRPC_SERVICE: usize = 127;

/// The retries of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetrySpec {
    /// The most attempts at a request after the first.
    pub attempts: u32,
    /// The failures that are followed by another attempt.
    pub retry_on: Vec<RetryCondition>,
    /// Retries as a percentage of the requests of the last ten seconds.
    pub budget: u32,
    /// Retries a second beside that share.
    pub min_per_second: u32,
    /// The most bytes of a body that are kept for another attempt.
    pub max_body: usize,
    /// An endpoint may speak HTTP/2.
    pub is_http2: bool,
}

/// A failure that is followed by another attempt. After `reset`, `timeout` and a status only
/// idempotent requests are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display)]
#[display(rename_all = "snake_case")]
pub enum RetryCondition {
    /// There is no connection.
    #[default]
    ConnectFailure,
    /// The host has not processed the request.
    Refused,
    /// The connection breaks, or the response is not valid.
    Reset,
    /// The response is late.
    Timeout,
    /// The response has this status, 500 to 599.
    #[display("{}", _0.as_u16())]
    Status(StatusCode),
}
