//! Bounds for clients, and the fields that name the client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{List, Located};
use crate::config::schema::{SECOND, Timeout};
use crate::config::value::{Cidr, Size, Whole};
use crate::config::words::words;
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
    /// The largest request body, `0B` to `1024GiB`; 413 beyond. A route may say less or more.
    pub max_body: Located<BodySize<{ 100 << 20 }>>,
    /// Connections of clients at a time, over all listeners, 1 to 1000000.
    pub max_connections: Located<Whole<1, 1_000_000, 20_000>>,
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
    /// Networks of the proxies before this one.
    pub trusted_proxies: List<Cidr>,
    /// The field that they write: the client is its first address from the right that is not
    /// trusted.
    pub header: Located<Header>,
    /// Bits of an IPv6 address that tell clients apart, 1 to 128.
    pub ipv6_prefix: Located<Whole<1, 128, 64>>,
}

words! {
    /// A field that says who the client is.
    "ClientIpHeader" for Header {
        /// The customary one.
        XForwardedFor = "x-forwarded-for",
        /// The standard one (RFC 7239).
        Forwarded = "forwarded",
    }
}
