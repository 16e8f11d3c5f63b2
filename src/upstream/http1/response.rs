//! A response as it comes from the upstream: its head, and where its body ends.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};
use http_body::Frame;

use crate::http_ext::framing;

/// The largest head, and the largest trailers, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The most fields in a head, or in trailers.
const MAX_FIELDS: usize = 256;
/// The longest line before a chunk: its size, and extensions that nobody uses.
const MAX_CHUNK_LINE: usize = 4 * 1024;
/// Fields that the proxy adds to most responses: room for them is made at once.
const MORE_FIELDS: usize = 6;

/// Why what came is no response that can be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The head or the trailers do not parse.
    #[error("the response is not valid HTTP: {0}")]
    Syntax(#[from] httparse::Error),
    /// It parses, and may not be passed on.
    #[error("{0}")]
    Meaning(&'static str),
}

/// The head of a response, and whether its connection serves another request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) keep_alive: bool,
}

/// Takes a head from the beginning of `received`, once it is there whole. `searched` is how much of it
/// is known to hold no end, so that a head that comes in drops is not searched again and again.
///
/// # Errors
/// When it is malformed, or larger than is read.
pub(super) fn head(received: &mut BytesMut, searched: &mut usize) -> Result<Option<Head>, Invalid> {
    let Some(end) = end_of_head(received, *searched) else {
        *searched = received.len();
        return match received.len() {
            ..MAX_HEAD => Ok(None),
            _ => Err(Invalid::Meaning(
                "the response's head is larger than 64 KiB",
            )),
        };
    };
    *searched = 0;
    parse(received.split_to(end).freeze()).map(Some)
}

/// Where the first empty line ends, looking at what was not `searched` before.
fn end_of_head(received: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(2);
    let mut lines = received[from..].iter().enumerate();
    lines.find_map(|(at, &byte)| {
        let rest = &received[from + at + 1..];
        match byte {
            b'\n' if rest.first() == Some(&b'\n') => Some(from + at + 2),
            b'\n' if rest.starts_with(b"\r\n") => Some(from + at + 3),
            _ => None,
        }
    })
}

fn parse(text: Bytes) -> Result<Head, Invalid> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        &text,
        &mut fields,
    )?;
    let (Some(version), Some(code), httparse::Status::Complete(_)) =
        (parsed.version, parsed.code, status)
    else {
        return Err(Invalid::Meaning("the response's head is incomplete"));
    };
    let status = StatusCode::from_u16(code)
        .map_err(|_| Invalid::Meaning("the response's status is not a number from 100 to 999"))?;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = match version {
        0 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    *response.headers_mut() = header_map(parsed.headers, &text)?;
    Ok(Head {
        keep_alive: keeps_alive(&response),
        response,
    })
}

/// Fields whose values are parts of `text`, not copies.
fn header_map(fields: &[httparse::Header<'_>], text: &Bytes) -> Result<HeaderMap, Invalid> {
    let mut headers = HeaderMap::with_capacity(fields.len() + MORE_FIELDS);
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(text.slice_ref(field.value));
        match (name, value) {
            (Ok(name), Ok(value)) => headers.append(name, value),
            (Err(_), _) => return Err(httparse::Error::HeaderName.into()),
            (_, Err(_)) => return Err(httparse::Error::HeaderValue.into()),
        };
    }
    Ok(headers)
}

/// RFC 9112 section 9.3.
fn keeps_alive(response: &Response<()>) -> bool {
    let mut options = response
        .headers()
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii);
    match response.version() {
        Version::HTTP_10 => options.any(|option| option.eq_ignore_ascii_case(b"keep-alive")),
        _ => !options.any(|option| option.eq_ignore_ascii_case(b"close")),
    }
}

impl Head {
    /// Whether the upstream wants to speak something else, which nobody asked for.
    pub(super) fn switches_protocols(&self) -> bool {
        self.response.status() == StatusCode::SWITCHING_PROTOCOLS
    }

    /// How the body's end is found (RFC 9112 section 6.3).
    ///
    /// # Errors
    /// Where the client might find another.
    pub(super) fn decoder(&self, is_head: bool) -> Result<Decoder, Invalid> {
        let (status, headers) = (self.response.status(), self.response.headers());
        framing::check_response(status, headers).map_err(Invalid::Meaning)?;
        let is_chunked = headers.contains_key(TRANSFER_ENCODING);
        if is_chunked && self.response.version() == Version::HTTP_10 {
            let what = "the response has a Transfer-Encoding in HTTP/1.0";
            return Err(Invalid::Meaning(what));
        }
        let length = headers.get(CONTENT_LENGTH).map(length).transpose()?;
        let never_has_body = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        Ok(match length {
            _ if is_head || never_has_body => Decoder::Ended,
            _ if is_chunked => Decoder::ChunkSize,
            Some(length) => Decoder::Length(length),
            None => Decoder::UntilClose,
        })
    }
}

