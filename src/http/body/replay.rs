//! A request body that is kept, up to a bound: to be sent again by a further attempt, or because its
//! beginning is read before it is forwarded. What was received is sent first. A body beyond the bound
//! passes through.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;

use super::held::{BodyMemory, HeldBytes};
use super::{Inner, PolledFrame, RequestBody, RequestBodyError};

/// The owner of a body that attempts send one after the other. The body is with an attempt, or
/// comes back here when the attempt drops it.
#[derive(Debug)]
pub struct ReplayedBody {
    returned: Arc<Mutex<Option<Box<Received>>>>,
}

/// The body of one attempt.
#[derive(Debug)]
pub(super) struct AttemptBody {
    /// `None` only while it is dropped.
    received: Option<Box<Received>>,
    returned: Arc<Mutex<Option<Box<Received>>>>,
    /// How many of the kept bytes were sent.
    sent: usize,
    has_sent_trailers: bool,
}

/// A body, and the part of it that has been received.
#[derive(Debug)]
struct Received {
    rest: RequestBody,
    kept: HeldBytes,
    trailers: Option<HeaderMap>,
    limit: usize,
    has_ended: bool,
    /// Not all that was received is kept: the body is too long, or broke off.
    is_incomplete: bool,
    /// Its length was announced: not how much of it is received decides on its framing.
    is_sized: bool,
}

impl ReplayedBody {
    /// Splits `body` for a first attempt. At most `limit` bytes of it are kept.
    pub fn new(body: RequestBody, limit: usize) -> (Self, RequestBody) {
        let mut received = Received::of(body);
        received.is_incomplete |= !received.has_ended && received.lower() > limit as u64;
        received.limit = limit;
        let replayed = ReplayedBody {
            returned: Arc::default(),
        };
        let first = replayed.attempt(received);
        (replayed, first)
    }

    /// Takes the whole body for another attempt; `None` if it cannot be sent again.
    pub fn take_again(&self) -> Option<RequestBody> {
        let received = self.returned.lock().take()?;
        (!received.is_incomplete).then(|| self.attempt(received))
    }

    fn attempt(&self, received: Box<Received>) -> RequestBody {
        RequestBody::attempt(AttemptBody {
            received: Some(received),
            returned: Arc::clone(&self.returned),
            sent: 0,
            has_sent_trailers: false,
        })
    }
}

impl Received {
    /// A body of which nothing was sent: one that is held stays as it is.
    fn of(mut body: RequestBody) -> Box<Self> {
        if let Some(Inner::Attempt(attempt)) = &mut body.inner
            && attempt.sent == 0
            && let Some(held) = attempt.received.take()
        {
            return held;
        }
        Box::new(Received {
            is_incomplete: false,
            is_sized: body.size_hint().exact().is_some(),
            rest: body,
            kept: HeldBytes::default(),
            trailers: None,
            limit: usize::MAX,
            has_ended: false,
        })
    }

    /// The least that is still to be sent, in bytes.
    fn lower(&self) -> u64 {
        self.rest.size_hint().lower() + self.kept.as_ref().len() as u64
    }

    /// Keeps a frame as long as another attempt may need it.
    fn keep(&mut self, frame: &Frame<Bytes>) {
        match frame.data_ref() {
            Some(data) if self.kept.as_ref().len() + data.len() > self.limit => self.forget(),
            Some(data) => _ = self.kept.extend(data, BodyMemory::UNBOUNDED),
            None => self.trailers = frame.trailers_ref().cloned(),
        }
    }

    fn forget(&mut self) {
        self.is_incomplete = true;
        self.kept = HeldBytes::default();
        self.trailers = None;
    }

    /// Receives the body until more than `limit` bytes are kept. Returns false if there is no
    /// memory for it.
    async fn receive(
        &mut self,
        limit: usize,
        memory: BodyMemory,
    ) -> Result<bool, RequestBodyError> {
        while !self.has_ended && self.kept.as_ref().len() <= limit {
            match self.rest.frame().await.transpose()? {
                None => self.has_ended = true,
                Some(frame) => match frame.into_data() {
                    Ok(data) if !self.kept.extend(&data, memory) => return Ok(false),
                    Ok(_) => {}
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.has_ended = true;
                    }
                },
            }
        }
        Ok(true)
    }
}

