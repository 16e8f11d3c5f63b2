//! `timeouts` of an upstream.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Located;
use crate::config::schema::{SECOND, Timeout};
use crate::upstream::ClusterTimeouts;

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

pub(super) fn compile(timeouts: &UpstreamTimeouts) -> ClusterTimeouts {
    ClusterTimeouts {
        connect: timeouts.connect.get(),
        response: timeouts.response.get(),
        idle: timeouts.idle.get(),
        tunnel: timeouts.tunnel.get(),
        attempt: timeouts.attempt.as_ref().map(|time| time.get()),
        request: timeouts.request.as_ref().map(|time| time.get()),
    }
}
