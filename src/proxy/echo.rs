//! The built-in upstream `echo`: its response is the request as text, with request line, header
//! fields, an empty line, and the body as it arrives.

use bytes::Bytes;
use http::header::{self, HeaderValue};

use super::body::ResponseBody;
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};

/// Responds with `request` itself, and takes its body.
pub(super) fn echo(request: &mut Request<RequestBody>) -> Response<ResponseBody> {
    let body = std::mem::replace(request.body_mut(), RequestBody::empty());
    let mut head = Vec::with_capacity(512);
    let target = request
        .uri()
        .path_and_query()
        .map_or("/", |target| target.as_str());
    for part in [request.method().as_str(), " ", target, " HTTP/1.1\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    for (name, value) in request.headers().iter() {
        for part in [name.as_str().as_bytes(), b": ", value, b"\n"] {
            head.extend_from_slice(part);
        }
    }
    head.push(b'\n');
    let mut response = Response::new(ResponseBody::echo(Bytes::from(head), body));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
