//! Origins of scripts (RFC 6454), and patterns of them.

use super::{ParseFailure, TextValue, failure, text_value};
use crate::proxy::answers::cors::OriginPattern;

text_value!(OriginPattern = "*");

impl TextValue for OriginPattern {
    const NAME: &'static str = "AllowedOrigin";
    const EXPECTED: &'static str =
        "an origin, as in `https://app.example.com` or `https://*.example.com`, or `*`";
    const PATTERN: &'static str =
        "\\*|[A-Za-z][0-9A-Za-z+.-]*://(\\*\\.)?([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let origin = text.to_ascii_lowercase();
        let isnt_origin = |help: &str| failure(format!("`{text}` isn't an origin"), help);
        let Some((scheme, authority)) = origin.split_once("://") else {
            return Err(isnt_origin(
                "begin with a scheme, as in `https://example.com`",
            ));
        };
        let default_port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        if let Some(rest) = origin
            .strip_suffix(default_port)
            .filter(|_| !default_port.is_empty())
        {
            return Err(isnt_origin(&format!(
                "browsers leave this port out: `{rest}`"
            )));
        }
        let host = authority.strip_prefix("*.").unwrap_or(authority);
        let parsed = host.parse::<http::uri::Authority>().ok().filter(|parsed| {
            let port = &host[parsed.host().len().min(host.len())..];
            !host.contains(['@', '*', '%']) && (port.is_empty() || parsed.port_u16().is_some())
        });
        if parsed.is_none() {
            return Err(isnt_origin(
                "write scheme, host, and a port if it isn't the scheme's, without a path",
            ));
        }
        Ok(if authority.len() == host.len() {
            Self::Exact(origin)
        } else {
            Self::Subdomains {
                scheme: format!("{scheme}://"),
                domain: format!(".{host}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_origins_as_browsers_write_them() {
        for (text, shown) in [
            ("*", "*"),
            ("https://App.example.com", "https://app.example.com"),
            ("https://*.example.com:8443", "https://*.example.com:8443"),
            ("capacitor://localhost", "capacitor://localhost"),
            ("http://[::1]:3000", "http://[::1]:3000"),
        ] {
            let origin = OriginPattern::parse(text).map(|origin| origin.to_string());
            assert_eq!(origin, Ok(shown.to_owned()));
        }
        for wrong in [
            "",
            "null",
            "example.com",
            "https://",
            "https://example.com/",
            "https://example.com:443",
            "http://a:80",
            "https://a@b",
            "https://*",
            "https://a.*.b",
            "https://a:b",
        ] {
            assert!(OriginPattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
