//! A request on its stream, until the head of the response has come. Its [body](super::body) follows.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use tokio::time::Instant;

use super::Http2Session;
use super::body::Download;
use super::connection::MAX_HEAD;
use super::upload::Upload;
use crate::http::body::RequestBody;
use crate::http::framing::{self, FramingFields};
use crate::http::headers::Headers;
use crate::http::http1::{InvalidMessage, content_length};
use crate::http::http2::UploadError;
use crate::http::informational::InformationalQueue;
use crate::http::message::Response;
use crate::http::websocket;
use crate::net::idle_timer::IdleTimer;
use crate::upstream::OutboundRequest;
use crate::upstream::host::InFlight;
use crate::upstream::session::{ExchangeError, UpstreamBodyError};

/// The time by which a host may find a deadline over before this machine does: timers are not exact.
const DEADLINE_SLACK: Duration = Duration::from_millis(10);

/// The most fields in a head.
const MAX_FIELDS: usize = 256;

/// A request that waits for the head of its response.
#[derive(Debug)]
pub(super) struct StreamExchange {
    pub session: Http2Session,
    response: ResponseFuture,
    /// The rest of the request; `None` once it is sent.
    pub upload: Option<Upload>,
    pub idle_timer: IdleTimer,
    /// The request has no body.
    is_whole: bool,
    is_head: bool,
    /// The field value that a client of HTTP/1.1 expects after it has asked for a WebSocket.
    websocket_accept: Option<websocket::Accept>,
    /// The end of the time for the whole request, and how much that was.
    deadline: Option<(Instant, Duration)>,
    /// The frames from the client up to the last poll.
    received: u32,
    /// The bytes that the connection had written before.
    written: u64,
    /// The response's body, once its head has come.
    pub download: Option<Download>,
}

/// A stream that has begun with the head of a request.
pub(super) struct OpenedStream {
    pub response: ResponseFuture,
    /// `None` if the request has no body.
    pub sender: Option<SendStream<Bytes>>,
    /// The bytes that the connection had written before.
    pub written: u64,
}

/// The head of a response, and its body.
pub(super) struct ReceivedHead {
    pub head: Response<()>,
    /// `None` if there is no body.
    pub receiver: Option<RecvStream>,
    /// The length of the body, if known.
    pub length: Option<u64>,
}

/// The reason why there is no response.
pub(super) struct Failure {
    pub error: ExchangeError,
    /// The endpoint may have processed the request.
    pub is_processed: bool,
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        Failure {
            error,
            is_processed: true,
        }
    }
}

impl StreamExchange {
    /// An exchange that takes the body of the request, to be sent on `stream`.
    pub(super) fn new(
        session: Http2Session,
        stream: OpenedStream,
        outbound: &mut OutboundRequest<'_>,
        limit: Duration,
    ) -> Box<Self> {
        let OpenedStream {
            response,
            sender,
            written,
        } = stream;
        let (request, deadline) = (&mut *outbound.request, outbound.deadline);
        let is_tunnel = request.body().is_tunnel();
        let websocket_accept = is_tunnel.then(|| websocket::Accept::of(request.headers()));
        let is_head = request.method() == Method::HEAD;
        let is_whole = sender.is_none();
        let upload = sender.map(|sender| {
            let body = std::mem::replace(request.body_mut(), RequestBody::empty());
            Upload::new(sender, body)
        });
        Box::new(StreamExchange {
            session,
            response,
            upload,
            idle_timer: IdleTimer::new(limit),
            is_whole,
            is_head,
            websocket_accept,
            deadline,
            received: 0,
            written,
            download: None,
        })
    }

