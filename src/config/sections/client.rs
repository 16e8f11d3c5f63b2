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
pub type HeadSize = Size<{ 8 << 10 }, { 1 << 20 }>;
/// The size of a request body.
pub type BodySize = Size<0, { 1 << 40 }>;

/// `client`: time-outs and bounds towards clients.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Client")]
pub struct ClientBounds {
    /// How long clients may take.
    pub timeouts: Located<ClientTimeouts>,
    /// The largest request head (request line and fields), `8KiB` to `1MiB`; 431 beyond.
    pub max_head: Located<HeadSize>,
    /// The largest request body, `0B` to `1024GiB`; 413 beyond. A route may say less or more.
    pub max_body: Located<BodySize>,
    /// Connections of clients at a time, over all listeners, 1 to 1000000.
    pub max_connections: Located<Whole<1, 1_000_000>>,
    /// How long a client that has ended its side of the connection (FIN) waits for its answer to begin or to go on:
    /// `0s` to `1h`, or `serve` for as long as any other.
    pub half_close: Located<HalfClose>,
}

impl Default for ClientBounds {
    fn default() -> Self {
        Self {
            timeouts: Located::default(),
            max_head: HeadSize::from_bytes(32 << 10).into(),
            max_body: BodySize::from_bytes(100 << 20).into(),
            max_connections: Whole::new(20_000).into(),
            half_close: Located::default(),
        }
    }
}

/// `client.timeouts`: each `1ms` to `1d`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientTimeouts {
    /// For a whole request head, from its first byte; for the first, from connecting.
    pub head: Located<Timeout>,
    /// For the next part of a request body.
    pub body: Located<Timeout>,
    /// For the next request on an open connection.
    pub idle: Located<Timeout>,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            head: Timeout::from_millis(10 * SECOND).into(),
            body: Timeout::from_millis(30 * SECOND).into(),
            idle: Timeout::from_millis(75 * SECOND).into(),
        }
    }
}

/// `client_ip`: who the client is. Only trusted proxies are believed.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientIp {
    /// Networks of the proxies before this one.
    pub trusted_proxies: List<Cidr>,
    /// The field that they write: the client is its first address from the right that is not
    /// trusted.
    pub header: Located<Header>,
    /// Bits of an IPv6 address that tell clients apart, 1 to 128.
    pub ipv6_prefix: Located<Whole<1, 128>>,
}

impl Default for ClientIp {
    fn default() -> Self {
        Self {
            trusted_proxies: List::default(),
            header: Located::default(),
            ipv6_prefix: Whole::new(64).into(),
        }
    }
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
