//! Sessions: connections to an endpoint in use by requests.

mod body;
mod http1;
mod http2;

use tokio_util::either::Either;

pub use body::{UpstreamBody, UpstreamBodyError};
pub(super) use http1::{PooledConnection, http1_status};
pub(super) use http2::{Room, SharedConnection, StreamPermit, WholeResponse, http2_exchange};

use http1::Http1Session;
use http2::Http2Session;

use super::OutboundRequest;
use super::attempt::Attempt;
use super::host::InFlight;

/// A connection, or a part of one, over which a request may be sent.
#[derive(Debug)]
pub(super) enum Session {
    /// Exclusive to one request, until its response has ended.
    Http1(Box<PooledConnection>),
    /// A stream of a connection that requests share.
    Http2(StreamPermit),
}

impl Session {
    /// Sends a request that `host` counts, and waits for the head of the response.
    ///
    /// The future is the session's own: one around it would take more room in every request.
    pub(super) fn send(
        self,
        host: InFlight,
        outbound: &mut OutboundRequest<'_>,
    ) -> impl Future<Output = Attempt> {
        match self {
            Self::Http1(connection) => {
                let worker = outbound.worker;
                let session = Http1Session {
                    connection,
                    host,
                    worker,
                };
                Either::Left(session.send(outbound))
            }
            Self::Http2(permit) => Either::Right(Http2Session { permit, host }.send(outbound)),
        }
    }
}
