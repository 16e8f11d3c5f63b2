//! Claims of tokens, as in `jwt:zoneinfo`.

use derive_more::{Deref, Display};

use super::{KeyPart, ParseFailure, TextValue, failure, text_value};

/// A claim of a verified token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
#[display("jwt:{_0}")]
pub struct Claim(String);

text_value!(Claim);

impl TextValue for Claim {
    const NAME: &'static str = "Claim";
    const EXPECTED: &'static str = "a claim of a verified token, as in `jwt:zoneinfo`";
    const PATTERN: &'static str = "jwt:.+";

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
