//! The body of a response over HTTP/2. It holds the stream, and cancels it if it is dropped before
//! the end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::connection::StreamPermit;
use super::exchange::StreamExchange;
use super::upload::UploadTask;
use crate::http::headers::Headers;
use crate::http::trailers::TOO_LARGE;
use crate::upstream::ClusterTimeouts;
use crate::upstream::session::body::may_be_silent;
use crate::upstream::session::{ExchangeError, UpstreamBodyError};

/// The body of an upstream's response over HTTP/2.
#[derive(Debug)]
pub(in crate::upstream) struct Http2Body {
    /// `None` once the body has ended.
    exchange: Option<Box<StreamExchange>>,
    /// The error that the next poll returns.
    failure: Option<UpstreamBodyError>,
}

/// The receiving side of a stream.
#[derive(Debug)]
pub(super) struct Download {
    receiver: RecvStream,
    /// The rest of the request, if it did not end before the head of the response.
    upload: Option<UploadTask>,
    /// The missing bytes, if the length is known.
    remaining: Option<u64>,
    /// The time-out of a tunnel's open direction once the other has ended.
    half_closed: Option<Duration>,
    is_tunnel: bool,
    /// Its silence says nothing of the host.
    may_be_silent: bool,
    /// All data was received.
    has_data_ended: bool,
}

impl Http2Body {
    /// The body that `receiver` yields, of `length` bytes if known. It ends with an error after
    /// `timeouts.idle` without a frame either way, or `timeouts.tunnel` in a tunnel.
    pub(super) fn new(
        mut exchange: Box<StreamExchange>,
        receiver: RecvStream,
        length: Option<u64>,
        headers: &Headers,
        timeouts: &ClusterTimeouts,
    ) -> Self {
        let is_tunnel = exchange.is_tunnel();
        exchange.idle_timer.reset_to(match is_tunnel {
            true => timeouts.tunnel,
            false => timeouts.idle,
        });
        let upload = exchange.upload.take();
        exchange.download = Some(Download {
            receiver,
            upload: upload.map(|upload| UploadTask::spawn(upload, is_tunnel)),
            remaining: length,
            half_closed: is_tunnel.then_some(timeouts.idle),
            is_tunnel,
            may_be_silent: may_be_silent(length, headers),
            has_data_ended: false,
        });
        Http2Body {
            exchange: Some(exchange),
            failure: None,
        }
    }

    /// A body without bytes.
    pub(super) fn empty() -> Self {
        Http2Body {
            exchange: None,
            failure: None,
        }
    }

    /// Ends the body with `error` at the next poll: earlier frames are sent first, which a
    /// connection that fails at once would keep.
    fn fail(&mut self, error: UpstreamBodyError, cx: &mut Context<'_>) {
        if let Some(exchange) = self.exchange.take() {
            exchange.record_broken_body(&error);
        }
        self.failure = Some(error);
        cx.waker().wake_by_ref();
    }
}

impl StreamExchange {
    /// Receives the next frame; `None` at the end. Ends with an error after the time-out.
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let Some(download) = &mut self.download else {
            return Poll::Ready(None);
        };
        let polled = download.poll_frame(cx);
        if let Poll::Ready(frame) = polled {
            self.idle_timer.reset();
            if download.cuts_trailers(&frame, &self.session.permit) {
                return Poll::Ready(Some(Err(UpstreamBodyError::Invalid(TOO_LARGE))));
            }
            let of_stream = |error| UpstreamBodyError::from(self.apportion(error));
            return Poll::Ready(frame.map(|frame| frame.map_err(of_stream)));
        }
        if let Some(upload) = &mut download.upload
            && upload.has_progressed()
        {
            self.idle_timer.reset();
        }
        if let Some(silence) = download.half_closed.take_if(|_| {
            download.has_data_ended || download.upload.as_ref().is_none_or(UploadTask::has_ended)
        }) {
            self.idle_timer.reset_to(silence);
        }
        ready!(self.idle_timer.poll_expired(cx));
        let quiet = UpstreamBodyError::Quiet(self.idle_timer.limit());
        Poll::Ready(Some(Err(quiet)))
    }
}

impl Download {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        while !self.has_data_ended {
            match ready!(self.receiver.poll_data(cx)) {
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => return Poll::Ready(Some(Ok(self.accept(data)))),
                Some(Err(error)) => return Poll::Ready(Some(Err(self.error(error)))),
                None => {
                    self.has_data_ended = true;
                    if self.is_tunnel {
                        // The host sends no more; the client may.
                        return Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new()))));
                    }
                }
            }
        }
        if self.is_tunnel {
            return match &self.upload {
                Some(upload) => upload.poll_ended(cx).map(|()| None),
                None => Poll::Ready(None),
            };
        }
        match ready!(self.receiver.poll_trailers(cx)) {
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(self.error(error)))),
        }
    }

    /// Takes data, and lets the host send as much more.
    fn accept(&mut self, data: Bytes) -> Frame<Bytes> {
        let length = data.len();
        // Fails only after the end of the stream, when no more data comes.
        let _ = self.receiver.flow_control().release_capacity(length);
        self.remaining = self
            .remaining
            .map(|left| left.saturating_sub(length as u64));
        Frame::data(data)
    }

    /// The reason for the end of the stream: the client's, if its upload has reset the stream.
    fn error(&self, error: h2::Error) -> ExchangeError {
        let failure = self.upload.as_ref().and_then(UploadTask::take_failure);
        failure.map_or_else(|| error.into(), ExchangeError::RequestBody)
    }

    /// Returns true if silence says nothing of the host: it may be meant, or the client's.
    pub(super) fn may_be_silent(&self) -> bool {
        self.may_be_silent || self.is_uploading()
    }

    /// Returns true if a part of the request is still to be sent.
    pub(super) fn is_uploading(&self) -> bool {
        let upload = self.upload.as_ref();
        upload.is_some_and(|upload| !upload.has_ended())
    }

    /// Returns true for trailers of several frames, of which h2 may have dropped a part.
    fn cuts_trailers(
        &self,
        frame: &Option<Result<Frame<Bytes>, ExchangeError>>,
        permit: &StreamPermit,
    ) -> bool {
        matches!(frame, Some(Ok(frame)) if frame.is_trailers())
            && !self.is_tunnel
            && permit.take_split_end(self.receiver.stream_id().as_u32())
    }

    /// Returns true if everything was received.
    fn has_ended(&self) -> bool {
        !self.is_tunnel && self.receiver.is_end_stream()
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let this = self.get_mut();
        let Some(exchange) = &mut this.exchange else {
            return Poll::Ready(this.failure.take().map(Err));
        };
        match ready!(exchange.poll_frame(cx)) {
            Some(Ok(frame)) => {
                let has_ended = |exchange: &mut Box<StreamExchange>| {
                    exchange.download.as_ref().is_none_or(Download::has_ended)
                };
                if let Some(exchange) = this.exchange.take_if(has_ended) {
                    exchange.session.host.record_whole_body();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(failure)) => {
                this.fail(failure, cx);
                Poll::Pending
            }
            None => {
                if let Some(exchange) = this.exchange.take().filter(|one| !one.is_tunnel()) {
                    exchange.session.host.record_whole_body();
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.is_none() && self.failure.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let download = self
            .exchange
            .as_ref()
            .and_then(|exchange| exchange.download.as_ref());
        let remaining = match download {
            Some(download) => download.remaining,
            None if self.failure.is_none() => Some(0),
            None => None,
        };
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
