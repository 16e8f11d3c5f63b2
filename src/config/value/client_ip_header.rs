//! The field that names the client.

use std::fmt;

use super::{FieldName, ParseFailure, TextValue, text_value};
use crate::http::client_ip::Header;

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::Single(name) => name.as_str(),
        })
    }
}

text_value!(Header);

impl TextValue for Header {
    const NAME: &'static str = "ClientIpHeader";
    const EXPECTED: &'static str =
        "`x-forwarded-for`, `forwarded`, or a field with a single address, as in `x-real-ip`";
    const PATTERN: &'static str = FieldName::PATTERN;

    fn parse(text: &str) -> Result<Self, ParseFailure> {
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
