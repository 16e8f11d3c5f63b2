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
/// The reason why it doesn't say that the service is well. A server says the code 5 for an unknown
/// service, and 12 if it has no health checks.
pub(super) fn read(response: &WholeResponse) -> Result<(), String> {
    const OTHER_MESSAGE: &str = "the answer isn't a HealthCheckResponse";
    let headers = response.head.headers();
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !content_type.is_some_and(is_content_type) {
        return Err("the answer isn't gRPC: its content-type is another one".to_owned());
    }
    // A call that fails may have a head alone.
    let code = code(&response.trailers).or_else(|| code(headers));
    match code.ok_or("the answer has no valid grpc-status")? {
        0 => {}
        code => return Err(format!("grpc-status {code}")),
    }
    // Field 1, a number, which is omitted if it is 0.
    let status = match *response.body {
        [0, 0, 0, 0, 0] => 0,
        [0, 0, 0, 0, 2, 0x08, status] => status,
        _ => return Err(OTHER_MESSAGE.to_owned()),
    };
    let status = match status {
        SERVING => return Ok(()),
        0 => "UNKNOWN",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => return Err(OTHER_MESSAGE.to_owned()),
    };
    Err(format!("the service is {status}"))
}

fn code(fields: &HeaderMap) -> Option<u16> {
    fields.get("grpc-status")?.to_str().ok()?.parse().ok()
}
