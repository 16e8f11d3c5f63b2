//! Checks of heads beyond their syntax: fields that let two servers disagree on the end or the
//! meaning of a message.

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::{Method, StatusCode, Version};

use crate::headers::Headers;
use crate::message::Request;
use crate::{content_length, hop_by_hop};

/// The reason why a head is refused, with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramingError {
    /// 400, 417 or 501.
    pub status: StatusCode,
    /// A sentence for the client.
    pub reason: &'static str,
}

const fn malformed(reason: &'static str) -> Result<(), FramingError> {
    let status = StatusCode::BAD_REQUEST;
    Err(FramingError { status, reason })
}

const fn unsupported(reason: &'static str) -> Result<(), FramingError> {
    let status = StatusCode::NOT_IMPLEMENTED;
    Err(FramingError { status, reason })
}

/// The fields of a head that determine where its message ends, and if the connection persists.
#[derive(Debug, Default)]
pub struct FramingFields<'a> {
    /// `Content-Length`.
    pub lengths: Occurrence<'a>,
    /// `Transfer-Encoding`.
    pub codings: Occurrence<'a>,
    /// The client waits for `100 Continue`.
    pub expects_continue: bool,
    expects_unknown: bool,
    /// The client expects something unknown, or `Connection` names a field.
    pub is_unusual: bool,
    /// The options of `Connection`.
    says_close: bool,
    says_keep_alive: bool,
    says_upgrade: bool,
    /// There is an `Upgrade`.
    names_protocols: bool,
}

/// The occurrences of a field that may occur once.
#[derive(Clone, Copy, Debug, Default)]
pub enum Occurrence<'a> {
    /// There is none.
    #[default]
    None,
    /// One, with this value.
    One(&'a [u8]),
    /// More than one.
    Many,
}

impl<'a> Occurrence<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::None => Self::One(value),
            Self::One(_) | Self::Many => Self::Many,
        };
    }

    /// Returns true if there is none.
    pub fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// The value, if there is exactly one.
    pub fn one(self) -> Option<&'a [u8]> {
        match self {
            Self::One(value) => Some(value),
            Self::None | Self::Many => None,
        }
    }
}

impl<'a> FramingFields<'a> {
    /// Finds the fields in one pass, which is cheaper than a search for each.
    pub fn of(headers: &'a Headers) -> Self {
        let mut fields = FramingFields::default();
        for (name, value) in headers.iter() {
            match *name {
                CONTENT_LENGTH => fields.lengths.add(value),
                TRANSFER_ENCODING => fields.codings.add(value),
                EXPECT => fields.add_expectations(value),
                CONNECTION => fields.add_options(value),
                UPGRADE => fields.names_protocols = true,
                _ => {}
            }
        }
        fields
    }

    /// A list (RFC 9110 section 10.1.1).
    fn add_expectations(&mut self, expect: &[u8]) {
        let expectations = expect.split(|&byte| byte == b',');
        for expectation in expectations.map(<[u8]>::trim_ascii) {
            if expectation.eq_ignore_ascii_case(b"100-continue") {
                self.expects_continue = true
            } else if !expectation.is_empty() {
                self.expects_unknown = true;
                self.is_unusual = true;
            }
        }
    }

    fn add_options(&mut self, connection: &[u8]) {
        for option in connection.split(|&byte| byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.says_keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                self.says_close = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.says_upgrade = true;
            } else {
                self.is_unusual = true;
            }
        }
    }

    /// Returns true if the message is about switching protocols (RFC 9110 section 7.8).
    pub fn asks_to_switch(&self) -> bool {
        self.says_upgrade && self.names_protocols
    }

    /// Returns true if the sender of a message of this version keeps its connection open (RFC 9112
    /// section 9.3).
    pub fn keeps_alive(&self, version: Version) -> bool {
        match version {
            Version::HTTP_10 => self.says_keep_alive && !self.says_close,
            _ => !self.says_close,
        }
    }

    fn check(&self, version: Version) -> Result<(), FramingError> {
        check_transfer_encoding(version, self)?;
        match self.lengths {
            Occurrence::One(length) if content_length(length).is_err() => {
                return malformed("The request's Content-Length is not a number.");
            }
            Occurrence::None | Occurrence::One(_) => {}
            Occurrence::Many => {
                return malformed("The request has more than one Content-Length.");
            }
        }
        if self.is_unusual && self.expects_unknown {
            return Err(FramingError {
                status: StatusCode::EXPECTATION_FAILED,
                reason: "Only 100-continue can be expected.",
            });
        }
        Ok(())
    }
}

