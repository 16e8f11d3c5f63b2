//! The body of a request: bounded in bytes, and in the time that a quiet client may take. Nothing
//! is buffered: back-pressure reaches the client.

mod channel;
mod held;
mod replay;
mod stream;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

pub use channel::ReceiveError;
pub(crate) use channel::{BodyReceiver, BodySender, Demand, body_channel};
pub use held::{BodyMemory, held_bytes};
pub use replay::ReplayedBody;
pub use stream::StreamBody;

use crate::http::http1::InvalidMessage;
use crate::http::trailers;
use crate::net::idle_timer::IdleTimer;
use replay::AttemptBody;

/// The next frame of a body, once it is there; `None` at the end.
pub type PolledFrame<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// A request body that ends with an error once the client has sent too many bytes, or nothing for
/// too long.
#[derive(Debug)]
pub struct RequestBody {
    inner: Option<Inner>,
    remaining: u64,
    idle: IdleTimer,
    withholds_trailers: bool,
    allows_pauses: bool,
    tunnel: Tunnel,
}

/// The source of a body.
#[derive(Debug)]
enum Inner {
    Http1(BodyReceiver),
    Http2(StreamBody),
    /// A body that may be sent again, and has its own bounds.
    Attempt(AttemptBody),
}

/// The bytes that a client sends after a request without a body, once the upstream switches
/// protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tunnel {
    /// The request does not ask for it.
    None,
    Closed,
    Open,
}

/// Reasons why a request body broke off. All are the client's fault.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// More bytes than the route's `max_body`.
    #[error("the request body is larger than max_body")]
    TooLarge,
    /// No byte for as long as `client.timeouts.body`.
    #[error("the client sent nothing for {0:?}")]
    Quiet(Duration),
    /// The client went away, reset the stream, or framed its body wrongly. Not as `h2::Error`, whose
    /// code the client would get.
    #[error("the client broke off its request body")]
    Client(#[source] io::Error),
    /// Fewer bytes than were announced.
    #[error("the request body is shorter than was announced")]
    Incomplete,
    /// Trailers of more than 16 KiB, or more than 256.
    #[error("the request's trailers are larger than 16 KiB")]
    LargeTrailers,
}

impl RequestBody {
    /// A request that has no body.
    pub fn empty() -> Self {
        RequestBody {
            inner: None,
            remaining: 0,
            idle: IdleTimer::new(Duration::ZERO),
            withholds_trailers: false,
            allows_pauses: false,
            tunnel: Tunnel::None,
        }
    }

    /// Admits `limit` more bytes, with pauses of at most `quiet` between two frames.
    pub fn bound(&mut self, limit: u64, quiet: Duration) {
        self.remaining = limit;
        self.idle.reset_to(quiet);
    }

    /// Lets the client pause for any time: the caller bounds the exchange.
    pub(crate) fn allow_pauses(&mut self) {
        self.allows_pauses = true;
        if let Some(Inner::Attempt(body)) = &mut self.inner {
            body.allow_pauses();
        }
    }

    /// Drops its trailers.
    pub fn withhold_trailers(&mut self) {
        self.withholds_trailers = true;
        if let Some(Inner::Attempt(body)) = &mut self.inner {
            body.withhold_trailers();
        }
    }

    /// Returns true if there is nothing to send, so that the request may be sent again unchanged.
    pub fn is_empty(&self) -> bool {
        self.source().is_none()
    }

    /// The source of bytes, if there are any to send.
    fn source(&self) -> Option<&Inner> {
        let inner = self.inner.as_ref();
        inner.filter(|_| self.tunnel != Tunnel::Closed)
    }

    /// Returns true for a body over HTTP/2. Over HTTP/1 the connection discards unread bodies.
    pub fn is_http2(&self) -> bool {
        match &self.inner {
            Some(Inner::Http2(_)) => true,
            Some(Inner::Attempt(body)) => body.is_http2(),
            _ => false,
        }
    }

    /// A body that returns to its [`ReplayedBody`].
    fn attempt(body: AttemptBody) -> Self {
        RequestBody {
            inner: Some(Inner::Attempt(body)),
            ..RequestBody::empty()
        }
    }

