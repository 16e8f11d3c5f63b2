//! The body of a response from an upstream. It holds the session, and returns its connection to
//! the pool at its end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Http1Session;
use crate::http::headers::Headers;
use crate::upstream::ClusterTimeouts;
use crate::upstream::session::body::{UpstreamBodyError, may_be_silent};

/// The body of an upstream's response over HTTP/1.1.
#[derive(Debug)]
pub(in crate::upstream) struct Http1Body {
    /// `None` once the body has ended.
    session: Option<Http1Session>,
    /// The time-out of a tunnel's open direction once the other has ended.
    half_closed: Option<Duration>,
    /// Its silence says nothing of the host.
    may_be_silent: bool,
    /// The error that the next poll returns.
    failure: Option<UpstreamBodyError>,
}

impl Http1Body {
    /// A response over `session`. It ends with an error after `idle` without a byte either way.
    pub(super) fn new(session: Http1Session, idle: Duration, headers: &Headers) -> Self {
        let may_be_silent = may_be_silent(session.connection.http.remaining(), headers);
        Self::bounded(session, idle, None, may_be_silent)
    }

    /// A tunnel over `session`. It ends with an error after `timeouts.tunnel` without a byte either
    /// way, or `timeouts.idle` once one direction has ended.
    pub(super) fn tunnel(session: Http1Session, timeouts: &ClusterTimeouts) -> Self {
        Self::bounded(session, timeouts.tunnel, Some(timeouts.idle), true)
    }

    fn bounded(
        mut session: Http1Session,
        idle: Duration,
        half_closed: Option<Duration>,
        may_be_silent: bool,
    ) -> Self {
        session.connection.idle_timer.reset_to(idle);
        let mut body = Http1Body {
            session: Some(session),
            half_closed,
            may_be_silent,
            failure: None,
        };
        body.release_at_end();
        body
    }

    /// Ends the body with `error` at the next poll: earlier frames are sent first, which a
    /// connection that fails at once would keep.
    fn fail(&mut self, error: UpstreamBodyError, cx: &mut Context<'_>) {
        if let (Some(session), Some(reason)) = (self.session.take(), error.reason()) {
            let http = &session.connection.http;
            let is_excused = match error {
                UpstreamBodyError::Quiet(_) => self.may_be_silent || http.waits_for_client(),
                // The host may wait for the rest of the request no longer.
                _ => !http.has_sent(),
            };
            // How a tunnel ends says nothing of the host.
            match self.half_closed.is_some() || is_excused {
                true => session.host.metrics().failure(reason),
                false => session.failed(reason),
            }
        }
        self.failure = Some(error);
        cx.waker().wake_by_ref();
    }

    fn release_at_end(&mut self) {
        let has_ended = |session: &mut Http1Session| session.connection.http.has_ended();
        if let Some(session) = self.session.take_if(has_ended) {
            session.release();
        }
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let this = self.get_mut();
        let Some(session) = &mut this.session else {
            return Poll::Ready(this.failure.take().map(Err));
        };
        let connection = &mut *session.connection;
        let Poll::Ready(frame) = connection.http.poll_frame(cx) else {
            if connection.has_written() {
                connection.idle_timer.reset();
            }
            if let Some(silence) = this
                .half_closed
                .take_if(|_| connection.http.is_half_closed())
            {
                connection.idle_timer.reset_to(silence);
            }
            ready!(connection.idle_timer.poll_expired(cx));
            let quiet = UpstreamBodyError::Quiet(connection.idle_timer.limit());
            this.fail(quiet, cx);
            return Poll::Pending;
        };
        connection.idle_timer.reset();
        match frame {
            Some(Ok(frame)) => {
                this.release_at_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(failure)) => {
                this.fail(failure.into(), cx);
                Poll::Pending
            }
            None => {
                if let Some(session) = this.session.take() {
                    session.release();
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.session.is_none() && self.failure.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let remaining = match &self.session {
            Some(session) => session.connection.http.remaining(),
            None if self.failure.is_none() => Some(0),
            None => None,
        };
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