    /// Returns true if the request asks for a tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.websocket_accept.is_some()
    }

    /// The time for the whole request, if `error` says that the host has cancelled it at the end of
    /// that time, as servers of gRPC do.
    pub(super) fn missed_deadline(&self, error: &h2::Error) -> Option<Duration> {
        let (at, time) = self.deadline?;
        let is_cancelled = error.is_remote() && error.reason() == Some(Reason::CANCEL);
        (is_cancelled && Instant::now() + DEADLINE_SLACK >= at).then_some(time)
    }

    /// Counts a response that the host did not finish.
    pub(super) fn record_broken_body(&self, error: &UpstreamBodyError) {
        let host = &self.session.host;
        let is_cancelled = matches!(error, UpstreamBodyError::Reset(error)
            if self.missed_deadline(error).is_some());
        let is_excused = self.download.as_ref().is_some_and(|download| match error {
            UpstreamBodyError::Quiet(_) => download.may_be_silent(),
            // The host may wait for the rest of the request no longer.
            _ => download.is_uploading(),
        });
        match error.reason() {
            Some(_) if is_cancelled => {}
            Some(reason) if matches!(error, UpstreamBodyError::Bystander(_)) => {
                host.metrics().failure(reason);
            }
            // How a tunnel ends says nothing of the host.
            Some(reason) if self.is_tunnel() || is_excused => host.metrics().failure(reason),
            Some(reason) => host.record_broken_body(reason),
            None => {}
        }
    }

    /// The body, if nothing was taken from it, and the host's count of the request.
    pub(super) fn into_untouched_body(self) -> (Option<RequestBody>, InFlight) {
        let body = match self.is_whole {
            true => Some(RequestBody::empty()),
            false => self.upload.and_then(Upload::into_untouched_body),
        };
        (body, self.session.host)
    }

    /// Sends the rest of the request, and waits for the head of the response. `None` after the
    /// time-out. Notes in `is_owed` if it waits for the client.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        informational: Option<&InformationalQueue>,
        is_owed: &mut bool,
    ) -> Poll<Option<Result<ReceivedHead, Failure>>> {
        if let Err(error) = self.poll_upload(cx) {
            return Poll::Ready(Some(Err(error.into())));
        }
        if let Err(failure) = self.forward_informational(cx, informational) {
            return Poll::Ready(Some(Err(failure)));
        }
        if let Poll::Ready(response) = Pin::new(&mut self.response).poll(cx) {
            return Poll::Ready(Some(match response {
                Ok(response) => self.accept(response).map_err(Failure::from),
                Err(error) => Err(self.failure(error)),
            }));
        }
        // The time-out starts at the end of the request, or when the host takes no more of it. The
        // client's own time-outs bound the rest.
        let (received, waits_for_client) = match &self.upload {
            Some(upload) if !self.is_tunnel() => (upload.taken(), upload.waits_for_body()),
            _ => (self.received, false),
        };
        if waits_for_client || std::mem::replace(&mut self.received, received) != received {
            self.idle_timer.reset();
        }
        *is_owed = waits_for_client;
        match waits_for_client {
            true => Poll::Pending,
            false => self.idle_timer.poll_expired(cx).map(|()| None),
        }
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        // The body of a tunnel begins with the response.
        let is_tunnel = self.is_tunnel();
        let Some(upload) = self.upload.as_mut().filter(|_| !is_tunnel) else {
            return Ok(());
        };
        match upload.poll_send(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(UploadError::Body(error))) => Err(ExchangeError::RequestBody(error)),
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
    ) -> Result<(), Failure> {
        while let Poll::Ready(Some(response)) = self.response.poll_informational(cx) {
            let response = response.map_err(|error| self.failure(error))?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let what = "the response switches protocols, which HTTP/2 cannot";
                return Err(ExchangeError::Invalid(InvalidMessage::Meaning(what)).into());
            }
            informational.inspect(|queue| queue.send(response.into()));
        }
        Ok(())
    }

    fn accept(&self, response: http::Response<RecvStream>) -> Result<ReceivedHead, ExchangeError> {
        let (head, receiver) = response.into_parts();
        let status = head.status;
        let headers = fields(head.headers)?;
        let head = Response::with_head(status, Version::HTTP_2, headers, ());
        if let Some(accept) = &self.websocket_accept
            && status.is_success()
        {
            return Ok(ReceivedHead {
                head: switching(head, accept),
                receiver: Some(receiver),
                length: None,
            });
        }
        let framing = FramingFields::of(head.headers());
        framing::check_response(&framing).map_err(meaning)?;
        let length = framing.lengths.one().map(content_length).transpose();
        let length = length.map_err(ExchangeError::Invalid)?;
        let has_body = !self.is_head
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            && !receiver.is_end_stream();
        Ok(ReceivedHead {
            head,
            receiver: has_body.then_some(receiver),
            length: if has_body { length } else { Some(0) },
        })
    }

    fn failure(&self, error: h2::Error) -> Failure {
        let is_refused = error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM);
        let is_unsent = error.is_io() && self.session.permit.written() == self.written;
        Failure {
            is_processed: !(is_refused && error.is_remote() || is_unsent),
            error: self.apportion(error.into()),
        }
    }

    /// The error of this stream. One for the whole connection counts as the host's once.
    pub(super) fn apportion(&self, error: ExchangeError) -> ExchangeError {
        match error {
            ExchangeError::Protocol(error)
                if error.is_go_away() && !self.session.permit.takes_blame() =>
            {
                ExchangeError::Bystander(error)
            }
            error => error,
        }
    }
}

fn fields(map: HeaderMap) -> Result<Headers, ExchangeError> {
    if map.len() > MAX_FIELDS {
        let what = "its head has more than 256 fields";
        return Err(ExchangeError::Invalid(InvalidMessage::TooLarge(what)));
    }
    // Names, values and 32 bytes for each field (RFC 9113 section 6.5.2).
    let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 32;
    if map.iter().map(size).sum::<usize>() > MAX_HEAD as usize {
        let what = "its head has more than 64 KiB";
        return Err(ExchangeError::Invalid(InvalidMessage::TooLarge(what)));
    }
    let headers = Headers::from(map);
    match framing::has_padded_value(&headers) {
        true => Err(meaning("a field begins or ends with a space or a tab")),
        false => Ok(headers),
    }
}

fn meaning(what: &'static str) -> ExchangeError {
    ExchangeError::Invalid(InvalidMessage::Meaning(what))
}

/// The response to an extended CONNECT in the form of HTTP/1.1.
fn switching(mut head: Response<()>, accept: &websocket::Accept) -> Response<()> {
    *head.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    head.headers_mut().remove(CONTENT_LENGTH);
    accept.write(head.headers_mut());
    head
}
