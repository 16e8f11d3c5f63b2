//! What a head must not say, beyond what hyper refuses by itself: anything after which two servers
//! may disagree on where the request ends, or on what it is.

use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};

/// Why a head is refused, and with which status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramingError {
    /// 400, 417 or 501.
    pub status: StatusCode,
    /// What is wrong with it.
    pub reason: &'static str,
}

const fn wrong(status: StatusCode, reason: &'static str) -> Result<(), FramingError> {
    Err(FramingError { status, reason })
}

/// Checks the head of a request.
///
/// # Errors
/// With the status that tells the client.
pub fn check(parts: &Parts) -> Result<(), FramingError> {
    check_method(&parts.method)?;
    if parts.headers.contains_key(TRANSFER_ENCODING) {
        check_transfer_encoding(parts.version, &parts.headers)?;
    }
    if parts.headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return wrong(
            StatusCode::BAD_REQUEST,
            "The request has more than one Content-Length.",
        );
    }
    let is_unknown = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if parts.headers.get_all(EXPECT).iter().any(is_unknown) {
        return wrong(
            StatusCode::EXPECTATION_FAILED,
            "Only 100-continue can be expected.",
        );
    }
    Ok(())
}

/// A reverse proxy opens no tunnels, and TRACE would show the fields that proxies add. No resource has
/// them, hence 501 rather than 405 (RFC 9110 section 9.1).
fn check_method(method: &Method) -> Result<(), FramingError> {
    match *method {
        Method::CONNECT => wrong(StatusCode::NOT_IMPLEMENTED, "CONNECT is not supported."),
        Method::TRACE => wrong(StatusCode::NOT_IMPLEMENTED, "TRACE is not supported."),
        _ => Ok(()),
    }
}

/// Chunked alone, in HTTP/1.1, and without a Content-Length (RFC 9112 sections 6.1 and 6.3).
fn check_transfer_encoding(version: Version, headers: &HeaderMap) -> Result<(), FramingError> {
    if version != Version::HTTP_11 {
        return wrong(
            StatusCode::BAD_REQUEST,
            "Transfer-Encoding belongs to HTTP/1.1 only.",
        );
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return wrong(
            StatusCode::BAD_REQUEST,
            "The request has both Transfer-Encoding and Content-Length.",
        );
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let chunked = codings
        .next()
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    match (chunked, codings.next()) {
        (true, None) => Ok(()),
        _ => wrong(
            StatusCode::NOT_IMPLEMENTED,
            "Only the transfer coding chunked is supported.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// The status that refuses a head with these fields; 200 for none.
    fn status(method: &str, version: Version, fields: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        check(&parts).map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    fn post(fields: &[(&str, &str)]) -> u16 {
        status("POST", Version::HTTP_11, fields)
    }

    #[test]
    fn plain_heads_pass() {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "PROPFIND", "get"] {
            assert_eq!(status(method, Version::HTTP_11, &[]), 200, "{method}");
        }
        assert_eq!(post(&[("content-length", "5")]), 200);
        assert_eq!(post(&[("transfer-encoding", "chunked")]), 200);
        assert_eq!(post(&[("transfer-encoding", "CHUNKED")]), 200);
    }

    #[test]
    fn tunnels_and_traces_are_not_implemented() {
        assert_eq!(status("CONNECT", Version::HTTP_11, &[]), 501);
        assert_eq!(status("TRACE", Version::HTTP_2, &[]), 501);
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
        assert_eq!(post(&[("expect", "")]), 417);
    }
}
