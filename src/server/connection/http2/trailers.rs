//! Trailers of a request that h2 would change without a word: it drops pseudo-fields, which make the
//! request malformed (RFC 9113 section 8.1), and all fields beyond its bound.
//!
//! Such trailers lose their END_STREAM flag on the way to h2, which then resets the stream with
//! PROTOCOL_ERROR: trailers without it are malformed as well. Pseudo-fields of trailers that are not
//! read in one piece are dropped by h2.

use crate::http::http2::{CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameHead, HEADERS};
use crate::http::trailers::MAX_TRAILERS;

const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The pseudo-fields of HPACK's static table (RFC 7541 appendix A).
const PSEUDO: std::ops::RangeInclusive<usize> = 1..=14;

/// The index of the latest entry of HPACK's dynamic table (RFC 7541 section 2.3.3).
const DYNAMIC: usize = 62;

/// The longest first frame of trailers that may have others. Clients begin another frame only when one
/// is full.
const MAX_FIRST_FRAME: usize = MAX_TRAILERS / 2;

/// The treatment of a frame by h2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameVerdict {
    Pass,
    /// It begins trailers that are malformed, or too large.
    Reset,
    /// It is part of trailers that have turned out to be too large.
    Close,
}

/// Finds trailers that h2 would change among the frames of a client.
#[derive(Debug)]
pub(super) struct TrailerCheck {
    /// The latest stream that the client has opened.
    latest: u32,
    /// The streams that the client has ended, a bit for each, that of the latest lowest.
    ended: u128,
    /// The entries of the dynamic table that are pseudo-fields, a bit for each, the latest lowest:
    /// 4096 bytes have room for 128. `None` once a block was not read in one piece.
    dynamic: Option<u128>,
    /// The bytes of trailers whose last frame is to come.
    split: Option<usize>,
}

impl TrailerCheck {
    pub(super) fn new() -> Self {
        TrailerCheck {
            latest: 0,
            ended: 0,
            dynamic: Some(0),
            split: None,
        }
    }

    /// Judges a frame whose payload begins `payload`.
    pub(super) fn judge(&mut self, head: FrameHead, payload: &[u8]) -> FrameVerdict {
        let verdict = match head.kind {
            HEADERS if self.is_malformed(head, payload) => FrameVerdict::Reset,
            CONTINUATION if self.is_too_large(head) => FrameVerdict::Close,
            _ => FrameVerdict::Pass,
        };
        if matches!(head.kind, HEADERS | DATA) && head.flags & END_STREAM != 0 {
            self.ended |= self.bit(head.stream);
        }
        verdict
    }

    /// The bit of an open stream; 0 for one with 128 later ones.
    fn bit(&self, stream: u32) -> u128 {
        let later = self.latest.checked_sub(stream).map(|distance| distance / 2);
        later.map_or(0, |later| 1_u128.checked_shl(later).unwrap_or(0))
    }

    /// Returns true if the trailers that this frame continues are too large.
    fn is_too_large(&mut self, head: FrameHead) -> bool {
        let length = self.split.take().map(|length| length + head.length);
        self.split = length.filter(|_| head.flags & END_HEADERS == 0);
        length.is_some_and(|length| length > MAX_TRAILERS)
    }

    /// Returns true for whole trailers with a pseudo-field, and for trailers that are too large for one
    /// frame.
    fn is_malformed(&mut self, head: FrameHead, payload: &[u8]) -> bool {
        let block = payload
            .get(..head.length)
            .filter(|_| head.flags & END_HEADERS != 0);
        let block = block.and_then(|block| without_padding(head.flags, block));
        let has_pseudo_field = block.and_then(|block| self.has_pseudo_field(block));
        if has_pseudo_field.is_none() {
            self.dynamic = None;
        }
        let is_trailers = head.stream <= self.latest;
        if !is_trailers {
            let opened = (head.stream - self.latest).div_ceil(2);
            self.ended = self.ended.checked_shl(opened).unwrap_or(0);
            self.latest = head.stream;
        } else if self.ended & self.bit(head.stream) != 0 {
            // No trailers: h2 refuses fields of a stream that has ended (RFC 9113 section 5.1).
            return false;
        }
        self.split = (is_trailers && head.is_split_end()).then_some(head.length);
        let is_too_large = self.split.take_if(|length| *length > MAX_FIRST_FRAME);
        let has_pseudo_field = has_pseudo_field == Some(true);
        is_trailers && head.flags & END_STREAM != 0 && (has_pseudo_field || is_too_large.is_some())
    }

    /// Walks over the representations of a field block (RFC 7541 section 6), and follows the dynamic
    /// table. `None` if the block is cut off.
    fn has_pseudo_field(&mut self, mut block: &[u8]) -> Option<bool> {
        let mut has_any = false;
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                has_any |= self.is_pseudo(integer(&mut block, 7)?);
                continue;
            }
            if first & 0xe0 == 0x20 {
                // The size of the dynamic table.
                integer(&mut block, 5)?;
                continue;
            }
            let is_indexed = first & 0x40 != 0;
            let is_pseudo = match integer(&mut block, if is_indexed { 6 } else { 4 })? {
                0 => string(&mut block)?,
                name => self.is_pseudo(name),
            };
            string(&mut block)?;
            if is_indexed {
                let add = |entries| entries << 1 | u128::from(is_pseudo);
                self.dynamic = self.dynamic.map(add);
            }
            has_any |= is_pseudo;
        }
        Some(has_any)
    }

    /// Returns true if the field of this index is known to be a pseudo-field.
    fn is_pseudo(&self, index: usize) -> bool {
        let entry = index.checked_sub(DYNAMIC);
        let entry = entry.and_then(|entry| u32::try_from(entry).ok());
        match (entry, self.dynamic) {
            (None, _) => PSEUDO.contains(&index),
            (Some(entry), Some(entries)) => entries.checked_shr(entry).unwrap_or(0) & 1 == 1,
            (Some(_), None) => false,
        }
    }
}

