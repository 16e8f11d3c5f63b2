//! Decodes the bodies of messages (RFC 9112 sections 6 and 7).

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

use crate::trailers::{MAX_TRAILERS, TOO_LARGE};
use crate::{InvalidMessage, parsed_fields};

/// The most trailers.
const MAX_FIELDS: usize = 256;
/// The longest line before a chunk: its size and extensions.
const MAX_CHUNK_LINE: usize = 4 * 1024;
/// The most bytes of such lines beyond those of chunks that carry something: of each, 16 bytes and
/// twice its size are free.
const MAX_CHUNK_OVERHEAD: u64 = 16 * 1024;

/// Parses a Content-Length.
///
/// # Errors
/// When it is anything but digits, or beyond 64 bits.
pub fn content_length(value: &[u8]) -> Result<u64, InvalidMessage> {
    let digits = value.iter().all(u8::is_ascii_digit).then_some(value);
    let length = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    length.ok_or(InvalidMessage::Meaning("its Content-Length isn't a number"))
}

/// The position in the body of a message.
#[derive(Debug)]
pub enum Decoder {
    /// This many bytes remain.
    Length(u64),
    /// Before the size of a chunk, after this much overhead of those before.
    ChunkSize(u64),
    /// Within a chunk, of which this many bytes remain; with the overhead.
    Chunk(u64, u64),
    /// Before the end of the line behind a chunk; with the overhead.
    ChunkEnd(u64),
    /// Behind the last chunk.
    Trailers,
    /// The body ends with the connection.
    UntilClose,
    /// The body has ended.
    Ended,
}

/// The next part of a body.
#[derive(Debug)]
pub enum Decoded {
    /// Data, or the trailers.
    Frame(Frame<Bytes>),
    /// More bytes are needed.
    More,
    /// The body has ended.
    End,
}

impl Decoder {
    /// Before a body in chunks.
    pub const CHUNKED: Self = Self::ChunkSize(0);

    /// Returns true once the whole body was decoded.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Ended | Self::Length(0))
    }

    /// Returns true for a body that ends with the connection.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClose)
    }

    /// The bytes that remain, if the head says how many the body has.
    pub fn remaining(&self) -> Option<u64> {
        match self {
            Self::Length(remaining) => Some(*remaining),
            Self::Ended => Some(0),
            _ => None,
        }
    }

    /// Takes the next part of the body from the front of `received`.
    ///
    /// # Errors
    /// When these bytes are no body of this kind.
    pub fn decode(&mut self, received: &mut BytesMut) -> Result<Decoded, InvalidMessage> {
        loop {
            match self {
                Self::Ended | Self::Length(0) => return Ok(Decoded::End),
                _ if received.is_empty() => return Ok(Decoded::More),
                Self::UntilClose => return Ok(data(received, u64::MAX, &mut 0)),
                Self::Length(remaining) => return Ok(data(received, *remaining, remaining)),
                &mut Self::Chunk(ref mut remaining, overhead) => {
                    let decoded = data(received, *remaining, remaining);
                    if *remaining == 0 {
                        *self = Self::ChunkEnd(overhead);
                    }
                    return Ok(decoded);
                }
                Self::ChunkSize(overhead) => match chunk_size(received, overhead)? {
                    Some(0) => *self = Self::Trailers,
                    Some(size) => *self = Self::Chunk(size, *overhead),
                    None => return Ok(Decoded::More),
                },
                &mut Self::ChunkEnd(overhead) => match &received[..] {
                    [b'\r', b'\n', ..] => {
                        received.advance(2);
                        *self = Self::ChunkSize(overhead);
                    }
                    [b'\r'] => return Ok(Decoded::More),
                    _ => {
                        let what = "it has a chunk that is longer than its size";
                        return Err(InvalidMessage::Meaning(what));
                    }
                },
                Self::Trailers => {
                    let Some(trailers) = trailers(received)? else {
                        return Ok(Decoded::More);
                    };
                    *self = Self::Ended;
                    if !trailers.is_empty() {
                        return Ok(Decoded::Frame(Frame::trailers(trailers)));
                    }
                }
            }
        }
    }
}

/// Takes at most `most` bytes of data, and sets `remaining` to the rest.
fn data(received: &mut BytesMut, most: u64, remaining: &mut u64) -> Decoded {
    let length = usize::try_from(most).map_or(received.len(), |most| most.min(received.len()));
    *remaining = most - length as u64;
    Decoded::Frame(Frame::data(received.split_to(length).freeze()))
}

/// Takes the size of the next chunk once its line is whole. Bounds the extensions of all chunks (RFC
/// 9112 section 7.1.1).
fn chunk_size(received: &mut BytesMut, overhead: &mut u64) -> Result<Option<u64>, InvalidMessage> {
    let invalid = InvalidMessage::Meaning("it has a chunk without a valid size");
    // httparse reads no digits as 0.
    if !received.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(invalid);
    }
    match httparse::parse_chunk_size(received).map_err(|_| invalid)? {
        httparse::Status::Complete((length, size)) => {
            // httparse accepts a line feed in an extension.
            let is_line =
                received[..length].iter().position(|&byte| byte == b'\n') == Some(length - 1);
            if !is_line || length > MAX_CHUNK_LINE {
                return Err(invalid);
            }
            let line = &received[..length - 2];
            if line
                .iter()
                .any(|&byte| byte != b'\t' && byte.is_ascii_control())
            {
                let what = "it has a chunk extension with a control character";
                return Err(InvalidMessage::Meaning(what));
            }
            let free = size.saturating_mul(2).saturating_add(16);
            *overhead = (*overhead + length as u64).saturating_sub(free);
            if *overhead > MAX_CHUNK_OVERHEAD {
                let what = "its chunk extensions are larger than its chunks";
                return Err(InvalidMessage::Meaning(what));
            }
            received.advance(length);
            Ok(Some(size))
        }
        httparse::Status::Partial if received.len() > MAX_CHUNK_LINE => Err(invalid),
        httparse::Status::Partial => Ok(None),
    }
}

/// Takes the trailers once they are whole.
fn trailers(received: &mut BytesMut) -> Result<Option<HeaderMap>, InvalidMessage> {
    if received.starts_with(b"\r\n") {
        received.advance(2);
        return Ok(Some(HeaderMap::new()));
    }
    // The end is searched first, so that trailers that arrive byte by byte are parsed once.
    let end = memchr::memmem::find(received, b"\r\n\r\n").map(|at| at + 4);
    if end.unwrap_or(received.len()) > MAX_TRAILERS {
        return Err(TOO_LARGE);
    }
    let Some(end) = end else {
        return Ok(None);
    };
    let text = received.split_to(end).freeze();
    // httparse accepts a bare line feed as the end of a line, which allows request smuggling.
    let is_bare = |(at, &byte): (usize, &u8)| byte == b'\n' && !text[..at].ends_with(b"\r");
    if text.iter().enumerate().any(is_bare) {
        return Err(httparse::Error::NewLine.into());
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(&text, &mut fields)? {
        httparse::Status::Complete((_, fields)) => {
            let trailers = parsed_fields(fields, &text)?.of(text.clone());
            Ok(Some(trailers.into()))
        }
        httparse::Status::Partial => Err(InvalidMessage::Meaning("its trailers are incomplete")),
    }
}
