//! A body that its connection feeds, a part at a time and only when it is asked for: back-pressure reaches the
//! client, and nothing is buffered.
//!
//! Most readers run in the connection's own task, which asks both sides in turn: neither wakes the other then.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Why a fed body broke off.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The connection broke, or ended before the body did.
    #[error(transparent)]
    Closed(#[from] io::Error),
    /// The framing, or the trailers.
    #[error(transparent)]
    Invalid(#[from] crate::http::http1::InvalidMessage),
}

/// A body of `length` bytes, where that is known, and what feeds it.
pub(crate) fn body_channel(length: Option<u64>) -> (BodySender, BodyReceiver) {
    let shared = Arc::new(Shared::default());
    let feeder = BodySender {
        shared: Arc::clone(&shared),
    };
    let body = BodyReceiver {
        shared,
        remaining: length,
        has_ended: false,
    };
    (feeder, body)
}

/// What the connection and the reader of the body say to each other.
#[derive(Debug, Default)]
struct Shared(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    /// What comes next, once it was asked for and is there.
    next: Option<Option<Result<Frame<Bytes>, ReceiveError>>>,
    is_wanted: bool,
    reader: Option<Waker>,
    feeder: Option<Waker>,
    /// Whether the other side is gone.
    is_abandoned: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the reader of a body waits for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    Now,
    NotYet,
    /// There is no reader any more.
    Never,
}

/// The connection's side of a body.
#[derive(Debug)]
pub(crate) struct BodySender {
    shared: Arc<Shared>,
}

impl BodySender {
    /// Whether the next part is to be fed. The task is woken when that changes.
    pub(crate) fn demand(&mut self, cx: &Context<'_>) -> Demand {
        let mut slot = self.shared.lock();
        if slot.is_abandoned {
            return Demand::Never;
        }
        // Also when it is wanted now: what is fed may be long in coming, and the reader may leave.
        keep(&mut slot.feeder, cx);
        match slot.is_wanted {
            true => Demand::Now,
            false => Demand::NotYet,
        }
    }

    /// Whether there is a reader still.
    pub(crate) fn is_read(&self) -> bool {
        !self.shared.lock().is_abandoned
    }

    /// Gives what comes next: `None` at the end.
    pub(crate) fn send(
        &mut self,
        next: Option<Result<Frame<Bytes>, ReceiveError>>,
        cx: &Context<'_>,
    ) {
        let mut slot = self.shared.lock();
        slot.next = Some(next);
        slot.is_wanted = false;
        let reader = slot.reader.take();
        drop(slot);
        wake_other(reader, cx);
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        slot.is_abandoned = true;
        let reader = slot.reader.take();
        drop(slot);
        reader.inspect(Waker::wake_by_ref);
    }
}

/// The reader's side of a body.
#[derive(Debug)]
pub(crate) struct BodyReceiver {
    shared: Arc<Shared>,
    remaining: Option<u64>,
    has_ended: bool,
}

impl Body for BodyReceiver {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let mut slot = self.shared.lock();
        let next = match slot.next.take() {
            Some(next) => next,
            None if slot.is_abandoned => Some(Err(ReceiveError::Closed(
                io::ErrorKind::UnexpectedEof.into(),
            ))),
            None => {
                slot.is_wanted = true;
                keep(&mut slot.reader, cx);
                let feeder = slot.feeder.take();
                drop(slot);
                wake_other(feeder, cx);
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
        slot.is_abandoned = true;
        let feeder = slot.feeder.take();
        drop(slot);
        feeder.inspect(Waker::wake_by_ref);
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
