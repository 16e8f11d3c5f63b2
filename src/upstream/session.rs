//! Sessions: connections to an endpoint in use by requests.

mod http1;

pub(super) use http1::{ExchangeError, Http1Session, PooledConnection};
pub use http1::{InvalidMessage, UpstreamBody, UpstreamBodyError};

use super::attempt::Attempt;
use super::{ClusterTimeouts, OutboundRequest};

/// A connection over which a request may be sent.
#[derive(Debug)]
pub(super) enum Session {
    /// Exclusive to one request, until its response has ended.
    Http1(Http1Session),
}

impl Session {
    /// Sends a request, and waits for the head of the response.
    ///
    /// The future is the session's own: one around it would take more room in every request.
    pub(super) fn send(
        self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> impl Future<Output = Attempt> {
        match self {
            Self::Http1(session) => session.send(outbound, timeouts),
        }
    }
}
