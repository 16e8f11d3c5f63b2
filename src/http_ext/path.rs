//! The one form of a path: what is matched is what is forwarded.
//!
//! RFC 3986 section 6.2.2, and repeated slashes merged. Paths that two servers could read differently
//! are refused instead: an encoded slash or backslash, a control character, a malformed encoding.

use std::borrow::Cow;

/// Why a path has no safe normal form. Each is the client's doing: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with a slash.
    #[error("the path does not begin with a slash")]
    Relative,
    /// `%` without two hexadecimal digits behind it.
    #[error("the path has a malformed percent-encoding")]
    Encoding,
    /// `%2f`, `%5c` or a backslash: a separator to some servers, and none to others.
    #[error("the path has an encoded slash, or a backslash")]
    Separator,
    /// A control character, encoded or not; bytes that are no characters.
    #[error("the path has a control character")]
    Control,
    /// More `..` than there are segments to leave.
    #[error("the path leaves its root")]
    AboveRoot,
    /// A dot segment with parameters, `/..;/`, which some servers take for a dot segment.
    #[error("the path has a dot segment with parameters")]
    DotParameters,
}

/// The normal form of `path`; a path that has it already is not copied.
///
/// Dot segments are removed (RFC 3986 section 5.2.4), encoded unreserved characters decoded, the
/// digits of other encodings written in upper case, and repeated slashes merged.
///
/// # Errors
/// See [`PathError`]. `..` above the root is refused rather than dropped, since servers differ.
pub fn normalise(path: &str) -> Result<Cow<'_, str>, PathError> {
    if is_normal(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    let decoded = decode(path)?;
    remove_dots(&decoded).map(Cow::Owned)
}

/// Whether nothing in `path` asks for a change or a refusal. May say no to a path that is normal.
fn is_normal(path: &[u8]) -> bool {
    let mut before = 0;
    for &byte in path {
        let plain = match byte {
            b'/' => before != b'/',
            b'.' => before != b'/',
            b'%' | b'\\' | 0..=b' ' | 0x7f.. => false,
            _ => true,
        };
        if !plain {
            return false;
        }
        before = byte;
    }
    path.first() == Some(&b'/')
}

/// Decodes what need not be encoded. What is left encoded could not stand there otherwise.
fn decode(path: &str) -> Result<String, PathError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next(), bytes.next()];
                let [Some(high), Some(low)] = digits.map(|digit| hexadecimal(digit?)) else {
                    return Err(PathError::Encoding);
                };
                decode_byte(high << 4 | low, &mut decoded)?;
            }
            b'\\' => return Err(PathError::Separator),
            0..=b' ' | 0x7f => return Err(PathError::Control),
            other => decoded.push(other),
        }
    }
    Ok(String::from_utf8(decoded).expect("ASCII was decoded, the rest of a string left as it was"))
}

fn decode_byte(byte: u8, decoded: &mut Vec<u8>) -> Result<(), PathError> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    match byte {
        b'/' | b'\\' => return Err(PathError::Separator),
        0..=0x1f | 0x7f => return Err(PathError::Control),
        _ if is_unreserved(byte) => decoded.push(byte),
        _ => {
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            decoded.extend([b'%', high, low]);
        }
    }
    Ok(())
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

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
            _ if matches!(segment.split(';').next(), Some("." | "..")) => {
                return Err(PathError::DotParameters);
            }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_spelling_of_a_path_is_one() {
        for spelling in [
            "/v1/login",
            "//v1//login",
            "/./v1/./login",
            "/v1/x/../login",
            "/%76%31/%6Cogin",
            "/v1/%2e/login",
            "/x/%2E%2e/v1/login",
        ] {
            assert_eq!(
                normalise(spelling).as_deref(),
                Ok("/v1/login"),
                "{spelling}"
            );
        }
    }

    #[test]
    fn a_trailing_slash_is_another_path_and_stays() {
        assert_eq!(normalise("/a/").as_deref(), Ok("/a/"));
        assert_eq!(normalise("/a/.").as_deref(), Ok("/a/"));
        assert_eq!(normalise("/a/b/..").as_deref(), Ok("/a/"));
        assert_eq!(normalise("/").as_deref(), Ok("/"));
        assert_eq!(normalise("///").as_deref(), Ok("/"));
    }

    #[test]
    fn what_has_to_be_encoded_stays_encoded_in_upper_case() {
        assert_eq!(
            normalise("/a%20b%3f%c3%a9").as_deref(),
            Ok("/a%20b%3F%C3%A9")
        );
        assert_eq!(normalise("/%252e%252e/a").as_deref(), Ok("/%252e%252e/a"));
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for (path, error) in [
            ("", PathError::Relative),
            ("*", PathError::Relative),
            ("a/b", PathError::Relative),
            ("/a%", PathError::Encoding),
            ("/a%4", PathError::Encoding),
            ("/a%zz", PathError::Encoding),
            ("/a%+4", PathError::Encoding),
            ("/a%2fb", PathError::Separator),
            ("/a%5Cb", PathError::Separator),
            ("/a\\b", PathError::Separator),
            ("/a%00", PathError::Control),
            ("/a%0d%0a", PathError::Control),
            ("/a%7F", PathError::Control),
            ("/..", PathError::AboveRoot),
            ("/a/../..", PathError::AboveRoot),
            ("/a/..;/b", PathError::DotParameters),
            ("/a/%2e%2E;x=1/b", PathError::DotParameters),
            ("/.;/a", PathError::DotParameters),
        ] {
            assert_eq!(normalise(path), Err(error), "{path}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own_normal_form(path in "/[a-c/.%2eEfF5;~ -]{0,24}") {
            if let Ok(normal) = normalise(&path) {
                prop_assert_eq!(normalise(&normal), Ok(Cow::Borrowed(&*normal)));
                prop_assert!(!normal.contains("//") && !normal.contains("/./"));
            }
        }

        #[test]
        fn encoding_unreserved_characters_changes_nothing(path in "(/[a-z0-9._~-]{1,8}){1,4}") {
            let encoded: String = path
                .chars()
                .map(|c| if c == '/' { "/".to_owned() } else { format!("%{:02x}", c as u32) })
                .collect();
            prop_assert_eq!(normalise(&path), normalise(&encoded));
        }

        #[test]
        fn nothing_panics(path in "\\PC{0,40}") {
            let _ = normalise(&path);
        }
    }
}