fn length(value: &HeaderValue) -> Result<u64, Invalid> {
    let digits = value.to_str().ok().filter(|text| {
        let mut bytes = text.bytes();
        bytes.all(|byte| byte.is_ascii_digit())
    });
    let length = digits.and_then(|digits| digits.parse().ok());
    length.ok_or(Invalid::Meaning(
        "the response's Content-Length is no number",
    ))
}

/// Where in its body a response is.
#[derive(Debug)]
pub(super) enum Decoder {
    /// This many bytes are to come.
    Length(u64),
    /// Before the size of a chunk.
    ChunkSize,
    /// Within a chunk, of which this many bytes are to come.
    Chunk(u64),
    /// Before the end of the line behind a chunk.
    ChunkEnd,
    /// Behind the last chunk.
    Trailers,
    /// The body ends with the connection.
    UntilClose,
    /// The body has ended.
    Ended,
}

/// What is found next in a body.
#[derive(Debug)]
pub(super) enum Decoded {
    Frame(Frame<Bytes>),
    /// Nothing before more is received.
    More,
    End,
}

impl Decoder {
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended | Self::Length(0))
    }

    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClose)
    }

    pub(super) fn remaining(&self) -> Option<u64> {
        match self {
            Self::Length(remaining) => Some(*remaining),
            Self::Ended => Some(0),
            _ => None,
        }
    }

    /// Takes the next part of the body from the beginning of `received`.
    pub(super) fn decode(&mut self, received: &mut BytesMut) -> Result<Decoded, Invalid> {
        loop {
            match self {
                Self::Ended | Self::Length(0) => return Ok(Decoded::End),
                _ if received.is_empty() => return Ok(Decoded::More),
                Self::UntilClose => return Ok(data(received, u64::MAX, &mut 0)),
                Self::Length(remaining) => return Ok(data(received, *remaining, remaining)),
                Self::Chunk(remaining) => {
                    let decoded = data(received, *remaining, remaining);
                    if *remaining == 0 {
                        *self = Self::ChunkEnd;
                    }
                    return Ok(decoded);
                }
                Self::ChunkSize => match chunk_size(received)? {
                    Some(0) => *self = Self::Trailers,
                    Some(size) => *self = Self::Chunk(size),
                    None => return Ok(Decoded::More),
                },
                Self::ChunkEnd => match &received[..] {
                    [b'\r', b'\n', ..] => {
                        received.advance(2);
                        *self = Self::ChunkSize;
                    }
                    [b'\r'] => return Ok(Decoded::More),
                    _ => return Err(Invalid::Meaning("a chunk is longer than its size")),
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

/// At most `most` bytes of data, which `remaining` is less by.
fn data(received: &mut BytesMut, most: u64, remaining: &mut u64) -> Decoded {
    let length = usize::try_from(most).map_or(received.len(), |most| most.min(received.len()));
    *remaining = most - length as u64;
    Decoded::Frame(Frame::data(received.split_to(length).freeze()))
}

/// The size of the next chunk, once its line is there whole.
fn chunk_size(received: &mut BytesMut) -> Result<Option<u64>, Invalid> {
    let invalid = Invalid::Meaning("the response has a chunk without a valid size");
    // httparse would take no digits for 0.
    if !received.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(invalid);
    }
    match httparse::parse_chunk_size(received).map_err(|_| invalid)? {
        httparse::Status::Complete((length, _)) if length > MAX_CHUNK_LINE => Err(invalid),
        httparse::Status::Complete((length, size)) => {
            received.advance(length);
            Ok(Some(size))
        }
        httparse::Status::Partial if received.len() > MAX_CHUNK_LINE => Err(invalid),
        httparse::Status::Partial => Ok(None),
    }
}

/// The trailers, once they are there whole.
fn trailers(received: &mut BytesMut) -> Result<Option<HeaderMap>, Invalid> {
    if received.starts_with(b"\r\n") {
        received.advance(2);
        return Ok(Some(HeaderMap::new()));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let end = match httparse::parse_headers(received, &mut fields)? {
        httparse::Status::Complete((end, _)) => end,
        httparse::Status::Partial if received.len() < MAX_HEAD => return Ok(None),
        httparse::Status::Partial => {
            return Err(Invalid::Meaning(
                "the response's trailers are larger than 64 KiB",
            ));
        }
    };
    let text = received.split_to(end).freeze();
    // httparse takes a line feed for the end of a line; between messages that is how they are smuggled.
    let is_bare = |(at, &byte): (usize, &u8)| byte == b'\n' && !text[..at].ends_with(b"\r");
    if text.iter().enumerate().any(is_bare) {
        return Err(httparse::Error::NewLine.into());
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(&text, &mut fields)? {
        httparse::Status::Complete((_, fields)) => header_map(fields, &text).map(Some),
        httparse::Status::Partial => {
            Err(Invalid::Meaning("the response's trailers are incomplete"))
        }
    }
}
