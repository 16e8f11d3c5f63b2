//! The body of a message over HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use h2::RecvStream;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::PolledFrame;
use crate::http::http2::{ReceiveBuffer, ReceiveBuffers};

/// The receiving side of a stream. The peer may send more as its bytes are read.
#[derive(Debug)]
pub struct StreamBody {
    buffer: Arc<Mutex<ReceiveBuffer>>,
    /// The missing bytes, if the length is known.
    remaining: Option<u64>,
    has_data_ended: bool,
    /// Set once the body is wanted, and the client has sent nothing of it.
    is_wanted: Option<Arc<AtomicBool>>,
}

impl StreamBody {
    /// The body of `length` bytes, if known, one of the `bodies` of its connection.
    pub(crate) fn new(stream: RecvStream, length: Option<u64>, bodies: &ReceiveBuffers) -> Self {
        StreamBody {
            buffer: bodies.open(stream),
            remaining: length,
            has_data_ended: false,
            is_wanted: None,
        }
    }

    /// The number of its stream.
    pub(crate) fn stream_id(&self) -> u32 {
        self.buffer.lock().stream.stream_id().as_u32()
    }

    /// A flag that is set once the body is wanted, for a client that waits for `100 Continue`.
    pub(crate) fn wanted(&mut self) -> Arc<AtomicBool> {
        Arc::clone(self.is_wanted.get_or_insert_default())
    }

    /// Receives the next frame, and lets the peer send as much more; `None` at the end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame<h2::Error> {
        let mut buffer = self.buffer.lock();
        while !self.has_data_ended {
            let polled = buffer.poll_data(cx);
            if let Some(is_wanted) = self.is_wanted.take() {
                is_wanted.store(polled.is_pending(), Relaxed);
            }
            match ready!(polled).transpose()? {
                Some(data) if data.is_empty() => {}
                Some(data) => {
                    let length = data.len() as u64;
                    self.remaining = self.remaining.map(|left| left.saturating_sub(length));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                None => self.has_data_ended = true,
            }
        }
        let trailers = ready!(buffer.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.buffer.lock().is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.remaining {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(remaining) => SizeHint::with_exact(remaining),
            None => SizeHint::default(),
        }
    }
}
