//! Names of policies, upstreams and routes.

use derive_more::{Deref, Display};

use super::{ParseFailure, TextValue, failure, text_value};

/// The longest name, in bytes.
const MAX_LENGTH: usize = 64;

/// A name of up to 64 characters `A-Z a-z 0-9 . _ -`: safe in header fields, metric labels and log
/// lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Deref)]
pub struct Name(String);

text_value!(Name);

impl TextValue for Name {
    const NAME: &'static str = "Name";
    const EXPECTED: &'static str = "a name: up to 64 letters, digits, `.`, `_` and `-`";
    const PATTERN: &'static str = "[A-Za-z0-9._-]{1,64}";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !text.is_empty() && text.len() <= MAX_LENGTH && text.chars().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        let help = match text.len() {
            0 => "it needs one character at least".to_owned(),
            length if length > MAX_LENGTH => format!("it has {length} bytes; {MAX_LENGTH} are allowed"),
            _ => "use letters, digits, `.`, `_` and `-` only: names appear in header fields and metrics".to_owned(),
        };
        Err(failure(format!("`{text}` is no name"), help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_characters_that_are_safe_in_fields_and_labels() {
        for name in ["login", "per-key", "v1.2_x", "404"] {
            assert!(Name::parse(name).is_ok(), "{name}");
        }
        for name in ["", "two words", "a/b", "ü", &"x".repeat(65)] {
            assert!(Name::parse(name).is_err(), "{name}");
        }
    }
}
