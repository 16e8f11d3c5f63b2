//! Host patterns of routes and of the admin listener, and server names of certificates.

use std::net::Ipv6Addr;

use derive_more::{Deref, Display};

use super::{Failure, TextValue, text_value};
use crate::rules::HostPattern;

text_value!(HostPattern = "localhost");

impl TextValue for HostPattern {
    const EXPECTED: &'static str =
        "a host without a port, as in `api.example.com` or `*.example.com`";
    const PATTERN: &'static str =
        "(\\*\\.)?[0-9A-Za-z_-]+(\\.[0-9A-Za-z_-]+)*\\.?|\\[[0-9A-Fa-f:.]+\\]";

    fn read(text: &str) -> Result<Self, Failure> {
        let host = text.to_ascii_lowercase();
        if let Some(Ok(address)) = within_brackets(&host).map(str::parse::<Ipv6Addr>) {
            // Requests are compared in this spelling.
            return Ok(Self::Exact(format!("[{address}]")));
        }
        if is_host_name(&host) {
            return Ok(Self::Exact(relative(&host).to_owned()));
        }
        match host.strip_prefix("*.") {
            Some(domain) if is_host_name(domain) => {
                Ok(Self::Subdomains(relative(domain).to_owned()))
            }
            _ => Err(host_help(&host).into()),
        }
    }
}

/// A DNS name in lower case or an IP address, as in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct ServerName(String);

text_value!(ServerName);

impl TextValue for ServerName {
    const EXPECTED: &'static str = "a name in a certificate, as in `api.internal`";
    const PATTERN: &'static str = "[0-9A-Za-z_-]+(\\.[0-9A-Za-z_-]+)*\\.?|[0-9A-Fa-f:.]+";

    fn read(text: &str) -> Result<Self, Failure> {
        if is_host_name(text) || is_ipv6(text) {
            Ok(Self(relative(text).to_ascii_lowercase()))
        } else {
            Err("write a name without a port: `api.internal`".into())
        }
    }
}

fn host_help(host: &str) -> String {
    match host {
        "*" | "" => "leave `hosts` out, or write `*.example.com` for names below".to_owned(),
        host if is_ipv6(host) => format!("an IPv6 address has brackets: `[{host}]`"),
        host if !host.is_ascii() => "write the name in its ASCII form, `xn--..`".to_owned(),
        host if host.contains("://") => "write the host only, without `http://`".to_owned(),
        host => match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => {
                format!("ports make no difference: `{name}`")
            }
            _ => "as in `api.example.com`, or `*.example.com` for all names below it".to_owned(),
        },
    }
}

/// Reads a host, a name in lower case or an address without the brackets of IPv6, and its port, if
/// there is one: 1 to 65535. Returns the problem of another text.
pub(super) fn read_authority(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host = match within_brackets(host).map(str::parse::<Ipv6Addr>) {
        Some(address) => address.ok().map(|address| address.to_string()),
        None => is_host_name(host).then(|| host.to_ascii_lowercase()),
    };
    let port = port.map(|port| port.parse().ok().filter(|port| *port > 0));
    match (host, port) {
        (Some(host), None) => Ok((host, None)),
        (Some(host), Some(Some(port))) => Ok((host, Some(port))),
        (None, _) => Err("has no valid host"),
        (Some(_), Some(None)) => Err("has no valid port"),
    }
}

fn within_brackets(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.strip_suffix(']')
}

/// A host as URLs have it: an IPv6 address in brackets.
pub(super) fn bracketed(host: &str) -> String {
    let is_ipv6 = host.contains(':');
    let [open, close] = if is_ipv6 { ["[", "]"] } else { [""; 2] };
    [open, host, close].concat()
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

/// A name without the dot that ends an absolute one: hosts of requests and names in certificates are
/// compared without it.
fn relative(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// True for a DNS name, with or without a dot at the end, or an IPv4 address: up to 253 bytes, labels
/// of up to 63.
pub(super) fn is_host_name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(letter);
    let text = relative(text);
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
            Ok(HostPattern::Subdomains("example.com".to_owned()))
        );
        assert_eq!(
            HostPattern::parse("[0:0::1]"),
            Ok(HostPattern::Exact("[::1]".to_owned()))
        );
        assert!(HostPattern::parse("127.0.0.1").is_ok());
    }

    #[test]
    fn a_dot_at_the_end_makes_no_difference() {
        for (text, same) in [("a.example.", "a.example"), ("*.example.", "*.example")] {
            assert_eq!(HostPattern::parse(text), HostPattern::parse(same));
        }
        assert_eq!(
            ServerName::parse("a.example."),
            ServerName::parse("a.example")
        );
        let long = ["a"; 127].join(".");
        assert!(is_host_name(&long) && is_host_name(&format!("{long}.")));
        for wrong in [".", "", "a..", "..", ".a"] {
            assert!(!is_host_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, help) in [
            (
                "*",
                "leave `hosts` out, or write `*.example.com` for names below",
            ),
            ("example.com:443", "ports make no difference: `example.com`"),
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
                HostPattern::parse(text).map_err(|error| error.help),
                Err(Some(help.to_owned()))
            );
        }
    }
}