    /// The body of a request that asks to switch protocols: empty until the upstream does.
    pub(crate) fn into_tunnel(self) -> Self {
        RequestBody {
            tunnel: Tunnel::Closed,
            ..self
        }
    }

    /// Returns true if the request asks to switch protocols.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel != Tunnel::None
    }

    /// Yields the client's further bytes from now on, without bounds.
    pub(crate) fn open_tunnel(&mut self) {
        if self.tunnel == Tunnel::Closed {
            self.tunnel = Tunnel::Open;
        }
    }
}

/// A body that may have no byte until [`bound`](RequestBody::bound) allows some.
impl From<StreamBody> for RequestBody {
    fn from(inner: StreamBody) -> Self {
        RequestBody {
            inner: (!inner.is_end_stream()).then_some(Inner::Http2(inner)),
            ..RequestBody::empty()
        }
    }
}

/// A body that may have no byte until [`bound`](RequestBody::bound) allows some.
impl From<BodyReceiver> for RequestBody {
    fn from(inner: BodyReceiver) -> Self {
        RequestBody {
            inner: Some(Inner::Http1(inner)),
            ..RequestBody::empty()
        }
    }
}

impl Inner {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame<RequestBodyError> {
        match self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(|error| match error {
                ReceiveError::Invalid(
                    InvalidMessage::TooLarge(_)
                    | InvalidMessage::Syntax(httparse::Error::TooManyHeaders),
                ) => RequestBodyError::LargeTrailers,
                ReceiveError::Invalid(invalid) => {
                    RequestBodyError::Client(io::Error::other(invalid))
                }
                ReceiveError::Closed(error) => RequestBodyError::Client(error),
            }),
            Self::Http2(body) => body
                .poll_frame(cx)
                .map_err(|error| RequestBodyError::Client(io::Error::other(error))),
            Self::Attempt(body) => body.poll_frame(cx),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame<RequestBodyError> {
        let this = self.get_mut();
        let inner = this.inner.as_mut();
        let Some(inner) = inner.filter(|_| this.tunnel != Tunnel::Closed) else {
            return Poll::Ready(None);
        };
        let frame = inner.poll_frame(cx);
        if this.tunnel == Tunnel::Open {
            // A tunnel has no trailers.
            return frame.map(|frame| frame.filter(|frame| !is_trailers(frame)));
        }
        let is_attempt = matches!(inner, Inner::Attempt(_));
        if is_attempt || (this.allows_pauses && frame.is_pending()) {
            return frame;
        }
        let Poll::Ready(frame) = frame else {
            ready!(this.idle.poll_expired(cx));
            return Poll::Ready(Some(Err(RequestBodyError::Quiet(this.idle.limit()))));
        };
        this.idle.reset();
        Poll::Ready(match frame {
            None => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(frame)) if frame.is_trailers() && this.withholds_trailers => None,
            Some(Ok(frame)) if frame.is_trailers() => trailers::forwardable(frame)
                .map_err(|_| RequestBodyError::LargeTrailers)
                .transpose(),
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                match this.remaining.checked_sub(length) {
                    Some(remaining) => {
                        this.remaining = remaining;
                        Some(Ok(frame))
                    }
                    None => Some(Err(RequestBodyError::TooLarge)),
                }
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self.source() {
            None => true,
            Some(Inner::Http1(body)) => body.is_end_stream(),
            Some(Inner::Http2(body)) => body.is_end_stream(),
            Some(Inner::Attempt(body)) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.source() {
            None => SizeHint::with_exact(0),
            Some(Inner::Http1(body)) => body.size_hint(),
            Some(Inner::Http2(body)) => body.size_hint(),
            Some(Inner::Attempt(body)) => body.size_hint(),
        }
    }
}

fn is_trailers<E>(frame: &Result<Frame<Bytes>, E>) -> bool {
    frame.as_ref().is_ok_and(Frame::is_trailers)
}

#[cfg(test)]
mod tests;