/// Checks the head of a request, and removes the fields that its `Connection` names: they aren't
/// forwarded, so nothing may judge by them.
///
/// # Errors
/// An error with the status of the response.
pub fn check<B>(request: &mut Request<B>) -> Result<(), FramingError> {
    check_method(request.method())?;
    check_values(request)?;
    if request.has_checked_end() {
        return Ok(());
    }
    let fields = FramingFields::of(request.headers());
    fields.check(request.version())?;
    if fields.is_unusual {
        hop_by_hop::remove_named(request.headers_mut());
    }
    Ok(())
}

/// Checks the head of a request that isn't forwarded.
///
/// # Errors
/// An error with the status of the response.
pub fn check_head<B>(request: &Request<B>) -> Result<(), FramingError> {
    check_method(request.method())?;
    check_values(request)?;
    check_end(request)
}

/// Checks the fields that say where a request of HTTP/1.1 ends, and what the client waits for.
///
/// # Errors
/// An error with the status of the response.
pub fn check_end<B>(request: &Request<B>) -> Result<(), FramingError> {
    FramingFields::of(request.headers()).check(request.version())
}

/// The longest method, in bytes: four times the longest registered method.
const MAX_METHOD: usize = 64;

/// A reverse proxy opens no tunnels, and TRACE would show the fields that proxies add. No resource
/// supports them, hence 501 rather than 405 (RFC 9110 section 9.1).
fn check_method(method: &Method) -> Result<(), FramingError> {
    match *method {
        Method::GET | Method::POST | Method::HEAD | Method::PUT | Method::DELETE => Ok(()),
        _ if method.as_str().len() > MAX_METHOD => {
            unsupported("A method of more than 64 characters is not supported.")
        }
        Method::CONNECT => unsupported("CONNECT is not supported."),
        Method::TRACE => unsupported("TRACE is not supported."),
        // Some servers read `post` as POST, which no rule or limit of POST would apply to.
        _ if method
            .as_str()
            .bytes()
            .any(|byte| byte.is_ascii_lowercase()) =>
        {
            unsupported("A method with lower-case letters is not supported.")
        }
        _ => Ok(()),
    }
}

/// No whitespace around a value over HTTP/2 (RFC 9113 section 8.2.1): an upstream of HTTP/1.1 would
/// drop it, and so read another value than a limit has counted.
fn check_values<B>(request: &Request<B>) -> Result<(), FramingError> {
    if request.version() == Version::HTTP_2 && has_padded_value(request.headers()) {
        malformed("A field begins or ends with a space or a tab.")
    } else {
        Ok(())
    }
}

/// Returns true if a value begins or ends with a space or a tab.
pub fn has_padded_value(headers: &Headers) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let mut values = headers.iter().map(|(_, value)| value);
    values.any(|value| is_space(value.first()) || is_space(value.last()))
}

/// Chunked alone, in HTTP/1.1, and without a Content-Length (RFC 9112 sections 6.1 and 6.3).
fn check_transfer_encoding(
    version: Version,
    fields: &FramingFields<'_>,
) -> Result<(), FramingError> {
    if fields.codings.is_none() {
        return Ok(());
    }
    if version != Version::HTTP_11 {
        return malformed("Transfer-Encoding belongs to HTTP/1.1 only.");
    }
    if !fields.lengths.is_none() {
        return malformed("The request has both Transfer-Encoding and Content-Length.");
    }
    if is_chunked_alone(fields.codings) {
        Ok(())
    } else {
        unsupported("Only the transfer coding chunked is supported.")
    }
}

