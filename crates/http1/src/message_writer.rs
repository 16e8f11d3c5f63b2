//! Writes a message: its head, and its body as it arrives.

use std::cell::Cell;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body::Body;
use tokio::io::AsyncWrite;

use crate::headers::write_field;

/// Frames of a body up to this many bytes are copied behind the bytes to be written.
const JOINED: usize = 4 * 1024;

/// Room for the head of most messages, in bytes.
const USUAL_HEAD: usize = 768;

thread_local! {
    /// The buffer of an earlier message, for the next: connections that wait hold none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The unwritten part of a message: `buffer` from `taken` on, `data`, `tail`, then the frames of
/// `body`.
#[derive(Debug)]
pub struct MessageWriter<B> {
    buffer: Vec<u8>,
    taken: usize,
    /// A large frame of the body, and its end.
    data: Bytes,
    tail: &'static [u8],
    body: Option<B>,
    framing: Framing,
    progress: Progress,
    half_close: HalfClose,
    /// Bytes written since the connection began.
    written: u64,
    /// The connection takes no bytes at the moment.
    blocked: bool,
}

/// The framing of a body (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes remain.
    Length(u64),
    /// In chunks, with room for trailers.
    Chunked,
    /// By the end of the connection.
    UntilClose,
    /// By the end of this direction of the connection (FIN), behind trailers or the end of the
    /// body. The other direction goes on until the body has ended.
    Tunnel,
    /// The body has ended.
    Ended,
}

impl Framing {
    /// Writes the field that says it, if there is one.
    pub fn write_field(self, buffer: &mut Vec<u8>) {
        match self {
            Self::Length(length) => {
                let mut digits = itoa::Buffer::new();
                write_field(&CONTENT_LENGTH, digits.format(length).as_bytes(), buffer);
            }
            Self::Chunked => write_field(&TRANSFER_ENCODING, b"chunked", buffer),
            Self::UntilClose | Self::Tunnel | Self::Ended => {}
        }
    }
}

/// This direction of a tunnel's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HalfClose {
    Open,
    /// To be shut down once everything is written.
    Due,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing was written, and the body was not polled.
    Unsent,
    Begun,
    Sent,
    /// The connection takes no more.
    Broken,
}

/// Reasons why a message was not sent.
#[derive(Debug)]
pub enum SendError<E> {
    /// The connection failed.
    Io(io::Error),
    /// The body failed.
    Body(E),
    /// The body is longer than was announced.
    TooLong,
    /// The body ended earlier than was announced.
    TooShort,
}

