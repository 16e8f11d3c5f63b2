//! One request of an HTTP/2 connection: from its head to the end of its response's body.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, COOKIE, DATE, HeaderMap, HeaderValue};
use http::{StatusCode, Version};
use http_body::{Body, Frame, SizeHint};

use super::activity::{Activity, ExchangeGuard};
use super::stall::StallTimer;
use super::tunnel::Tunnel;
use crate::http::body::{RequestBody, StreamBody};
use crate::http::headers::Headers;
use crate::http::hop_by_hop::is_of_connection;
use crate::http::http1::content_length;
use crate::http::http2::{BodyUpload, ReceiveBuffers, UploadError};
use crate::http::informational::InformationalQueue;
use crate::http::message::Response;
use crate::http::service::{BoxError, HttpService, ResponseSource, ServiceFuture};
use crate::http::{date, trailers};
use crate::server::connection::{ConnectionHandler, ConnectionService};

/// Starts the requests of a connection.
pub(super) struct StreamStarter<S> {
    pub(super) service: ConnectionService<S>,
    pub(super) handler: Rc<ConnectionHandler>,
    pub(super) activity: Rc<Activity>,
    /// The bodies of its requests.
    pub(super) bodies: ReceiveBuffers,
}

impl<S: HttpService> StreamStarter<S> {
    /// Starts a request. Responds at once if the response is ready, else in a task of its own.
    pub(super) fn start(
        &self,
        request: http::Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) {
        let exchange = self.activity.begin();
        let mut noop = Context::from_waker(Waker::noop());
        if respond.poll_reset(&mut noop).is_ready() {
            // No upstream must see a stream that ended with its beginning.
            return;
        }
        if self.is_too_large(&request) {
            return self.refuse(respond, exchange);
        }
        let (request, wanted) = receive(request, &self.bodies);
        let (request, tunnel) = Tunnel::of(request);
        let state = match self.service.service.call(request).ready() {
            Ok(response) => {
                let response = response.map_err(Into::into);
                let begun = begin(&mut respond, response, tunnel, exchange);
                let Some((mut upload, is_tunnel)) = begun else {
                    return;
                };
                // Most often that is all of it, and it takes no task.
                if !is_tunnel && poll_body(&mut upload, &mut noop).is_ready() {
                    return;
                }
                StreamState::Body { upload, is_tunnel }
            }
            Err(future) => StreamState::Service {
                future,
                exchange: Some(exchange),
                tunnel,
            },
        };
        tokio::task::spawn_local(Stream {
            respond,
            wanted,
            informational: self.service.informational.clone(),
            body_timeout: self.handler.client.timeouts.body,
            stall: None,
            state,
        });
    }

    /// Answers 431.
    fn refuse(&self, mut respond: SendResponse<Bytes>, mut exchange: ExchangeGuard) {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        exchange.activity.respond(status);
        exchange.finish();
        let mut headers = Headers::new();
        for (name, value) in &self.handler.client_rules.load().refusal_fields {
            headers.append(name, value.clone());
        }
        let head = Response::with_head(status, Version::HTTP_2, headers, ());
        // Fails only if the stream has ended.
        let _ = respond.send_response(final_head(head, None), true);
    }

    fn is_too_large(&self, request: &http::Request<RecvStream>) -> bool {
        let target = request.uri().path_and_query();
        let target = target.map_or(0, |target| target.as_str().len());
        let (headers, client) = (request.headers(), &self.handler.client);
        target + trailers::size(headers) > client.max_head
            || has_more_fields(headers, client.max_fields)
    }
}

/// Returns true for more than `most` fields. Clients of HTTP/2 split `Cookie` (RFC 9113 section
/// 8.2.3).
fn has_more_fields(fields: &HeaderMap, most: usize) -> bool {
    fields.len() > most && {
        let cookies = fields.get_all(COOKIE).iter().count();
        fields.len() - cookies.saturating_sub(1) > most
    }
}

