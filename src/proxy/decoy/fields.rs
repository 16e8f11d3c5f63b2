//! Which fields of real answers decoys may have, by their names and values.

use http::header::{self, HeaderName, HeaderValue};

/// What a decoy makes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its value is the same for everybody.
    Common,
    /// Its value is copied for the same requester, and for others once two were sent the same.
    Unknown,
    /// It has a value of the same shape.
    Identifier,
    ContentType,
    Date,
    Length,
    /// It is about one client or one body.
    LeftOut,
}

/// Fields of servers and of policies, which say the same to everybody.
const COMMON: [&str; 30] = [
    "server",
    "via",
    "x-powered-by",
    "cache-control",
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
    "origin-agent-cluster",
    "alt-svc",
    "allow",
    "content-language",
    "accept-ranges",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-max-age",
];

/// Fields about one body or one exchange.
const LEFT_OUT: [&str; 16] = [
    "set-cookie",
    "set-cookie2",
    "etag",
    "age",
    "location",
    "refresh",
    "link",
    "trailer",
    "content-encoding",
    "content-range",
    "content-location",
    "content-disposition",
    "www-authenticate",
    "authentication-info",
    "retry-after",
    "server-timing",
];

/// Words in the names of fields about one client, or that differ from one answer to the next.
const PRIVATE_WORDS: [&str; 52] = [
    "account",
    "address",
    "auth",
    "authorization",
    "balance",
    "client",
    "cookie",
    "cost",
    "credential",
    "csrf",
    "customer",
    "date",
    "digest",
    "duration",
    "elapsed",
    "email",
    "etag",
    "identity",
    "ip",
    "key",
    "limit",
    "login",
    "mail",
    "md5",
    "member",
    "name",
    "nonce",
    "org",
    "organization",
    "owner",
    "phone",
    "quota",
    "ratelimit",
    "remaining",
    "remote",
    "reset",
    "role",
    "runtime",
    "secret",
    "session",
    "sha256",
    "signature",
    "sub",
    "subject",
    "tenant",
    "time",
    "timestamp",
    "timing",
    "token",
    "uid",
    "user",
    "xsrf",
];

/// Words in the names of identifiers of requests.
const IDENTIFIER_WORDS: [&str; 11] = [
    "correlation",
    "guid",
    "id",
    "ray",
    "request",
    "requestid",
    "span",
    "trace",
    "traceid",
    "traceparent",
    "uuid",
];

/// What a decoy makes of a field with this value.
pub(super) fn kind(name: &HeaderName, value: &HeaderValue) -> Kind {
    match *name {
        header::CONTENT_LENGTH => return Kind::Length,
        header::CONTENT_TYPE => return Kind::ContentType,
        header::DATE => return Kind::Date,
        _ => {}
    }
    let name = name.as_str();
    let has_word = |words: &[&str]| name.split(['-', '_']).any(|word| words.contains(&word));
    if COMMON.contains(&name) {
        Kind::Common
    } else if LEFT_OUT.contains(&name) || has_word(&PRIVATE_WORDS) || varies(value) {
        Kind::LeftOut
    } else if has_word(&IDENTIFIER_WORDS) {
        Kind::Identifier
    } else {
        Kind::Unknown
    }
}

/// Whether a value is a date, or has a number that is used once.
fn varies(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else {
        return true;
    };
    httpdate::parse_http_date(text).is_ok() || text.contains("nonce-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_about_one_client_or_one_body_are_left_out() {
        for (name, value, expected) in [
            ("server", "nginx", Kind::Common),
            ("x-version", "7", Kind::Unknown),
            ("x-request-id", "4f2a", Kind::Identifier),
            ("set-cookie", "a=b", Kind::LeftOut),
            ("x-user", "alice", Kind::LeftOut),
            ("x-user-id", "7", Kind::LeftOut),
            ("x-csrf-token", "7", Kind::LeftOut),
            ("x-ratelimit-limit", "7", Kind::LeftOut),
            (
                "last-modified",
                "Sun, 06 Nov 1994 08:49:37 GMT",
                Kind::LeftOut,
            ),
            (
                "content-security-policy",
                "default-src 'self'",
                Kind::Unknown,
            ),
            (
                "content-security-policy",
                "script-src 'nonce-abc'",
                Kind::LeftOut,
            ),
            ("content-encoding", "gzip", Kind::LeftOut),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT", Kind::Date),
        ] {
            let value = HeaderValue::from_static(value);
            assert_eq!(
                kind(&HeaderName::from_static(name), &value),
                expected,
                "{name}"
            );
        }
    }
}
