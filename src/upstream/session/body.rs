//! The body of a response from an upstream. It holds its session, and ends with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::header::CONTENT_TYPE;
use http_body::{Body, SizeHint};
use tokio::time::Instant;

use super::http1::Http1Session;
use super::http2::StreamExchange;
use crate::http::body::{PolledFrame, RequestBodyError};
use crate::http::headers::Headers;
use crate::http::http1::InvalidMessage;
use crate::http::{event_stream, grpc, trailers};
use crate::net::idle_timer::IdleTimer;
use crate::telemetry::metrics::EndpointFailure;
use crate::upstream::UpstreamErrorKind;
use crate::upstream::host::InFlight;
use crate::upstream::spec::ClusterTimeouts;

/// The body of an upstream's response.
#[derive(Debug)]
pub struct UpstreamBody {
    /// `None` once the body has ended.
    exchange: Option<Exchange>,
    is_tunnel: bool,
    /// The time-out of a tunnel's open direction once the other has ended.
    half_closed: Option<Duration>,
    /// Its silence says nothing of the host.
    may_be_silent: bool,
    /// The error that the next poll returns.
    failure: Option<UpstreamBodyError>,
    reader: Reader,
}

/// The client's pace.
#[derive(Debug, Default)]
struct Reader {
    /// When it got a frame that it has not come back from yet.
    busy_since: Option<Instant>,
    /// It has let the upstream wait for [`PATIENCE`].
    is_slow: bool,
}

/// An upstream that gives up sending waits longer than this.
const PATIENCE: Duration = Duration::from_secs(1);

impl Reader {
    /// Notes that the client wants more, at `now`.
    fn returns(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.busy_since.take() {
            self.is_slow |= now().duration_since(since) >= PATIENCE;
        }
    }
}

/// An exchange whose response has begun.
#[derive(Debug)]
pub(super) enum Exchange {
    Http1(Http1Session),
    Http2(Box<StreamExchange>),
}

