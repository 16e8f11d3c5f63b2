//! Parts of an HTTP head: methods, field names, field values (RFC 9110).

use std::fmt;

use derive_more::Display;

use super::{Hidden, ParseFailure, TextValue, failure, text_value};
use crate::config::located::Table;
use crate::config::sections::secret_value::SecretForm;

/// A field name, case-insensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Display)]
pub struct FieldName(http::HeaderName);

impl FieldName {
    /// The name, in lower case.
    pub const fn get(&self) -> &http::HeaderName {
        &self.0
    }
}

impl From<http::HeaderName> for FieldName {
    fn from(name: http::HeaderName) -> Self {
        Self(name)
    }
}

/// A stand-in for an unreadable name.
impl Default for FieldName {
    fn default() -> Self {
        Self(http::HeaderName::from_static("x"))
    }
}

impl PartialOrd for FieldName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FieldName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.as_str().cmp(other.0.as_str())
    }
}

text_value!(FieldName);

impl TextValue for FieldName {
    const NAME: &'static str = "FieldName";
    const EXPECTED: &'static str = "the name of a header field, as in `x-api-key`";
    const PATTERN: &'static str = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        text.parse().map(Self).map_err(|_| {
            let help = "use letters, digits and `-`, without a colon: `x-api-key`";
            failure(format!("`{text}` is no name of a header field"), help)
        })
    }
}

/// The fields of a table, as messages have them.
pub(in crate::config) fn fields(
    table: &Table<FieldName, FieldValue>,
) -> impl Iterator<Item = (http::HeaderName, http::HeaderValue)> {
    let fields = table.iter();
    fields.map(|(name, value)| (name.get().clone(), value.get().clone()))
}

/// The fields of a table whose values are not shown.
pub(in crate::config) fn hidden_fields(
    table: &Table<FieldName, Hidden<FieldValue>>,
) -> impl Iterator<Item = (http::HeaderName, http::HeaderValue)> {
    let fields = table.iter();
    fields.map(|(name, value)| (name.get().clone(), value.reveal().get().clone()))
}

/// The value of a field: printable ASCII, spaces and tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldValue(http::HeaderValue);

impl FieldValue {
    /// The value.
    pub const fn get(&self) -> &http::HeaderValue {
        &self.0
    }
}

impl Default for FieldValue {
    fn default() -> Self {
        Self(http::HeaderValue::from_static(""))
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

text_value!(FieldValue);

impl TextValue for FieldValue {
    const NAME: &'static str = "FieldValue";
    const EXPECTED: &'static str = "the value of a header field: printable ASCII";
    const PATTERN: &'static str = "";
    const TYPES: &'static [&'static str] = &["string", "number", "boolean"];

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let trimmed = text.trim_matches([' ', '\t']).len() == text.len();
        let printable = |b: u8| matches!(b, b' ' | b'\t' | 0x21..=0x7e);
        match http::HeaderValue::from_str(text) {
            Ok(value) if trimmed && text.bytes().all(printable) => Ok(Self(value)),
            _ => Err(failure(
                format!("`{}` is no value of a header field", text.escape_debug()),
                NO_VALUE,
            )),
        }
    }
}

/// A field's value that may be in a file.
pub(in crate::config) const FIELD: SecretForm<http::HeaderValue> = SecretForm {
    parse: |text| match FieldValue::parse(text) {
        Ok(value) => Ok(value.0),
        Err(_) => Err("this is no value of a header field".to_owned()),
    },
    help: NO_VALUE,
};

/// Advice on a text that is no value of a field.
const NO_VALUE: &str = "use printable ASCII, without line breaks and without spaces at its ends";

/// A request method, case-sensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Display)]
pub struct Method(http::Method);

impl Method {
    /// The method.
    pub const fn get(&self) -> &http::Method {
        &self.0
    }
}

text_value!(Method);

impl TextValue for Method {
    const NAME: &'static str = "Method";
    const EXPECTED: &'static str = "a request method in capitals, as in `GET`";
    const PATTERN: &'static str = "[A-Z][A-Z0-9_-]*";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let capital =
            |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        let well_formed =
            text.starts_with(|c: char| c.is_ascii_uppercase()) && text.bytes().all(capital);
        match http::Method::from_bytes(text.as_bytes()) {
            Ok(method) if well_formed => Ok(Self(method)),
            _ if text.bytes().all(|b| b.is_ascii_alphabetic()) && !text.is_empty() => Err(failure(
                format!("`{text}` is not in capitals"),
                format!("did you mean `{}`?", text.to_uppercase()),
            )),
            _ => Err(failure(
                format!("`{text}` is no request method"),
                "as in `GET` or `POST`; leave `methods` out to take all",
            )),
        }
    }
}
