//! Origins, as in `http://10.0.0.11:3000` or `unix:/run/app.sock`, and references to upstreams.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use derive_more::Display;

use super::address::parse_socket_path;
use super::host::is_host_name;
use super::{Name, ParseFailure, TextValue, failure, text_value};
use crate::http::connection::Scheme;

/// An origin: scheme, host and port, with no path; or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginUrl {
    /// The scheme. Port 80 unless given, 443 with TLS.
    pub scheme: Scheme,
    /// A DNS name in lower case, an IPv4 address, or an IPv6 address without brackets; `localhost`
    /// with a Unix socket.
    pub host: String,
    /// The port, 1 to 65535.
    pub port: u16,
    /// The path of a Unix socket, instead of host and port.
    pub socket: Option<Arc<Path>>,
}

impl OriginUrl {
    /// Returns true if its host is an address or a socket, which needs no lookup.
    pub fn is_address(&self) -> bool {
        self.socket.is_some() || self.host.parse::<IpAddr>().is_ok()
    }
}

/// Port 80 of this machine: a stand-in for an unreadable URL.
impl Default for OriginUrl {
    fn default() -> Self {
        Self {
            scheme: Scheme::Http,
            host: "127.0.0.1".to_owned(),
            port: 80,
            socket: None,
        }
    }
}

impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.socket {
            return write!(f, "unix:{}", path.display());
        }
        let (scheme, default_port) = match self.scheme {
            Scheme::Http => ("http", 80),
            Scheme::Https => ("https", 443),
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]", self.host)?,
            false => write!(f, "{scheme}://{}", self.host)?,
        }
        if self.port != default_port {
            write!(f, ":{}", self.port)
        } else {
            Ok(())
        }
    }
}

text_value!(OriginUrl);

impl TextValue for OriginUrl {
    const NAME: &'static str = "OriginUrl";
    const EXPECTED: &'static str = "the URL of an origin without a path, as in `http://10.0.0.11:3000`, or `unix:/run/app.sock`";
    const PATTERN: &'static str =
        "https?://([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?/?|unix:/.+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self {
                host: "localhost".to_owned(),
                socket: Some(parse_socket_path(path)?),
                ..Self::default()
            });
        }
        let (scheme, default_port, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, 80, rest),
            Some(("https", rest)) => (Scheme::Https, 443, rest),
            _ => {
                let message = format!("`{text}` is no URL of an origin");
                return Err(failure(
                    message,
                    "start with `http://`, `https://` or `unix:/`",
                ));
            }
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(found) = authority.find(['/', '?', '#', '@']) {
            return Err(beyond_authority(text, &authority[found..]));
        }
        let (host, port) = split_port(authority);
        let port = match port {
            None => default_port,
            Some(port) => port.parse().ok().filter(|&port| port > 0).ok_or_else(|| {
                failure(
                    format!("`{text}` has no valid port"),
                    "ports are from 1 to 65535",
                )
            })?,
        };
        Ok(Self {
            scheme,
            host: parse_host(text, host)?,
            port,
            socket: None,
        })
    }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn parse_host(text: &str, host: &str) -> Result<String, ParseFailure> {
    let v6 = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match v6.map(str::parse::<std::net::Ipv6Addr>) {
        Some(Ok(address)) => Ok(address.to_string()),
        None if is_host_name(host) => Ok(host.to_ascii_lowercase()),
        _ => Err(failure(
            format!("`{text}` has no valid host"),
            "as in `http://10.0.0.11:3000`, `http://[::1]:3000` or `https://api.internal`",
        )),
    }
}

/// Does not repeat the text, which may hold a password.
fn beyond_authority(text: &str, rest: &str) -> ParseFailure {
    match rest.as_bytes()[0] {
        b'@' => failure(
            "a URL of an origin has no user name or password",
            "set the `authorization` field with `request: { set_headers: .. }`",
        ),
        b'/' => failure(
            format!("`{text}` has a path"),
            "requests are forwarded under their own path; `strip_prefix` shortens it",
        ),
        _ => failure(
            format!("`{text}` has a query or a fragment"),
            "give scheme, host and port only",
        ),
    }
}

/// The upstream of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display)]
pub enum UpstreamRef {
    /// The built-in upstream, which answers with the received request.
    #[default]
    #[display("echo")]
    Echo,
    /// The built-in upstream, which answers with the state of the caller's limits.
    #[display("status")]
    Status,
    /// One of `upstreams`.
    Named(Name),
    /// An origin in place, with the defaults of an upstream.
    Url(OriginUrl),
}

text_value!(UpstreamRef);

impl TextValue for UpstreamRef {
    const NAME: &'static str = "UpstreamRef";
    const EXPECTED: &'static str =
        "the name of an upstream, a URL as in `http://10.0.0.11:3000`, `echo` or `status`";
    const PATTERN: &'static str =
        "[A-Za-z0-9._-]{1,64}|https?://([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?/?|unix:/.+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text {
            "echo" => Ok(Self::Echo),
            "status" => Ok(Self::Status),
            url if url.contains([':', '/']) => OriginUrl::parse(url).map(Self::Url),
            name => Name::parse(name).map(Self::Named),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_origins() {
        for (text, shown, port) in [
            ("http://10.0.0.11:3000", "http://10.0.0.11:3000", 3000),
            ("https://API.internal/", "https://api.internal", 443),
            (
                "http://API.internal.:3000",
                "http://api.internal.:3000",
                3000,
            ),
            ("http://[::1]", "http://[::1]", 80),
            ("unix:/run/app.sock", "unix:/run/app.sock", 80),
        ] {
            let url = OriginUrl::parse(text).map(|url| (url.to_string(), url.port));
            assert_eq!(url, Ok((shown.to_owned(), port)));
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, message) in [
            ("10.0.0.1:80", "`10.0.0.1:80` is no URL of an origin"),
            ("ftp://x", "`ftp://x` is no URL of an origin"),
            ("http://x/base", "`http://x/base` has a path"),
            ("http://x?q", "`http://x?q` has a query or a fragment"),
            (
                "http://me:secret@x",
                "a URL of an origin has no user name or password",
            ),
            ("http://x:0", "`http://x:0` has no valid port"),
            ("http://", "`http://` has no valid host"),
            ("http://a b", "`http://a b` has no valid host"),
        ] {
            assert_eq!(
                OriginUrl::parse(text).map_err(|(message, _)| message),
                Err(message.to_owned())
            );
        }
    }
}
