//! A body that its connection sends frame by frame, each only on demand. Back-pressure reaches the
//! client, and nothing is buffered.
//!
//! Most receivers run in the connection's own task, which polls both sides in turn: neither wakes
//! the other then.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::PolledFrame;

/// Reasons why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The connection broke, or ended before the body did.
    #[error(transparent)]
    Closed(#[from] io::Error),
    /// The framing or the trailers are invalid.
    #[error(transparent)]
    Invalid(#[from] crate::http::http1::InvalidMessage),
}

/// Creates both sides of a body, of `length` bytes if known.
pub(crate) fn body_channel(length: Option<u64>) -> (BodySender, BodyReceiver) {
    let shared = Arc::new(Mutex::<Slot>::default());
    let sender = BodySender {
        shared: Arc::clone(&shared),
    };
    let body = BodyReceiver {
        shared,
        remaining: length,
        has_ended: false,
    };
    (sender, body)
}

/// The state that both sides share.
#[derive(Debug, Default)]
struct Slot {
    /// The next frame, or the end, until the receiver takes it.
    next: Option<Option<Result<Frame<Bytes>, ReceiveError>>>,
    is_requested: bool,
    receiver: Option<Waker>,
    sender: Option<Waker>,
    /// One side was dropped.
    is_closed: bool,
}

/// The receiver's demand for the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    Now,
    NotYet,
    /// The receiver was dropped.
    Never,
}

/// The sending side of a body.
#[derive(Debug)]
pub(crate) struct BodySender {
    shared: Arc<Mutex<Slot>>,
}

impl BodySender {
    /// Returns the receiver's demand. Registers the task for changes of it.
    pub(crate) fn demand(&mut self, cx: &Context<'_>) -> Demand {
        let mut slot = self.shared.lock();
        if slot.is_closed {
            return Demand::Never;
        }
        // Also on demand: the next frame may be long in coming, and the receiver may leave.
        keep(&mut slot.sender, cx);
        if slot.is_requested {
            Demand::Now
        } else {
            Demand::NotYet
        }
    }

    /// Returns true while the receiver exists.
    pub(crate) fn has_receiver(&self) -> bool {
        !self.shared.lock().is_closed
    }

    /// Sends the next frame; `None` at the end.
    pub(crate) fn send(
        &mut self,
        next: Option<Result<Frame<Bytes>, ReceiveError>>,
        cx: &Context<'_>,
    ) {
        let mut slot = self.shared.lock();
        slot.next = Some(next);
        slot.is_requested = false;
        let receiver = slot.receiver.take();
        drop(slot);
        wake_other(receiver, cx);
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        slot.is_closed = true;
        let receiver = slot.receiver.take();
        drop(slot);
        receiver.inspect(Waker::wake_by_ref);
    }
}

/// The receiving side of a body.
#[derive(Debug)]
pub(crate) struct BodyReceiver {
    shared: Arc<Mutex<Slot>>,
    remaining: Option<u64>,
    has_ended: bool,
}

impl Body for BodyReceiver {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame<ReceiveError> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let mut slot = self.shared.lock();
        let next = match slot.next.take() {
            Some(next) => next,
            None if slot.is_closed => Some(Err(ReceiveError::Closed(
                io::ErrorKind::UnexpectedEof.into(),
            ))),
            None => {
                slot.is_requested = true;
                keep(&mut slot.receiver, cx);
                let sender = slot.sender.take();
                drop(slot);
                wake_other(sender, cx);
                return Poll::Pending;
            }
        };
        drop(slot);
        match &next {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.remaining = self.remaining.map(|left| left.saturating_sub(length));
                self.has_ended = self.remaining == Some(0) || frame.is_trailers();
            }
            Some(Err(_)) | None => self.has_ended = true,
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            _ if self.has_ended => SizeHint::with_exact(0),
            Some(remaining) => SizeHint::with_exact(remaining),
            None => SizeHint::default(),
        }
    }
}

impl Drop for BodyReceiver {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        slot.is_closed = true;
        let sender = slot.sender.take();
        drop(slot);
        sender.inspect(Waker::wake_by_ref);
    }
}

fn keep(waker: &mut Option<Waker>, cx: &Context<'_>) {
    match waker {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *waker = Some(cx.waker().clone()),
    }
}

fn wake_other(waker: Option<Waker>, cx: &Context<'_>) {
    if let Some(waker) = waker.filter(|waker| !waker.will_wake(cx.waker())) {
        waker.wake();
    }
}
