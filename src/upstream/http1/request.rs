//! A request on its way to the upstream: its head, and its body as it comes from the client.

use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName};
use http::{Method, Request};
use http_body::Body;
use tokio::io::AsyncWrite;

use crate::http_ext::body::{RequestBody, RequestBodyError};

/// Parts of a body up to this many bytes are joined with what is waiting to be written.
const JOINED: usize = 4 * 1024;

/// What of a request is still to be written: `buffer`, `data` and `tail`, then what comes of `body`.
#[derive(Debug)]
pub(super) struct Outgoing {
    buffer: BytesMut,
    /// A large part of the body, and what ends it.
    data: Bytes,
    tail: &'static [u8],
    body: RequestBody,
    framing: Framing,
    progress: Progress,
}

/// How the end of the body is told (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// With this many bytes to come.
    Length(u64),
    Chunked,
    /// Nothing of the body is to come.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The upstream has seen nothing, and the body was not asked.
    Unsent,
    Begun,
    Sent,
    /// The connection takes no more.
    Broken,
}

/// What keeps a request from being sent.
#[derive(Debug)]
pub(super) enum Sending {
    Io(io::Error),
    Body(RequestBodyError),
}

impl Default for Outgoing {
    fn default() -> Self {
        Outgoing {
            buffer: BytesMut::new(),
            data: Bytes::new(),
            tail: b"",
            body: RequestBody::empty(),
            framing: Framing::Ended,
            progress: Progress::Sent,
        }
    }
}

impl Outgoing {
    /// Begins with `request`, whose body is taken.
    pub(super) fn begin(&mut self, request: &mut Request<RequestBody>) {
        self.body = std::mem::replace(request.body_mut(), RequestBody::empty());
        self.framing = match (self.body.is_empty(), self.body.size_hint().exact()) {
            (true, _) => Framing::Ended,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Chunked,
        };
        self.buffer.clear();
        self.data = Bytes::new();
        self.tail = b"";
        self.progress = Progress::Unsent;
        write_head(request, self.framing, &mut self.buffer);
    }

    /// Whether all was written.
    pub(super) fn is_sent(&self) -> bool {
        self.progress == Progress::Sent
    }

    /// Whether not all can be written.
    pub(super) fn is_broken(&self) -> bool {
        self.progress == Progress::Broken
    }

    /// Gives the body back while nobody has seen anything of the request.
    pub(super) fn take_unsent(&mut self) -> Option<RequestBody> {
        let is_unsent = self.progress == Progress::Unsent;
        is_unsent.then(|| std::mem::replace(&mut self.body, RequestBody::empty()))
    }

    /// Writes as much as goes. Ready once all is written; an error is told once.
    pub(super) fn poll_send<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Sending>> {
        loop {
            if matches!(self.progress, Progress::Sent | Progress::Broken) {
                return Poll::Ready(Ok(()));
            }
            let waits_for_body = self.fill(cx).map_err(Sending::Body)?;
            let written = match self.has_more() {
                true => self.poll_write(io, cx),
                // What a TLS session holds back goes out before anything is waited for.
                false => Pin::new(&mut *io).poll_flush(cx),
            };
            if let Err(error) = ready!(written) {
                // A first write that fails took nothing: the request may be sent to another.
                if self.progress == Progress::Begun {
                    self.progress = Progress::Broken;
                }
                return Poll::Ready(Err(Sending::Io(error)));
            }
            match (self.has_more(), self.framing) {
                (true, _) => {}
                (false, Framing::Ended) => self.progress = Progress::Sent,
                (false, _) if waits_for_body => return Poll::Pending,
                (false, _) => {}
            }
        }
    }

    fn has_more(&self) -> bool {
        !self.buffer.is_empty() || !self.data.is_empty() || !self.tail.is_empty()
    }

