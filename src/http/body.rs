//! The body of a request on its way to an upstream: bounded in bytes, and in the time that a quiet
//! client may take. Nothing is buffered: back-pressure reaches the client.

mod fed;

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

pub use fed::FedError;
pub(crate) use fed::{FedBody, Feeder, Wanted, fed};

/// A request body that stops with an error once the client has sent more than it may, or nothing
/// for too long.
#[derive(Debug)]
pub struct RequestBody {
    inner: Option<Inner>,
    remaining: u64,
    patience: Patience,
    withholds_trailers: bool,
}

/// Where a body comes from.
#[derive(Debug)]
enum Inner {
    Http1(FedBody),
    Http2(Incoming),
    /// What a client sends behind a request that has no body, once the upstream goes on with another protocol.
    Tunnel {
        body: FedBody,
        is_open: bool,
    },
}

/// Why a request body ended before its end. All of these are the client's doing.
#[derive(Debug)]
pub enum RequestBodyError {
    /// More bytes than the route's `max_body`.
    TooLarge,
    /// No byte for as long as `client.timeouts.body`.
    Quiet(Duration),
    /// The client went away, reset the stream, or framed its body wrongly.
    Client(BrokenOff),
    /// Fewer bytes than were announced.
    Incomplete,
}

impl RequestBody {
    /// A request that has no body.
    pub fn empty() -> Self {
        RequestBody {
            inner: None,
            remaining: 0,
            patience: Patience::new(Duration::ZERO),
            withholds_trailers: false,
        }
    }

    /// Lets it have `limit` more bytes, and be quiet for at most `quiet` between two frames.
    pub fn bound(&mut self, limit: u64, quiet: Duration) {
        self.remaining = limit;
        self.patience.renew_with(quiet);
    }

    /// Leaves its trailers out.
    pub fn withhold_trailers(&mut self) {
        self.withholds_trailers = true;
    }

    /// Whether there is nothing to send, so that the request may be sent again unchanged.
    pub fn is_empty(&self) -> bool {
        matches!(
            self.inner,
            None | Some(Inner::Tunnel { is_open: false, .. })
        )
    }

    /// Whether it comes over HTTP/2. Over HTTP/1 the connection sees to what of a body nobody reads.
    pub fn is_http2(&self) -> bool {
        matches!(self.inner, Some(Inner::Http2(_)))
    }

    /// No body, and a way to go on behind it with another protocol.
    pub(crate) fn tunnel(body: FedBody) -> Self {
        RequestBody {
            inner: Some(Inner::Tunnel {
                body,
                is_open: false,
            }),
            ..RequestBody::empty()
        }
    }

    /// Whether the request asks to go on with another protocol.
    pub fn is_tunnel(&self) -> bool {
        matches!(self.inner, Some(Inner::Tunnel { .. }))
    }

    /// Becomes what the client sends from here on, without bounds.
    pub(crate) fn open_tunnel(&mut self) {
        if let Some(Inner::Tunnel { is_open, .. }) = &mut self.inner {
            *is_open = true;
        }
    }
}

/// A body that may have no byte until [`bound`](RequestBody::bound) allows some.
impl From<Incoming> for RequestBody {
    fn from(inner: Incoming) -> Self {
        RequestBody {
            inner: (!inner.is_end_stream()).then_some(Inner::Http2(inner)),
            ..RequestBody::empty()
        }
    }
}

/// A body that may have no byte until [`bound`](RequestBody::bound) allows some.
impl From<FedBody> for RequestBody {
    fn from(inner: FedBody) -> Self {
        RequestBody {
            inner: Some(Inner::Http1(inner)),
            ..RequestBody::empty()
        }
    }
}

