//! HTTP/1 with a client: reads, serves and answers requests one after the other in a single task.
//!
//! docs/architecture.md gives the reasons not to use hyper's server, docs/performance.md the gain.

pub(super) mod lingering_close;
mod request;
mod request_body;
mod response;

use std::cell::Cell;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONNECTION;
use http::{Method, StatusCode, Version};
use tokio::time::Instant;

use super::{ConnectionHandler, ConnectionService, Io, NegotiatedConnection};
use crate::http::body::{BodySender, RequestBody, body_channel};
use crate::http::framing::FramingFields;
use crate::http::headers::Headers;
use crate::http::http1::{Decoder, Framing, MessageWriter, ReadBuffer};
use crate::http::informational::InformationalQueue;
use crate::http::message::Response;
use crate::http::service::{BoxError, HttpService, ResponseSource, ServiceFuture};
use crate::net::idle_timer::IdleTimer;
use crate::server::connection_guard::ConnectionGuard;
use crate::server::drain::{DRAIN_GRACE, until_drained};
use crate::server::spec::{ClientSpec, HalfClose, HttpVersion};
use lingering_close::CloseReason;
use request::{ParsedHead, RequestHead};
use response::RequestTraits;

/// The most bytes that a client may send beyond the request being served.
const MOST_AHEAD: usize = 8 * 1024;

impl ConnectionHandler {
    /// Serves a connection, or refuses HTTP/1 on a listener of HTTP/2 alone. Not async: its future would have
    /// room for each argument twice.
    pub(super) fn http1<T, S>(
        self: Rc<Self>,
        negotiated: NegotiatedConnection<T>,
        service: ConnectionService<S>,
        guard: ConnectionGuard,
    ) -> impl Future<Output = Result<(), BoxError>> + use<T, S>
    where
        T: Io,
        S: HttpService,
    {
        let life = self.client.life.of(service.id, Instant::now());
        let idle_timer = IdleTimer::until(negotiated.first_head, self.client.timeouts.head);
        let is_spoken = negotiated.version == HttpVersion::Http1;
        let (io, first) = (negotiated.io, negotiated.first);
        let (service, informational) = (service.service, service.informational);
        async move {
            let draining = Cell::new(false);
            let mut connection =
                Http1Connection::new(io, first, &self.client, informational, &draining, &guard);
            (connection.requests_left, connection.expires) = life;
            connection.idle_timer = idle_timer;
            let end = if is_spoken {
                let serving = pin!(connection.serve(&service));
                until_drained(serving, guard.closing(), &draining).await
            } else if connection.read_buffer.is_empty() {
                // The client left without a byte.
                return Ok(());
            } else {
                Some(Err(CloseReason::Refused(
                    StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                    "this listener speaks HTTP/2 only".to_owned(),
                )))
            };
            match end {
                Some(end) => Box::pin(connection.end(end, &self.client_rules)).await,
                None => Err("the drain deadline".into()),
            }
        }
    }
}

/// A client's connection, which carries one request at a time.
struct Http1Connection<'a, T, B> {
    io: T,
    client: &'a ClientSpec,
    draining: &'a Cell<bool>,
    guard: &'a ConnectionGuard,
    /// How many requests may follow.
    requests_left: u32,
    /// After this time, the next request is the last.
    expires: Instant,
    /// A response was no 429.
    was_served: bool,
    informational: InformationalQueue,
    read_buffer: ReadBuffer,
    writer: MessageWriter<B>,
    /// The position in the request's body.
    decoder: Decoder,
    /// Set while the service reads that body.
    body_sender: Option<BodySender>,
    /// Set until the response to an upgrade: sends the client's bytes to the new protocol.
    tunnel_sender: Option<BodySender>,
    /// How many bytes of an unread body may still be discarded.
    discard_budget: Option<u64>,
    /// The client waits for `100 Continue` before it sends the body.
    expects_continue: bool,
    keep_alive: bool,
    /// How many bytes had been written when the client ended its side, or when a later request
    /// began.
    written_at_eof: Option<u64>,
    wait: Wait,
    idle_timer: IdleTimer,
    /// The rest of the time for an exchange that has a bound.
    exchange_timer: Option<Box<IdleTimer>>,
}

