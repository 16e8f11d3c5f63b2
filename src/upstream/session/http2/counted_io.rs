//! The I/O of a connection, which counts what passes, and ends a connection that its host floods with
//! frames.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
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
    /// The latest streams that ended with a header block of several frames.
    split_ends: Mutex<VecDeque<u32>>,
}

/// The most streams to remember: far more than are open at once.
const MAX_SPLIT_ENDS: usize = 1024;

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

    /// Returns true if `stream` ended with a header block of several frames. Forgets it.
    pub(super) fn take_split_end(&self, stream: u32) -> bool {
        let mut streams = self.0.split_ends.lock();
        let place = streams.iter().position(|&one| one == stream);
        place.and_then(|place| streams.remove(place)).is_some()
    }

    fn note_split_end(&self, stream: u32) {
        let mut streams = self.0.split_ends.lock();
        if streams.len() == MAX_SPLIT_ENDS {
            streams.pop_front();
        }
        streams.push_back(stream);
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
        let Self { frames, counts, .. } = &mut *self;
        let reads = counts.reads().wrapping_add(1);
        counts.0.reads.store(reads, Relaxed);
        let is_flood = frames.received(&buf.filled()[before..], |head, _| {
            if head.is_split_end() {
                counts.note_split_end(head.stream);
            }
        });
        Poll::Ready(match is_flood {
            true => Err(io::Error::other(
                "the upstream floods the connection with frames",
            )),
            false => Ok(()),
        })
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
