//! Host patterns of routes, and server names of certificates.

use std::borrow::Cow;
use std::fmt;

use super::{ParseFailure, TextValue, failure, text_value};

/// A host name in lower case or an IP address, or all names below a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This name alone.
    Exact(String),
    /// Every name below this domain at any depth: `*.example.com`.
    Below(String),
}

impl Default for HostPattern {
    fn default() -> Self {
        Self::Exact("localhost".to_owned())
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

text_value!(HostPattern);

impl TextValue for HostPattern {
    const PATTERN: &'static str =
        "(\\*\\.)?[0-9A-Za-z_-]+(\\.[0-9A-Za-z_-]+)*|\\[[0-9A-Fa-f:.]+\\]";

    fn name() -> Cow<'static, str> {
        "HostPattern".into()
    }

    fn expected() -> Cow<'static, str> {
        "a host without a port, as in `api.example.com` or `*.example.com`".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let host = text.to_ascii_lowercase();
        let address = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .and_then(|address| address.parse::<std::net::Ipv6Addr>().ok());
        if let Some(address) = address {
            // Requests are compared in this spelling.
            return Ok(Self::Exact(format!("[{address}]")));
        }
        if is_host_name(&host) {
            return Ok(Self::Exact(host));
        }
        match host.strip_prefix("*.") {
            Some(domain) if is_host_name(domain) => Ok(Self::Below(domain.to_owned())),
            _ => Err(failure(format!("`{text}` is no host"), host_help(&host))),
        }
    }
}

/// A DNS name in lower case or an IP address, as in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerName(String);

impl ServerName {
    /// The name; IPv6 addresses without brackets.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(ServerName);

impl TextValue for ServerName {
    const PATTERN: &'static str = "[0-9A-Za-z_-]+(\\.[0-9A-Za-z_-]+)*|[0-9A-Fa-f:.]+";

    fn name() -> Cow<'static, str> {
        "ServerName".into()
    }

    fn expected() -> Cow<'static, str> {
        "a name in a certificate, as in `api.internal`".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match is_host_name(text) || is_ipv6(text) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(failure(
                format!("`{text}` is no name of a server"),
                "write a name without a port: `api.internal`",
            )),
        }
    }
}

fn host_help(host: &str) -> String {
    match host {
        "*" | "" => "leave `hosts` out to take every host".to_owned(),
        host if is_ipv6(host) => format!("an IPv6 address has brackets: `[{host}]`"),
        host if !host.is_ascii() => "write the name in its ASCII form, `xn--..`".to_owned(),
        host if host.contains("://") => "write the host only, without `http://`".to_owned(),
        host => match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => {
                format!("ports make no difference to a route: `{name}`")
            }
            _ => "as in `api.example.com`, or `*.example.com` for all names below it".to_owned(),
        },
    }
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

/// True for a DNS name or an IPv4 address: up to 253 bytes, labels of up to 63.
pub(super) fn is_host_name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(letter);
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_wildcards_and_addresses() {
        assert_eq!(
            HostPattern::parse("API.example.com"),
            Ok(HostPattern::Exact("api.example.com".to_owned()))
        );
        assert_eq!(
            HostPattern::parse("*.example.com"),
            Ok(HostPattern::Below("example.com".to_owned()))
        );
        assert_eq!(
            HostPattern::parse("[0:0::1]"),
            Ok(HostPattern::Exact("[::1]".to_owned()))
        );
        assert!(HostPattern::parse("127.0.0.1").is_ok());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, help) in [
            ("*", "leave `hosts` out to take every host"),
            (
                "example.com:443",
                "ports make no difference to a route: `example.com`",
            ),
            ("::1", "an IPv6 address has brackets: `[::1]`"),
            (
                "bücher.example",
                "write the name in its ASCII form, `xn--..`",
            ),
            (
                "http://example.com",
                "write the host only, without `http://`",
            ),
            (
                "api.*.com",
                "as in `api.example.com`, or `*.example.com` for all names below it",
            ),
        ] {
            assert_eq!(
                HostPattern::parse(text),
                Err(failure(format!("`{text}` is no host"), help))
            );
        }
    }
}