/// The future of a response, with the traits of its request.
type Waiting<F> = (RequestTraits, <F as ServiceFuture>::Pending);

/// The party or event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The first byte of a client that has just connected.
    FirstByte,
    /// The next request of a client that has its response.
    NextRequest,
    /// A request that is on its way while the server drains.
    LastRequest,
    /// The rest of a head.
    Head,
    /// The client, to read its response.
    Reader,
    /// The rest of a request that has its response, and that the service still reads.
    Rest,
    /// The rest of a request that is discarded.
    Discarded,
    /// The service, while a client that has ended its side may be gone: for this long.
    Gone(Duration),
    /// The service; not bounded here.
    Service,
}

impl<'a, T, B> Http1Connection<'a, T, B>
where
    T: Io,
    B: ResponseSource,
{
    fn new(
        io: T,
        first: BytesMut,
        client: &'a ClientSpec,
        informational: InformationalQueue,
        draining: &'a Cell<bool>,
        guard: &'a ConnectionGuard,
    ) -> Self {
        Http1Connection {
            io,
            client,
            draining,
            guard,
            requests_left: 1,
            expires: Instant::now(),
            was_served: false,
            informational,
            read_buffer: ReadBuffer::new(first),
            writer: MessageWriter::default(),
            decoder: Decoder::Ended,
            body_sender: None,
            tunnel_sender: None,
            discard_budget: None,
            expects_continue: false,
            keep_alive: true,
            written_at_eof: None,
            wait: Wait::FirstByte,
            idle_timer: IdleTimer::new(client.timeouts.head),
            exchange_timer: None,
        }
    }

    /// Serves requests until the last.
    async fn serve<S>(&mut self, service: &S) -> Result<(), CloseReason>
    where
        S: HttpService<Body = B>,
    {
        while let Some((head, text)) = poll_fn(|cx| self.poll_head(cx)).await? {
            // Not handed to an async function, whose future would have room for the head.
            let pending = self.start_request(service, head.of(text)?)?;
            if let Some((traits, mut future)) = pending {
                let response = poll_fn(|cx| {
                    let answered = self.poll_answer(&mut future, cx);
                    self.unless_cut(answered, cx)
                });
                let response = response.await?;
                self.start_response(traits, response);
            }
            poll_fn(|cx| {
                let sent = self.poll_send(cx);
                self.unless_cut(sent, cx)
            })
            .await?;
            if !self.keep_alive {
                break;
            }
            self.wait_for(Wait::NextRequest);
        }
        Ok(())
    }

    /// Reads the next head, with its text; `None` when no other request follows.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<(ParsedHead, Bytes)>, CloseReason>> {
        loop {
            // An old client may send an empty line after a request; it begins no head.
            self.read_buffer.skip_empty_lines();
            let parse = |text: &[u8]| request::parse(text, self.client.max_fields);
            let head = self.read_buffer.take_head(self.client.max_head, parse);
            if let Some(head) = head? {
                return Poll::Ready(Ok(Some(head)));
            }
            if self.written_at_eof.is_some() {
                return Poll::Ready(Ok(None));
            }
            match self.poll_read(cx)? {
                Poll::Ready(_) => {}
                Poll::Pending => return self.poll_late(cx),
            }
        }
    }

    /// Becomes ready when the wait for a head has been too long.
    fn poll_late<N>(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<N>, CloseReason>> {
        if !self.read_buffer.is_empty() {
            // From its first byte on, even if it arrives byte by byte.
            self.wait_for(Wait::Head);
        } else {
            self.read_buffer.release();
            if self.draining.get() && self.wait != Wait::Head {
                self.wait_for(Wait::LastRequest);
            }
        }
        if self.idle_timer.poll_expired(cx).is_pending() {
            let since = self.idle_timer.waiting_since();
            if since >= self.expires {
                self.requests_left = self.requests_left.min(1);
            }
            ready!(self.guard.poll_evicted(cx, || since));
            return Poll::Ready(Err(CloseReason::Evicted));
        }
        let reason = "the head did not arrive in time";
        Poll::Ready(match self.wait {
            Wait::Head => Err(CloseReason::Refused(
                StatusCode::REQUEST_TIMEOUT,
                reason.to_owned(),
            )),
            _ => Ok(None),
        })
    }

    /// Starts to serve a request. Starts the response if it is ready, else returns its future.
    fn start_request<S>(
        &mut self,
        service: &S,
        mut head: RequestHead,
    ) -> Result<Option<Waiting<S::Future>>, CloseReason>
    where
        S: HttpService<Body = B>,
    {
        let traits = RequestTraits {
            version: head.request.version(),
            is_head: head.request.method() == Method::HEAD,
        };
        self.guard.begin();
        self.requests_left = self.requests_left.saturating_sub(1);
        self.wait_for(Wait::Service);
        let timer = |limit| Box::new(IdleTimer::new(limit));
        self.exchange_timer = self.guard.max_exchange().map(timer);
        // Each response has the grace of a half-closing client.
        if let Some(written) = &mut self.written_at_eof {
            *written = self.writer.written();
        }
        self.keep_alive = head.keep_alive;
        self.expects_continue = head.expects_continue;
        self.decoder = head.decoder;
        if head.upgrades {
            let (sender, body) = body_channel(None);
            self.tunnel_sender = Some(sender);
            *head.request.body_mut() = RequestBody::from(body).into_tunnel();
        } else if !self.decoder.has_ended() {
            let (sender, body) = body_channel(self.decoder.remaining());
            self.body_sender = Some(sender);
            *head.request.body_mut() = RequestBody::from(body);
        }
        match service.call(head.request).ready() {
            Ok(response) => {
                self.start_response(traits, response.map_err(CloseReason::broken)?);
                Ok(None)
            }
            Err(future) => Ok(Some((traits, future))),
        }
    }

    /// Polls the service, sends it the body, and watches if the client still waits.
    fn poll_answer<F, E>(
        &mut self,
        future: &mut F,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<B>, CloseReason>>
    where
        F: Future<Output = Result<Response<B>, E>> + Unpin,
        E: Into<BoxError>,
    {
        loop {
            if let Poll::Ready(response) = Pin::new(&mut *future).poll(cx) {
                return Poll::Ready(response.map_err(CloseReason::broken));
            }
            if !self.poll_send_body(cx) {
                break;
            }
        }
        self.write_interim();
        let _ = self.writer.poll_send(&mut self.io, cx)?;
        self.poll_client(cx).map(Err)
    }

    /// Writes informational responses. Those that the client does not take in time are dropped from
    /// the queue.
    fn write_interim(&mut self) {
        if self.informational.is_empty() || !self.writer.is_sent() {
            return;
        }
        for response in self.informational.take() {
            self.writer
                .interim(|buffer| response::write_interim(&response, buffer));
        }
    }

    /// Starts a response.
    fn start_response(&mut self, traits: RequestTraits, response: Response<B>) {
        self.write_interim();
        // Late informational responses belong to no other request.
        self.informational.clear();
        let (head, body) = response.into_parts();
        let tunnel = self.tunnel_sender.take();
        if head.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.body_sender = tunnel;
            self.decoder = Decoder::UntilClose;
        }
        let framing = traits.framing(head.status(), &body);
        if matches!(framing, Framing::Chunked | Framing::UntilClose) {
            // It may have no end.
            self.exchange_timer = None;
        }
        let may_discard = !self.decoder.has_ended() && self.may_discard();
        self.expects_continue = false;
        let may_stay = self.guard.may_stay(head.status(), self.was_served);
        self.was_served |= head.status() != StatusCode::TOO_MANY_REQUESTS;
        self.keep_alive &= !self.draining.get()
            && self.requests_left > 0
            && may_stay
            && !matches!(framing, Framing::UntilClose | Framing::Tunnel)
            && keeps_alive(head.headers())
            && (self.decoder.has_ended()
                || may_discard
                || self
                    .body_sender
                    .as_ref()
                    .is_some_and(BodySender::has_receiver));
        if may_discard && self.keep_alive {
            self.body_sender = None;
            self.discard_budget = Some(request_body::MOST_DISCARDED);
        }
        let keep_alive = self.keep_alive;
        self.writer.begin(body, framing, |buffer| {
            traits.write_head(&head, framing, keep_alive, buffer);
        });
    }

    /// Sends the response, and keeps reading the rest of the request for the service.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
        loop {
            let before = self.writer.written();
            let is_sent = self.writer.poll_send(&mut self.io, cx)?.is_ready();
            if self.writer.written() != before {
                self.wait_for(Wait::Service);
            }
            if self.poll_send_body(cx) {
                self.wait_for(Wait::Service);
                continue;
            }
            if is_sent {
                return self.poll_request_end(cx).map(Ok);
            }
            if !self.writer.is_blocked() {
                return self.poll_client(cx).map(Err);
            }
            if let Some(body) = self.writer.body_mut()
                && let Poll::Ready(late) = body.poll_overdue(cx)
            {
                return Poll::Ready(Err(CloseReason::broken(late)));
            }
            self.wait_for(Wait::Reader);
            ready!(self.idle_timer.poll_expired(cx));
            return Poll::Ready(Err(CloseReason::broken("the client stopped reading")));
        }
    }

    /// Returns `polled`, or the end of the connection if it gives way to a new one or the client hasn't
    /// taken the response in time.
    fn unless_cut<N>(
        &mut self,
        polled: Poll<Result<N, CloseReason>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<N, CloseReason>> {
        if polled.is_ready() {
            return polled;
        }
        if self.guard.poll_cut(cx).is_ready() {
            return Poll::Ready(Err(CloseReason::Evicted));
        }
        let Some(timer) = &mut self.exchange_timer else {
            return Poll::Pending;
        };
        ready!(timer.poll_expired(cx));
        let late = "the client has not taken its response in time";
        Poll::Ready(Err(CloseReason::broken(late)))
    }

    /// Becomes ready when the client no longer waits for the response.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        while self.body_sender.is_none()
            && self.written_at_eof.is_none()
            && self.read_buffer.bytes.len() < MOST_AHEAD
        {
            if let Err(end) = ready!(self.poll_read(cx)) {
                return Poll::Ready(end);
            }
        }
        if self.written_at_eof == Some(self.writer.written())
            && !self.writer.is_tunnel()
            && let HalfClose::Grace(grace) = self.client.half_close
        {
            self.wait_for(Wait::Gone(grace));
            ready!(self.idle_timer.poll_expired(cx));
            return Poll::Ready(CloseReason::broken("the client left before its answer"));
        }
        Poll::Pending
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, CloseReason>> {
        let read =
            ready!(self.read_buffer.poll_read(&mut self.io, cx)).map_err(CloseReason::broken)?;
        if read == 0 {
            self.written_at_eof = Some(self.writer.written());
        }
        Poll::Ready(Ok(read))
    }

    /// Sets what the connection waits for. The timer starts over when that changes.
    fn wait_for(&mut self, wait: Wait) {
        if wait == self.wait {
            return;
        }
        let before = mem::replace(&mut self.wait, wait);
        if (before, wait) == (Wait::FirstByte, Wait::Head) {
            // One deadline covers both.
            return;
        }
        let timeouts = &self.client.timeouts;
        self.idle_timer.reset_to(match wait {
            Wait::Service => return,
            Wait::FirstByte | Wait::Head => timeouts.head,
            Wait::NextRequest => timeouts.idle,
            Wait::LastRequest => DRAIN_GRACE,
            Wait::Reader | Wait::Rest => timeouts.body,
            Wait::Discarded => request_body::DISCARDING,
            Wait::Gone(grace) => grace,
        });
    }
}

/// Returns false if the service closes the connection after the response.
fn keeps_alive(headers: &Headers) -> bool {
    // Looked up first, since few responses have it.
    !headers.contains(CONNECTION) || FramingFields::of(headers).keeps_alive(Version::HTTP_11)
}

#[cfg(test)]
mod tests;
