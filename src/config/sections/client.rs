//! Bounds for clients, and the fields that name the client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{List, Located};
use crate::config::schema::{DAY, HOUR, SECOND, Timeout};
use crate::config::value::{Duration, Size, TrustedProxy, Whole};
use crate::http::client_ip::Header;
use crate::server::HalfClose;

/// The size of a request head.
pub type HeadSize = Size<{ 8 << 10 }, { 1 << 20 }, { 32 << 10 }>;
/// The size of a request body.
pub type BodySize<const DEFAULT: u64 = 0> = Size<0, { 1 << 40 }, DEFAULT>;

/// `client`: time-outs and bounds towards clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Client")]
pub struct ClientBounds {
    /// How long clients may take.
    pub timeouts: Located<ClientTimeouts>,
    /// The largest request head (request line and fields), `8KiB` to `1MiB`; 431 beyond.
    pub max_head: Located<HeadSize>,
    /// The most fields of a request head, 1 to 256; 431 beyond. `Cookie` counts once over HTTP/2.
    pub max_fields: Located<Whole<1, 256, 100>>,
    /// The largest request body, `0B` to `1024GiB`; 413 beyond. A route may say less or more.
    pub max_body: Located<BodySize<{ 100 << 20 }>>,
    /// Connections of clients at a time, over all listeners, 1 to 1000000. Near it the oldest idle
    /// connection gives way to a new one.
    pub max_connections: Located<Whole<1, 1_000_000, 20_000>>,
    /// Connections of one client at a time, 1 to 1000000; further ones are closed. Three quarters of
    /// `max_connections` unless given. Trusted proxies are no clients.
    pub max_connections_per_client: Option<Located<Whole<1, 1_000_000>>>,
    /// Requests on one connection, 1 to 1000000000; then the client has to open another.
    pub max_requests: Located<Whole<1, 1_000_000_000, 1_000_000>>,
    /// How long one connection lives, `1s` to `1d`; then the client has to open another, after its
    /// requests in flight.
    pub max_lifetime: Located<Duration<{ SECOND }, DAY, { HOUR }>>,
    /// How long a client that has ended its side of the connection (FIN) waits for its answer to
    /// begin or to go on: `0s` to `1h`, or `serve` for as long as any other.
    pub half_close: Located<HalfClose>,
}

/// `client.timeouts`: each `1ms` to `1d`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientTimeouts {
    /// For a whole request head, from its first byte; for the first, from connecting.
    pub head: Located<Timeout<{ 10 * SECOND }>>,
    /// For the next part of a request body.
    pub body: Located<Timeout<{ 30 * SECOND }>>,
    /// For the next request on an open connection.
    pub idle: Located<Timeout<{ 75 * SECOND }>>,
}

/// `client_ip`: who the client is. Only trusted proxies are believed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientIp {
    /// Networks of the proxies before this one; `unix` for the peers over Unix sockets.
    pub trusted_proxies: List<TrustedProxy>,
    /// The field that they write. In `x-forwarded-for` and `forwarded` the client is the first
    /// address from the right that is not trusted; any other field has a single address.
    pub header: Located<Header>,
    /// Takes the address at this position from the right instead, 1 to 32; the peer does not count.
    /// Only for `x-forwarded-for` and `forwarded`.
    pub depth: Option<Located<Whole<1, 32>>>,
    /// Bits of an IPv6 address that tell clients apart, 1 to 128.
    pub ipv6_prefix: Located<Whole<1, 128, 64>>,
}
