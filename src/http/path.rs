//! The normal form of a path: the matched path is the forwarded path, unless a route says otherwise.
//!
//! RFC 3986 section 6.2.2, and repeated slashes merged. Paths that two servers could read
//! differently are refused instead: an encoded slash or backslash, a control character, a malformed
//! encoding.

use std::borrow::Cow;

use percent_encoding::percent_encode_byte;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The treatment of `%2F`, a separator to some servers, and part of a segment to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncodedSlashes {
    /// Paths that have one are refused.
    #[default]
    Refuse,
    /// It is a part of its segment, and stays encoded.
    Keep,
}

/// Reasons why a path has no safe normal form. Each is the client's fault: 400. The text is a sentence
/// for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum PathError {
    /// It does not begin with a slash.
    #[strum(serialize = "The path does not begin with a slash.")]
    Relative,
    /// `%` that two hexadecimal digits do not follow.
    #[strum(serialize = "The path has a malformed percent-encoding.")]
    Encoding,
    /// `%2f`, `%5c` or a backslash: a separator to some servers, and none to others.
    #[strum(serialize = "The path has an encoded slash, or a backslash.")]
    Separator,
    /// A control character, encoded or not.
    #[strum(serialize = "The path has a control character.")]
    Control,
    /// Encoded bytes that are no UTF-8, such as `%c0%ae`, which some servers take for a dot.
    #[strum(serialize = "The path is not UTF-8.")]
    NotUtf8,
    /// More `..` than there are segments to leave.
    #[strum(serialize = "The path leaves its root.")]
    AboveRoot,
    /// A dot segment with parameters, `/..;/`, which some servers take for a dot segment.
    #[strum(serialize = "The path has a dot segment with parameters.")]
    DotParameters,
    /// A dot segment between encoded slashes, or one that a rewrite has made.
    #[strum(serialize = "The path has a hidden dot segment.")]
    HiddenDots,
    /// A rewrite has made it too long.
    #[strum(serialize = "The path is too long once it is rewritten.")]
    TooLong,
}

/// The normal form of `path`; a path that has it already is not copied.
///
/// Removes dot segments (RFC 3986 section 5.2.4) and repeated slashes. Decodes encoded unreserved
/// characters, encodes invalid ones, and writes encodings in upper case. The result is ASCII.
/// Reserved characters stay as sent, encoded or not: see [`comparable`].
///
/// # Errors
/// See [`PathError`]. `..` above the root is refused rather than dropped, since servers differ.
pub fn normalise(path: &str, slashes: EncodedSlashes) -> Result<Cow<'_, str>, PathError> {
    if is_normal(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    let recoded = recode(path, slashes)?;
    remove_dots(&recoded).map(Cow::Owned)
}

/// The normal form of a path that a rule has made of a normal one.
///
/// # Errors
/// As [`normalise`]. The rule has put together each dot segment, so none is resolved.
pub fn rewritten(path: &str, slashes: EncodedSlashes) -> Result<String, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    let recoded = recode(path, slashes)?;
    if recoded.split('/').any(is_dots) {
        return Err(PathError::HiddenDots);
    }
    remove_dots(&recoded)
}

/// Returns true if a normal path has an encoded slash.
pub fn has_encoded_slash(normal: &str) -> bool {
    normal.contains(SLASH)
}

/// Decodes the reserved characters of a normal form, for matching and counting.
///
/// Servers may distinguish `%40` from `@` (RFC 3986 section 2.2), so a path is forwarded as it
/// came. Most do not, so a client must not escape a limit with the other spelling.
pub fn comparable(normal: &str) -> Cow<'_, str> {
    if memchr::memchr(b'%', normal.as_bytes()).is_none() {
        return Cow::Borrowed(normal);
    }
    let mut pieces = normal.split('%');
    let first = pieces.next().unwrap_or_default();
    let mut comparable = String::with_capacity(normal.len());
    comparable.push_str(first);
    for piece in pieces {
        match piece.get(..2).and_then(reserved) {
            Some(character) => {
                comparable.push(character);
                comparable.push_str(&piece[2..]);
            }
            None => {
                comparable.push('%');
                comparable.push_str(piece);
            }
        }
    }
    Cow::Owned(comparable)
}

