//! The I/O of a connection, whose frames are followed in both directions. A connection ends that its
//! peer floods with frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flood::{FloodCounter, MANY_SMALL_DATA};
use super::frame_tracker::{DATA, FrameHead, FrameTracker};
use super::receive_buffer::ReceiveBuffers;

/// A stream of bytes that shows its frames to an observer. Reads return `first` before new bytes.
#[derive(Debug)]
pub(crate) struct FrameIo<T, O> {
    inner: T,
    first: BytesMut,
    frames: ConnectionFrames,
    observer: O,
    /// The bodies that come over it.
    pub(crate) bodies: ReceiveBuffers,
}

/// One side's view of the frames of a connection.
pub(crate) trait FrameObserver: Unpin {
    /// Follows bytes of the peer, which it may change. Returns true if the connection must end.
    fn received(&mut self, bytes: &mut [u8], frames: &mut ConnectionFrames) -> bool;

    /// Notes a write.
    fn wrote(&mut self, result: &Poll<io::Result<usize>>, frames: &ConnectionFrames);

    /// Notes a flush or a shutdown.
    fn flushed(&mut self, _is_pending: bool) {}

    /// Returns true if the connection must end, whatever the peer sends.
    fn is_flooded(&self) -> bool {
        false
    }

    /// Notes that the connection ends because of a flood. Returns the last frame to the peer, if it
    /// gets one, and the reason.
    fn end_flood(&mut self, frames: &ConnectionFrames) -> (Option<[u8; 17]>, &'static str);
}

/// The frames of both directions of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionFrames {
    pub(crate) received: FrameTracker,
    sent: FrameTracker,
    flood: FloodCounter,
    /// DATA frames that had neither a byte nor a flag.
    empty_data: u32,
    /// The places of the types of those that h2 must not see, in the bytes just received.
    unseen_data: Vec<usize>,
}

/// The DATA frames without a byte or a flag that h2 sees, which knows if their streams may have them.
/// It ends a connection at twice as many, however long it lives.
const SEEN_EMPTY_DATA: u32 = 50;

/// A type of frames that nobody defines, which are ignored (RFC 9113 section 5.5).
const UNKNOWN: u8 = 0xff;

/// The bytes of a frame from its type to its payload.
const FROM_TYPE: usize = 6;

impl ConnectionFrames {
    /// Follows bytes that were received, and passes the head of each frame to `see`, with the bytes
    /// behind it. Returns true if the peer floods the connection.
    pub(crate) fn received(&mut self, bytes: &[u8], mut see: impl FnMut(FrameHead, &[u8])) -> bool {
        let (mut is_flood, flood) = (false, &mut self.flood);
        let (empty_data, unseen_data) = (&mut self.empty_data, &mut self.unseen_data);
        self.received.observe(bytes, |head, rest| {
            is_flood |= flood.is_one_too_many(head);
            if (head.kind, head.length, head.flags) == (DATA, 0, 0) {
                *empty_data = empty_data.saturating_add(1);
                if *empty_data > SEEN_EMPTY_DATA {
                    unseen_data.extend((bytes.len() - rest.len()).checked_sub(FROM_TYPE));
                }
            }
            see(head, rest);
        });
        is_flood
    }

    /// Returns true if so many streams of this side were reset by it that the peer may take it for a
    /// flood.
    pub(crate) fn has_reset_many(&self) -> bool {
        self.flood.has_reset_many()
    }

    /// The GOAWAY that ends a flood; `None` within a frame.
    pub(crate) fn goaway(&self) -> Option<[u8; 17]> {
        self.sent.is_between_frames().then(|| self.flood.goaway())
    }
}

impl<T, O: FrameObserver> FrameIo<T, O> {
    /// A connection that a client has opened.
    pub(crate) fn with_client(inner: T, first: BytesMut, observer: O) -> Self {
        FrameIo {
            inner,
            first,
            frames: ConnectionFrames {
                received: FrameTracker::of_client(),
                sent: FrameTracker::default(),
                flood: FloodCounter::default(),
                empty_data: 0,
                unseen_data: Vec::new(),
            },
            observer,
            bodies: ReceiveBuffers::default(),
        }
    }

    /// A connection to a server.
    pub(crate) fn with_server(inner: T, observer: O) -> Self {
        let mut io = Self::with_client(inner, BytesMut::new(), observer);
        std::mem::swap(&mut io.frames.received, &mut io.frames.sent);
        io
    }

    fn wrote(
        &mut self,
        bufs: &[IoSlice<'_>],
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(mut length)) = result {
            let ConnectionFrames { sent, flood, .. } = &mut self.frames;
            for buf in bufs {
                let part = buf.len().min(length);
                length -= part;
                sent.observe(&buf[..part], |head, _| flood.sent(head));
            }
        }
        self.observer.wrote(&result, &self.frames);
        result
    }
}

impl<T: AsyncWrite + Unpin, O: FrameObserver> FrameIo<T, O> {
    /// Sends the last frame if the socket takes it at once, and ends the connection.
    fn end_flood(&mut self, cx: &mut Context<'_>) -> io::Error {
        let (last, reason) = self.observer.end_flood(&self.frames);
        if let Some(last) = last {
            // The connection ends whether the peer reads this or not.
            let _ = Pin::new(&mut self.inner).poll_write(cx, &last);
            let _ = Pin::new(&mut self.inner).poll_flush(cx);
        }
        io::Error::other(reason)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, O: FrameObserver> AsyncRead for FrameIo<T, O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.observer.is_flooded() {
            return Poll::Ready(Err(this.end_flood(cx)));
        }
        if this.frames.flood.small_data >= MANY_SMALL_DATA {
            this.frames.flood.small_data = 0;
            this.bodies.join_frames();
            // Streams that have just begun are found now, and readers get their turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if this.first.is_empty() {
            ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        } else {
            let length = this.first.len().min(buf.remaining());
            buf.put_slice(&this.first[..length]);
            this.first.advance(length);
        }
        let bytes = &mut buf.filled_mut()[before..];
        let is_flood = this.observer.received(bytes, &mut this.frames);
        while let Some(at) = this.frames.unseen_data.pop() {
            bytes[at] = UNKNOWN;
        }
        Poll::Ready(if is_flood {
            Err(this.end_flood(cx))
        } else {
            Ok(())
        })
    }
}

impl<T: AsyncWrite + Unpin, O: FrameObserver> AsyncWrite for FrameIo<T, O> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.wrote(&[IoSlice::new(buf)], result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(bufs, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.observer.flushed(result.is_pending());
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.observer.flushed(result.is_pending());
        result
    }
}