impl<B> Default for MessageWriter<B> {
    fn default() -> Self {
        MessageWriter {
            buffer: Vec::new(),
            taken: 0,
            data: Bytes::new(),
            tail: b"",
            body: None,
            framing: Framing::Ended,
            progress: Progress::Sent,
            half_close: HalfClose::Open,
            written: 0,
            blocked: false,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> MessageWriter<B> {
    /// Begins a message, whose head `write_head` writes.
    pub fn begin(&mut self, body: B, framing: Framing, write_head: impl FnOnce(&mut Vec<u8>)) {
        self.body = Some(body);
        self.framing = framing;
        self.progress = Progress::Unsent;
        let room = match framing {
            Framing::Length(length) if length < JOINED as u64 => USUAL_HEAD + length as usize,
            _ => USUAL_HEAD,
        };
        if self.buffer.capacity() == 0 {
            self.buffer = SPARE.take();
        }
        self.buffer.reserve(room);
        write_head(&mut self.buffer);
    }

    /// Adds an informational response before the message (RFC 9110 section 15.2).
    pub fn interim(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.buffer);
        self.progress = Progress::Begun;
    }

    /// Returns true once the whole message was written.
    pub fn is_sent(&self) -> bool {
        self.progress == Progress::Sent
    }

    /// Returns true if the message cannot be written whole.
    pub fn is_broken(&self) -> bool {
        self.progress == Progress::Broken
    }

    /// Returns true if the two directions of the connection end independently.
    pub fn is_tunnel(&self) -> bool {
        self.framing == Framing::Tunnel
    }

    /// Returns true while the receiver takes no bytes.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Bytes written since the connection began.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The body, until all of it was read.
    pub fn body_mut(&mut self) -> Option<&mut B> {
        self.body.as_mut()
    }

    /// Returns the body if nothing of the message was written.
    pub fn take_unsent(&mut self) -> Option<B> {
        let is_unsent = self.progress == Progress::Unsent;
        is_unsent.then(|| self.body.take()).flatten()
    }

    /// Writes as much as the connection takes. Ready once all is written; returns an error once.
    pub fn poll_send<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<B::Error>>> {
        while !matches!(self.progress, Progress::Sent | Progress::Broken) {
            let waits_for_body = match self.fill(cx) {
                Ok(waits) => waits,
                Err(error) => {
                    // The receiver must not consider it whole.
                    self.progress = Progress::Broken;
                    return Poll::Ready(Err(error));
                }
            };
            let is_written = !self.has_more();
            let written = if !is_written {
                self.poll_write(io, cx)
            } else if self.half_close == HalfClose::Due {
                Pin::new(&mut *io).poll_shutdown(cx)
            } else {
                // Bytes in a TLS session's buffer are flushed before any wait.
                Pin::new(&mut *io).poll_flush(cx)
            };
            self.blocked = written.is_pending();
            if let Err(error) = ready!(written) {
                // A first write that fails took nothing: the message may be sent to another server.
                if self.progress == Progress::Begun {
                    self.progress = Progress::Broken;
                }
                return Poll::Ready(Err(SendError::Io(error)));
            }
            if is_written && self.half_close == HalfClose::Due {
                self.half_close = HalfClose::Done;
            }
            if is_written && self.framing == Framing::Ended {
                let mut buffer = std::mem::take(&mut self.buffer);
                if buffer.capacity() <= 2 * JOINED {
                    buffer.clear();
                    SPARE.set(buffer);
                }
                *self = MessageWriter {
                    written: self.written,
                    ..MessageWriter::default()
                };
            } else if is_written && waits_for_body {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The unwritten part of the buffer.
    fn buffered(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    fn has_more(&self) -> bool {
        !self.buffered().is_empty() || !self.data.is_empty() || !self.tail.is_empty()
    }

    /// Adds frames of the body while they are ready and small. Returns true if it waits for the
    /// next.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, SendError<B::Error>> {
        while self.framing != Framing::Ended
            && self.tail.is_empty()
            && self.data.is_empty()
            && self.buffered().len() < JOINED
        {
            let Some(body) = &mut self.body else {
                break;
            };
            let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else {
                return Ok(true);
            };
            self.progress = Progress::Begun;
            let frame = frame.transpose().map_err(SendError::Body)?;
            match frame.map(http_body::Frame::into_data) {
                Some(Ok(data)) => self.add(data)?,
                Some(Err(_)) if self.framing == Framing::Tunnel => self.half_close(),
                Some(Err(trailers)) => self.end(trailers.into_trailers().ok().as_ref())?,
                None => self.end(None)?,
            }
        }
        Ok(false)
    }

    fn add(&mut self, data: Bytes) -> Result<(), SendError<B::Error>> {
        match &mut self.framing {
            Framing::Length(remaining) => {
                *remaining = remaining
                    .checked_sub(data.len() as u64)
                    .ok_or(SendError::TooLong)?;
                let is_last = *remaining == 0;
                self.add_data(data, b"");
                if is_last {
                    self.framing = Framing::Ended;
                }
            }
            // An empty chunk would end the body.
            Framing::Chunked if !data.is_empty() => {
                write!(self.buffer, "{:x}\r\n", data.len()).expect("a buffer grows");
                self.add_data(data, b"\r\n");
            }
            Framing::UntilClose | Framing::Tunnel => self.add_data(data, b""),
            Framing::Chunked | Framing::Ended => {}
        }
        Ok(())
    }

    fn add_data(&mut self, data: Bytes, tail: &'static [u8]) {
        if data.len() <= JOINED {
            self.buffer.extend_from_slice(&data);
            self.buffer.extend_from_slice(tail);
        } else {
            (self.data, self.tail) = (data, tail);
        }
    }

    /// Ends the body. Fewer bytes than announced are an error.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), SendError<B::Error>> {
        match self.framing {
            Framing::Chunked => write_last_chunk(trailers, &mut self.buffer),
            Framing::Length(1..) => return Err(SendError::TooShort),
            Framing::Tunnel => self.half_close(),
            Framing::Length(0) | Framing::UntilClose | Framing::Ended => {}
        }
        self.framing = Framing::Ended;
        Ok(())
    }

    /// Ends this direction of the connection once everything is written.
    fn half_close(&mut self) {
        if self.half_close == HalfClose::Open {
            self.half_close = HalfClose::Due;
        }
    }

    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut written = ready!(if self.data.is_empty() && self.tail.is_empty() {
            Pin::new(io).poll_write(cx, self.buffered())
        } else {
            let parts = [self.buffered(), &self.data, self.tail];
            Pin::new(io).poll_write_vectored(cx, &parts.map(IoSlice::new))
        })?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.progress = Progress::Begun;
        self.written += written as u64;
        let of_buffer = written.min(self.buffered().len());
        self.taken += of_buffer;
        written -= of_buffer;
        // The buffer stays bounded: frames are added only while little waits in it.
        if self.buffered().is_empty() || self.taken >= JOINED {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        let parts: [&mut dyn Buf; 2] = [&mut self.data, &mut self.tail];
        for part in parts {
            let of_part = written.min(part.remaining());
            part.advance(of_part);
            written -= of_part;
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes the end of a chunked body, with its trailers.
fn write_last_chunk(trailers: Option<&HeaderMap>, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten() {
        write_field(name, value.as_bytes(), buffer);
    }
    buffer.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