/// The reserved character that these digits encode, if it may stand in a segment as it is.
fn reserved(digits: &str) -> Option<char> {
    let byte = u8::from_str_radix(digits, 16).ok()?;
    is_segment_byte(byte).then_some(char::from(byte))
}

/// Returns true if `path` is normal. May return false for a normal path.
fn is_normal(path: &[u8]) -> bool {
    let mut before = 0;
    for &byte in path {
        let plain = match byte {
            b'/' | b'.' => before != b'/',
            _ => is_segment_byte(byte),
        };
        if !plain {
            return false;
        }
        before = byte;
    }
    path.first() == Some(&b'/')
}

/// An encoded slash in a normal form.
const SLASH: &str = "%2F";

/// Decodes characters that need no encoding, and encodes those that do.
fn recode(path: &str, slashes: EncodedSlashes) -> Result<String, PathError> {
    let mut recoded = String::with_capacity(path.len());
    let mut octets = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let octet = match byte {
            b'/' => {
                recoded.push('/');
                octets.push(byte);
                continue;
            }
            b'%' => {
                let digits = [bytes.next(), bytes.next()];
                let [Some(high), Some(low)] = digits.map(|digit| hexadecimal(digit?)) else {
                    return Err(PathError::Encoding);
                };
                high << 4 | low
            }
            other => other,
        };
        octets.push(octet);
        match octet {
            b'/' if slashes == EncodedSlashes::Keep => recoded.push_str(SLASH),
            b'/' | b'\\' => return Err(PathError::Separator),
            0..=0x1f | 0x7f => return Err(PathError::Control),
            _ if is_unreserved(octet) || (byte != b'%' && is_segment_byte(octet)) => {
                recoded.push(char::from(octet));
            }
            _ => recoded.push_str(percent_encode_byte(octet)),
        }
    }
    match std::str::from_utf8(&octets) {
        Ok(_) => Ok(recoded),
        Err(_) => Err(PathError::NotUtf8),
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// RFC 3986 section 2.3.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Characters that a segment may contain unencoded: `pchar` of RFC 3986 section 3.3.
fn is_segment_byte(byte: u8) -> bool {
    SEGMENT_BYTES[usize::from(byte)]
}

/// Every byte of every path is looked up here.
static SEGMENT_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        bytes[byte] = is_unreserved(byte as u8)
            || matches!(
                byte as u8,
                b'!' | b'$' | b'&'..=b',' | b';' | b'=' | b':' | b'@'
            );
        byte += 1;
    }
    bytes
};

fn remove_dots(path: &str) -> Result<String, PathError> {
    let mut kept: Vec<&str> = Vec::new();
    let mut directory = true;
    for segment in path.split('/') {
        directory = true;
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop().ok_or(PathError::AboveRoot)?;
            }
            _ if is_dot_with_parameters(segment) => return Err(PathError::DotParameters),
            _ if has_hidden_dots(segment) => return Err(PathError::HiddenDots),
            _ => {
                kept.push(segment);
                directory = false;
            }
        }
    }
    let mut normal = String::with_capacity(path.len());
    for segment in &kept {
        normal.push('/');
        normal.push_str(segment);
    }
    if directory {
        normal.push('/');
    }
    Ok(normal)
}

fn is_dots(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

/// Returns true if a server that decodes the encoded slashes of this segment finds a dot segment.
fn has_hidden_dots(segment: &str) -> bool {
    let mut parts = segment.split(SLASH);
    parts.any(|part| is_dots(part) || is_dot_with_parameters(part))
}

fn is_dot_with_parameters(segment: &str) -> bool {
    let behind = segment.strip_prefix("..").or(segment.strip_prefix('.'));
    behind.is_some_and(|rest| rest.starts_with(';') || rest.starts_with("%3B"))
}

#[cfg(test)]
mod tests;
