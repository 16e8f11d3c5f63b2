//! Texts that are never shown.

use std::fmt;

use derive_more::Display;

use super::{ParseFailure, TextValue, text_value};

/// A password, or a text that contains one. `Debug`, `Display` and reports hide it.
#[derive(Clone, Default, PartialEq, Eq, Display)]
#[display("***")]
pub struct SecretText(String);

impl SecretText {
    /// The secret text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

text_value!(SecretText);

impl TextValue for SecretText {
    const NAME: &'static str = "SecretText";
    const EXPECTED: &'static str = "a text that is never shown";
    const PATTERN: &'static str = "";
    const TYPES: &'static [&'static str] = &["string", "number", "boolean"];

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_never_shown() {
        let secret = SecretText::parse("hunter2").expect("any text will do");
        assert_eq!(secret.reveal(), "hunter2");
        let json = serde_json::to_string(&secret).expect("a text");
        assert_eq!(
            [format!("{secret:?}"), secret.to_string(), json],
            ["***", "***", "\"***\""]
        );
    }
}