/// A body that is read before it is forwarded.
impl RequestBody {
    /// Receives the body until more than `limit` bytes are held, which are sent first. Returns false if
    /// there is no `memory` for it.
    ///
    /// # Errors
    /// The body breaks off.
    pub async fn hold(
        &mut self,
        limit: usize,
        memory: BodyMemory,
    ) -> Result<bool, RequestBodyError> {
        let body = std::mem::replace(self, RequestBody::empty());
        let mut received = Received::of(body);
        let has_room = received.receive(limit, memory).await;
        *self = Self::attempt(AttemptBody {
            received: Some(received),
            returned: Arc::default(),
            sent: 0,
            has_sent_trailers: false,
        });
        has_room
    }

    /// Returns the whole body if it is held, and nothing of it was sent.
    pub fn held(&self) -> Option<&[u8]> {
        let Some(Inner::Attempt(attempt)) = &self.inner else {
            return None;
        };
        let received = attempt.received.as_ref()?;
        (received.has_ended && attempt.sent == 0).then_some(received.kept.as_ref())
    }

    /// Replaces a body that is held.
    pub fn replace_held(&mut self, body: Vec<u8>) {
        if let Some(Inner::Attempt(attempt)) = &mut self.inner
            && let Some(received) = &mut attempt.received
        {
            received.kept = body.into();
        }
    }
}

