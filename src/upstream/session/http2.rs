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
use crate::upstream::session::{ExchangeError, InvalidMessage, UpstreamBody};
use crate::upstream::{ClusterTimeouts, OutboundRequest, UpstreamError, UpstreamErrorKind, retry};
use exchange::{Failure, ReceivedHead, StreamExchange};

/// A Host that HTTP/2 cannot have.
const INVALID_HOST: InvalidMessage = InvalidMessage::Meaning("the request's Host is no authority");

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
        let mut exchange = match self.begin(outbound, timeouts) {
            Ok(exchange) => exchange,
            Err(kind) => {
                return Attempt {
                    outcome: AttemptOutcome::Unsent(error(kind)),
                    may_retry: true,
                };
            }
        };
        match poll_fn(|cx| exchange.poll_head(cx, informational)).await {
            Some(Ok(head)) => Attempt {
                outcome: AttemptOutcome::Response(respond(exchange, head, timeouts)),
                may_retry: is_repeatable,
            },
            None => Attempt {
                outcome: AttemptOutcome::TimedOut(error(UpstreamErrorKind::ResponseTimeout(
                    timeouts.response,
                ))),
                may_retry: is_repeatable,
            },
            Some(Err(Failure {
                error: ExchangeError::Reset(reset),
                ..
            })) if let Some(time) = exchange.missed_deadline(&reset) => Attempt {
                outcome: AttemptOutcome::TimedOut(error(UpstreamErrorKind::Deadline(time))),
                may_retry: false,
            },
            Some(Err(Failure {
                error: kind,
                is_processed,
            })) => {
                let body = exchange.into_untouched_body();
                let is_untouched = body.is_some();
                *outbound.request.body_mut() = body.unwrap_or_else(RequestBody::empty);
                let error = error(kind.into());
                Attempt {
                    may_retry: !is_processed || is_repeatable,
                    outcome: match (is_processed, is_untouched) {
                        (true, _) => AttemptOutcome::Broken(error),
                        (false, true) => AttemptOutcome::Unsent(error),
                        (false, false) => AttemptOutcome::Unprocessed(error),
                    },
                }
            }
        }
    }

    /// Opens the stream with the head of the request, and takes its body.
    ///
    /// # Errors
    /// When the connection takes no stream: nothing is sent, and the request is unchanged.
    fn begin(
        self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Result<Box<StreamExchange>, UpstreamErrorKind> {
        let request = &*outbound.request;
        if request.body().is_tunnel() && !self.permit.supports_extended_connect() {
            return Err(UpstreamErrorKind::NoWebSocket);
        }
        let head = request::head(request, self.host.scheme());
        let head = head.ok_or(UpstreamErrorKind::Invalid(INVALID_HOST))?;
        let is_whole = request.body().is_empty() && !request.body().is_tunnel();
        let written = self.permit.written();
        let (response, stream) = self
            .permit
            .open(head, is_whole)
            .map_err(|error| UpstreamErrorKind::from(ExchangeError::from(error)))?;
        Ok(StreamExchange::new(
            self,
            outbound,
            response,
            (!is_whole).then_some(stream),
            written,
            timeouts.response,
        ))
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
    head.map(|()| {
        UpstreamBody::from(match receiver {
            Some(receiver) => Http2Body::new(exchange, receiver, length, timeouts),
            None => {
                exchange.session.host.record_whole_body();
                Http2Body::empty()
            }
        })
    })
}
