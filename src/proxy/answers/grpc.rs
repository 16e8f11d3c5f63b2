//! Responses to gRPC requests: their clients read `grpc-status`, not the status of HTTP.
//!
//! Trailers-only responses (gRPC over HTTP2, `doc/PROTOCOL-HTTP2.md`) have a head and no body.
//! gRPC-Web clients read the same fields.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::http::grpc;
use crate::http::headers::Headers;
use crate::http::message::Response;
use crate::proxy::body::ResponseBody;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const WEB: &str = "-web";

/// All but printable ASCII, and `%`.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Status codes of gRPC (`doc/statuscodes.md`) that a proxy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcStatus {
    Ok = 0,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl GrpcStatus {
    /// Maps a status of HTTP as clients do (`doc/http-grpc-status-mapping.md`), except 413 and 504,
    /// which become gRPC's own status for a large message and for a time-out.
    pub(crate) fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_REQUEST => Self::Internal,
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::PermissionDenied,
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => Self::Unimplemented,
            StatusCode::PAYLOAD_TOO_LARGE => Self::ResourceExhausted,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            StatusCode::GATEWAY_TIMEOUT => Self::DeadlineExceeded,
            _ => Self::Unknown,
        }
    }
}

/// The content type of the response, if the request is one of gRPC.
pub(crate) fn response_content_type(request: &Headers) -> Option<HeaderValue> {
    let rest = grpc::subtype(request.get(CONTENT_TYPE)?)?;
    match rest.first() {
        None | Some(b'+' | b';') => Some(HeaderValue::from_static(grpc::CONTENT)),
        Some(_) if rest.starts_with(WEB.as_bytes()) => request.get_owned(CONTENT_TYPE),
        Some(_) => None,
    }
}

/// Builds a response without body and trailers.
pub(crate) fn trailers_only(
    content_type: HeaderValue,
    code: GrpcStatus,
    message: &str,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, HeaderValue::from(code as u16));
    let message = utf8_percent_encode(message, ENCODED).to_string();
    let message = HeaderValue::try_from(message).expect("printable ASCII");
    headers.insert(GRPC_MESSAGE, message);
    response
}

/// Makes a response without body one of success, in trailers only.
pub(crate) fn succeed(content_type: HeaderValue, response: &mut Response<ResponseBody>) {
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, HeaderValue::from(GrpcStatus::Ok as u16));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content_type_for(content_type: &'static str) -> Option<HeaderValue> {
        let value = HeaderValue::from_static(content_type);
        response_content_type(&Headers::from_iter([(CONTENT_TYPE, value)]))
    }

    #[test]
    fn grpc_requests_are_known_by_their_content_type() {
        for content_type in [
            "application/grpc",
            "application/grpc+proto",
            "Application/GRPC;a=b",
        ] {
            assert_eq!(
                content_type_for(content_type)
                    .as_ref()
                    .map(HeaderValue::as_bytes),
                Some(&b"application/grpc"[..])
            );
        }
        for content_type in ["application/grpc-web-text", "application/grpc-web+proto"] {
            assert_eq!(
                content_type_for(content_type),
                Some(HeaderValue::from_static(content_type))
            );
        }
        for content_type in [
            "application/grpcx",
            "application/json",
            "application/grp",
            "",
        ] {
            assert_eq!(content_type_for(content_type), None, "{content_type}");
        }
        assert_eq!(response_content_type(&Headers::new()), None);
    }

    #[test]
    fn a_denied_request_is_told_from_a_limited_one() {
        for (status, code) in [(401, 16), (403, 7), (404, 12), (503, 14), (451, 2)] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(GrpcStatus::of(status) as u16, code, "{status}");
        }
    }

    #[test]
    fn a_message_is_percent_encoded() {
        let grpc = HeaderValue::from_static(grpc::CONTENT);
        let response = trailers_only(grpc, GrpcStatus::Unknown, "50% \"ü\"\n");
        let message = response.headers().get(GRPC_MESSAGE);
        assert_eq!(message, Some(&b"50%25 \"%C3%BC\"%0A"[..]));
    }
}
