//! Origins of scripts (RFC 6454), and patterns of them.

use super::{Failure, TextValue, text_value};
use crate::proxy::answers::cors::OriginPattern;

text_value!(OriginPattern = "*");

impl TextValue for OriginPattern {
    const NAME: &'static str = "AllowedOrigin";
    const EXPECTED: &'static str =
        "an origin, as in `https://app.example.com` or `https://*.example.com`, or `*`";
    const PATTERN: &'static str =
        "\\*|[A-Za-z][0-9A-Za-z+.-]*://(\\*\\.)?([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?";

    fn read(text: &str) -> Result<Self, Failure> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let origin = text.to_ascii_lowercase();
        let no_scheme = "begin with a scheme, as in `https://example.com`";
        let (scheme, authority) = origin.split_once("://").ok_or(no_scheme)?;
        let with_default_port = match scheme {
            "http" => origin.strip_suffix(":80"),
            "https" => origin.strip_suffix(":443"),
            _ => None,
        };
        if let Some(rest) = with_default_port {
            return Err(format!("browsers leave this port out: `{rest}`").into());
        }
        let host = authority.strip_prefix("*.").unwrap_or(authority);
        let parsed = host.parse::<http::uri::Authority>().ok().filter(|parsed| {
            let port = &host[parsed.host().len().min(host.len())..];
            !host.contains(['@', '*', '%']) && (port.is_empty() || parsed.port_u16().is_some())
        });
        if parsed.is_none() {
            let help = "write scheme, host, and a port if it isn't the scheme's, without a path";
            return Err(help.into());
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