impl Inner {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(BrokenOff::Http1),
            Self::Http2(body) => Pin::new(body).poll_frame(cx).map_err(BrokenOff::Http2),
            Self::Tunnel { is_open: false, .. } => Poll::Ready(None),
            Self::Tunnel { body, .. } => Pin::new(body).poll_frame(cx).map_err(BrokenOff::Http1),
        }
    }

    fn is_open_tunnel(&self) -> bool {
        matches!(self, Self::Tunnel { is_open: true, .. })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        let frame = inner.poll_frame(cx);
        if inner.is_open_tunnel() {
            return frame.map_err(RequestBodyError::Client);
        }
        let Poll::Ready(frame) = frame else {
            ready!(this.patience.poll_exhausted(cx));
            return Poll::Ready(Some(Err(RequestBodyError::Quiet(this.patience.limit))));
        };
        this.patience.renew();
        Poll::Ready(match frame {
            None => None,
            Some(Err(error)) => Some(Err(RequestBodyError::Client(error))),
            Some(Ok(frame)) if frame.is_trailers() && this.withholds_trailers => None,
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
        match &self.inner {
            None | Some(Inner::Tunnel { is_open: false, .. }) => true,
            Some(Inner::Http1(body) | Inner::Tunnel { body, .. }) => body.is_end_stream(),
            Some(Inner::Http2(body)) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            None | Some(Inner::Tunnel { is_open: false, .. }) => SizeHint::with_exact(0),
            Some(Inner::Http1(body) | Inner::Tunnel { body, .. }) => body.size_hint(),
            Some(Inner::Http2(body)) => body.size_hint(),
        }
    }
}

/// How a client broke off a body.
#[derive(Debug, thiserror::Error)]
pub enum BrokenOff {
    /// In HTTP/1.
    #[error(transparent)]
    Http1(FedError),
    /// In HTTP/2.
    #[error(transparent)]
    Http2(hyper::Error),
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the request body is larger than max_body"),
            Self::Quiet(limit) => write!(f, "the client sent nothing for {limit:?}"),
            Self::Client(_) => f.write_str("the client broke off its request body"),
            Self::Incomplete => f.write_str("the request body is shorter than was announced"),
        }
    }
}

impl std::error::Error for RequestBodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(source) => Some(source),
            Self::TooLarge | Self::Quiet(_) | Self::Incomplete => None,
        }
    }
}

/// How long to wait for the next of several events.
///
/// A timer exists only once an event was late, so that a body that is there at once costs none; and it
/// is armed anew only when it fires too early, so that many short waits cost one timer.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    /// Set while something is missing.
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes.
    woken: Option<Waker>,
}

impl Patience {
    /// Waits `limit` for each event.
    pub fn new(limit: Duration) -> Self {
        Patience {
            limit,
            deadline: None,
            timer: None,
            woken: None,
        }
    }

    /// Waits until `deadline` for the first event, and `limit` for each other.
    pub fn until(deadline: Instant, limit: Duration) -> Self {
        Patience {
            deadline: Some(deadline),
            ..Patience::new(limit)
        }
    }

    /// How long it waits.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// An event came: the wait for the next starts when it is found missing.
    pub fn renew(&mut self) {
        self.deadline = None;
    }

    /// The same, and the next event may take `limit`.
    pub fn renew_with(&mut self, limit: Duration) {
        self.limit = limit;
        self.renew();
    }

    /// Ready once the event has been missing for the whole limit.
    pub fn poll_exhausted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        // The runtime's own clock, which tests may pause.
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + limit);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
            self.woken = None;
        }
        // A task that the timer will wake is not noted again: that takes locked instructions.
        let is_noted = |task: &Waker| task.will_wake(cx.waker());
        if self.woken.as_ref().is_some_and(is_noted) && !timer.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            // Unconstrained: who sends so much that the task never waits is bounded, too.
            if pin!(unconstrained(timer.as_mut())).poll(cx).is_pending() {
                match &mut self.woken {
                    Some(task) => task.clone_from(cx.waker()),
                    None => self.woken = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
            self.woken = None;
            if deadline <= timer.deadline() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests;
