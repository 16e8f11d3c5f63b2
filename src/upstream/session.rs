//! Sessions: connections to an endpoint in use by requests.

mod body;
mod error;
mod http1;
mod http2;

use tokio_util::either::Either;

pub use body::{UpstreamBody, UpstreamBodyError};
pub use http1::InvalidMessage;
pub(super) use http1::{Http1Session, PooledConnection, http1_status};
pub(super) use http2::{
    Http2Session, Room, SharedConnection, StreamPermit, WholeResponse, http2_call, http2_status,
};

use super::attempt::Attempt;
use super::{ClusterTimeouts, OutboundRequest};

/// A connection over which a request may be sent.
#[derive(Debug)]
pub(super) enum Session {
    /// Exclusive to one request, until its response has ended.
    Http1(Http1Session),
    /// A stream of a connection that requests share.
    Http2(Http2Session),
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
            Self::Http1(session) => Either::Left(session.send(outbound, timeouts)),
            Self::Http2(session) => Either::Right(session.send(outbound, timeouts)),
        }
    }
}
