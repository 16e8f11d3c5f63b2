//! Answers to gRPC requests: whoever calls over gRPC sees the status in `grpc-status`, not in that of HTTP.
//!
//! Trailers-only, as the protocol has it (gRPC over HTTP2, `doc/PROTOCOL-HTTP2.md`): one head, which ends the
//! response. gRPC-Web clients read the same fields.

use std::fmt::Write;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use crate::http::headers::Headers;
use crate::http::message::Response;
use crate::proxy::body::ResponseBody;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const GRPC: &str = "application/grpc";
const WEB: &str = "-web";

/// A status code of gRPC (`doc/statuscodes.md`), of those that a proxy has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcStatus {
    Unknown = 2,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

impl GrpcStatus {
    /// What a client makes of this status of HTTP (`doc/http-grpc-status-mapping.md`); but a message that is too large
    /// is told as gRPC itself does.
    pub(crate) fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_REQUEST => Self::Internal,
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => Self::Unimplemented,
            StatusCode::PAYLOAD_TOO_LARGE => Self::ResourceExhausted,
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

/// The content type to answer with, where the request with these header fields is one of gRPC.
pub(crate) fn response_content_type(request: &Headers) -> Option<HeaderValue> {
    let asked = request.get(CONTENT_TYPE)?;
    let start = asked.get(..GRPC.len())?;
    if !start.eq_ignore_ascii_case(GRPC.as_bytes()) {
        return None;
    }
    let rest = &asked[GRPC.len()..];
    match rest.first() {
        None | Some(b'+' | b';') => Some(HeaderValue::from_static(GRPC)),
        Some(_) if rest.starts_with(WEB.as_bytes()) => request.get_owned(CONTENT_TYPE),
        Some(_) => None,
    }
}

/// A response that says no more than this.
pub(crate) fn trailers_only(
    content_type: HeaderValue,
    code: GrpcStatus,
    message: &str,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, HeaderValue::from(code as u16));
    headers.insert(GRPC_MESSAGE, percent_encoded(message));
    response
}

/// A message as it is sent: printable ASCII, all else and `%` percent-encoded.
fn percent_encoded(message: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    HeaderValue::try_from(encoded).expect("printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(content_type: &'static str) -> Option<HeaderValue> {
        let value = HeaderValue::from_static(content_type);
        response_content_type(&Headers::from_iter([(CONTENT_TYPE, value)]))
    }

    #[test]
    fn grpc_is_known_by_its_content_type() {
        for content_type in [
            "application/grpc",
            "application/grpc+proto",
            "Application/GRPC;a=b",
        ] {
            assert_eq!(
                asked(content_type).as_ref().map(HeaderValue::as_bytes),
                Some(&b"application/grpc"[..])
            );
        }
        for content_type in ["application/grpc-web-text", "application/grpc-web+proto"] {
            assert_eq!(
                asked(content_type),
                Some(HeaderValue::from_static(content_type))
            );
        }
        for content_type in [
            "application/grpcx",
            "application/json",
            "application/grp",
            "",
        ] {
            assert_eq!(asked(content_type), None, "{content_type}");
        }
        assert_eq!(response_content_type(&Headers::new()), None);
    }

    #[test]
    fn a_message_is_percent_encoded() {
        assert_eq!(percent_encoded("50% \"ü\"\n"), "50%25 \"%C3%BC\"%0A");
    }
}
