//! `connections` of an upstream: how long, and how often, they are used again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Located;
use crate::config::schema::{DAY, HOUR, SECOND};
use crate::config::value::{Duration, Whole};
use crate::upstream::ConnectionLimits;

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

pub(super) fn compile(connections: &UpstreamConnections) -> ConnectionLimits {
    ConnectionLimits {
        max_lifetime: connections.max_lifetime.get(),
        max_requests: connections.max_requests.get(),
    }
}
