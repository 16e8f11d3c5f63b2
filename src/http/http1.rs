//! Messages of HTTP/1.1 as bytes (RFC 9112), towards clients and upstreams: parsing heads, decoding
//! bodies, writing both.
//!
//! httparse parses fields and chunk sizes, as in hyper. Nothing here is laxer than hyper: tests
//! compare both on the same bytes.

mod decoder;
mod head;
mod message_writer;
mod names;
mod read_buffer;

pub(crate) use decoder::{Decoded, Decoder, content_length};
pub(crate) use head::{is_framing_field, parsed_fields, range_in};
pub(crate) use message_writer::{Framing, MessageWriter, SendError};
pub(crate) use read_buffer::ReadBuffer;

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

#[cfg(test)]
pub(crate) mod tests;
