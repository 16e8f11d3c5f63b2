//! The fields of a head.

use std::ops::Range;

use http::HeaderName;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

use super::InvalidMessage;
use super::names::name;
use crate::http::headers::ParsedFields;

/// Room for the fields of an ordinary message and for those that the proxy adds. It takes 1 KiB: allocators are fastest with
/// powers of two.
const ROOM: usize = 14;

/// What is found in `text`, of which these fields were parsed.
///
/// # Errors
/// When a name is none.
pub(crate) fn parsed_fields(
    fields: &[httparse::Header<'_>],
    text: &[u8],
) -> Result<ParsedFields, InvalidMessage> {
    let mut found = ParsedFields::with_capacity(fields.len().max(ROOM));
    for field in fields {
        let name = name(field.name.as_bytes()).map_err(|_| httparse::Error::HeaderName)?;
        found.push(name, range_in(field.value, text));
    }
    Ok(found)
}

/// Where a part of `text` is in it.
pub(crate) fn range_in(part: &[u8], text: &[u8]) -> Range<usize> {
    let from = part.as_ptr().addr() - text.as_ptr().addr();
    from..from + part.len()
}

/// Whether a field says where the body ends: written by who writes the body, and by nobody else.
pub(crate) fn is_framing_field(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_is_parsed_is_a_value() {
        // Long enough for all that compares many bytes at once.
        for (byte, at) in (0..=u8::MAX).flat_map(|byte| (0..70).map(move |at| (byte, at))) {
            let mut value = [b'x'; 70];
            value[at] = byte;
            let head = [b"x: ", &value[..], b"\r\n\r\n"].concat();
            let mut fields = [httparse::EMPTY_HEADER; 1];
            let parses = httparse::parse_headers(&head, &mut fields).is_ok();
            if parses && !matches!(byte, b'\r' | b'\n') {
                assert!(HeaderValue::from_bytes(&value).is_ok(), "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn an_empty_value_is_a_part_of_the_text() {
        for head in ["x:\r\n\r\n", "x: \t\r\n\r\n", "x:\n\n"] {
            let mut fields = [httparse::EMPTY_HEADER; 1];
            httparse::parse_headers(head.as_bytes(), &mut fields).expect("a head");
            let place = range_in(fields[0].value, head.as_bytes());
            assert!(place.is_empty() && place.end <= head.len(), "{place:?}");
        }
    }
}
