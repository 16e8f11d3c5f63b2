//! The bodies that a connection receives. h2 keeps each DATA frame apart until it is read, with several
//! hundred bytes beside the payload, which flow control doesn't count. So frames that nobody reads are
//! joined from time to time: then a body holds no more than its window.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use parking_lot::Mutex;

/// The most joined bytes that are read at once: as many as a frame has.
const MAX_PART: usize = 16 * 1024;

/// The receiving side of a stream.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    pub(crate) stream: RecvStream,
    /// The bytes of the frames that h2 keeps no longer. They still take from the stream's window.
    joined: BytesMut,
}

impl ReceiveBuffer {
    /// Receives data, and lets the peer send as much more; `None` at its end.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = match self.joined.len() {
            0 => match ready!(self.stream.poll_data(cx)).transpose()? {
                Some(data) => data,
                None => return Poll::Ready(None),
            },
            1..=MAX_PART => std::mem::take(&mut self.joined).freeze(),
            _ => self.joined.split_to(MAX_PART).freeze(),
        };
        // Fails only after the end of the stream, when no more data comes.
        let _ = self.stream.flow_control().release_capacity(data.len());
        Poll::Ready(Some(Ok(data)))
    }

    /// Returns true once everything was read.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream() && self.joined.is_empty()
    }

    /// Takes the frames out of h2.
    fn join_frames(&mut self) {
        // As long as h2 has bytes, no poll is pending: the reader's waker stays where it is.
        let mut cx = Context::from_waker(Waker::noop());
        while self.stream.flow_control().used_capacity() > self.joined.len()
            && let Poll::Ready(Some(Ok(data))) = self.stream.poll_data(&mut cx)
        {
            self.joined.extend_from_slice(&data);
        }
    }
}

/// The receiving sides of a connection's streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiveBuffers(Arc<Mutex<Vec<Weak<Mutex<ReceiveBuffer>>>>>);

impl ReceiveBuffers {
    /// Adds a stream, until the result is dropped.
    pub(crate) fn open(&self, stream: RecvStream) -> Arc<Mutex<ReceiveBuffer>> {
        let joined = BytesMut::new();
        let buffer = Arc::new(Mutex::new(ReceiveBuffer { stream, joined }));
        let mut buffers = self.0.lock();
        if buffers.len() == buffers.capacity() {
            buffers.retain(|buffer| buffer.strong_count() > 0);
            let open = buffers.len();
            buffers.reserve(open + 1);
        }
        buffers.push(Arc::downgrade(&buffer));
        buffer
    }

    /// Joins the frames that no stream's reader has taken. Must not be called while h2 holds its own
    /// lock, as it does when it writes.
    pub(super) fn join_frames(&self) {
        for buffer in self.0.lock().iter().filter_map(Weak::upgrade) {
            buffer.lock().join_frames();
        }
    }
}
