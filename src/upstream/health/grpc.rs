//! Messages of `grpc.health.v1.Health/Check` (gRPC, `doc/health-checking.md`).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request};

use super::check;
use crate::http::grpc::{CONTENT, is_content_type};
use crate::upstream::session::WholeResponse;

const METHOD: &str = "/grpc.health.v1.Health/Check";

/// `ServingStatus.SERVING`.
const SERVING: u8 = 1;

/// The reason why an answer does not say that a service is well.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::upstream) enum GrpcFailure {
    /// The answer is not one of gRPC.
    #[error("the answer isn't gRPC: its content-type is another one")]
    ContentType,
    /// The call failed. A server says 5 for an unknown service, and 12 if it has no health checks.
    #[error("grpc-status {0}")]
    Code(u16),
    /// The call did not end as calls of gRPC do.
    #[error("the answer has no valid grpc-status")]
    NoCode,
    /// The message is not a `HealthCheckResponse`.
    #[error("the answer isn't a HealthCheckResponse")]
    Message,
    /// The service is not well.
    #[error("the service is {0}")]
    NotServing(&'static str),
}

/// The head of a call.
pub(super) fn head(scheme: Scheme, authority: Authority) -> Request<()> {
    let mut head = check::head(scheme, authority, PathAndQuery::from_static(METHOD));
    *head.method_mut() = Method::POST;
    head.headers_mut().extend([
        (CONTENT_TYPE, HeaderValue::from_static(CONTENT)),
        (TE, HeaderValue::from_static("trailers")),
    ]);
    head
}

/// The `HealthCheckRequest` about `service`, of at most
/// [`MAX_GRPC_SERVICE`](crate::upstream::MAX_GRPC_SERVICE) bytes, with its framing.
pub(super) fn message(service: &str) -> Bytes {
    // Field 1, a string. A protobuf omits empty fields.
    let message = match service.len() as u8 {
        0 => Vec::new(),
        length => [&[0x0a, length], service.as_bytes()].concat(),
    };
    [&[0, 0, 0, 0, message.len() as u8], &message[..]]
        .concat()
        .into()
}

/// Reads an answer with status 200.
///
/// # Errors
/// Unless it says that the service is well.
pub(super) fn read(response: &WholeResponse) -> Result<(), GrpcFailure> {
    let headers = response.head.headers();
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !content_type.is_some_and(is_content_type) {
        return Err(GrpcFailure::ContentType);
    }
    // A call that fails may have a head alone.
    let code = code(&response.trailers).or_else(|| code(headers));
    match code.ok_or(GrpcFailure::NoCode)? {
        0 => {}
        code => return Err(GrpcFailure::Code(code)),
    }
    // Field 1, a number, which is omitted if it is 0.
    let status = match *response.body {
        [0, 0, 0, 0, 0] => 0,
        [0, 0, 0, 0, 2, 0x08, status] => status,
        _ => return Err(GrpcFailure::Message),
    };
    match status {
        SERVING => Ok(()),
        0 => Err(GrpcFailure::NotServing("UNKNOWN")),
        2 => Err(GrpcFailure::NotServing("NOT_SERVING")),
        3 => Err(GrpcFailure::NotServing("SERVICE_UNKNOWN")),
        _ => Err(GrpcFailure::Message),
    }
}

fn code(fields: &HeaderMap) -> Option<u16> {
    fields.get("grpc-status")?.to_str().ok()?.parse().ok()
}
