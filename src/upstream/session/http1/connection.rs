//! A connection of HTTP/1.1 to an upstream: writes a request, and reads its response.
//!
//! hyper's client runs each connection as a task, and speaks to it through channels: half of the
//! user time of a forwarded request (docs/performance.md). Here the request's task writes the
//! request and reads the response. httparse parses heads and chunk sizes, as in hyper. The framing
//! (RFC 9112 sections 6 and 7) is at least as strict as hyper's: a test compares both.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use http::header::UPGRADE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{request, response};
use crate::http::body::{PolledFrame, RequestBody, RequestBodyError};
use crate::http::http1::{
    Decoded, Decoder, Framing, InvalidMessage, MessageWriter, ReadBuffer, SendError,
};
use crate::http::message::{Request, Response};
use crate::http::upgrade;
use crate::upstream::UpstreamErrorKind;

/// A connection to an upstream.
#[derive(Debug)]
pub(in crate::upstream) struct UpstreamConnection<T> {
    io: T,
    read_buffer: ReadBuffer,
    pub writer: MessageWriter<RequestBody>,
    pub decoder: Decoder,
    /// Both sides let the connection persist.
    keep_alive: bool,
    /// The request's method is HEAD.
    is_head: bool,
    /// The client's further bytes, if the upstream switches to one of these protocols.
    tunnel: Option<Box<(RequestBody, HeaderValue)>>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> UpstreamConnection<T> {
    /// A connection on which nothing was sent yet.
    pub(super) fn new(io: T) -> Self {
        UpstreamConnection {
            io,
            read_buffer: ReadBuffer::new(BytesMut::new()),
            writer: MessageWriter::default(),
            decoder: Decoder::Ended,
            keep_alive: true,
            is_head: false,
            tunnel: None,
        }
    }

    /// Returns true if an idle connection is open: the upstream has neither closed it nor sent
    /// anything unasked. Costs no system call while nothing arrived.
    pub(in crate::upstream) fn is_open(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut self.io).poll_read(&mut context, &mut buffer);
        read.is_pending()
    }

    /// Returns true if it may carry another request: all was sent, all was read, and neither side
    /// closes it.
    pub(super) fn is_reusable(&self) -> bool {
        self.keep_alive && self.writer.is_sent() && self.has_ended() && self.read_buffer.is_empty()
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn release(&mut self) {
        self.read_buffer.release();
    }

    /// Returns true once the response was read to its end, or both directions of a tunnel have
    /// ended.
    pub(in crate::upstream) fn has_ended(&self) -> bool {
        self.decoder.has_ended() && (!self.writer.is_tunnel() || self.writer.is_broken())
    }

    /// Returns true if exactly one direction of a tunnel has ended.
    pub(in crate::upstream) fn is_half_closed(&self) -> bool {
        self.decoder.has_ended() == self.writer.is_tunnel()
    }

    /// Begins to send `request`, whose body is taken.
    pub(super) fn begin(&mut self, request: &mut Request<RequestBody>) {
        self.is_head = request.method() == Method::HEAD;
        if request.body().is_tunnel()
            && let Some(protocols) = request.headers().get_owned(UPGRADE)
        {
            let tunnel = std::mem::replace(request.body_mut(), RequestBody::empty());
            self.tunnel = Some(Box::new((tunnel, protocols)));
        }
        request::begin(&mut self.writer, request);
    }

    /// Returns true if the rest of the request is still to come from the client.
    pub(in crate::upstream) fn waits_for_client(&self) -> bool {
        let outgoing = &self.writer;
        !outgoing.is_sent() && !outgoing.is_broken() && !outgoing.is_blocked()
    }

    /// Takes back the body of a tunnel that was not opened.
    pub(super) fn take_tunnel(&mut self) -> Option<RequestBody> {
        self.tunnel.take().map(|tunnel| tunnel.0)
    }

    /// Sends the rest of the request, and reads the head of the next response: any number of
    /// informational ones (RFC 9110 section 15.2), then the final one.
    pub(super) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, UpstreamErrorKind>> {
        let broken = self.send(cx)?;
        loop {
            let head = response::head(&mut self.read_buffer);
            if let Some(head) = head.map_err(UpstreamErrorKind::Invalid)? {
                return Poll::Ready(if is_informational(head.status()) {
                    Ok(head)
                } else {
                    self.accept(head)
                });
            }
            let read = ready!(self.read_buffer.poll_read(&mut self.io, cx));
            if !matches!(read, Ok(1..)) {
                let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
                let error = read.err().or(broken).unwrap_or_else(end);
                return Poll::Ready(Err(UpstreamErrorKind::Closed(error)));
            }
        }
    }

    fn accept(&mut self, head: Response<()>) -> Result<Response<()>, UpstreamErrorKind> {
        if head.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(head);
        }
        self.tunnel = None;
        let (decoder, keep_alive) =
            response::body(&head, self.is_head).map_err(UpstreamErrorKind::Invalid)?;
        self.decoder = decoder;
        self.keep_alive &= keep_alive && !self.writer.is_broken();
        Ok(head)
    }

