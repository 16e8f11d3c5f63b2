//! Escaping of the bytes that cannot stand in quotes.

/// Appends `text`, with its special bytes replaced.
pub(super) fn escape(
    out: &mut Vec<u8>,
    mut text: &[u8],
    special: &[bool; 256],
    replace: impl Fn(&mut Vec<u8>, u8),
) {
    while let Some(at) = text.iter().position(|&byte| special[usize::from(byte)]) {
        out.extend_from_slice(&text[..at]);
        replace(out, text[at]);
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

/// The bytes that cannot stand in quotes: control characters, what ends quotes, and those from
/// `end` on.
pub(super) const fn special(end: usize) -> [bool; 256] {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        special[byte] = byte < 0x20 || byte >= end;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
}

pub(super) fn hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}
