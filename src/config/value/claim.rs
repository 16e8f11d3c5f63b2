//! Claims of tokens, as in `jwt:zoneinfo`.

use std::borrow::Cow;
use std::fmt;

use super::{KeyPart, ParseFailure, TextValue, failure, text_value};

/// A claim of a verified token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim(String);

impl Claim {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "jwt:{}", self.0)
    }
}

text_value!(Claim);

impl TextValue for Claim {
    const PATTERN: &'static str = "jwt:.+";

    fn name() -> Cow<'static, str> {
        "Claim".into()
    }

    fn expected() -> Cow<'static, str> {
        "a claim of a verified token, as in `jwt:zoneinfo`".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match KeyPart::parse(text) {
            Ok(KeyPart::Claim(name)) => Ok(Self(name)),
            Err(error) if text.starts_with("jwt") => Err(error),
            _ => Err(failure(
                format!("`{text}` is no claim"),
                "name one of a verified token, which clients cannot forge: `jwt:zoneinfo`",
            )),
        }
    }
}
