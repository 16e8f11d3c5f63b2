//! HTTP/1.1 with an endpoint: a connection has one request at a time, whose task drives it.

mod connection;
mod pooled;
mod request;
mod response;
mod status;

use std::future::poll_fn;

use http::StatusCode;

pub(in crate::upstream) use pooled::PooledConnection;
pub(in crate::upstream) use status::http1_status;

use crate::upstream::attempt::{Attempt, OutboundRequest};
use crate::upstream::error::UpstreamErrorKind;
use crate::upstream::host::InFlight;
use crate::upstream::session::body::{Exchange, UpstreamBody};

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
    pub(in crate::upstream) async fn send(mut self, outbound: &mut OutboundRequest<'_>) -> Attempt {
        let timeouts = &outbound.spec.timeouts;
        let (informational, is_owed) = (outbound.informational, outbound.is_owed);
        let connection = &mut *self.connection;
        connection.http.begin(outbound.request);
        connection.idle_timer.reset_to(timeouts.response);
        let polled = poll_fn(|cx| connection.poll_response(cx, informational, is_owed));
        match polled.await {
            Some(Ok(response)) => {
                let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let exchange = Exchange::Http1(self);
                let body = UpstreamBody::new(exchange, is_tunnel, response.headers(), timeouts);
                Attempt::from(Ok(response.map(|()| body)))
            }
            None => {
                let late = UpstreamErrorKind::ResponseTimeout(timeouts.response);
                Attempt::failed(late, self.host)
            }
            Some(Err(kind)) => {
                let unsent = connection.http.writer.take_unsent();
                let is_unprocessed = unsent.is_some();
                if let Some(body) = unsent.or_else(|| connection.http.take_tunnel()) {
                    *outbound.request.body_mut() = body;
                }
                Attempt {
                    is_unprocessed,
                    ..Attempt::failed(kind, self.host)
                }
            }
        }
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