    /// Adds parts of the body while they come and are small; whether the next is waited for.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, RequestBodyError> {
        while self.framing != Framing::Ended
            && self.tail.is_empty()
            && self.data.is_empty()
            && self.buffer.len() < JOINED
        {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return Ok(true);
            };
            self.progress = Progress::Begun;
            match frame.transpose()?.map(http_body::Frame::into_data) {
                Some(Ok(data)) => self.add(data)?,
                Some(Err(trailers)) => self.end(trailers.into_trailers().ok().as_ref())?,
                None => self.end(None)?,
            }
        }
        Ok(false)
    }

    fn add(&mut self, data: Bytes) -> Result<(), RequestBodyError> {
        match &mut self.framing {
            Framing::Length(remaining) => {
                *remaining = remaining
                    .checked_sub(data.len() as u64)
                    .ok_or(RequestBodyError::TooLarge)?;
                self.add_data(data, b"");
            }
            // A chunk of no bytes would be the last.
            Framing::Chunked if !data.is_empty() => {
                write!(self.buffer, "{:x}\r\n", data.len()).expect("a buffer grows");
                self.add_data(data, b"\r\n");
            }
            Framing::Chunked | Framing::Ended => {}
        }
        Ok(())
    }

    fn add_data(&mut self, data: Bytes, tail: &'static [u8]) {
        if data.len() <= JOINED {
            self.buffer.put(data);
            self.buffer.put(tail);
        } else {
            (self.data, self.tail) = (data, tail);
        }
    }

    /// The body has ended: with fewer bytes than were announced it would look whole to nobody.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), RequestBodyError> {
        match self.framing {
            Framing::Chunked => write_last_chunk(trailers, &mut self.buffer),
            Framing::Length(1..) => return Err(RequestBodyError::Incomplete),
            Framing::Length(0) | Framing::Ended => {}
        }
        self.framing = Framing::Ended;
        Ok(())
    }

    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let parts = [&self.buffer[..], &self.data, self.tail];
        let slices = parts.map(IoSlice::new);
        let mut written = ready!(Pin::new(io).poll_write_vectored(cx, &slices))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.progress = Progress::Begun;
        let parts: [&mut dyn Buf; 3] = [&mut self.buffer, &mut self.data, &mut self.tail];
        for part in parts {
            let of_part = written.min(part.remaining());
            part.advance(of_part);
            written -= of_part;
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes the request line, the fields, and those that tell the framing.
fn write_head(request: &Request<RequestBody>, framing: Framing, buffer: &mut BytesMut) {
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let method = request.method().as_str();
    let fields = request.headers();
    let lengths = fields.iter().map(|(n, v)| n.as_str().len() + v.len() + 4);
    buffer.reserve(method.len() + target.len() + 64 + lengths.sum::<usize>());
    for part in [method, " ", target, " HTTP/1.1\r\n"] {
        buffer.put_slice(part.as_bytes());
    }
    for (name, value) in fields {
        if !tells_framing(name) {
            write_field(name, value.as_bytes(), buffer);
        }
    }
    match framing {
        Framing::Length(length) => {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(length).as_bytes();
            write_field(&header::CONTENT_LENGTH, length, buffer);
        }
        Framing::Chunked => write_field(&header::TRANSFER_ENCODING, b"chunked", buffer),
        // Where a body could have been, its absence is said (RFC 9110 section 8.6).
        Framing::Ended if says_empty(request) => {
            write_field(&header::CONTENT_LENGTH, b"0", buffer);
        }
        Framing::Ended => {}
    }
    buffer.put_slice(b"\r\n");
}

fn write_field(name: &HeaderName, value: &[u8], buffer: &mut BytesMut) {
    buffer.put_slice(name.as_str().as_bytes());
    buffer.put_slice(b": ");
    buffer.put_slice(value);
    buffer.put_slice(b"\r\n");
}

fn tells_framing(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING
}

fn says_empty(request: &Request<RequestBody>) -> bool {
    matches!(
        *request.method(),
        Method::POST | Method::PUT | Method::PATCH
    ) || request.headers().contains_key(header::CONTENT_LENGTH)
}

/// Writes the end of a chunked body, with its trailers but those that nobody may put there (RFC 9110
/// section 6.5.1).
fn write_last_chunk(trailers: Option<&HeaderMap>, buffer: &mut BytesMut) {
    buffer.put_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten() {
        if !FORBIDDEN_TRAILERS.contains(name) {
            write_field(name, value.as_bytes(), buffer);
        }
    }
    buffer.put_slice(b"\r\n");
}

/// What frames, routes, authenticates or controls a request.
static FORBIDDEN_TRAILERS: [HeaderName; 11] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
];
