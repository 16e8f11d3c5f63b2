//! JSON Pointer (RFC 6901): the path of a value in a JSON document.

use std::fmt;

/// A JSON pointer with at least one reference token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JsonPointer {
    /// Reference tokens without their escapes.
    tokens: Box<[Box<str>]>,
}

/// Reasons why a text is no pointer to a part of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPointerError {
    /// The empty pointer is the whole document.
    #[error("the empty pointer is the whole document")]
    Whole,
    /// A pointer starts with a slash.
    #[error("a pointer starts with a slash")]
    NoSlash,
    /// `~` stands before `0` (for `~`) or `1` (for `/`) only.
    #[error("`~` stands for nothing: write `~0` for `~`, and `~1` for `/`")]
    Tilde,
}

impl JsonPointer {
    /// Reads a pointer, as in `/usage/total_tokens`.
    ///
    /// # Errors
    /// For the empty pointer, and for texts that RFC 6901 does not allow.
    pub fn parse(text: &str) -> Result<Self, JsonPointerError> {
        let mut tokens = text.split('/');
        match tokens.next() {
            Some("") if text.is_empty() => return Err(JsonPointerError::Whole),
            Some("") => {}
            _ => return Err(JsonPointerError::NoSlash),
        }
        let tokens = tokens.map(unescape).collect::<Option<_>>();
        let tokens = tokens.ok_or(JsonPointerError::Tilde)?;
        Ok(JsonPointer { tokens })
    }

    /// Names of members and indices of items, from the root of the document.
    pub fn tokens(&self) -> &[Box<str>] {
        &self.tokens
    }
}

/// RFC 6901 section 4.
fn unescape(token: &str) -> Option<Box<str>> {
    let mut parts = token.split('~');
    let mut unescaped = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (escaped, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        unescaped.push(escaped);
        unescaped.push_str(rest);
    }
    Some(unescaped.into())
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens.iter().try_for_each(|token| {
            let escaped = token.replace('~', "~0").replace('/', "~1");
            write!(f, "/{escaped}")
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_examples_of_rfc_6901() {
        let tokens = |text| {
            let pointer = JsonPointer::parse(text).expect("a pointer");
            pointer.tokens().join("|")
        };
        for (text, expected) in [
            ("/foo/0", "foo|0"),
            ("/", ""),
            ("/a~1b", "a/b"),
            ("/m~0n", "m~n"),
            ("/~01", "~1"),
            ("/ /k\"l", " |k\"l"),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
        for (text, reason) in [
            ("", JsonPointerError::Whole),
            ("usage.total", JsonPointerError::NoSlash),
            ("#/a", JsonPointerError::NoSlash),
            ("/a~", JsonPointerError::Tilde),
            ("/a~2", JsonPointerError::Tilde),
        ] {
            assert_eq!(JsonPointer::parse(text), Err(reason), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_pointer_reads_as_itself(text in "(/([a-z.é]|~0|~1){0,4}){1,4}") {
            let pointer = JsonPointer::parse(&text).expect("a pointer");
            prop_assert_eq!(pointer.to_string(), text);
        }
    }
}
