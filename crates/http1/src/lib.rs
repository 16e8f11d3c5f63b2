//! Messages of HTTP/1.1 as bytes (RFC 9112), for servers and clients that want more control than hyper
//! gives: lists of header fields, framing, bodies and trailers, read and written.
//!
//! ```
//! use bytes::BytesMut;
//! use http::header::HOST;
//! use http1::framing::FramingFields;
//! use http1::{Decoded, Decoder, parsed_fields};
//!
//! # fn main() -> Result<(), http1::InvalidMessage> {
//! let head = "Host: example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
//! let mut fields = [httparse::EMPTY_HEADER; 16];
//! let parsed = httparse::parse_headers(head.as_bytes(), &mut fields)?;
//! # let httparse::Status::Complete((_, fields)) = parsed else { panic!("it is whole") };
//! let headers = parsed_fields(fields, head.as_bytes())?.of(head.into());
//! assert_eq!(headers.get(HOST), Some(&b"example.com"[..]));
//! assert_eq!(FramingFields::of(&headers).codings.one(), Some(&b"chunked"[..]));
//!
//! let mut received = BytesMut::from("5\r\nhello\r\n0\r\n\r\n");
//! let mut body = Decoder::CHUNKED;
//! let decoded = body.decode(&mut received)?;
//! assert!(matches!(decoded, Decoded::Frame(frame) if frame.is_data()));
//! assert!(matches!(body.decode(&mut received)?, Decoded::End));
//! # Ok(())
//! # }
//! ```
//!
//! - [`ReadBuffer`] reads a connection and takes heads; [`Decoder`] takes bodies apart, and
//!   [`MessageWriter`] writes messages.
//! - [`headers`] is a list of fields, [`message`] a request or response with one.
//! - [`framing`] refuses heads on whose end two servers could disagree. [`hop_by_hop`] and [`trailers`]
//!   remove what a proxy must not forward.
//!
//! There are no connections, routes, time-outs or pools here. httparse parses fields and chunk sizes, as
//! in hyper, and nothing is laxer than hyper: tests of sluicegate compare both on the same bytes.

mod decoder;
pub mod framing;
mod head;
pub mod headers;
pub mod hop_by_hop;
pub mod message;
mod message_writer;
mod parse_cache;
mod read_buffer;
pub mod trailers;

pub use decoder::{Decoded, Decoder, content_length};
pub use head::{is_framing_field, parsed_fields, range_in};
pub use message_writer::{Framing, MessageWriter, SendError};
pub use parse_cache::ParseCache;
pub use read_buffer::ReadBuffer;

/// Reasons why bytes are no message that can be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// The head, or the trailers, do not parse.
    #[error("it is not valid HTTP: {0}")]
    Syntax(httparse::Error),
    /// The head, or the trailers, exceed their bound.
    #[error("{0}")]
    TooLarge(&'static str),
    /// The message parses, but must not be forwarded.
    #[error("{0}")]
    Meaning(&'static str),
}

/// Not `#[from]`, which makes the error the source as well: error chains would say it twice.
impl From<httparse::Error> for InvalidMessage {
    fn from(error: httparse::Error) -> Self {
        Self::Syntax(error)
    }
}
