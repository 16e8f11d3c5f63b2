//! What a head must not say, a request's and a response's, beyond what hyper refuses by itself: anything after which two servers
//! may disagree on where the request ends, or on what it is.

use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};

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
pub fn check<B>(request: &Request<B>) -> Result<(), FramingError> {
    let headers = request.headers();
    check_method(request.method())?;
    if headers.contains_key(TRANSFER_ENCODING) {
        check_transfer_encoding(request.version(), headers)?;
    }
    if headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return wrong(
            StatusCode::BAD_REQUEST,
            "The request has more than one Content-Length.",
        );
    }
    let is_unknown = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if headers.get_all(EXPECT).iter().any(is_unknown) {
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
    match is_chunked_alone(headers) {
        true => Ok(()),
        false => wrong(
            StatusCode::NOT_IMPLEMENTED,
            "Only the transfer coding chunked is supported.",
        ),
    }
}

fn is_chunked_alone(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(is_chunked) && codings.next().is_none()
}

/// Checks the head of an upstream's response to a request of this proxy's, which never asks for another
/// protocol or coding.
///
/// # Errors
/// Says why it cannot be passed on: its end, or its content, would be another to the client.
pub fn check_response(status: StatusCode, headers: &HeaderMap) -> Result<(), &'static str> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("the response switches protocols unasked");
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next();
    if lengths.next().is_some() || length.is_some_and(|value| value.as_bytes().contains(&b',')) {
        return Err("the response has more than one Content-Length");
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        if length.is_some() {
            return Err("the response has both Transfer-Encoding and Content-Length");
        }
        if !is_chunked_alone(headers) {
            return Err("the response has a transfer coding other than chunked");
        }
    }
    Ok(())
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
        check(&request.body(()).expect("a request"))
            .map_or_else(|error| error.status.as_u16(), |()| 200)
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

    #[test]
    fn a_response_that_the_client_would_read_otherwise_is_not_passed_on() {
        let response = |status, fields: &[(&'static str, &'static str)]| {
            let field = |&(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            };
            let mut headers = HeaderMap::new();
            fields
                .iter()
                .map(field)
                .for_each(|(name, value)| _ = headers.append(name, value));
            let status = StatusCode::from_u16(status).expect("a status");
            check_response(status, &headers).is_ok()
        };
        let (length, chunked) = (("content-length", "5"), ("transfer-encoding", "chunked"));
        assert!(response(200, &[]));
        assert!(response(200, &[length]));
        assert!(response(200, &[chunked]));
        assert!(!response(101, &[]));
        assert!(!response(200, &[length, chunked]));
        assert!(!response(200, &[length, length]));
        assert!(!response(200, &[("content-length", "5, 5")]));
        assert!(!response(200, &[chunked, chunked]));
        assert!(!response(200, &[("transfer-encoding", "gzip, chunked")]));
    }
}