    /// Switches to another protocol: both sides send until the connection ends.
    fn switch(&mut self, mut head: Response<()>) -> Result<Response<()>, UpstreamErrorKind> {
        let is_sent = self.writer.is_sent();
        let tunnel = self.tunnel.take();
        let switched = tunnel.filter(|_| is_sent).and_then(|tunnel| {
            let (tunnel, asked) = *tunnel;
            Some((tunnel, upgrade::switched(head.headers(), &asked)?))
        });
        let Some((mut tunnel, protocol)) = switched else {
            let what = "the response switches protocols unasked";
            return Err(UpstreamErrorKind::Invalid(InvalidMessage::Meaning(what)));
        };
        head.headers_mut().insert(UPGRADE, protocol);
        tunnel.open_tunnel();
        self.writer.begin(tunnel, Framing::Tunnel, |_| {});
        self.decoder = Decoder::UntilClose;
        self.keep_alive = false;
        Ok(head)
    }

    /// Reads the next frame of the response's body, and keeps sending the rest of the request.
    ///
    /// In a tunnel, empty trailers mean that the upstream sends no more. The body ends when the
    /// client sends no more either.
    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> PolledFrame<UpstreamErrorKind> {
        self.send(cx)?;
        loop {
            match self.decoder.decode(&mut self.read_buffer.bytes) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                // The other direction of a tunnel goes on.
                Ok(Decoded::End) if !self.has_ended() => return Poll::Pending,
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(invalid) => return Poll::Ready(Some(Err(UpstreamErrorKind::Invalid(invalid)))),
            }
            match ready!(self.read_buffer.poll_read(&mut self.io, cx)) {
                Ok(0) if self.writer.is_tunnel() => {
                    self.decoder = Decoder::Ended;
                    return Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new()))));
                }
                Ok(0) if self.decoder.ends_with_connection() => {
                    self.keep_alive = false;
                    return Poll::Ready(None);
                }
                Ok(0) => {
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Some(Err(UpstreamErrorKind::Closed(end))));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(UpstreamErrorKind::Closed(error)))),
            }
        }
    }

    /// Sends as much as the connection takes. A broken connection may still have a response to
    /// read: the returned error counts only if it has none.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<Option<io::Error>, UpstreamErrorKind> {
        match self.writer.poll_send(&mut self.io, cx) {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(None),
            Poll::Ready(Err(SendError::Io(error))) => Ok(Some(error)),
            Poll::Ready(Err(SendError::Body(error))) => Err(UpstreamErrorKind::RequestBody(error)),
            Poll::Ready(Err(SendError::TooLong)) => {
                Err(UpstreamErrorKind::RequestBody(RequestBodyError::TooLarge))
            }
            Poll::Ready(Err(SendError::TooShort)) => {
                Err(UpstreamErrorKind::RequestBody(RequestBodyError::Incomplete))
            }
        }
    }
}

/// Returns true if another response follows (RFC 9110 section 15.2), as after all 1xx but 101.
pub(super) fn is_informational(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

#[cfg(test)]
mod tests;
