//! Writes requests to an upstream.

use http::{Method, header};
use http_body::Body;

use crate::http::body::RequestBody;
use crate::http::headers::write_field;
use crate::http::http1::{Framing, MessageWriter, is_framing_field};
use crate::http::message::Request;

/// Begins to send `request`, and takes its body.
pub(super) fn begin(outgoing: &mut MessageWriter<RequestBody>, request: &mut Request<RequestBody>) {
    let body = std::mem::replace(request.body_mut(), RequestBody::empty());
    let framing = match (body.is_empty(), body.size_hint().exact()) {
        (true, _) => Framing::Ended,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::Chunked,
    };
    outgoing.begin(body, framing, |buffer| {
        write_head(request, framing, buffer);
    });
}

/// Writes the request line, the fields, and the framing fields.
fn write_head(request: &Request<RequestBody>, framing: Framing, buffer: &mut Vec<u8>) {
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let method = request.method().as_str();
    for part in [method, " ", target, " HTTP/1.1\r\n"] {
        buffer.extend_from_slice(part.as_bytes());
    }
    for (name, value) in request.headers().iter() {
        if !is_framing_field(name) {
            write_field(name, value, buffer);
        }
    }
    framing.write_field(buffer);
    if framing == Framing::Ended && says_empty(request) {
        // A length of 0 states that there is no body (RFC 9110 section 8.6).
        write_field(&header::CONTENT_LENGTH, b"0", buffer);
    }
    buffer.extend_from_slice(b"\r\n");
}

fn says_empty(request: &Request<RequestBody>) -> bool {
    matches!(
        *request.method(),
        Method::POST | Method::PUT | Method::PATCH
    ) || request.headers().contains(header::CONTENT_LENGTH)
}