/// The request for the service, and the flag of a client that waits for `100 Continue` (RFC 9110
/// section 10.1.1).
fn receive(
    request: http::Request<RecvStream>,
    bodies: &ReceiveBuffers,
) -> (http::Request<RequestBody>, Option<Arc<AtomicBool>>) {
    if request.body().is_end_stream() {
        return (request.map(|_| RequestBody::empty()), None);
    }
    let headers = request.headers();
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| content_length(length.as_bytes()).ok());
    let expects = headers.contains_key(http::header::EXPECT);
    let mut wanted = None;
    let request = request.map(|stream| {
        let mut body = StreamBody::new(stream, length, bodies);
        wanted = expects.then(|| body.wanted());
        RequestBody::from(body)
    });
    (request, wanted)
}

/// A request that is being served, and then its response.
struct Stream<F, B> {
    respond: SendResponse<Bytes>,
    /// Set when the service wants a body whose client waits for `100 Continue`.
    wanted: Option<Arc<AtomicBool>>,
    informational: InformationalQueue,
    /// How long a client may take nothing of the response.
    body_timeout: Duration,
    /// `None` before the response has to wait for its client.
    stall: Option<Box<StallTimer>>,
    state: StreamState<F, B>,
}

enum StreamState<F, B> {
    Service {
        future: F,
        /// `None` once there is a response.
        exchange: Option<ExchangeGuard>,
        tunnel: Option<Tunnel>,
    },
    Body {
        upload: BodyUpload<TrackedBody<B>>,
        is_tunnel: bool,
    },
    /// A tunnel whose upstream sends no more, but whose client may.
    HalfClosed(BodyUpload<TrackedBody<B>>),
    Ended,
}

impl<F, B, E> Future for Stream<F, B>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
    B: ResponseSource,
    E: Into<BoxError>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                StreamState::Service { future, .. } => {
                    let polled = Pin::new(future).poll(cx);
                    this.send_informational();
                    match polled {
                        Poll::Ready(response) => this.begin(response.map_err(Into::into)),
                        Poll::Pending => return this.respond.poll_reset(cx).map(|_| ()),
                    }
                }
                StreamState::Body { upload, is_tunnel } => {
                    if upload.stream.poll_reset(cx).is_ready() {
                        return Poll::Ready(());
                    }
                    let Poll::Ready(is_whole) = poll_body(upload, cx) else {
                        if let Poll::Ready(late) = upload.body.0.poll_overdue(cx) {
                            break_off(&mut upload.stream, late.into());
                            return Poll::Ready(());
                        }
                        if this.stall.is_none() && upload.waits_for_body() {
                            return Poll::Pending;
                        }
                        let stall = this.stall.get_or_insert_with(|| {
                            let activity = &upload.body.1.activity;
                            Box::new(StallTimer::new(activity, upload, this.body_timeout))
                        });
                        ready!(stall.poll_stalled(upload, cx));
                        tracing::debug!("a client took nothing of a response in time");
                        upload.stream.send_reset(Reason::CANCEL);
                        return Poll::Ready(());
                    };
                    let is_tunnel = *is_tunnel && is_whole;
                    this.state = match std::mem::replace(&mut this.state, StreamState::Ended) {
                        StreamState::Body { upload, .. } if is_tunnel => {
                            StreamState::HalfClosed(upload)
                        }
                        _ => StreamState::Ended,
                    };
                }
                StreamState::HalfClosed(upload) => {
                    if upload.stream.poll_reset(cx).is_ready() {
                        return Poll::Ready(());
                    }
                    // The body of a tunnel ends once both directions have.
                    let body = Pin::new(&mut upload.body);
                    return body.poll_frame(cx).map(|_| ());
                }
                StreamState::Ended => return Poll::Ready(()),
            }
        }
    }
}

impl<F, B> Stream<F, B>
where
    B: ResponseSource,
{
    /// Sends informational responses: those of the upstream, and `100 Continue` once the body is
    /// wanted.
    fn send_informational(&mut self) {
        let is_wanted = |wanted: &mut Arc<AtomicBool>| wanted.load(Relaxed);
        if self.wanted.take_if(is_wanted).is_some() {
            let mut response = http::Response::new(());
            *response.status_mut() = StatusCode::CONTINUE;
            let _ = self.respond.send_informational(response);
        }
        if !self.informational.is_empty() {
            for response in self.informational.take() {
                // Fails only if the stream has ended, which the next poll finds.
                let _ = self.respond.send_informational(into_h2(response));
            }
        }
    }

    /// Sends the head of the response.
    fn begin(&mut self, response: Result<Response<B>, BoxError>) {
        let StreamState::Service {
            exchange, tunnel, ..
        } = &mut self.state
        else {
            return;
        };
        let (tunnel, exchange) = (tunnel.take(), exchange.take());
        let exchange = exchange.expect("a response comes once");
        self.state = match begin(&mut self.respond, response, tunnel, exchange) {
            Some((upload, is_tunnel)) => StreamState::Body { upload, is_tunnel },
            None => StreamState::Ended,
        };
    }
}

