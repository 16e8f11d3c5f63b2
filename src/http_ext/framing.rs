//! What a head must not say, beyond what hyper refuses by itself: anything after which two servers
//! may disagree on where the request ends, or on what it is.

use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Version};

/// Why a head is refused, and with which status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramingError {
    /// 400, 405, 417 or 501.
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
    match parts.headers.get(EXPECT) {
        Some(value) if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => wrong(
            StatusCode::EXPECTATION_FAILED,
            "Only 100-continue can be expected.",
        ),
        _ => Ok(()),
    }
}

/// A reverse proxy opens no tunnels, and TRACE would show the fields that proxies add.
fn check_method(method: &Method) -> Result<(), FramingError> {
    match *method {
        Method::CONNECT => wrong(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported."),
        Method::TRACE => wrong(StatusCode::METHOD_NOT_ALLOWED, "TRACE is not supported."),
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
