//! HTTP/2 with an endpoint: requests of a worker share connections, a stream for each. The task of
//! a request sends and receives its stream; a task for each connection moves the frames.

mod connection;
mod download;
mod exchange;
mod io_counts;
mod keep_alive;
mod own_connection;
mod request;
mod upload;

use std::future::poll_fn;
use std::sync::Arc;

pub(in crate::upstream) use connection::{Room, SharedConnection, StreamPermit};
pub(in crate::upstream) use download::Download;
pub(in crate::upstream) use exchange::StreamExchange;
pub(in crate::upstream) use own_connection::{WholeResponse, http2_call, http2_status};

use crate::http::body::RequestBody;
use crate::upstream::attempt::{Attempt, AttemptFailure, OutboundRequest, is_repeatable};
use crate::upstream::error::{UpstreamError, UpstreamErrorKind};
use crate::upstream::host::InFlight;
use crate::upstream::session::body::{Exchange, UpstreamBody};
use crate::upstream::spec::ClusterTimeouts;

/// A stream for one request.
#[derive(Debug)]
pub(in crate::upstream) struct Http2Session {
    pub permit: StreamPermit,
    pub host: InFlight,
}

impl Http2Session {
    /// Sends a request, and waits for the head of the response.
    pub(in crate::upstream) async fn send(
        self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let informational = outbound.informational;
        let is_repeatable = is_repeatable(outbound.request);
        let endpoint = Arc::clone(&self.host.metrics.endpoint);
        let error = |kind| UpstreamError::new(&endpoint, kind);
        let mut exchange = match StreamExchange::begin(self, outbound, timeouts.response) {
            Ok(exchange) => exchange,
            Err((session, kind)) => {
                let host = Some(session.host);
                return Attempt::failed(AttemptFailure::Unsent, error(kind), true, host);
            }
        };
        let is_owed = outbound.is_owed;
        match poll_fn(|cx| exchange.poll_head(cx, informational, is_owed)).await {
            Some(Ok(head)) => {
                let is_tunnel = exchange.is_tunnel();
                let exchange = Exchange::Http2(exchange);
                let body = UpstreamBody::new(exchange, is_tunnel, head.headers(), timeouts);
                Attempt::answered(head.map(|()| body), is_repeatable)
            }
            None => {
                let late = error(UpstreamErrorKind::ResponseTimeout(timeouts.response));
                let host = Some(exchange.session.host);
                Attempt::failed(AttemptFailure::TimedOut, late, is_repeatable, host)
            }
            Some(Err(UpstreamErrorKind::Reset(reset)))
                if let Some(time) = exchange.missed_deadline(&reset) =>
            {
                let late = error(UpstreamErrorKind::Deadline(time));
                let host = Some(exchange.session.host);
                Attempt::failed(AttemptFailure::TimedOut, late, false, host)
            }
            Some(Err(kind)) => {
                let is_processed = exchange.is_processed;
                let (body, host) = exchange.into_untouched_body();
                let failure = match (is_processed, &body) {
                    (true, _) => AttemptFailure::Broken,
                    (false, Some(_)) => AttemptFailure::Unsent,
                    (false, None) => AttemptFailure::Unprocessed,
                };
                *outbound.request.body_mut() = body.unwrap_or_else(RequestBody::empty);
                let may_retry = !is_processed || is_repeatable;
                Attempt::failed(failure, error(kind), may_retry, Some(host))
            }
        }
    }
}