/// Sends the head of a response. Returns its body, and true if that is a tunnel's; `None` if nothing
/// follows the head.
fn begin<B: ResponseSource>(
    respond: &mut SendResponse<Bytes>,
    response: Result<Response<B>, BoxError>,
    tunnel: Option<Tunnel>,
    mut exchange: ExchangeGuard,
) -> Option<(BodyUpload<TrackedBody<B>>, bool)> {
    let response = match response {
        Ok(response) => response,
        Err(error) => {
            exchange.finish();
            tracing::debug!(error, "a request has no response");
            respond.send_reset(reason(&*error));
            return None;
        }
    };
    exchange.activity.respond(response.status());
    let (head, body, is_tunnel) = match tunnel {
        None => {
            let (head, body) = response.into_parts();
            (head, Some(body), false)
        }
        Some(tunnel) => {
            let (response, is_tunnel) = tunnel.open(response);
            let (head, body) = response.into_parts();
            (head, body, is_tunnel)
        }
    };
    let body = body.filter(|body| is_tunnel || !body.is_end_stream());
    let length = body.as_ref().filter(|_| !is_tunnel);
    let length = length.and_then(|body| body.size_hint().exact());
    let head = final_head(head, length);
    let Some(body) = body else {
        exchange.finish();
        // Fails only if the stream has ended.
        let _ = respond.send_response(head, true);
        return None;
    };
    let stream = respond.send_response(head, false).ok()?;
    let upload = BodyUpload::new(stream, TrackedBody(body, exchange));
    Some((upload, is_tunnel))
}

/// Sends a response's body. Ready at its end; false if it broke off.
fn poll_body<B>(upload: &mut BodyUpload<B>, cx: &mut Context<'_>) -> Poll<bool>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let sent = ready!(upload.poll_send(cx));
    if let Err(UploadError::Body(error)) = sent {
        break_off(&mut upload.stream, error.into());
        return Poll::Ready(false);
    }
    Poll::Ready(sent.is_ok())
}

fn break_off(stream: &mut SendStream<Bytes>, error: BoxError) {
    tracing::debug!(error, "a response broke off");
    stream.send_reset(reason(&*error));
}

/// The reason why a stream is reset: that of the upstream's stream, if it was reset.
fn reason(error: &(dyn Error + 'static)) -> Reason {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut resets = causes.filter_map(|error| error.downcast_ref::<h2::Error>());
    let reason = resets.find_map(h2::Error::reason);
    reason.unwrap_or(Reason::INTERNAL_ERROR)
}

/// The head of the final response, with the date, and the length of the body if it is known.
fn final_head(head: Response<()>, length: Option<u64>) -> http::Response<()> {
    let has_date = head.headers().contains(DATE);
    let length = length.filter(|_| !head.headers().contains(CONTENT_LENGTH));
    let mut head = into_h2(head);
    if let Some(length) = length {
        head.headers_mut().append(CONTENT_LENGTH, length.into());
    }
    if !has_date {
        let now = date::with_now(HeaderValue::clone);
        head.headers_mut().append(DATE, now);
    }
    head
}

/// The head of a response for `h2`, without fields of connections (RFC 9113 section 8.2.2).
fn into_h2(head: Response<()>) -> http::Response<()> {
    let status = head.status();
    let mut into = http::Response::new(());
    *into.status_mut() = status;
    *into.headers_mut() = head.into_headers().into_map(|name| !is_of_connection(name));
    into
}

/// The body of a response, whose end ends the exchange.
struct TrackedBody<B>(B, ExchangeGuard);

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let TrackedBody(inner, exchange) = self.get_mut();
        let frame = ready!(Pin::new(&mut *inner).poll_frame(cx));
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) || inner.is_end_stream() {
            exchange.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
