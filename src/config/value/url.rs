//! URLs and parts of them: origins, as in `http://10.0.0.11:3000` or `unix:/run/app.sock`, references
//! to upstreams, collectors of spans, targets of requests, and the Host of requests that the proxy makes.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use derive_more::Display;
use http::uri::{Authority, PathAndQuery};
use strum::{EnumString, VariantNames};

use super::address::read_socket_path;
use super::host::{bracketed, read_authority};
use super::{Failure, Name, TextValue, failure, sentence, text_value};
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

impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.socket {
            return write!(f, "unix:{}", path.display());
        }
        let scheme: &str = self.scheme.into();
        write!(f, "{scheme}://{}", bracketed(&self.host))?;
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

text_value!(OriginUrl = "http://127.0.0.1");

impl TextValue for OriginUrl {
    const EXPECTED: &'static str = "the URL of an origin without a path, as in `http://10.0.0.11:3000`, or `unix:/run/app.sock`";
    const PATTERN: &'static str =
        "https?://([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?/?|unix:/.+";

    fn read(text: &str) -> Result<Self, Failure> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self {
                host: "localhost".to_owned(),
                socket: Some(read_socket_path(path)?),
                ..Self::default()
            });
        }
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            _ => return Err("start with `http://`, `https://` or `unix:/`".into()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(found) = authority.find(['/', '?', '#', '@']) {
            return Err(beyond_authority(&authority[found..]));
        }
        let help = "as in `http://10.0.0.11:3000`, `http://[::1]:3000` or `https://api.internal`; \
                    ports are from 1 to 65535";
        let authority = read_authority(authority);
        let (host, port) = authority.map_err(|problem| failure(problem, help))?;
        Ok(Self {
            scheme,
            host,
            port: port.unwrap_or(scheme.default_port()),
            socket: None,
        })
    }
}

/// Does not repeat the text, which may hold a password.
fn beyond_authority(rest: &str) -> Failure {
    match rest.as_bytes()[0] {
        b'@' => sentence(
            "a URL of an origin has no user name or password",
            "set the `authorization` field with `request: { set_headers: .. }`",
        ),
        b'/' => failure(
            "has a path",
            "requests are forwarded under their own path; `rewrite: { add_prefix: /v1 }` of the route \
             puts another before it, and `strip_prefix` shortens it",
        ),
        _ => failure(
            "has a query or a fragment",
            "give scheme, host and port only",
        ),
    }
}

/// The upstream of a route.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum UpstreamRef {
    /// The proxy itself.
    BuiltIn(BuiltIn),
    /// One of `upstreams`.
    Named(Name),
    /// An origin in place, with the defaults of an upstream.
    Url(OriginUrl),
}

/// An upstream that is the proxy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum BuiltIn {
    /// Answers with the received request.
    Echo,
    /// Answers with the state of the caller's limits.
    Status,
    /// Tells other proxies if they may serve a request.
    Decide,
    /// Decides about each request of a list.
    DecideBatch,
}

impl UpstreamRef {
    /// The name, if it is one of `upstreams`.
    pub fn name(&self) -> Option<&Name> {
        let Self::Named(name) = self else { return None };
        Some(name)
    }
}

text_value!(UpstreamRef = "echo");

impl TextValue for UpstreamRef {
    const EXPECTED: &'static str = "the name of an upstream, a URL as in `http://10.0.0.11:3000`, `echo`, `status`, `decide` or `decide_batch`";
    const PATTERN: &'static str =
        "[A-Za-z0-9._-]{1,64}|https?://([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?/?|unix:/.+";

    fn read(text: &str) -> Result<Self, Failure> {
        if let Ok(built_in) = text.parse() {
            return Ok(Self::BuiltIn(built_in));
        }
        Ok(match text.contains([':', '/']).then_some(text) {
            Some(url) => Self::Url(OriginUrl::parse(url)?),
            None => Self::Named(Name::parse(text)?),
        })
    }
}

/// The path of OTLP for spans, below that of the collector.
const SPANS: &str = "/v1/traces";

/// A collector: an origin, and a path that those of OTLP are below of.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{origin}{}", spans.path().strip_suffix(SPANS).unwrap_or_default())]
pub struct CollectorUrl {
    /// Scheme, host and port.
    pub origin: OriginUrl,
    /// The path that takes spans, which ends with `/v1/traces`.
    pub spans: PathAndQuery,
}

text_value!(CollectorUrl = "http://127.0.0.1");

impl TextValue for CollectorUrl {
    const EXPECTED: &'static str =
        "the URL of a collector, as in `http://127.0.0.1:4318` or `https://otlp.example.com/otlp`";
    const PATTERN: &'static str =
        "https?://([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?(/[!\"$->@-~]*)?";

    fn read(text: &str) -> Result<Self, Failure> {
        let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") else {
            return Err("start with `http://` or `https://`".into());
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The message does not repeat the text, which may hold a password.
        if authority.contains('@') {
            let message = "a URL of a collector has no user name or password";
            let help =
                "write the field that has them: `headers: { authorization: \"${OTLP_AUTH}\" }`";
            return Err(sentence(message, help));
        }
        Ok(Self {
            origin: OriginUrl::parse(&format!("{scheme}://{authority}"))?,
            spans: read_path(path.trim_end_matches('/'))?,
        })
    }
}

