//! The I/O that `h2` drives. It reports to [`Activity`], and ends a connection that its client
//! floods with frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use super::trailers::{self, FrameVerdict, TrailerCheck};
use crate::http::http2::ConnectionFrames;

/// A stream that reports to its connection's [`Activity`]. Reads return `first` before new bytes.
#[derive(Debug)]
pub(super) struct TrackedIo<T> {
    inner: T,
    first: BytesMut,
    frames: ConnectionFrames,
    trailers: TrailerCheck,
    activity: Rc<Activity>,
}

impl<T> TrackedIo<T> {
    pub(super) fn new(inner: T, first: BytesMut, activity: Rc<Activity>) -> Self {
        Self {
            inner,
            first,
            frames: ConnectionFrames::with_client(),
            trailers: TrailerCheck::new(),
            activity,
        }
    }
}

impl<T: AsyncWrite + Unpin> TrackedIo<T> {
    /// Follows the first `written` of these bytes.
    fn wrote(&mut self, bufs: &[IoSlice<'_>], result: &Poll<io::Result<usize>>) {
        self.activity.wrote(result);
        if let Poll::Ready(Ok(length)) = *result {
            self.frames.sent(bufs, length);
        }
    }

    /// Sends GOAWAY if the socket takes it at once, and ends the connection.
    fn end_flood(&mut self, cx: &mut Context<'_>) -> io::Error {
        self.activity.flooded();
        if let Some(goaway) = self.frames.goaway() {
            // The connection ends whether the client reads this or not.
            let _ = Pin::new(&mut self.inner).poll_write(cx, &goaway);
            let _ = Pin::new(&mut self.inner).poll_flush(cx);
        }
        io::Error::other("the client floods the connection with frames")
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for TrackedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.activity.is_flooded() {
            return Poll::Ready(Err(this.end_flood(cx)));
        }
        let before = buf.filled().len();
        if !this.first.is_empty() {
            let length = this.first.len().min(buf.remaining());
            buf.put_slice(&this.first[..length]);
            this.first.advance(length);
        } else {
            ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        }
        let bytes = &mut buf.filled_mut()[before..];
        let (length, trailers, mut malformed) = (bytes.len(), &mut this.trailers, Vec::new());
        let mut is_closed = false;
        let is_flood = this
            .frames
            .received(bytes, |head, rest| match trailers.judge(head, rest) {
                FrameVerdict::Pass => {}
                FrameVerdict::Reset => malformed.push(length - rest.len()),
                FrameVerdict::Close => is_closed = true,
            });
        let is_flood = malformed
            .into_iter()
            .fold(is_flood | is_closed, |is_flood, payload| {
                !trailers::spoil(bytes, payload) | is_flood
            });
        this.activity.received(this.frames.tracker());
        Poll::Ready(match is_flood {
            true => Err(this.end_flood(cx)),
            false => Ok(()),
        })
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TrackedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.wrote(&[IoSlice::new(buf)], &result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(bufs, &result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.activity.flushed(&result);
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.activity.flushed(&result);
        result
    }
}
