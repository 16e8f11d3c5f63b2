//! The body of a response from an upstream. It holds its session, and ends with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::header::CONTENT_TYPE;
use http_body::{Body, Frame, SizeHint};

use super::http1::Http1Body;
use super::http2::Http2Body;
use super::{ExchangeError, InvalidMessage};
use crate::http::body::RequestBodyError;
use crate::http::headers::Headers;
use crate::http::{event_stream, grpc, trailers};
use crate::telemetry::metrics::EndpointFailure;

/// Returns true if the silence of a body may be meant: that of a stream of events, or of messages of
/// gRPC or gRPC-Web.
pub(super) fn may_be_silent(length: Option<u64>, headers: &Headers) -> bool {
    let is_stream =
        |value: &[u8]| event_stream::is_content_type(value) || grpc::subtype(value).is_some();
    length.is_none() && headers.get(CONTENT_TYPE).is_some_and(is_stream)
}

/// The body of an upstream's response.
#[derive(Debug)]
pub struct UpstreamBody(Protocol);

#[derive(Debug)]
enum Protocol {
    Http1(Http1Body),
    Http2(Http2Body),
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

impl From<Http1Body> for UpstreamBody {
    fn from(body: Http1Body) -> Self {
        UpstreamBody(Protocol::Http1(body))
    }
}

impl From<Http2Body> for UpstreamBody {
    fn from(body: Http2Body) -> Self {
        UpstreamBody(Protocol::Http2(body))
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let frame = ready!(match &mut self.get_mut().0 {
            Protocol::Http1(body) => Pin::new(body).poll_frame(cx),
            Protocol::Http2(body) => Pin::new(body).poll_frame(cx),
        });
        Poll::Ready(match frame {
            Some(Ok(frame)) => trailers::forwardable(frame)
                .map_err(UpstreamBodyError::Invalid)
                .transpose(),
            end => end,
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Protocol::Http1(body) => body.is_end_stream(),
            Protocol::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Protocol::Http1(body) => body.size_hint(),
            Protocol::Http2(body) => body.size_hint(),
        }
    }
}

impl From<ExchangeError> for UpstreamBodyError {
    fn from(failure: ExchangeError) -> Self {
        match failure {
            ExchangeError::Closed(error) => Self::Closed(error),
            ExchangeError::Invalid(invalid) => Self::Invalid(invalid),
            ExchangeError::Protocol(error) => Self::Protocol(io::Error::other(error)),
            ExchangeError::Bystander(error) => Self::Bystander(io::Error::other(error)),
            ExchangeError::Reset(error) if is_false_after_head(&error) => {
                Self::Abandoned(io::Error::other(error))
            }
            ExchangeError::Reset(error) => Self::Reset(error),
            ExchangeError::RequestBody(error) => Self::Request(error),
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
