//! HTTP/2 with an endpoint: requests of a worker share connections, a stream for each. The task of
//! a request sends and receives its stream; a task for each connection moves the frames.

mod body;
mod connection;
mod counted_io;
mod exchange;
mod keep_alive;
mod own_connection;
mod request;
mod upload;

use std::future::poll_fn;
use std::sync::Arc;

pub(in crate::upstream) use body::Http2Body;
pub(in crate::upstream) use connection::{Room, SharedConnection, StreamPermit};
pub(in crate::upstream) use own_connection::{WholeResponse, http2_call, http2_status};

use crate::http::body::RequestBody;
use crate::http::message::Response;
use crate::upstream::attempt::{Attempt, AttemptOutcome};
use crate::upstream::host::InFlight;
use crate::upstream::session::{ExchangeError, UpstreamBody};
use crate::upstream::{ClusterTimeouts, OutboundRequest, UpstreamError, UpstreamErrorKind, retry};
use exchange::{Failure, OpenedStream, ReceivedHead, StreamExchange};

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
        let is_repeatable = retry::is_repeatable(outbound.request);
        let endpoint = Arc::clone(self.host.metrics().endpoint());
        let error = |kind| UpstreamError::new(&endpoint, kind);
        let stream = match self.open(outbound) {
            Ok(stream) => stream,
            Err(kind) => {
                let outcome = AttemptOutcome::Unsent(error(kind));
                return Attempt::new(outcome, true, Some(self.host));
            }
        };
        let mut exchange = StreamExchange::new(self, stream, outbound, timeouts.response);
        let is_owed = &mut outbound.is_owed;
        match poll_fn(|cx| exchange.poll_head(cx, informational, is_owed)).await {
            Some(Ok(head)) => {
                let outcome = AttemptOutcome::Response(respond(exchange, head, timeouts));
                Attempt::new(outcome, is_repeatable, None)
            }
            None => {
                let late = UpstreamErrorKind::ResponseTimeout(timeouts.response);
                let outcome = AttemptOutcome::TimedOut(error(late));
                Attempt::new(outcome, is_repeatable, Some(exchange.session.host))
            }
            Some(Err(Failure {
                error: ExchangeError::Reset(reset),
                ..
            })) if let Some(time) = exchange.missed_deadline(&reset) => {
                let outcome = AttemptOutcome::TimedOut(error(UpstreamErrorKind::Deadline(time)));
                Attempt::new(outcome, false, Some(exchange.session.host))
            }
            Some(Err(Failure {
                error: kind,
                is_processed,
            })) => {
                let (body, host) = exchange.into_untouched_body();
                let is_untouched = body.is_some();
                *outbound.request.body_mut() = body.unwrap_or_else(RequestBody::empty);
                let error = error(kind.into());
                let outcome = match (is_processed, is_untouched) {
                    (true, _) => AttemptOutcome::Broken(error),
                    (false, true) => AttemptOutcome::Unsent(error),
                    (false, false) => AttemptOutcome::Unprocessed(error),
                };
                Attempt::new(outcome, !is_processed || is_repeatable, Some(host))
            }
        }
    }

    /// Opens the stream with the head of the request.
    ///
    /// # Errors
    /// When the connection takes no stream: nothing is sent.
    fn open(&self, outbound: &OutboundRequest<'_>) -> Result<OpenedStream, UpstreamErrorKind> {
        let request = &*outbound.request;
        if request.body().is_tunnel() && !self.permit.supports_extended_connect() {
            return Err(UpstreamErrorKind::NoWebSocket);
        }
        let head = request::head(request, self.host.scheme());
        let head = head.ok_or(UpstreamErrorKind::InvalidHost)?;
        let is_whole = request.body().is_empty() && !request.body().is_tunnel();
        let written = self.permit.written();
        let opened = self.permit.open(head, is_whole);
        let (response, sender) =
            opened.map_err(|error| UpstreamErrorKind::from(ExchangeError::from(error)))?;
        Ok(OpenedStream {
            response,
            sender: (!is_whole).then_some(sender),
            written,
        })
    }
}

/// The response, with its body.
fn respond(
    exchange: Box<StreamExchange>,
    response: ReceivedHead,
    timeouts: &ClusterTimeouts,
) -> Response<UpstreamBody> {
    let ReceivedHead {
        head,
        receiver,
        length,
    } = response;
    let body = if let Some(receiver) = receiver {
        Http2Body::new(exchange, receiver, length, head.headers(), timeouts)
    } else {
        exchange.session.host.record_whole_body();
        Http2Body::empty()
    };
    head.map(|()| UpstreamBody::from(body))
}
