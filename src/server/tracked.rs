//! The I/O that hyper drives: tells [`Activity`] what happens, and holds what a connection occupies.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
};

use super::{activity::Activity, drain::Closing};
use crate::telemetry::metrics::{BadRequest, ListenerMetrics, OpenGuard};

/// What a connection occupies until its socket is closed, also when an upgrade has taken it over.
#[derive(Debug)]
pub(super) struct Held {
    open: OpenGuard,
    _place: OwnedSemaphorePermit,
    _draining: Closing,
}

impl Held {
    pub(super) fn new(
        metrics: &Arc<ListenerMetrics>,
        place: OwnedSemaphorePermit,
        draining: Closing,
    ) -> Self {
        Self {
            open: metrics.open(),
            _place: place,
            _draining: draining,
        }
    }

    pub(super) fn handshake_failed(&self) {
        self.open.listener().accept_error();
    }

    pub(super) fn bad_request(&self, reason: BadRequest) {
        self.open.listener().bad_request(reason);
    }
}

/// A stream that reports to its connection's [`Activity`], and first gives what was read before it.
#[derive(Debug)]
pub(super) struct Tracked<T> {
    inner: T,
    first: Bytes,
    activity: Arc<Activity>,
    held: Held,
}

impl<T> Tracked<T> {
    pub(super) fn new(inner: T, first: Bytes, activity: Arc<Activity>, held: Held) -> Self {
        Self {
            inner,
            first,
            activity,
            held,
        }
    }

    /// Returns what the connection occupies.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Tracked<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let n = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first[..n]);
            self.first.advance(n);
            self.activity.received();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.received();
        } else if self.activity.ended() {
            // Nobody is woken for this: the watchdog, polled next in the same task, takes over.
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Tracked<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.activity.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.activity.wrote(&result);
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