/// Removes END_STREAM from the frame whose payload begins at `payload`. Returns false if its flags are
/// not in `bytes`.
pub(super) fn spoil(bytes: &mut [u8], payload: usize) -> bool {
    // The flags are the fifth of nine bytes.
    let place = payload.checked_sub(5);
    let flags = place.and_then(|place| bytes.get_mut(place));
    flags.map(|flags| *flags &= !END_STREAM).is_some()
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

/// Reads a string (RFC 7541 section 5.2). Returns true if it begins with a colon.
fn string(block: &mut &[u8]) -> Option<bool> {
    let is_huffman_coded = block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    let text = block.split_off(..length)?;
    Some(match text.first() {
        Some(byte) if is_huffman_coded => byte >> 1 == 0x5c,
        first => first == Some(&b':'),
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
        let mut check = TrailerCheck::new();
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
    fn pseudo_fields_of_the_dynamic_table_are_found() {
        let whole = END_STREAM | END_HEADERS;
        let head = |flags, stream, block: &[u8]| FrameHead {
            length: block.len(),
            kind: HEADERS,
            flags,
            stream,
        };
        // `:path: /x`, then `a: b`: the second and the first entry.
        let fields = b"\x82\x44\x02/x\x40\x01a\x01b";
        for (trailers, is_pseudo) in [
            (&b"\xbf"[..], true),
            (b"\x0f\x30\x02/y", true),
            (b"\xbe", false),
            (b"\x0f\x2f\x02/y", false),
            (b"\xc0", false),
            (b"\xff\xff\x7f", false),
            (b"\x40\x01c\x01d\xc0", true),
        ] {
            let mut check = TrailerCheck::new();
            assert!(!check.is_malformed(head(END_HEADERS, 1, fields), fields));
            let is_malformed = check.is_malformed(head(whole, 1, trailers), trailers);
            assert_eq!(is_malformed, is_pseudo, "{trailers:?}");
            // A block in two frames may have added entries.
            let mut check = TrailerCheck::new();
            assert!(!check.is_malformed(head(END_HEADERS, 1, fields), fields));
            assert!(!check.is_malformed(head(END_STREAM, 3, fields), fields));
            assert!(!check.is_malformed(head(whole, 1, trailers), trailers));
        }
    }

    #[test]
    fn fields_of_a_stream_that_has_ended_are_left_to_h2() {
        let whole = END_STREAM | END_HEADERS;
        let head = |kind, flags, stream| FrameHead {
            length: 1,
            kind,
            flags,
            stream,
        };
        let fields = |check: &mut TrailerCheck, flags, stream| {
            check.judge(head(HEADERS, flags, stream), b"\x84")
        };
        use FrameVerdict::{Pass, Reset};
        let mut check = TrailerCheck::new();
        assert_eq!(fields(&mut check, whole, 1), Pass, "a head");
        assert_eq!(fields(&mut check, END_HEADERS, 3), Pass, "a head");
        assert_eq!(fields(&mut check, END_HEADERS, 9), Pass, "a head");
        check.judge(head(DATA, END_STREAM, 3), b"x");
        assert_eq!(fields(&mut check, whole, 1), Pass);
        assert_eq!(fields(&mut check, whole, 3), Pass);
        assert_eq!(fields(&mut check, whole, 9), Reset, "trailers");
        assert_eq!(fields(&mut check, whole, 9), Pass);
        // A stream with very many later ones may be open.
        assert_eq!(fields(&mut check, whole, 9_001), Pass, "a head");
        assert_eq!(fields(&mut check, whole, 3), Reset);
    }

    #[test]
    fn trailers_of_several_frames_are_bounded() {
        let head = |kind, flags, length| FrameHead {
            length,
            kind,
            flags,
            stream: 1,
        };
        let verdicts = |frames: &[(u8, u8, usize)]| {
            let mut check = TrailerCheck::new();
            check.judge(head(HEADERS, END_HEADERS, 1), b"\x82");
            let verdicts = frames
                .iter()
                .map(|&(kind, flags, length)| check.judge(head(kind, flags, length), b""));
            verdicts.collect::<Vec<_>>()
        };
        use FrameVerdict::{Close, Pass, Reset};
        let full = 16_384;
        let two = [
            (HEADERS, END_STREAM, full),
            (CONTINUATION, END_HEADERS, 1),
            (HEADERS, END_STREAM, 10),
            (CONTINUATION, END_HEADERS, 10),
        ];
        assert_eq!(verdicts(&two), [Reset, Pass, Pass, Pass]);
        let small_first = [
            (HEADERS, END_STREAM, 10),
            (CONTINUATION, 0, full - 10),
            (CONTINUATION, END_HEADERS, 1),
        ];
        assert_eq!(verdicts(&small_first), [Pass, Pass, Close]);
        // No trailers, but the rest of a head.
        let mut check = TrailerCheck::new();
        assert_eq!(check.judge(head(HEADERS, END_STREAM, full), b""), Pass);
        let rest = head(CONTINUATION, END_HEADERS, full);
        assert_eq!(check.judge(rest, b""), Pass);
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
