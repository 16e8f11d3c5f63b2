//! A body on its way to the peer: as fast as the peer's windows and the body's source allow, and a
//! frame at a time.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http_body::Body;

/// A body, and the stream that it is sent on.
#[derive(Debug)]
pub(crate) struct BodyUpload<B> {
    pub(crate) stream: SendStream<Bytes>,
    pub(crate) body: B,
    /// The next frame, which waits for the peer's window.
    next: Option<Bytes>,
    /// The frames that the body has yielded. Wraps around.
    pub(crate) taken: u32,
}

/// Reasons why a body broke off.
#[derive(Debug)]
pub(crate) enum UploadError<E> {
    /// Its source did.
    Body(E),
    /// The stream has ended.
    Stream,
}

impl<B: Body<Data = Bytes> + Unpin> BodyUpload<B> {
    pub(crate) fn new(stream: SendStream<Bytes>, body: B) -> Self {
        BodyUpload {
            stream,
            body,
            next: None,
            taken: 0,
        }
    }

    /// Returns true if the body's source, and not the peer, has to do something.
    pub(crate) fn waits_for_body(&self) -> bool {
        self.next.is_none()
    }

    /// The body, if nothing was taken from it.
    pub(crate) fn into_untouched_body(self) -> Option<B> {
        (self.taken == 0).then_some(self.body)
    }

    /// Sends as much as possible. Ready at the end of the body, or at its trailers.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError<B::Error>>> {
        let failed = |_| UploadError::Stream;
        loop {
            if self.next.is_some() {
                ready!(self.poll_capacity(cx))?;
                let data = self.next.take().unwrap_or_default();
                let is_last = self.body.is_end_stream();
                self.stream.send_data(data, is_last).map_err(failed)?;
                if is_last {
                    return Poll::Ready(Ok(()));
                }
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.taken = self.taken.wrapping_add(1);
            let Some(frame) = frame.transpose().map_err(UploadError::Body)? else {
                let sent = self.stream.send_data(Bytes::new(), true);
                return Poll::Ready(sent.map_err(failed));
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() && !self.body.is_end_stream() => {}
                Ok(data) => {
                    // One byte, since a larger claim takes the connection's window from others.
                    self.stream.reserve_capacity(usize::from(!data.is_empty()));
                    self.next = Some(data);
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let sent = if trailers.is_empty() {
                        self.stream.send_data(Bytes::new(), true)
                    } else {
                        self.stream.send_trailers(trailers)
                    };
                    return Poll::Ready(sent.map_err(failed));
                }
            }
        }
    }

    /// Waits until the peer's windows have room for the next frame.
    fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError<B::Error>>> {
        let is_empty = self.next.as_ref().is_some_and(Bytes::is_empty);
        while !is_empty && self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(UploadError::Stream)),
            }
        }
        Poll::Ready(Ok(()))
    }
}
