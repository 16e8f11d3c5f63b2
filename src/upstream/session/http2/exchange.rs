//! A request on its stream, until the head of the response has come. Its body follows.

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use tokio::time::Instant;

use super::connection::MAX_HEAD;
use super::download::Download;
use super::upload::Upload;
use super::{Http2Session, request};
use crate::http::body::{PolledFrame, RequestBody, StreamBody};
use crate::http::framing::{self, FramingFields};
use crate::http::headers::Headers;
use crate::http::http1::{InvalidMessage, content_length};
use crate::http::http2::UploadError;
use crate::http::informational::InformationalQueue;
use crate::http::message::Response;
use crate::http::trailers::{self, TOO_LARGE};
use crate::http::{upgrade, websocket};
use crate::net::idle_timer::IdleTimer;
use crate::upstream::attempt::OutboundRequest;
use crate::upstream::error::UpstreamErrorKind;
use crate::upstream::host::InFlight;

/// The time by which a host may find a deadline over before this machine does: timers are not exact.
const DEADLINE_SLACK: Duration = Duration::from_millis(10);

/// The most fields in a head.
const MAX_FIELDS: usize = 256;

/// A request that waits for the head of its response.
#[derive(Debug)]
pub(in crate::upstream) struct StreamExchange {
    pub session: Http2Session,
    response: ResponseFuture,
    /// The rest of the request; `None` once it is sent.
    upload: Option<Upload>,
    pub idle_timer: IdleTimer,
    /// The request has no body.
    is_whole: bool,
    is_head: bool,
    /// The endpoint has not processed the request.
    pub is_unprocessed: bool,
    /// The field value that a client of HTTP/1.1 expects after it has asked for a WebSocket.
    websocket_accept: Option<websocket::Accept>,
    /// The end of the time for the whole request, and how much that was.
    deadline: Option<(Instant, Duration)>,
    /// The frames from the client up to the last poll.
    received: u32,
    /// The bytes that the connection had written before.
    written: u64,
    /// The response's body, once its head has come.
    pub download: Download,
}

impl StreamExchange {
    /// Opens a stream with the head of a request, and takes its body, to be sent on it.
    ///
    /// # Errors
    /// When the connection takes no stream: nothing is sent.
    pub(super) fn begin(
        session: Http2Session,
        outbound: &mut OutboundRequest<'_>,
    ) -> Result<Box<Self>, (Http2Session, UpstreamErrorKind)> {
        let (request, deadline) = (&mut *outbound.request, outbound.deadline);
        let is_tunnel = request.body().is_tunnel();
        let is_whole = request.body().is_empty() && !is_tunnel;
        let written = session.permit.0.state.io.written.load(Relaxed);
        let mut requests = session.permit.0.requests.lock();
        let is_refused = is_tunnel
            && !(requests.is_extended_connect_protocol_enabled()
                && asks_for_websocket(request.headers()));
        let opened = match request::head(request, session.host.connector.scheme()) {
            _ if is_refused => Err(UpstreamErrorKind::NoWebSocket),
            None => Err(UpstreamErrorKind::InvalidHost),
            // Without a stream, nothing is sent.
            Some(head) => requests.send_request(head, is_whole).map_err(Into::into),
        };
        drop(requests);
        let (response, sender) = match opened {
            Ok(opened) => opened,
            Err(kind) => return Err((session, kind)),
        };
        let websocket_accept = is_tunnel.then(|| websocket::Accept::of(request.headers()));
        let is_head = request.method() == Method::HEAD;
        let upload = (!is_whole).then(|| {
            let body = std::mem::replace(request.body_mut(), RequestBody::empty());
            Upload::new(sender, body)
        });
        Ok(Box::new(StreamExchange {
            session,
            response,
            upload,
            idle_timer: IdleTimer::new(outbound.spec.timeouts.response),
            is_whole,
            is_head,
            is_unprocessed: false,
            websocket_accept,
            deadline,
            received: 0,
            written,
            download: Download::default(),
        }))
    }

