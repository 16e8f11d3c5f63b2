//! HTTP/1 towards a client: requests are read, served and answered one after the other, in place.
//!
//! Not hyper's server: docs/architecture.md says why, and docs/performance.md what that is worth.

mod request;
mod response;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, HeaderMap};
use http::{Response, StatusCode, Version};
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::{ClientSpec, Io, Protocol, Served};
use crate::http_ext::body::{FedError, Feeder, Patience, RequestBody, Wanted, fed};
use crate::http_ext::framing::Fields;
use crate::http_ext::http1::{Decoded, Decoder, Framing, Outgoing, Received, Sending};
use crate::http_ext::interim::Interim;
use crate::server::drain::{Closing, DRAIN_GRACE};
use crate::server::held::Held;
use crate::server::service::{BoxError, HttpService};
use crate::telemetry::metrics::BadRequest;
use request::{Head, Refused};
use response::Asked;

/// How long, and how many bytes, a closed connection is still read, so that a client that is sending a
/// body sees the answer instead of a reset (RFC 9112 section 9.6).
pub(super) const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1024 * 1024;

/// How long a client that has ended its side is given an answer that does not begin, or that pauses. It may
/// have half-closed or be gone: only writing to it would tell.
const HALF_CLOSE_GRACE: Duration = Duration::from_secs(1);

/// What a client may send beyond the request that is being served, in bytes.
const MOST_AHEAD: usize = 8 * 1024;

impl Protocol {
    pub(super) async fn http1<T, S>(
        &self,
        io: T,
        first: BytesMut,
        served: Served<S>,
        held: Held,
        closing: Closing,
    ) -> Result<(), BoxError>
    where
        T: Io,
        S: HttpService,
    {
        let draining = Cell::new(false);
        let Served { service, interim } = served;
        let mut connection = Connection::new(io, first, &self.client, interim, &draining);
        let end = until_drained(connection.serve(&service), closing, &draining).await;
        Box::pin(connection.end(end, &held)).await
    }
}

/// Runs `serving` to its end; sets `draining` meanwhile when the worker drains.
async fn until_drained<T>(
    serving: impl Future<Output = T>,
    closing: Closing,
    draining: &Cell<bool>,
) -> T {
    let mut waiting = closing.clone();
    // Unconstrained: it is asked once, and must have noted whom to wake then.
    let (mut serving, mut started) = (pin!(serving), pin!(unconstrained(waiting.started())));
    let mut is_awaited = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = serving.as_mut().poll(cx) {
                return Poll::Ready(end);
            }
            // Asked again only when there is an answer: the task that is woken stays the same.
            if draining.get() || (is_awaited && !closing.has_started()) {
                return Poll::Pending;
            }
            is_awaited = true;
            ready!(started.as_mut().poll(cx));
            draining.set(true);
        }
    })
    .await
}

/// A client's connection, which carries one request at a time.
struct Connection<'a, T, B> {
    io: T,
    client: &'a ClientSpec,
    draining: &'a Cell<bool>,
    interim: Interim,
    received: Received,
    outgoing: Outgoing<B>,
    /// Where in the body of the request.
    decoder: Decoder,
    /// While somebody reads that body.
    feeder: Option<Feeder>,
    /// Whether the client waits to be told to send it.
    expects_continue: bool,
    keep_alive: bool,
    /// What had been written when the client ended its side.
    ended: Option<u64>,
    wait: Wait,
    patience: Patience,
}

/// Whom a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// For a client that has just connected.
    FirstByte,
    /// For a client that has its answer.
    NextRequest,
    /// The same, while the server drains: for a request that is on its way.
    LastRequest,
    /// For the rest of a head.
    Head,
    /// For a client to take what it asked for.
    Reader,
    /// For a client that has its answer to send the rest of its request, which somebody reads.
    Rest,
    /// For an answer, with a client that may be gone: it has ended its side.
    Gone,
    /// For an answer: not bounded here.
    Service,
}

