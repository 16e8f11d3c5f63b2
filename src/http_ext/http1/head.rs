//! The fields of a head.

use std::ops::Range;

use http::HeaderName;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

use super::Invalid;
use super::names::name;
use crate::http_ext::headers::Found;

/// Room for the fields of an ordinary message and for those that the proxy adds. It takes 1 KiB: allocators are fastest with
/// powers of two.
const ROOM: usize = 14;

/// What is found in `text`, of which these fields were parsed.
///
/// # Errors
/// When a name is none.
pub(crate) fn found(fields: &[httparse::Header<'_>], text: &[u8]) -> Result<Found, Invalid> {
    let mut found = Found::with_capacity(fields.len().max(ROOM));
    for field in fields {
        let name = name(field.name.as_bytes()).map_err(|_| httparse::Error::HeaderName)?;
        found.push(name, place(field.value, text));
    }
    Ok(found)
}

/// Where a part of `text` is in it.
pub(crate) fn place(part: &[u8], text: &[u8]) -> Range<usize> {
    let from = part.as_ptr().addr() - text.as_ptr().addr();
    from..from + part.len()
}

/// Whether a field says where the body ends: written by who writes the body, and by nobody else.
pub(crate) fn tells_framing(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    #[test]
    fn what_is_parsed_is_a_value() {
        for byte in 0..=u8::MAX {
            let value = [b'x', byte, b'x'];
            let head = [b"x: ", &value[..], b"\r\n\r\n"].concat();
            let mut fields = [httparse::EMPTY_HEADER; 1];
            if httparse::parse_headers(&head, &mut fields).is_ok() {
                assert!(HeaderValue::from_bytes(&value).is_ok(), "{byte:#x}");
            }
        }
    }
}
