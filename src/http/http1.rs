//! Messages of HTTP/1.1 as bytes (RFC 9112), the same towards clients and towards upstreams: where a head ends
//! and what it says, where a body ends, and how one is written.
//!
//! Fields and chunk sizes are parsed by httparse, as hyper does. Nothing here is laxer than hyper, and tests
//! compare what both make of the same bytes.

#[cfg(test)]
pub(crate) mod test_mutations;
mod decoder;
mod head;
mod names;
mod message_writer;
mod read_buffer;

pub(crate) use decoder::{Decoded, Decoder, content_length};
pub(crate) use head::{is_framing_field, parsed_fields, range_in};
pub(crate) use message_writer::{Framing, MessageWriter, SendError};
pub(crate) use read_buffer::ReadBuffer;

/// Why bytes are no message that can be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// The head, or the trailers, do not parse.
    #[error("it is not valid HTTP: {0}")]
    Syntax(httparse::Error),
    /// The head, or the trailers, are larger than is read.
    #[error("{0}")]
    TooLarge(&'static str),
    /// It parses, and may not be passed on.
    #[error("{0}")]
    Meaning(&'static str),
}

/// Not `#[from]`, which makes it the source as well: chains of errors would say it twice.
impl From<httparse::Error> for InvalidMessage {
    fn from(error: httparse::Error) -> Self {
        Self::Syntax(error)
    }
}