fn is_chunked_alone(codings: Occurrence<'_>) -> bool {
    matches!(codings, Occurrence::One(value) if value.eq_ignore_ascii_case(b"chunked"))
}

/// Checks the head of an upstream's final response. The proxy never asks for another transfer
/// coding than chunked.
///
/// # Errors
/// The reason why it cannot be forwarded: the client would read another end or content.
pub fn check_response(fields: &FramingFields<'_>) -> Result<(), &'static str> {
    let has_length = match fields.lengths {
        Occurrence::None => false,
        Occurrence::One(length) if !length.contains(&b',') => true,
        Occurrence::One(_) | Occurrence::Many => {
            return Err("the response has more than one Content-Length");
        }
    };
    if !fields.codings.is_none() {
        if has_length {
            return Err("the response has both Transfer-Encoding and Content-Length");
        }
        if !is_chunked_alone(fields.codings) {
            return Err("the response has a transfer coding other than chunked");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// The status that refuses a head with these fields; 200 for none.
    fn status(method: &str, version: Version, fields: &[(&str, &str)]) -> u16 {
        let mut request = http::Request::builder().method(method).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(&mut request.body(()).expect("a request").into())
            .map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    fn post(fields: &[(&str, &str)]) -> u16 {
        status("POST", Version::HTTP_11, fields)
    }

    #[test]
    fn plain_heads_pass() {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "PROPFIND", "M-SEARCH"] {
            assert_eq!(status(method, Version::HTTP_11, &[]), 200, "{method}");
        }
        assert_eq!(post(&[("content-length", "5")]), 200);
        assert_eq!(post(&[("transfer-encoding", "chunked")]), 200);
        assert_eq!(post(&[("transfer-encoding", "CHUNKED")]), 200);
    }

    #[test]
    fn fields_that_connection_names_are_removed_before_anything_judges_by_them() {
        for (connection, left) in [
            ("keep-alive", "connection host x-key cookie content-length"),
            ("Close, TE", "connection host x-key cookie content-length"),
            ("upgrade", "connection host x-key cookie content-length"),
            ("X-Key", "connection host cookie content-length"),
            ("close ,x-key,\tCOOKIE", "connection host content-length"),
            (
                "connection, host, Content-Length",
                "connection host x-key cookie content-length",
            ),
        ] {
            let mut request: Request<()> = Request::new(());
            for (name, value) in [
                ("connection", connection),
                ("host", "a"),
                ("x-key", "1"),
                ("cookie", "a=b"),
                ("content-length", "0"),
            ] {
                let value = HeaderValue::from_static(value);
                request
                    .headers_mut()
                    .append(http::HeaderName::from_static(name), value);
            }
            check(&mut request).expect("a plain head");
            let names: Vec<_> = request
                .headers()
                .names()
                .map(|name| name.as_str())
                .collect();
            assert_eq!(names.join(" "), left, "{connection}");
        }
    }

    #[test]
    fn tunnels_and_traces_are_not_implemented() {
        assert_eq!(status("CONNECT", Version::HTTP_11, &[]), 501);
        assert_eq!(status("TRACE", Version::HTTP_2, &[]), 501);
    }

    #[test]
    fn methods_have_no_lower_case_letters() {
        for method in ["get", "Post", "pATCH"] {
            assert_eq!(status(method, Version::HTTP_2, &[]), 501, "{method}");
        }
    }

    #[test]
    fn a_method_has_64_characters_at_most() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(status(&"M".repeat(64), version, &[]), 200);
            assert_eq!(status(&"M".repeat(65), version, &[]), 501);
        }
    }

    #[test]
    fn values_over_http2_have_no_whitespace_around_them() {
        for (value, expected) in [
            ("k", 200),
            ("a \tb", 200),
            ("", 200),
            (" k", 400),
            ("k ", 400),
            ("\tk", 400),
            ("k\t", 400),
            (" ", 400),
        ] {
            let fields = [("x-a", "1"), ("x-key", value)];
            assert_eq!(status("GET", Version::HTTP_2, &fields), expected, "{value}");
        }
    }

    #[test]
    fn two_lengths_are_refused_even_if_they_are_equal() {
        assert_eq!(
            post(&[("content-length", "5"), ("content-length", "6")]),
            400
        );
        assert_eq!(
            post(&[("content-length", "5"), ("content-length", "5")]),
            400
        );
    }

    #[test]
    fn a_length_beside_chunks_is_refused() {
        let fields = [("transfer-encoding", "chunked"), ("content-length", "5")];
        assert_eq!(post(&fields), 400);
    }

    #[test]
    fn chunks_belong_to_http_1_1() {
        for version in [Version::HTTP_10, Version::HTTP_2] {
            let fields = [("transfer-encoding", "chunked")];
            assert_eq!(status("POST", version, &fields), 400, "{version:?}");
        }
    }

    #[test]
    fn codings_other_than_chunked_alone_are_not_implemented() {
        for coding in [
            "gzip",
            "identity",
            "gzip, chunked",
            "chunked, chunked",
            "chunked;q=1",
            "xchunked",
            "",
            "chunked,",
            "\"chunked\"",
        ] {
            assert_eq!(post(&[("transfer-encoding", coding)]), 501, "{coding}");
        }
        let twice = [
            ("transfer-encoding", "chunked"),
            ("transfer-encoding", "chunked"),
        ];
        assert_eq!(post(&twice), 501);
        let last = [
            ("transfer-encoding", "chunked"),
            ("transfer-encoding", "identity"),
        ];
        assert_eq!(post(&last), 501);
    }

    #[test]
    fn nothing_but_100_continue_can_be_expected() {
        assert_eq!(post(&[("expect", "100-Continue")]), 200);
        assert_eq!(
            post(&[("expect", "100-continue"), ("expect", "100-continue")]),
            200
        );
        assert_eq!(post(&[("expect", "200-ok")]), 417);
        assert_eq!(post(&[("expect", "100-continue"), ("expect", "x")]), 417);
        assert_eq!(post(&[("expect", "100-continue, x")]), 417);
        assert_eq!(post(&[("expect", "100-continue=\"x, y\"")]), 417);
        for nothing_else in ["", ",", "100-continue,", "100-continue , 100-Continue"] {
            assert_eq!(post(&[("expect", nothing_else)]), 200, "{nothing_else}");
        }
    }

    #[test]
    fn an_upgrade_is_named_in_both_fields() {
        let upgrades = |fields: &[(&'static str, &'static str)]| {
            let field = |&(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            };
            let headers: Headers = fields.iter().map(field).collect();
            FramingFields::of(&headers).asks_to_switch()
        };
        assert!(upgrades(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "h2c, WebSocket")
        ]));
        assert!(!upgrades(&[("upgrade", "websocket")]));
        assert!(!upgrades(&[("connection", "upgrade")]));
    }

    #[test]
    fn a_response_with_ambiguous_framing_is_not_forwarded() {
        let response = |fields: &[(&'static str, &'static str)]| {
            let field = |&(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            };
            let headers: Headers = fields.iter().map(field).collect();
            check_response(&FramingFields::of(&headers)).is_ok()
        };
        let (length, chunked) = (("content-length", "5"), ("transfer-encoding", "chunked"));
        assert!(response(&[]));
        assert!(response(&[length]));
        assert!(response(&[chunked]));
        assert!(!response(&[length, chunked]));
        assert!(!response(&[length, length]));
        assert!(!response(&[("content-length", "5, 5")]));
        assert!(!response(&[chunked, chunked]));
        assert!(!response(&[("transfer-encoding", "gzip, chunked")]));
    }
}