/// Reasons why a response broke off.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// The connection broke, or ended too early.
    #[error("the upstream broke off its response")]
    Closed(#[source] io::Error),
    /// The framing, or the trailers.
    #[error("the upstream's response is not valid HTTP")]
    Invalid(#[source] InvalidMessage),
    /// The frames of HTTP/2. Not as `h2::Error`, whose code the client would get.
    #[error("the upstream violates HTTP/2")]
    Protocol(#[source] io::Error),
    /// The frames of HTTP/2 on another stream of the connection.
    #[error("another response on the upstream's connection violates HTTP/2")]
    Bystander(#[source] io::Error),
    /// The upstream reset the stream. The client gets the same error code.
    #[error("the upstream reset the stream")]
    Reset(#[source] h2::Error),
    /// The upstream reset the stream, with a code that would be false of a response that has begun.
    #[error("the upstream reset the stream in the middle of its response")]
    Abandoned(#[source] io::Error),
    /// No byte was received or sent for `timeouts.idle`, or for `timeouts.tunnel` in a tunnel that
    /// is open both ways.
    #[error("nothing was sent for {0:?} (timeouts.idle, or timeouts.tunnel of a WebSocket)")]
    Quiet(Duration),
    /// The body of the request broke off while it was sent.
    #[error(transparent)]
    Request(RequestBodyError),
}

impl UpstreamBodyError {
    /// The endpoint's failure; `None` if the client failed.
    pub fn reason(&self) -> Option<EndpointFailure> {
        match self {
            Self::Closed(_) | Self::Bystander(_) => Some(EndpointFailure::BodyClosed),
            Self::Invalid(_) | Self::Protocol(_) => Some(EndpointFailure::BodyInvalid),
            Self::Reset(_) | Self::Abandoned(_) => Some(EndpointFailure::BodyReset),
            Self::Quiet(_) => Some(EndpointFailure::BodyTimeout),
            Self::Request(_) => None,
        }
    }
}

impl UpstreamBody {
    /// The body of a response with these fields. It ends with an error after `timeouts.idle` without
    /// a byte either way; in a tunnel, after `timeouts.tunnel` while both directions are open.
    pub(super) fn new(
        mut exchange: Exchange,
        is_tunnel: bool,
        headers: &Headers,
        timeouts: &ClusterTimeouts,
    ) -> Self {
        exchange.idle_timer().reset_to(if is_tunnel {
            timeouts.tunnel
        } else {
            timeouts.idle
        });
        let mut body = UpstreamBody {
            is_tunnel,
            half_closed: is_tunnel.then_some(timeouts.idle),
            may_be_silent: exchange.remaining().is_none() && is_stream(headers),
            exchange: Some(exchange),
            failure: None,
            reader: Reader::default(),
        };
        body.finish_at_end();
        body
    }

    fn finish_at_end(&mut self) {
        if let Some(exchange) = self.exchange.take_if(|exchange| exchange.has_ended()) {
            self.finish(exchange);
        }
    }

    /// Notes the end of a response. How a tunnel ends says nothing of the host.
    fn finish(&self, exchange: Exchange) {
        if !self.is_tunnel {
            exchange.host().health.counts.record_whole_body();
        }
        if let Exchange::Http1(session) = exchange {
            session.release();
        }
    }

    /// Ends the body with `error` at the next poll: earlier frames are sent first, which a
    /// connection that fails at once would keep.
    fn fail<T>(&mut self, error: UpstreamBodyError, cx: &mut Context<'_>) -> Poll<T> {
        if let (Some(exchange), Some(reason)) = (self.exchange.take(), error.reason()) {
            let is_excused = match &error {
                UpstreamBodyError::Quiet(_) => self.may_be_silent || exchange.waits_for_client(),
                UpstreamBodyError::Bystander(_) => true,
                // The host may wait for the rest of the request no longer, or for the client to read.
                UpstreamBodyError::Closed(_)
                | UpstreamBodyError::Reset(_)
                | UpstreamBodyError::Abandoned(_)
                    if self.reader.is_slow =>
                {
                    true
                }
                _ => exchange.is_uploading(),
            };
            let host = exchange.host();
            match (&exchange, &error) {
                (Exchange::Http2(exchange), UpstreamBodyError::Reset(reset))
                    if exchange.missed_deadline(reset).is_some() => {}
                _ if self.is_tunnel || is_excused => host.metrics.failures.record(reason),
                _ => host.record_broken_body(reason),
            }
        }
        self.failure = Some(error);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Exchange {
    fn host(&self) -> &InFlight {
        match self {
            Self::Http1(session) => &session.host,
            Self::Http2(exchange) => &exchange.session.host,
        }
    }

    fn idle_timer(&mut self) -> &mut IdleTimer {
        match self {
            Self::Http1(session) => &mut session.connection.idle_timer,
            Self::Http2(exchange) => &mut exchange.idle_timer,
        }
    }

    /// Reads the next frame, and keeps sending the rest of the request.
    ///
    /// In a tunnel, empty trailers mean that the upstream sends no more. The body ends when the
    /// client sends no more either.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame<UpstreamErrorKind> {
        match self {
            Self::Http1(session) => session.connection.http.poll_frame(cx),
            Self::Http2(exchange) => exchange.poll_frame(cx),
        }
    }

    /// Returns true if a part of the request was sent since the last call.
    fn has_progressed(&mut self) -> bool {
        match self {
            Self::Http1(session) => session.connection.has_written(),
            Self::Http2(exchange) => exchange.download.has_progressed(),
        }
    }

    /// Returns true if one direction of a tunnel has ended.
    fn is_half_closed(&self) -> bool {
        match self {
            Self::Http1(session) => session.connection.http.is_half_closed(),
            Self::Http2(exchange) => exchange.download.is_half_closed(),
        }
    }

    /// Returns true once everything was received.
    fn has_ended(&self) -> bool {
        match self {
            Self::Http1(session) => session.connection.http.has_ended(),
            Self::Http2(exchange) => exchange.download.has_ended(),
        }
    }

    /// The missing bytes, if the length is known.
    fn remaining(&self) -> Option<u64> {
        match self {
            Self::Http1(session) => session.connection.http.decoder.remaining(),
            Self::Http2(exchange) => exchange.download.remaining(),
        }
    }

    /// Returns true if a part of the request is still to be sent.
    fn is_uploading(&self) -> bool {
        match self {
            Self::Http1(session) => !session.connection.http.writer.is_sent(),
            Self::Http2(exchange) => exchange.download.is_uploading(),
        }
    }

    /// Returns true if the client, and not the host, has to do something.
    fn waits_for_client(&self) -> bool {
        match self {
            Self::Http1(session) => session.connection.http.waits_for_client(),
            Self::Http2(_) => self.is_uploading(),
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame<UpstreamBodyError> {
        let this = self.get_mut();
        let Some(exchange) = &mut this.exchange else {
            return Poll::Ready(this.failure.take().map(Err));
        };
        let Poll::Ready(frame) = exchange.poll_frame(cx) else {
            if exchange.has_progressed() {
                exchange.idle_timer().reset();
            }
            if let Some(silence) = this.half_closed.take_if(|_| exchange.is_half_closed()) {
                exchange.idle_timer().reset_to(silence);
            }
            let timer = exchange.idle_timer();
            let expired = timer.poll_expired(cx);
            this.reader.returns(|| timer.waiting_since());
            ready!(expired);
            let quiet = UpstreamBodyError::Quiet(timer.limit());
            return this.fail(quiet, cx);
        };
        exchange.idle_timer().reset();
        this.reader.returns(Instant::now);
        match frame {
            Some(Ok(frame)) => {
                this.finish_at_end();
                // A frame that has the end of the response needs no clock.
                this.reader.busy_since = this.exchange.as_ref().map(|_| Instant::now());
                let frame = trailers::forwardable(frame).map_err(UpstreamBodyError::Invalid);
                Poll::Ready(frame.transpose())
            }
            Some(Err(failure)) => this.fail(failure.into(), cx),
            None => {
                if let Some(exchange) = this.exchange.take() {
                    this.finish(exchange);
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.is_none() && self.failure.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let remaining = match &self.exchange {
            Some(exchange) => exchange.remaining(),
            None if self.failure.is_none() => Some(0),
            None => None,
        };
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl From<UpstreamErrorKind> for UpstreamBodyError {
    fn from(failure: UpstreamErrorKind) -> Self {
        match failure {
            UpstreamErrorKind::Closed(error) => Self::Closed(error),
            UpstreamErrorKind::Invalid(invalid) => Self::Invalid(invalid),
            UpstreamErrorKind::Protocol(error) => Self::Protocol(io::Error::other(error)),
            UpstreamErrorKind::Bystander(error) => Self::Bystander(io::Error::other(error)),
            UpstreamErrorKind::Reset(error) if is_false_after_head(&error) => {
                Self::Abandoned(io::Error::other(error))
            }
            UpstreamErrorKind::Reset(error) => Self::Reset(error),
            UpstreamErrorKind::RequestBody(error) => Self::Request(error),
            // All others come before a response.
            other => Self::Closed(io::Error::other(other)),
        }
    }
}

/// Returns true for the codes that say of a response that has begun: it is whole, its request was
/// not processed, or it should be asked for over HTTP/1.1 (RFC 9113 sections 8.1, 8.7 and 7).
fn is_false_after_head(error: &h2::Error) -> bool {
    matches!(
        error.reason(),
        Some(Reason::NO_ERROR | Reason::REFUSED_STREAM | Reason::HTTP_1_1_REQUIRED)
    )
}

/// Returns true for a stream of events, or of messages of gRPC or gRPC-Web, whose silence may be meant.
fn is_stream(headers: &Headers) -> bool {
    let is_stream =
        |value: &[u8]| event_stream::is_content_type(value) || grpc::subtype(value).is_some();
    headers.get(CONTENT_TYPE).is_some_and(is_stream)
}
