//! The short list of fields that decoys have of real responses.

use http::header::{self, HeaderName, HeaderValue};

/// Longest value that is learned, in bytes.
const MAX_VALUE: usize = 1_024;

/// A field of a real response, as decoys have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LearnedField {
    /// The value of every decoy.
    Copied(HeaderValue),
    /// Decoys have new identifiers of this shape.
    Identifier(HeaderValue),
    /// The media type, unless the configuration has one.
    ContentType(HeaderValue),
    Date,
    Length,
    Omitted,
}

/// Fields about the server. Fields that vary with the client's rights, language or tenant, or with
/// the request, are missing here.
const COPIED_FIELDS: [&str; 22] = [
    "server",
    "via",
    "x-powered-by",
    "pragma",
    "vary",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
    "x-xss-protection",
    "x-dns-prefetch-control",
    "x-download-options",
    "x-permitted-cross-domain-policies",
    "x-robots-tag",
    "x-aspnet-version",
    "x-aspnetmvc-version",
    "x-generator",
    "referrer-policy",
    "permissions-policy",
    "cross-origin-embedder-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "accept-ranges",
];

/// Ends of names of fields that identify one exchange.
const IDENTIFIER_SUFFIXES: [&str; 9] = [
    "request-id",
    "requestid",
    "correlation-id",
    "correlationid",
    "trace-id",
    "traceid",
    "traceparent",
    "cf-ray",
    "x-vercel-id",
];

/// Charsets that are learned.
const CHARSETS: [&str; 14] = [
    "utf-8",
    "utf8",
    "us-ascii",
    "iso-8859-1",
    "iso-8859-2",
    "iso-8859-15",
    "windows-1251",
    "windows-1252",
    "shift_jis",
    "euc-jp",
    "euc-kr",
    "gbk",
    "gb18030",
    "big5",
];

/// Directives that keep shared caches from reusing a response (RFC 9111 section 5.2.2).
const UNSHARED_DIRECTIVES: [&str; 3] = ["private", "no-store", "no-cache"];

/// Directives that decoys may have beside those.
const OTHER_DIRECTIVES: [&str; 3] = ["must-revalidate", "proxy-revalidate", "no-transform"];

/// Cache-Control of decoys whose real responses shared caches may reuse.
const DEFAULT_CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, no-cache");

impl LearnedField {
    /// Learns a field. An identifier is kept as it is: the caller replaces it.
    pub(super) fn of(name: &HeaderName, value: &[u8]) -> Self {
        match *name {
            header::CONTENT_LENGTH => return Self::Length,
            header::DATE => return Self::Date,
            _ => {}
        }
        let name = name.as_str();
        let is_identifier = || IDENTIFIER_SUFFIXES.iter().any(|end| name.ends_with(end));
        let learned = match name {
            "content-type" => content_type(value).map(Self::ContentType),
            "cache-control" => Some(Self::Copied(cache_control(value))),
            _ if COPIED_FIELDS.contains(&name) => copied(value).map(Self::Copied),
            _ if is_identifier() => identifier(value).map(Self::Identifier),
            _ => None,
        };
        learned.unwrap_or(Self::Omitted)
    }

    /// A field of the same name with this value would be learned as equal.
    pub(super) fn matches(&self, name: &HeaderName, value: &[u8]) -> bool {
        match self {
            Self::Date | Self::Length | Self::Identifier(_) => true,
            Self::Copied(known) if known.as_bytes() == value => true,
            Self::Copied(_) | Self::ContentType(_) | Self::Omitted => {
                *self == Self::of(name, value)
            }
        }
    }
}

/// A value without a URL or an address, which may belong to one tenant.
fn copied(value: &[u8]) -> Option<HeaderValue> {
    let text = short(value)?;
    let is_general = !text.contains("//") && !text.contains('@');
    is_general.then(|| HeaderValue::from_str(text).ok())?
}

/// A value of the letters that identifiers have.
fn identifier(value: &[u8]) -> Option<HeaderValue> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:;=/".contains(&byte);
    let text = short(value).filter(|text| text.bytes().all(is_usual))?;
    HeaderValue::from_str(text).ok()
}

/// The media type and its charset. Other parameters describe one body; `multipart` is useless
/// without them.
fn content_type(value: &[u8]) -> Option<HeaderValue> {
    let mut parts = short(value)?.split(';');
    let essence = parts.next()?.trim_end();
    let (kind, subtype) = essence.split_once('/')?;
    let is_token = |token: &str| {
        let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
        !token.is_empty() && token.bytes().all(is_usual)
    };
    if !is_token(kind) || !is_token(subtype) || kind.eq_ignore_ascii_case("multipart") {
        return None;
    }
    let is_charset = |part: &&str| {
        part.trim().split_once('=').is_some_and(|(name, value)| {
            let value = value.trim_matches('"').to_ascii_lowercase();
            name.eq_ignore_ascii_case("charset") && CHARSETS.contains(&value.as_str())
        })
    };
    let learned = match parts.find(is_charset) {
        Some(charset) => format!("{essence};{charset}"),
        None => essence.to_owned(),
    };
    HeaderValue::from_str(&learned).ok()
}

