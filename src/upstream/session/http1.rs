//! HTTP/1.1 with an endpoint: a connection has one request at a time, whose task drives it.

mod connection;
mod pooled;
mod request;
mod response;
mod status;

use std::future::poll_fn;

use http::StatusCode;

pub use crate::http::http1::InvalidMessage;
pub(in crate::upstream) use pooled::PooledConnection;
pub(in crate::upstream) use status::http1_status;

use crate::http::message::Response;
use crate::upstream::attempt::{Attempt, AttemptFailure, OutboundRequest, is_repeatable};
use crate::upstream::error::{UpstreamError, UpstreamErrorKind};
use crate::upstream::host::InFlight;
use crate::upstream::session::body::{Exchange, UpstreamBody};
use crate::upstream::spec::ClusterTimeouts;

/// A connection in use by one request, to be returned to its pool once the response was read to
/// the end. Dropping it closes the connection: no other request may read the rest of that response.
#[derive(Debug)]
pub(in crate::upstream) struct Http1Session {
    pub connection: Box<PooledConnection>,
    pub host: InFlight,
    pub worker: usize,
}

impl Http1Session {
    /// Sends a request, and waits for the head of the response.
    pub(in crate::upstream) async fn send(
        mut self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let (request, informational) = (&mut *outbound.request, outbound.informational);
        let is_repeatable = is_repeatable(request);
        let connection = &mut *self.connection;
        connection.http.begin(request);
        connection.idle_timer.reset_to(timeouts.response);
        let is_owed = outbound.is_owed;
        let polled = poll_fn(|cx| connection.poll_response(cx, informational, is_owed));
        let (failure, kind) = match polled.await {
            Some(Ok(response)) => {
                return Attempt::answered(self.respond(response, timeouts), is_repeatable);
            }
            None => (
                AttemptFailure::TimedOut,
                UpstreamErrorKind::ResponseTimeout(timeouts.response),
            ),
            Some(Err(error)) => {
                let unsent = connection.http.take_unsent();
                if let Some(tunnel) = connection.http.take_tunnel() {
                    *request.body_mut() = tunnel;
                }
                let failure = match unsent {
                    Some(body) => {
                        *request.body_mut() = body;
                        AttemptFailure::Unsent
                    }
                    None => AttemptFailure::Broken,
                };
                (failure, error)
            }
        };
        let error = UpstreamError::new(&self.host.metrics.endpoint, kind);
        let may_retry = is_repeatable || failure == AttemptFailure::Unsent;
        Attempt::failed(failure, error, may_retry, Some(self.host))
    }

    fn respond(self, response: Response<()>, timeouts: &ClusterTimeouts) -> Response<UpstreamBody> {
        let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let exchange = Exchange::Http1(self);
        let body = UpstreamBody::new(exchange, is_tunnel, response.headers(), timeouts);
        response.map(|()| body)
    }

    /// Returns the connection to the pool if it may carry another request. Must be called after the
    /// end of the response.
    pub(super) fn release(mut self) {
        if self.connection.http.is_reusable() {
            self.connection.http.release();
            self.host.pool.check_in(self.worker, self.connection);
        }
    }
}
