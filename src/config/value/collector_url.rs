//! Collectors of spans, as in `https://otlp.example.com/otlp`.

use std::fmt;

use http::uri::PathAndQuery;

use super::{OriginUrl, ParseFailure, TextValue, failure, text_value};

/// The path of OTLP for spans, below that of the collector.
const SPANS: &str = "/v1/traces";

/// A collector: an origin, and a path that those of OTLP are below of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl {
    /// Scheme, host and port.
    pub origin: OriginUrl,
    /// The path that takes spans.
    spans: PathAndQuery,
}

impl CollectorUrl {
    /// The path that takes spans, which ends with `/v1/traces`.
    pub fn spans(&self) -> &PathAndQuery {
        &self.spans
    }
}

/// A stand-in for an unreadable URL.
impl Default for CollectorUrl {
    fn default() -> Self {
        Self {
            origin: OriginUrl::default(),
            spans: PathAndQuery::from_static(SPANS),
        }
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.spans.path().strip_suffix(SPANS);
        write!(f, "{}{}", self.origin, base.unwrap_or_default())
    }
}

text_value!(CollectorUrl);

impl TextValue for CollectorUrl {
    const NAME: &'static str = "CollectorUrl";
    const EXPECTED: &'static str =
        "the URL of a collector, as in `http://127.0.0.1:4318` or `https://otlp.example.com/otlp`";
    const PATTERN: &'static str =
        "https?://([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?(/[!\"$->@-~]*)?";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") else {
            let message = format!("`{text}` is no URL of a collector");
            return Err(failure(message, "start with `http://` or `https://`"));
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The message does not repeat the text, which may hold a password.
        if authority.contains('@') {
            return Err(failure(
                "a URL of a collector has no user name or password",
                "write the field that has them: `headers: { authorization: \"${OTLP_AUTH}\" }`",
            ));
        }
        Ok(Self {
            origin: OriginUrl::parse(&format!("{scheme}://{authority}"))?,
            spans: parse_path(text, path.trim_end_matches('/'))?,
        })
    }
}

fn parse_path(text: &str, base: &str) -> Result<PathAndQuery, ParseFailure> {
    if base.ends_with(SPANS) {
        return Err(failure(
            format!("`{text}` ends with `{SPANS}`, which is appended"),
            format!("leave it out: the path is that of all signals, before `{SPANS}`"),
        ));
    }
    let is_visible = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    let path = base
        .bytes()
        .all(is_visible)
        .then(|| format!("{base}{SPANS}"));
    let path = path.and_then(|path| PathAndQuery::try_from(path).ok());
    path.ok_or_else(|| {
        failure(
            format!("`{text}` has a query, a fragment, or a character that no path has"),
            "give scheme, host, port and path only",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
                (url.to_string(), url.spans().as_str()),
                (shown.to_owned(), spans)
            );
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, message) in [
            (
                "collector:4318",
                "`collector:4318` is no URL of a collector",
            ),
            ("grpc://a:4317", "`grpc://a:4317` is no URL of a collector"),
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
            let failed = CollectorUrl::parse(text).map_err(|(message, _)| message);
            assert_eq!(failed, Err(message.to_owned()));
        }
    }
}