/// The value, if it keeps shared caches from reusing the response, and has no unknown directive.
fn cache_control(value: &[u8]) -> HeaderValue {
    let Some(text) = short(value) else {
        return DEFAULT_CACHE_CONTROL;
    };
    let directives = || text.split(',').map(|part| part.trim().to_ascii_lowercase());
    let is_not_reused = |directive: &str| UNSHARED_DIRECTIVES.contains(&directive);
    let is_age = |directive: &str| {
        let age = directive.strip_prefix("max-age=");
        age.is_some_and(|age| age.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_known = |directive: String| {
        is_not_reused(&directive)
            || OTHER_DIRECTIVES.contains(&directive.as_str())
            || is_age(&directive)
    };
    let is_safe =
        directives().any(|directive| is_not_reused(&directive)) && directives().all(is_known);
    let value = is_safe.then(|| HeaderValue::from_str(text).ok()).flatten();
    value.unwrap_or(DEFAULT_CACHE_CONTROL)
}

/// The value as text, if it is short enough.
fn short(value: &[u8]) -> Option<&str> {
    let is_short = value.len() <= MAX_VALUE;
    std::str::from_utf8(value).ok().filter(|_| is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value that a decoy would have; of an identifier the real one.
    fn learned(name: &'static str, value: &str) -> Option<String> {
        match LearnedField::of(&HeaderName::from_static(name), value.as_bytes()) {
            LearnedField::Copied(value)
            | LearnedField::Identifier(value)
            | LearnedField::ContentType(value) => Some(value.to_str().expect("text").to_owned()),
            LearnedField::Date | LearnedField::Length | LearnedField::Omitted => None,
        }
    }

    #[test]
    fn only_fields_of_servers_and_identifiers_are_learned() {
        for (name, value) in [
            ("server", "nginx"),
            ("vary", "Accept, Cookie"),
            ("x-frame-options", "DENY"),
            ("x-acme-request-id", "4f2a-77b0"),
        ] {
            assert_eq!(learned(name, value).as_deref(), Some(value), "{name}");
        }
        for (name, value) in [
            ("x-version", "7"),
            ("x-workspace", "acme"),
            ("x-id", "7"),
            ("set-cookie", "a=b"),
            ("allow", "GET, DELETE"),
            ("content-language", "fa"),
            (
                "content-security-policy",
                "frame-ancestors https://acme.example",
            ),
            ("x-frame-options", "ALLOW-FROM https://acme.example"),
            ("permissions-policy", "camera=(\"https://acme.example\")"),
            ("x-request-id", "alice@acme.example"),
            ("x-request-id", "J\u{f6}rg"),
            ("expires", "0"),
            ("cdn-cache-control", "max-age=60"),
            ("surrogate-control", "max-age=60"),
            ("vercel-cdn-cache-control", "max-age=60"),
            ("x-accel-expires", "60"),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ] {
            assert_eq!(learned(name, value), None, "{name}");
        }
    }

    #[test]
    fn a_media_type_keeps_its_charset_alone() {
        for (real, expected) in [
            ("text/html", Some("text/html")),
            ("text/html;charset=UTF-8", Some("text/html;charset=UTF-8")),
            (
                "text/html; lang=fa; charset=\"utf-8\"; user=alice",
                Some("text/html; charset=\"utf-8\""),
            ),
            (
                "application/pdf; name=\"Payslip Alice Smith.pdf\"",
                Some("application/pdf"),
            ),
            ("text/plain; charset=alice", Some("text/plain")),
            ("multipart/mixed; boundary=alice", None),
            ("Alice Smith/pdf", None),
            ("alice", None),
        ] {
            assert_eq!(learned("content-type", real).as_deref(), expected, "{real}");
        }
    }

    #[test]
    fn no_shared_cache_may_reuse_a_decoy() {
        for same in [
            "no-store",
            "Private",
            "private, max-age=60",
            "no-cache, max-age=0, must-revalidate",
        ] {
            assert_eq!(learned("cache-control", same).as_deref(), Some(same));
        }
        for shared in [
            "public",
            "max-age=60",
            "private, s-maxage=60",
            "public, no-cache",
            "private=\"set-cookie\", max-age=60",
            "private, user=alice",
            "immutable",
            "",
        ] {
            let unshared = Some("private, no-cache");
            assert_eq!(learned("cache-control", shared).as_deref(), unshared);
        }
    }

    #[test]
    fn fields_that_are_learned_as_equal_match() {
        let type_of = |value: &'static str| (header::CONTENT_TYPE, value);
        for ((name, known), value, is_same) in [
            (type_of("text/plain; name=a"), "text/plain; name=b", true),
            (type_of("text/plain"), "text/html", false),
            (type_of("multipart/mixed; boundary=a"), "text/html", false),
            ((header::CACHE_CONTROL, "public"), "max-age=60", true),
            ((header::CACHE_CONTROL, "public"), "private", false),
            ((header::SERVER, "a"), "b", false),
            ((header::ETAG, "a"), "b", true),
        ] {
            let learned = LearnedField::of(&name, known.as_bytes());
            let same = learned.matches(&name, value.as_bytes());
            assert_eq!(same, is_same, "{known} and {value}");
        }
    }
}
