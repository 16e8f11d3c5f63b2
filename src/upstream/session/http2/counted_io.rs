//! The I/O of a connection, which counts what passes, and ends a connection that its host floods with
//! frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::http2::ConnectionFrames;

/// The counts of a connection. Only its task changes them.
#[derive(Clone, Debug, Default)]
pub(super) struct IoCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU32,
    written: AtomicU64,
    is_worn_out: AtomicBool,
}

impl IoCounts {
    /// How often something was read. Wraps around.
    pub(super) fn reads(&self) -> u32 {
        self.0.reads.load(Relaxed)
    }

    /// How many bytes were written.
    pub(super) fn written(&self) -> u64 {
        self.0.written.load(Relaxed)
    }

    /// Returns true once so many streams were reset that the host may end the connection.
    pub(super) fn is_worn_out(&self) -> bool {
        self.0.is_worn_out.load(Relaxed)
    }
}

/// A stream that counts its reads and written bytes.
#[derive(Debug)]
pub(super) struct CountedIo<T> {
    inner: T,
    counts: IoCounts,
    frames: ConnectionFrames,
}

impl<T> CountedIo<T> {
    pub(super) fn new(inner: T, counts: IoCounts) -> Self {
        CountedIo {
            inner,
            counts,
            frames: ConnectionFrames::with_server(),
        }
    }

    fn wrote(&mut self, bufs: &[IoSlice<'_>], result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(length)) = *result {
            let written = self.counts.written() + length as u64;
            self.counts.0.written.store(written, Relaxed);
            self.frames.sent(bufs, length);
            if self.frames.has_reset_many() {
                self.counts.0.is_worn_out.store(true, Relaxed);
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CountedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let reads = self.counts.reads().wrapping_add(1);
        self.counts.0.reads.store(reads, Relaxed);
        Poll::Ready(
            match self.frames.received(&buf.filled()[before..], |_, _| ()) {
                true => Err(io::Error::other(
                    "the upstream floods the connection with frames",
                )),
                false => Ok(()),
            },
        )
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CountedIo<T> {
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
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
