//! HTTP/1.1 with an endpoint: a connection has one request at a time, whose task drives it.

mod body;
mod connection;
mod request;
mod response;
mod status;

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;

pub use crate::http::http1::InvalidMessage;
pub(in crate::upstream) use body::Http1Body;
pub(in crate::upstream) use status::http1_status;

use crate::http::informational::InformationalQueue;
use crate::http::message::Response;
use crate::net::idle_timer::IdleTimer;
use crate::telemetry::metrics::EndpointFailure;
use crate::upstream::attempt::{Attempt, AttemptOutcome};
use crate::upstream::connector::{OpenConnection, Stream};
use crate::upstream::host::InFlight;
use crate::upstream::pool::ConnectionLease;
use crate::upstream::session::{ExchangeError, UpstreamBody};
use crate::upstream::{
    ClusterTimeouts, Dscp, OutboundRequest, UpstreamError, UpstreamErrorKind, retry,
};
use connection::UpstreamConnection;

/// A connection in use by one request, to be returned to its pool once the response was read to
/// the end. Dropping it closes the connection: no other request may read the rest of that response.
#[derive(Debug)]
pub(in crate::upstream) struct Http1Session {
    pub connection: Box<PooledConnection>,
    pub host: InFlight,
    pub worker: usize,
}

/// A connection with its time-out.
#[derive(Debug)]
pub(in crate::upstream) struct PooledConnection {
    http: UpstreamConnection<Stream>,
    idle_timer: IdleTimer,
    /// The bytes written at the last poll.
    written: u64,
    /// The code point of its packets.
    pub dscp: Option<Dscp>,
    /// Its further use.
    pub lease: ConnectionLease,
    _open: OpenConnection,
}

impl Http1Session {
    /// Sends a request, and waits for the head of the response.
    pub(in crate::upstream) async fn send(
        mut self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let (request, informational) = (&mut *outbound.request, outbound.informational);
        let is_repeatable = retry::is_repeatable(request);
        let connection = &mut *self.connection;
        connection.http.begin(request);
        connection.idle_timer.reset_to(timeouts.response);
        let is_owed = &mut outbound.is_owed;
        let outcome = match poll_fn(|cx| connection.poll_response(cx, informational, is_owed)).await
        {
            Some(Ok(response)) => {
                let outcome = AttemptOutcome::Response(self.respond(response, timeouts));
                return Attempt::new(outcome, is_repeatable, None);
            }
            None => {
                let late = UpstreamErrorKind::ResponseTimeout(timeouts.response);
                AttemptOutcome::TimedOut(self.error(late))
            }
            Some(Err(failure)) => {
                let unsent = connection.http.take_unsent();
                if let Some(tunnel) = connection.http.take_tunnel() {
                    *request.body_mut() = tunnel;
                }
                let error = self.error(failure.into());
                match unsent {
                    Some(body) => {
                        *request.body_mut() = body;
                        AttemptOutcome::Unsent(error)
                    }
                    None => AttemptOutcome::Broken(error),
                }
            }
        };
        let may_retry = is_repeatable || matches!(outcome, AttemptOutcome::Unsent(_));
        Attempt::new(outcome, may_retry, Some(self.host))
    }

    fn respond(self, response: Response<()>, timeouts: &ClusterTimeouts) -> Response<UpstreamBody> {
        let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let body = if is_tunnel {
            Http1Body::tunnel(self, timeouts)
        } else {
            Http1Body::new(self, timeouts.idle, response.headers())
        };
        response.map(|()| UpstreamBody::from(body))
    }

    fn error(&self, kind: UpstreamErrorKind) -> UpstreamError {
        UpstreamError::new(self.host.metrics().endpoint(), kind)
    }

    /// Counts a response that the endpoint did not finish.
    fn failed(&self, reason: EndpointFailure) {
        self.host.record_broken_body(reason);
    }

    /// Returns the connection to the pool if it may carry another request. Must be called after the
    /// end of the response.
    fn release(mut self) {
        self.host.record_whole_body();
        if self.connection.http.is_reusable() {
            self.connection.http.release();
            self.host.pool().check_in(self.worker, self.connection);
        }
    }
}

impl PooledConnection {
    pub(in crate::upstream) fn new(
        stream: Stream,
        dscp: Option<Dscp>,
        lease: ConnectionLease,
        open: OpenConnection,
    ) -> Self {
        PooledConnection {
            http: UpstreamConnection::new(stream),
            idle_timer: IdleTimer::new(Duration::ZERO),
            written: 0,
            dscp,
            lease,
            _open: open,
        }
    }

    /// Returns true if the idle connection is open.
    pub(in crate::upstream) fn is_open(&mut self) -> bool {
        self.http.is_open()
    }

    /// Sends the rest of the request, and reads the head of the response. `None` after the time-out.
    /// Notes in `is_owed` if it waits for the client.
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        informational: Option<&InformationalQueue>,
        is_owed: &mut bool,
    ) -> Poll<Option<Result<Response<()>, ExchangeError>>> {
        loop {
            match self.http.poll_response(cx) {
                Poll::Ready(Ok(response)) if is_informational(response.status()) => {
                    informational.inspect(|queue| queue.send(response));
                }
                Poll::Ready(response) => return Poll::Ready(Some(response)),
                Poll::Pending => break,
            }
        }
        // The time-out starts at the end of the request, or when the upstream takes no more of it.
        // The client's own time-outs bound the rest.
        let waits_for_client = self.http.waits_for_client();
        if self.has_written() || waits_for_client {
            self.idle_timer.reset();
        }
        *is_owed = waits_for_client;
        match waits_for_client {
            true => Poll::Pending,
            false => self.idle_timer.poll_expired(cx).map(|()| None),
        }
    }

    /// Returns true if bytes were written since the last call.
    fn has_written(&mut self) -> bool {
        let written = self.http.written();
        mem::replace(&mut self.written, written) != written
    }
}

/// Returns true if another response follows (RFC 9110 section 15.2), as after all 1xx but 101.
pub(super) fn is_informational(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}