impl AttemptBody {
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame<RequestBodyError> {
        let Some(received) = &mut self.received else {
            return Poll::Ready(None);
        };
        // Without an owner, as once a response has begun, nobody sends the body again.
        let is_last = Arc::strong_count(&self.returned) == 1;
        let kept = received.kept.as_ref();
        if let Some(unsent) = kept.get(self.sent..).filter(|kept| !kept.is_empty()) {
            let data = if is_last {
                received.is_incomplete = true;
                let kept = Bytes::from_owner(std::mem::take(&mut received.kept));
                kept.slice(std::mem::take(&mut self.sent)..)
            } else {
                let data = Bytes::copy_from_slice(unsent);
                self.sent = kept.len();
                data
            };
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if received.has_ended {
            let trailers = if self.has_sent_trailers {
                None
            } else {
                received.trailers.clone()
            };
            self.has_sent_trailers = true;
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let polled = Pin::new(&mut received.rest).poll_frame(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(None) => received.has_ended = true,
            Poll::Ready(Some(Err(_))) => received.forget(),
            Poll::Ready(Some(Ok(frame))) => {
                (received.has_ended, self.has_sent_trailers) =
                    (frame.is_trailers(), frame.is_trailers());
                if received.is_incomplete || is_last {
                    received.forget()
                } else {
                    received.keep(frame)
                }
                self.sent = received.kept.as_ref().len();
            }
        }
        polled
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let is_end = |received: &Received| {
            if received.has_ended {
                received.trailers.is_none() || self.has_sent_trailers
            } else {
                received.rest.is_end_stream()
            }
        };
        let received = self.received.as_deref();
        received
            .is_none_or(|received| received.kept.as_ref().len() == self.sent && is_end(received))
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let Some(received) = &self.received else {
            return SizeHint::with_exact(0);
        };
        let sent = self.sent as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(received.lower() - sent);
        let upper = received
            .rest
            .size_hint()
            .upper()
            .filter(|_| received.is_sized);
        if let Some(upper) = upper {
            hint.set_upper(upper + received.kept.as_ref().len() as u64 - sent);
        }
        hint
    }

    pub(super) fn withhold_trailers(&mut self) {
        if let Some(received) = &mut self.received {
            received.trailers = None;
            received.rest.withhold_trailers();
        }
    }

    pub(super) fn allow_pauses(&mut self) {
        if let Some(received) = &mut self.received {
            received.rest.allow_pauses();
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        let received = self.received.as_ref();
        received.is_some_and(|received| received.rest.is_http2())
    }
}

impl Drop for AttemptBody {
    fn drop(&mut self) {
        *self.returned.lock() = self.received.take();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use http_body_util::BodyExt;
    use proptest::prelude::*;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::http::body::{BodySender, body_channel};

    /// A body of these parts, of a known length or in chunks, and its sender.
    fn sent_body(parts: &[&[u8]], is_sized: bool) -> (RequestBody, BodySender) {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let (sender, receiver) = body_channel(is_sized.then_some(length));
        let mut body = RequestBody::from(receiver);
        body.bound(u64::MAX, Duration::from_secs(1));
        (body, sender)
    }

    /// Receives `count` frames of `parts`, and the end after the last if the length is unknown.
    fn receive(
        body: &mut RequestBody,
        sender: &mut BodySender,
        parts: &[&[u8]],
        is_sized: bool,
    ) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut received = Vec::new();
        let ends = (!is_sized).then_some(None);
        let frames = parts.iter().map(|part| Some(Bytes::copy_from_slice(part)));
        for frame in frames.chain(ends) {
            let mut polled = Pin::new(&mut *body).poll_frame(&mut cx);
            while let Poll::Ready(Some(Ok(kept))) = polled {
                received.extend_from_slice(kept.data_ref().expect("data"));
                polled = Pin::new(&mut *body).poll_frame(&mut cx);
            }
            assert!(polled.is_pending());
            sender.send(frame.map(|data| Ok(Frame::data(data))), &cx);
        }
        while let Poll::Ready(Some(Ok(last))) = Pin::new(&mut *body).poll_frame(&mut cx) {
            received.extend_from_slice(last.data_ref().expect("data"));
        }
        received
    }

    proptest! {
        /// A first attempt takes some parts; the second gets all of them.
        #[test]
        fn another_attempt_sends_the_same_bytes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..10),
            taken in 0..10_usize,
            is_sized in any::<bool>(),
        ) {
            let runtime = runtime();
            let _entered = runtime.enter();
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let all = parts.concat();
            let (first_parts, later) = parts.split_at(taken.min(parts.len() - 1));
            let (body, mut sender) = sent_body(&parts, is_sized);
            let (replayed, mut first) = ReplayedBody::new(body, all.len());
            prop_assert!(replayed.take_again().is_none(), "an attempt has it");
            let begun = receive(&mut first, &mut sender, first_parts, true);
            prop_assert_eq!(begun, first_parts.concat());
            drop(first);
            let mut second = replayed.take_again().expect("it is whole");
            prop_assert!(!second.is_empty() && !second.is_end_stream());
            prop_assert_eq!(second.size_hint().exact(), is_sized.then_some(all.len() as u64));
            prop_assert_eq!(&receive(&mut second, &mut sender, later, is_sized), &all);
            prop_assert!(second.is_end_stream());
            drop(second);
            let third = replayed.take_again().expect("it is whole");
            prop_assert!(!third.is_end_stream());
            let collected = runtime.block_on(third.collect());
            prop_assert_eq!(collected.expect("it has ended").to_bytes(), all);
        }
    }

    /// A runtime, whose timers bodies use.
    fn runtime() -> Runtime {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime")
    }

    #[tokio::test]
    async fn a_body_beyond_the_bound_passes_and_is_not_kept() {
        for is_sized in [true, false] {
            let parts: [&[u8]; 3] = [b"one", b"two", b"three"];
            let (body, mut sender) = sent_body(&parts, is_sized);
            let (replayed, mut first) = ReplayedBody::new(body, 10);
            let received = receive(&mut first, &mut sender, &parts, is_sized);
            assert_eq!(received, parts.concat());
            drop(first);
            assert!(replayed.take_again().is_none());
        }
    }

    #[tokio::test]
    async fn nothing_is_kept_once_the_owner_is_gone() {
        let parts: [&[u8]; 1] = [b"one"];
        let (body, mut sender) = sent_body(&parts, false);
        let (replayed, mut first) = ReplayedBody::new(body, 10);
        drop(replayed);
        assert_eq!(receive(&mut first, &mut sender, &parts, false), b"one");
    }
}
