//! Converts parsed fields of a head, and their names.

use std::cell::RefCell;
use std::ops::Range;

use http::HeaderName;
use http::header::{CONTENT_LENGTH, InvalidHeaderName, TRANSFER_ENCODING};

use crate::InvalidMessage;
use crate::headers::ParsedFields;
use crate::parse_cache::ParseCache;

/// Room for the fields of a common message and those that a proxy adds. It takes 1 KiB:
/// allocators are fastest with powers of two.
const ROOM: usize = 14;

/// Converts fields that were parsed from `text`.
///
/// # Errors
/// When a name is invalid.
pub fn parsed_fields(
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

/// The range of `part` in `text`.
pub fn range_in(part: &[u8], text: &[u8]) -> Range<usize> {
    let from = part.as_ptr().addr() - text.as_ptr().addr();
    from..from + part.len()
}

/// Returns true for a field that frames the body. The writer of a body writes it itself.
pub fn is_framing_field(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

/// The number of cached names, a power of two.
const PLACES: usize = 64;

/// The longest cached name, in bytes.
const LONGEST: usize = 32;

thread_local! {
    static NAMES: RefCell<ParseCache<HeaderName, PLACES>> = const { RefCell::new(ParseCache::EMPTY) };
}

/// Parses a name. Most heads repeat names in the same spelling: each thread caches some.
///
/// # Errors
/// When it is no name.
fn name(spelled: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    let (Some(first), Some(last), ..=LONGEST) = (spelled.first(), spelled.last(), spelled.len())
    else {
        return HeaderName::from_bytes(spelled);
    };
    let place = spelled.len() * 7 + usize::from(*first) * 3 + usize::from(*last);
    NAMES.with_borrow_mut(|names| names.read(spelled, place, HeaderName::from_bytes))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_parsed_value_is_valid() {
        // Long enough for parsers that compare many bytes at once.
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

    proptest! {
        #[test]
        fn cached_names_equal_parsed_ones(
            spelled in proptest::collection::vec("[Aa][Bb-]{0,3}|[ -~]{0,3}|a{30,34}", 0..200),
        ) {
            for spelled in spelled {
                let read = HeaderName::from_bytes(spelled.as_bytes()).ok();
                prop_assert_eq!(name(spelled.as_bytes()).ok(), read);
            }
        }
    }
}