/// Why a connection ends before both sides are done.
#[derive(Debug)]
enum End {
    /// What came is no request: the connection answers it itself.
    Refused(StatusCode, BadRequest, String),
    Broken(BoxError),
}

impl<'a, T, B> Connection<'a, T, B>
where
    T: Io,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    fn new(
        io: T,
        first: BytesMut,
        client: &'a ClientSpec,
        interim: Interim,
        draining: &'a Cell<bool>,
    ) -> Self {
        Connection {
            io,
            client,
            draining,
            interim,
            received: Received::new(first),
            outgoing: Outgoing::default(),
            decoder: Decoder::Ended,
            feeder: None,
            expects_continue: false,
            keep_alive: true,
            ended: None,
            wait: Wait::FirstByte,
            patience: Patience::new(client.timeouts.head),
        }
    }

    /// Serves requests until the last.
    async fn serve<S>(&mut self, service: &S) -> Result<(), End>
    where
        S: HttpService<Body = B>,
    {
        while let Some(head) = poll_fn(|cx| self.poll_head(cx)).await? {
            // Boxed: a connection that waits has no room for a request.
            Box::pin(self.exchange(service, head)).await?;
            if !self.keep_alive {
                break;
            }
            self.wait_for(Wait::NextRequest);
        }
        Ok(())
    }

    /// The text of the next head; `None` if there will be none.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, End>> {
        loop {
            // An old client may send one after a request: no head has begun by that.
            self.received.skip_empty_lines();
            let head = self.received.take_head(self.client.max_head);
            if let Some(head) = head.map_err(Refused::from)? {
                return Poll::Ready(Ok(Some(head)));
            }
            if self.ended.is_some() {
                return Poll::Ready(Ok(None));
            }
            match self.poll_read(cx)? {
                Poll::Ready(_) => {}
                Poll::Pending => return self.poll_late(cx),
            }
        }
    }

    /// Nothing came: ready when it is too late.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, End>> {
        if !self.received.is_empty() {
            // From its first byte on, also where it comes in drops.
            self.wait_for(Wait::Head);
        } else {
            self.received.release();
            if self.draining.get() && self.wait != Wait::Head {
                self.wait_for(Wait::LastRequest);
            }
        }
        ready!(self.patience.poll_exhausted(cx));
        let reason = "the head did not arrive in time";
        Poll::Ready(match self.wait {
            Wait::Head => Err(End::Refused(
                StatusCode::REQUEST_TIMEOUT,
                BadRequest::Timeout,
                reason.to_owned(),
            )),
            _ => Ok(None),
        })
    }

    /// Serves one request.
    async fn exchange<S>(&mut self, service: &S, head: Bytes) -> Result<(), End>
    where
        S: HttpService<Body = B>,
    {
        let (asked, answering) = self.begin(service, request::parse(head)?);
        let mut answering = pin!(answering);
        let response = poll_fn(|cx| self.poll_answer(answering.as_mut(), cx)).await?;
        self.write_interim();
        self.answer(asked, response);
        poll_fn(|cx| self.poll_send(cx)).await
    }

    fn begin<S>(&mut self, service: &S, head: Head) -> (Asked, S::Future)
    where
        S: HttpService<Body = B>,
    {
        let asked = Asked::by(&head.request);
        self.wait_for(Wait::Service);
        self.keep_alive = head.keep_alive;
        self.expects_continue = head.expects_continue;
        self.decoder = head.decoder;
        let body = if self.decoder.has_ended() {
            RequestBody::empty()
        } else {
            let (feeder, body) = fed(self.decoder.remaining());
            self.feeder = Some(feeder);
            RequestBody::from(body)
        };
        (asked, service.call(head.request.map(|()| body)))
    }

    /// Waits for the service, which is fed the body, and sees whether the client waits, too.
    fn poll_answer<F, E>(
        &mut self,
        mut answering: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<B>, End>>
    where
        F: Future<Output = Result<Response<B>, E>>,
        E: Into<BoxError>,
    {
        loop {
            if let Poll::Ready(response) = answering.as_mut().poll(cx) {
                return Poll::Ready(response.map_err(End::broken));
            }
            if !self.poll_feed(cx) {
                break;
            }
        }
        self.write_interim();
        if let Poll::Ready(Err(error)) = self.outgoing.poll_send(&mut self.io, cx) {
            return Poll::Ready(Err(error.into()));
        }
        self.poll_client(cx).map(Err)
    }

    /// Writes what the service says before it answers. What a client does not take in time is dropped
    /// where it waits.
    fn write_interim(&mut self) {
        if !self.outgoing.is_sent() {
            return;
        }
        for response in self.interim.take() {
            self.outgoing
                .interim(|buffer| response::write_interim(&response, buffer));
        }
    }

    /// Begins to answer.
    fn answer(&mut self, asked: Asked, response: Response<B>) {
        // What was not taken in time belongs to no other answer.
        drop(self.interim.take());
        let (head, body) = response.into_parts();
        let framing = asked.framing(head.status, &body);
        self.expects_continue = false;
        self.keep_alive &= !self.draining.get()
            && framing != Framing::UntilClose
            && keeps_alive(&head.headers)
            && (self.decoder.has_ended() || self.feeder.as_ref().is_some_and(Feeder::is_read));
        let keep_alive = self.keep_alive;
        self.outgoing.begin(body, framing, |buffer| {
            asked.write_head(&head, framing, keep_alive, buffer);
        });
    }

    /// Sends the response; and what is left of the request goes on being read, for whoever reads it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            let before = self.outgoing.written();
            let is_sent = self.outgoing.poll_send(&mut self.io, cx)?.is_ready();
            if self.outgoing.written() != before {
                self.wait_for(Wait::Service);
            }
            if self.poll_feed(cx) {
                self.wait_for(Wait::Service);
                continue;
            }
            if is_sent {
                return self.poll_rest(cx).map(Ok);
            }
            if !self.outgoing.is_blocked() {
                return self.poll_client(cx).map(Err);
            }
            self.wait_for(Wait::Reader);
            ready!(self.patience.poll_exhausted(cx));
            return Poll::Ready(Err(End::broken("the client stopped reading")));
        }
    }

    /// Waits for the end of a request that has its answer already, as long as somebody reads it.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.feeder.is_some() {
            self.wait_for(Wait::Rest);
            ready!(self.patience.poll_exhausted(cx));
            self.feeder = None;
        }
        self.keep_alive &= self.decoder.has_ended();
        Poll::Ready(())
    }

    /// Feeds whoever reads the body the next part of it, once that is there; whether it did.
    fn poll_feed(&mut self, cx: &mut Context<'_>) -> bool {
        let wanted = self.feeder.as_mut().map(|feeder| feeder.wanted(cx));
        match wanted {
            None | Some(Wanted::NotYet) => return false,
            Some(Wanted::Never) => {
                self.feeder = None;
                return false;
            }
            Some(Wanted::Now) => {}
        }
        let Poll::Ready(part) = self.poll_part(cx) else {
            return false;
        };
        let is_last = !matches!(part, Some(Ok(_))) || self.decoder.has_ended();
        if let Some(feeder) = &mut self.feeder {
            feeder.feed(part, cx);
        }
        if is_last {
            self.feeder = None;
        }
        true
    }

    /// The next part of the body.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, FedError>>> {
        loop {
            match self.decoder.decode(&mut self.received.bytes) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(invalid) => return Poll::Ready(Some(Err(invalid.into()))),
            }
            // A client that has begun to send needs not be told (RFC 9110 section 10.1.1).
            if std::mem::take(&mut self.expects_continue) && self.received.is_empty() {
                self.outgoing
                    .interim(|buffer| buffer.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
            }
            let read = match self.ended {
                Some(_) => Ok(0),
                None => ready!(self.received.poll_read(&mut self.io, cx)),
            };
            match read {
                Ok(0) => {
                    self.ended.get_or_insert(self.outgoing.written());
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Some(Err(end.into())));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    /// Ready when nobody waits for the answer any more.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        while self.feeder.is_none()
            && self.ended.is_none()
            && self.received.bytes.len() < MOST_AHEAD
        {
            match self.poll_read(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.ended == Some(self.outgoing.written()) {
            self.wait_for(Wait::Gone);
            ready!(self.patience.poll_exhausted(cx));
            return Poll::Ready(End::broken("the client left before its answer"));
        }
        Poll::Pending
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, End>> {
        let read = ready!(self.received.poll_read(&mut self.io, cx)).map_err(End::broken)?;
        if read == 0 {
            self.ended = Some(self.outgoing.written());
        }
        Poll::Ready(Ok(read))
    }

    /// Notes whom is waited for; the time for it starts when that changes.
    fn wait_for(&mut self, wait: Wait) {
        if wait == self.wait {
            return;
        }
        self.wait = wait;
        let timeouts = &self.client.timeouts;
        self.patience.renew_with(match wait {
            Wait::Service => return,
            Wait::FirstByte | Wait::Head => timeouts.head,
            Wait::NextRequest => timeouts.idle,
            Wait::LastRequest => DRAIN_GRACE,
            Wait::Reader | Wait::Rest => timeouts.body,
            Wait::Gone => HALF_CLOSE_GRACE,
        });
    }

    /// Ends the connection so that the client sees its last answer.
    async fn end(&mut self, end: Result<(), End>, held: &Held) -> Result<(), BoxError> {
        match end {
            Ok(()) => {
                let is_read = self.decoder.has_ended() && self.is_silent();
                self.close(b"", !is_read).await;
                Ok(())
            }
            Err(End::Refused(status, kind, reason)) => {
                held.bad_request(kind);
                let answer = response::refusal(status, &reason);
                self.close(answer.as_bytes(), true).await;
                Err(reason.into())
            }
            Err(End::Broken(error)) => Err(error),
        }
    }

    /// Whether the client has said nothing beyond the last request: nothing received, nothing on its way.
    fn is_silent(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let read = self.received.poll_read(&mut self.io, &mut context);
        !matches!(read, Poll::Ready(Ok(1..))) && self.received.is_empty()
    }

    /// Sends what is left to say, and ends this side; then reads and discards what the client still sends if
    /// it `lingers`. However that goes, the connection is closed next.
    async fn close(&mut self, rest: &[u8], lingers: bool) {
        let closing = async {
            self.io.write_all(rest).await?;
            self.io.shutdown().await?;
            if lingers {
                let mut rest = (&mut self.io).take(LINGER_BYTES);
                tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
            }
            Ok::<_, io::Error>(())
        };
        let _ = timeout(LINGER, closing).await;
    }
}

/// Whether the service lets the connection serve on.
fn keeps_alive(headers: &HeaderMap) -> bool {
    // Looked up first: few responses have it.
    !headers.contains_key(CONNECTION) || Fields::of(headers).keeps_alive(Version::HTTP_11)
}

impl End {
    fn broken(error: impl Into<BoxError>) -> Self {
        Self::Broken(error.into())
    }
}

impl From<Refused> for End {
    fn from(Refused { status, reason }: Refused) -> Self {
        let kind = match status {
            StatusCode::BAD_REQUEST => BadRequest::Malformed,
            _ => BadRequest::HeadTooLarge,
        };
        Self::Refused(status, kind, reason.to_string())
    }
}

impl<E: Into<BoxError>> From<Sending<E>> for End {
    fn from(sending: Sending<E>) -> Self {
        match sending {
            Sending::Io(error) => Self::broken(error),
            Sending::Body(error) => Self::broken(error),
            Sending::TooLong => Self::broken("the response is longer than was announced"),
            Sending::TooShort => Self::broken("the response is shorter than was announced"),
        }
    }
}

#[cfg(test)]
mod tests;
