//! Pseudo-fields in the trailers of a request, which make it malformed (RFC 9113 section 8.1). h2
//! drops them without a word.
//!
//! Such trailers lose their END_STREAM flag on the way to h2, which then resets the stream with
//! PROTOCOL_ERROR: trailers without it are malformed as well. What is not found passes, and h2 drops
//! it: trailers that are not read in one piece, and references to the dynamic table of HPACK.

use crate::http::http2::{FrameHead, HEADERS};

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The pseudo-fields of HPACK's static table (RFC 7541 appendix A).
const PSEUDO: std::ops::RangeInclusive<usize> = 1..=14;

/// Finds malformed trailers among the frames of a client.
#[derive(Debug, Default)]
pub(super) struct TrailerCheck {
    /// The latest stream that the client has opened.
    latest: u32,
}

impl TrailerCheck {
    /// Looks at a frame whose payload begins `payload`. Returns true for whole trailers with a
    /// pseudo-field.
    pub(super) fn is_malformed(&mut self, head: FrameHead, payload: &[u8]) -> bool {
        if head.kind != HEADERS {
            return false;
        }
        if head.stream > self.latest {
            self.latest = head.stream;
            return false;
        }
        let whole = END_STREAM | END_HEADERS;
        let block = payload
            .get(..head.length)
            .filter(|_| head.flags & whole == whole);
        let block = block.and_then(|block| without_padding(head.flags, block));
        block.is_some_and(|block| has_pseudo_field(block).unwrap_or(false))
    }
}

/// Removes END_STREAM from the frame whose payload begins at `payload`, if its head is in `bytes`.
pub(super) fn spoil(bytes: &mut [u8], payload: usize) {
    // The flags are the fifth of nine bytes.
    let flags = payload
        .checked_sub(5)
        .and_then(|place| bytes.get_mut(place));
    if let Some(flags) = flags {
        *flags &= !END_STREAM;
    }
}

fn without_padding(flags: u8, mut block: &[u8]) -> Option<&[u8]> {
    if flags & PADDED != 0 {
        let padding = usize::from(*block.split_off_first()?);
        block = block.get(..block.len().checked_sub(padding)?)?;
    }
    match flags & PRIORITY {
        0 => Some(block),
        _ => block.get(5..),
    }
}

/// Walks over the representations of a field block (RFC 7541 section 6). `None` if it is cut off.
fn has_pseudo_field(mut block: &[u8]) -> Option<bool> {
    while let Some(&first) = block.first() {
        if first & 0x80 != 0 {
            if PSEUDO.contains(&integer(&mut block, 7)?) {
                return Some(true);
            }
            continue;
        }
        if first & 0xe0 == 0x20 {
            // The size of the dynamic table.
            integer(&mut block, 5)?;
            continue;
        }
        let prefix = if first & 0x40 != 0 { 6 } else { 4 };
        let name = integer(&mut block, prefix)?;
        if PSEUDO.contains(&name) || (name == 0 && begins_with_colon(string(&mut block)?)) {
            return Some(true);
        }
        string(&mut block)?;
    }
    Some(false)
}

/// Reads an integer (RFC 7541 section 5.1).
fn integer(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let most = (1 << prefix) - 1;
    let first = usize::from(*block.split_off_first()?) & most;
    if first < most {
        return Some(first);
    }
    let mut number = first;
    for shift in [0, 7, 14] {
        let byte = *block.split_off_first()?;
        number += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Reads a string (RFC 7541 section 5.2). True if it is in the Huffman code.
fn string<'a>(block: &mut &'a [u8]) -> Option<(bool, &'a [u8])> {
    let is_coded = block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    Some((is_coded, block.split_off(..length)?))
}

fn begins_with_colon((is_coded, text): (bool, &[u8])) -> bool {
    text.first().is_some_and(|&byte| match is_coded {
        true => byte >> 1 == 0x5c,
        false => byte == b':',
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_malformed(flags: u8, block: &[u8]) -> bool {
        let head = |flags| FrameHead {
            length: block.len(),
            kind: HEADERS,
            flags,
            stream: 1,
        };
        let mut check = TrailerCheck::default();
        assert!(!check.is_malformed(head(END_HEADERS), block), "a head");
        check.is_malformed(head(flags), block)
    }

    #[test]
    fn pseudo_fields_are_found_however_they_are_written() {
        let whole = END_STREAM | END_HEADERS;
        for block in [
            &b"\x84"[..],
            b"\x82",
            b"\x88",
            b"\x44\x02/x",
            b"\x04\x02/x",
            b"\x14\x02/x",
            b"\x40\x01a\x01b\x84",
            b"\x00\x05:path\x02/x",
            b"\x40\x84\xb9\x58\x33\xff\x01x",
            b"\x20\x84",
        ] {
            assert!(is_malformed(whole, block), "{block:?}");
            assert!(!is_malformed(END_HEADERS, block), "h2 refuses it by itself");
        }
        assert!(is_malformed(whole | PADDED, b"\x02\x84\0\0"));
        assert!(is_malformed(whole | PRIORITY, b"\0\0\0\0\0\x84"));
    }

    #[test]
    fn other_trailers_pass() {
        let whole = END_STREAM | END_HEADERS;
        for block in [
            &b""[..],
            b"\x90",
            b"\xbe",
            b"\x40\x01a\x02:b",
            b"\x0f\x0d\x01x",
            b"\x00\x05:pa",
            b"\x7f\xff\xff\xff\xff",
        ] {
            assert!(!is_malformed(whole, block), "{block:?}");
        }
    }
}