fn read_path(base: &str) -> Result<PathAndQuery, Failure> {
    if base.ends_with(SPANS) {
        let problem = format!("ends with `{SPANS}`, which is appended");
        let help = format!("leave it out: the path is that of all signals, before `{SPANS}`");
        return Err(failure(problem, help));
    }
    let is_visible = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    let path = base.bytes().all(is_visible).then(|| [base, SPANS].concat());
    let path = path.and_then(|path| PathAndQuery::try_from(path).ok());
    let problem = "has a query, a fragment, or a character that no path has";
    path.ok_or_else(|| failure(problem, "give scheme, host, port and path only"))
}

/// The target of a request in origin form (RFC 9112 section 3.2.1).
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub struct OriginForm(PathAndQuery);

text_value!(OriginForm: PathAndQuery = "/");

impl TextValue for OriginForm {
    const EXPECTED: &'static str = "a path, as in `/healthz` or `/status?deep=1`";
    const PATTERN: &'static str = "/[!\"$-~]*";

    fn read(text: &str) -> Result<Self, Failure> {
        if !text.starts_with('/') {
            let help = match text.split_once("://") {
                Some(_) => "write the path only: `/healthz`".to_owned(),
                None => format!("did you mean `/{text}`?"),
            };
            return Err(failure("does not start with a slash", help));
        }
        let is_visible = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        let parsed = text.bytes().all(is_visible).then(|| text.parse().ok());
        let (parsed, problem) = (parsed.flatten(), "has a character that no path has");
        let help = "percent-encode it, as in `%20` for a space";
        parsed.map(Self).ok_or_else(|| failure(problem, help))
    }
}

/// A host, with a port if wanted.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub struct HostField(Authority);

text_value!(HostField: Authority = "localhost");

impl TextValue for HostField {
    const NAME: &'static str = "RequestHost";
    const EXPECTED: &'static str = "a host, as in `api.internal` or `api.internal:8080`";
    const PATTERN: &'static str = "[^/@?#\\s]+";

    fn read(text: &str) -> Result<Self, Failure> {
        let host = text.parse().ok().filter(|host: &Authority| {
            let end = &text[host.host().len().min(text.len())..];
            let has_valid_end = end.is_empty() || host.port_u16().is_some();
            !text.contains('@') && !host.host().is_empty() && has_valid_end
        });
        let help = "write a host, and a port if wanted: `api.internal`, `[2001:db8::1]:8080`";
        host.map(Self).ok_or_else(|| help.into())
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
            (
                "10.0.0.1:80",
                "`10.0.0.1:80` isn't the URL of an origin without a path",
            ),
            (
                "ftp://x",
                "`ftp://x` isn't the URL of an origin without a path",
            ),
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
                OriginUrl::parse(text).map_err(|error| error.message),
                Err(message.to_owned())
            );
        }
    }

    #[test]
    fn spans_go_below_the_path_of_the_collector() {
        for (text, shown, spans) in [
            (
                "http://127.0.0.1:4318",
                "http://127.0.0.1:4318",
                "/v1/traces",
            ),
            ("https://A.example/", "https://a.example", "/v1/traces"),
            (
                "https://a.example/otlp",
                "https://a.example/otlp",
                "/otlp/v1/traces",
            ),
            (
                "http://[::1]:4318/a/b/",
                "http://[::1]:4318/a/b",
                "/a/b/v1/traces",
            ),
        ] {
            let url = CollectorUrl::parse(text).expect(text);
            assert_eq!(
                (url.to_string(), url.spans.as_str()),
                (shown.to_owned(), spans)
            );
        }
    }

    #[test]
    fn errors_say_what_is_wrong_of_collector_url() {
        for (text, message) in [
            (
                "collector:4318",
                "`collector:4318` isn't the URL of a collector",
            ),
            (
                "grpc://a:4317",
                "`grpc://a:4317` isn't the URL of a collector",
            ),
            (
                "http://me:secret@a",
                "a URL of a collector has no user name or password",
            ),
            (
                "https://a/v1/traces/",
                "`https://a/v1/traces/` ends with `/v1/traces`, which is appended",
            ),
            (
                "https://a/otlp?key=b",
                "`https://a/otlp?key=b` has a query, a fragment, or a character that no path has",
            ),
            (
                "https://a?key=b",
                "`https://a?key=b` has a query or a fragment",
            ),
            ("http://a:0/otlp", "`http://a:0` has no valid port"),
        ] {
            let failed = CollectorUrl::parse(text).map_err(|error| error.message);
            assert_eq!(failed, Err(message.to_owned()));
        }
    }

    #[test]
    fn a_target_is_a_path_with_a_query() {
        for text in ["/", "/healthz", "/a/b?c=d&e", "/%20"] {
            let parsed = text.parse::<OriginForm>().map(|target| target.to_string());
            assert_eq!(parsed, Ok(text.to_owned()));
        }
        for wrong in [
            "",
            "*",
            "healthz",
            "http://a/b",
            "/a b",
            "/a#b",
            "/é",
            "/\r\n",
        ] {
            assert!(wrong.parse::<OriginForm>().is_err(), "{wrong}");
        }
    }

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
