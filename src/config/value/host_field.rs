//! The Host of requests that the proxy itself makes.

use derive_more::Display;
use http::uri::Authority;

use super::{ParseFailure, TextValue, failure, text_value};

/// A host, with a port if wanted.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub struct HostField(Authority);

impl HostField {
    /// The host and the port.
    pub fn get(&self) -> &Authority {
        &self.0
    }
}

/// A stand-in for an unreadable host.
impl Default for HostField {
    fn default() -> Self {
        Self(Authority::from_static("localhost"))
    }
}

text_value!(HostField);

impl TextValue for HostField {
    const NAME: &'static str = "RequestHost";
    const EXPECTED: &'static str = "a host, as in `api.internal` or `api.internal:8080`";
    const PATTERN: &'static str = "[^/@?#\\s]+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let host = text.parse().ok().filter(|host: &Authority| {
            let end = &text[host.host().len().min(text.len())..];
            let has_valid_end = end.is_empty() || host.port_u16().is_some();
            !text.contains('@') && !host.host().is_empty() && has_valid_end
        });
        host.map(Self).ok_or_else(|| {
            failure(
                format!("`{text}` is no host"),
                "write a host, and a port if wanted: `api.internal`, `[2001:db8::1]:8080`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port() {
        for text in ["api.internal", "10.0.0.1:80", "[::1]", "[::1]:8080"] {
            let parsed = text.parse::<HostField>().map(|host| host.to_string());
            assert_eq!(parsed, Ok(text.to_owned()));
        }
        for wrong in [
            "", "a@b", "a b", "a/b", "http://a", ":80", "a:", "a:b", "a:99999", "::1",
        ] {
            assert!(wrong.parse::<HostField>().is_err(), "{wrong}");
        }
    }
}
