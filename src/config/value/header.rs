//! Parts of an HTTP head: methods, field names, field values (RFC 9110).

use derive_more::{Deref, Display};

use super::{Failure, TextValue, failure, sentence, text_value};
use crate::config::located::Table;
use crate::http::client_ip::Header;
use crate::http::upgrade::hides_requests;

/// A field name, case-insensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Display)]
pub struct FieldName(http::HeaderName);

impl From<http::HeaderName> for FieldName {
    fn from(name: http::HeaderName) -> Self {
        Self(name)
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

text_value!(FieldName: http::HeaderName = "x");

impl TextValue for FieldName {
    const EXPECTED: &'static str = "the name of a header field, as in `x-api-key`";
    const PATTERN: &'static str = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";

    fn read(text: &str) -> Result<Self, Failure> {
        let help = "use letters, digits and `-`, without a colon: `x-api-key`";
        text.parse().map(Self).map_err(|_| help.into())
    }
}

/// The fields of a table, as messages have them.
pub(crate) fn fields(
    table: &Table<FieldName, FieldValue>,
) -> impl Iterator<Item = (http::HeaderName, http::HeaderValue)> {
    let fields = table.iter();
    fields.map(|(name, value)| (name.get().clone(), value.get().clone()))
}

/// The value of a field: printable ASCII, spaces and tabs.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{}", _0.to_str().unwrap_or_default())]
pub struct FieldValue(http::HeaderValue);

text_value!(FieldValue: http::HeaderValue = "");

impl TextValue for FieldValue {
    const EXPECTED: &'static str = "the value of a header field: printable ASCII";
    const PATTERN: &'static str = "";
    const TYPES: &'static [&'static str] = &["string", "number", "boolean"];

    fn read(text: &str) -> Result<Self, Failure> {
        let trimmed = text.trim_matches([' ', '\t']).len() == text.len();
        let printable = |b: u8| matches!(b, b' ' | b'\t' | 0x21..=0x7e);
        match http::HeaderValue::from_str(text) {
            Ok(value) if trimmed && text.bytes().all(printable) => Ok(Self(value)),
            _ => Err(NO_VALUE.into()),
        }
    }
}

/// Advice on a text that is no value of a field.
pub(crate) const NO_VALUE: &str =
    "use printable ASCII, without line breaks and without spaces at its ends";

/// A request method, case-sensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Display)]
pub struct Method(http::Method);

text_value!(Method: http::Method);

impl TextValue for Method {
    const EXPECTED: &'static str = "a request method in capitals, as in `GET`";
    const PATTERN: &'static str = "[A-Z][A-Z0-9_-]*";

    fn read(text: &str) -> Result<Self, Failure> {
        let capital =
            |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        let well_formed =
            text.starts_with(|c: char| c.is_ascii_uppercase()) && text.bytes().all(capital);
        match http::Method::from_bytes(text.as_bytes()) {
            Ok(method) if well_formed => Ok(Self(method)),
            _ if text.bytes().all(|b| b.is_ascii_alphabetic()) && !text.is_empty() => {
                let help = format!("did you mean `{}`?", text.to_uppercase());
                Err(failure("is not in capitals", help))
            }
            _ => Err("as in `GET` or `POST`; leave `methods` out to take all".into()),
        }
    }
}

/// A protocol in `Upgrade`, without case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Display, Deref)]
pub struct UpgradeProtocol(String);

text_value!(UpgradeProtocol);

impl TextValue for UpgradeProtocol {
    const EXPECTED: &'static str = "a protocol, as in `websocket`, `tcp` or `SPDY/3.1`";
    const PATTERN: &'static str = "[!#$%&'*+.^_`|~0-9A-Za-z-]+(/[!#$%&'*+.^_`|~0-9A-Za-z-]+)?";

    fn read(text: &str) -> Result<Self, Failure> {
        let is_token = |text: &str| http::Method::from_bytes(text.as_bytes()).is_ok();
        let (name, version) = text.split_once('/').unwrap_or((text, "0"));
        if !is_token(name) || !is_token(version) {
            return Err("as in `websocket`, `tcp` or `SPDY/3.1`".into());
        }
        if hides_requests(text.as_bytes()) {
            let message = format!("requests would pass limits unseen over `{text}`");
            return Err(sentence(message, "remove it"));
        }
        Ok(Self(text.to_owned()))
    }
}

text_value!(Header);

impl TextValue for Header {
    const NAME: &'static str = "ClientIpHeader";
    const EXPECTED: &'static str =
        "`x-forwarded-for`, `forwarded`, or a field with a single address, as in `x-real-ip`";
    const PATTERN: &'static str = FieldName::PATTERN;

    fn read(text: &str) -> Result<Self, Failure> {
        let name = FieldName::parse(text)?;
        Ok(match name.get().as_str() {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Single(name.get().clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_field_has_a_single_address() {
        for (text, shown) in [
            ("X-Forwarded-For", "x-forwarded-for"),
            ("forwarded", "forwarded"),
            ("CF-Connecting-IP", "cf-connecting-ip"),
        ] {
            let header = Header::parse(text).expect("a name");
            assert_eq!(header.to_string(), shown);
            let is_single = matches!(header, Header::Single(_));
            assert_eq!(is_single, text.starts_with("CF"));
        }
        assert!(Header::parse("x real ip").is_err());
    }
}