    /// Returns true if the request asks for a tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.websocket_accept.is_some()
    }

    /// The time for the whole request, if `error` says that the host has cancelled it at the end of
    /// that time, as servers of gRPC do.
    pub(in crate::upstream) fn missed_deadline(&self, error: &h2::Error) -> Option<Duration> {
        let (at, time) = self.deadline?;
        let is_cancelled = error.is_remote() && error.reason() == Some(Reason::CANCEL);
        (is_cancelled && Instant::now() + DEADLINE_SLACK >= at).then_some(time)
    }

    /// Receives the next frame of the response's body; `None` at the end.
    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> PolledFrame<UpstreamErrorKind> {
        let frame = ready!(self.download.poll_frame(cx));
        if self.download.cuts_trailers(&frame, &self.session.permit) {
            return Poll::Ready(Some(Err(UpstreamErrorKind::Invalid(TOO_LARGE))));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| self.apportion(error))))
    }

    /// The body, if nothing was taken from it, and the host's count of the request.
    pub(super) fn into_untouched_body(self) -> (Option<RequestBody>, InFlight) {
        let body = if self.is_whole {
            Some(RequestBody::empty())
        } else {
            self.upload.and_then(Upload::into_untouched_body)
        };
        (body, self.session.host)
    }

    /// Sends the rest of the request, and waits for the head of the response. `None` after the
    /// time-out. Notes if it waits for the client.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        outbound: &OutboundRequest<'_>,
    ) -> Poll<Option<Result<Response<()>, UpstreamErrorKind>>> {
        let sent = self.poll_upload(cx);
        if let Err(error) =
            sent.and_then(|()| self.forward_informational(cx, outbound.informational))
        {
            return Poll::Ready(Some(Err(error)));
        }
        if let Poll::Ready(response) = Pin::new(&mut self.response).poll(cx) {
            return Poll::Ready(Some(match response {
                Ok(response) => self.accept(response),
                Err(error) => Err(self.failure(error)),
            }));
        }
        // The time-out starts at the end of the request, or when the host takes no more of it. The
        // client's own time-outs bound the rest.
        let (received, waits_for_client) = match &self.upload {
            Some(upload) if !self.is_tunnel() => (upload.taken, upload.waits_for_body()),
            _ => (self.received, false),
        };
        if waits_for_client || std::mem::replace(&mut self.received, received) != received {
            self.idle_timer.reset();
        }
        outbound.is_owed.set(waits_for_client);
        if waits_for_client {
            Poll::Pending
        } else {
            self.idle_timer.poll_expired(cx).map(|()| None)
        }
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), UpstreamErrorKind> {
        // The body of a tunnel begins with the response.
        let is_tunnel = self.is_tunnel();
        let Some(upload) = self.upload.as_mut().filter(|_| !is_tunnel) else {
            return Ok(());
        };
        match upload.poll_send(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(UploadError::Body(error))) => {
                Err(UpstreamErrorKind::RequestBody(error))
            }
            Poll::Ready(Ok(()) | Err(UploadError::Stream)) => {
                self.upload = None;
                Ok(())
            }
        }
    }

    /// Passes informational responses on, which precede the final one (RFC 9110 section 15.2).
    fn forward_informational(
        &mut self,
        cx: &mut Context<'_>,
        informational: Option<&InformationalQueue>,
    ) -> Result<(), UpstreamErrorKind> {
        while let Poll::Ready(Some(response)) = self.response.poll_informational(cx) {
            let response = response.map_err(|error| self.failure(error))?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let what = "the response switches protocols, which HTTP/2 cannot";
                return Err(meaning(what));
            }
            informational.inspect(|queue| queue.send(response.into()));
        }
        Ok(())
    }

    fn accept(
        &mut self,
        response: http::Response<RecvStream>,
    ) -> Result<Response<()>, UpstreamErrorKind> {
        let (head, receiver) = response.into_parts();
        let status = head.status;
        let headers = fields(head.headers)?;
        let bodies = &self.session.permit.0.state.bodies;
        let head = Response::with_head(status, Version::HTTP_2, headers, ());
        if let Some(accept) = &self.websocket_accept
            && status.is_success()
        {
            let head = switching(head, accept);
            let body = StreamBody::new(receiver, None, bodies);
            self.download = Download::new(body, self.upload.take(), true);
            return Ok(head);
        }
        let framing = FramingFields::of(head.headers());
        framing::check_response(&framing).map_err(meaning)?;
        let length = framing.lengths.one().map(content_length).transpose();
        let length = length.map_err(UpstreamErrorKind::Invalid)?;
        let has_body = !self.is_head
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            && !receiver.is_end_stream();
        let is_tunnel = self.is_tunnel();
        if has_body {
            let body = StreamBody::new(receiver, length, bodies);
            self.download = Download::new(body, self.upload.take(), is_tunnel);
        }
        Ok(head)
    }

    fn failure(&mut self, error: h2::Error) -> UpstreamErrorKind {
        let is_refused = error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM);
        let written = &self.session.permit.0.state.io.written;
        let is_unsent = error.is_io() && written.load(Relaxed) == self.written;
        self.is_unprocessed = is_refused && error.is_remote() || is_unsent;
        self.apportion(error.into())
    }

    /// The error of this stream. One for the whole connection counts as the host's once.
    fn apportion(&self, error: UpstreamErrorKind) -> UpstreamErrorKind {
        let state = &self.session.permit.0.state;
        match error {
            UpstreamErrorKind::Protocol(error)
                if error.is_go_away() && state.has_counted_failure.swap(true, Relaxed) =>
            {
                UpstreamErrorKind::Bystander(error)
            }
            error => error,
        }
    }
}

fn fields(map: HeaderMap) -> Result<Headers, UpstreamErrorKind> {
    if map.len() > MAX_FIELDS {
        let what = "its head has more than 256 fields";
        return Err(UpstreamErrorKind::Invalid(InvalidMessage::TooLarge(what)));
    }
    if trailers::size(&map) > MAX_HEAD as usize {
        let what = "its head has more than 64 KiB";
        return Err(UpstreamErrorKind::Invalid(InvalidMessage::TooLarge(what)));
    }
    let headers = Headers::from(map);
    if framing::has_padded_value(&headers) {
        Err(meaning("a field begins or ends with a space or a tab"))
    } else {
        Ok(headers)
    }
}

fn meaning(what: &'static str) -> UpstreamErrorKind {
    UpstreamErrorKind::Invalid(InvalidMessage::Meaning(what))
}

/// Only a WebSocket has a tunnel over HTTP/2.
fn asks_for_websocket(headers: &Headers) -> bool {
    upgrade::protocols(headers).any(|one| one.eq_ignore_ascii_case(b"websocket"))
}

/// The response to an extended CONNECT in the form of HTTP/1.1.
fn switching(mut head: Response<()>, accept: &websocket::Accept) -> Response<()> {
    *head.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    head.headers_mut().remove(CONTENT_LENGTH);
    accept.write(head.headers_mut());
    head.headers_mut()
        .insert(UPGRADE, const { HeaderValue::from_static("websocket") });
    head
}
