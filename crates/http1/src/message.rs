//! Requests and responses: those of the `http` crate, with a list of [`Headers`] instead of its map.

use http::{Method, StatusCode, Uri, Version};

use crate::headers::Headers;

/// A request.
pub type Request<B> = Message<RequestLine, B>;

/// A response.
pub type Response<B> = Message<StatusCode, B>;

/// A message, with the method and target of a request or the status of a response.
#[derive(Clone, Debug)]
pub struct Message<L, B> {
    line: L,
    version: Version,
    headers: Headers,
    body: B,
}

/// The method and the target of a request.
#[derive(Clone, Debug)]
pub struct RequestLine {
    method: Method,
    uri: Uri,
    /// The server has checked where the request ends.
    has_checked_end: bool,
}

impl<L, B> Message<L, B> {
    /// The version of HTTP that it came in.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The version, to be changed.
    pub fn version_mut(&mut self) -> &mut Version {
        &mut self.version
    }

    /// The header fields.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The header fields, to be changed.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// The header fields, without the rest.
    pub fn into_headers(self) -> Headers {
        self.headers
    }

    /// The body.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// The body, to be read.
    pub fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// The message without its body, and the body.
    pub fn into_parts(self) -> (Message<L, ()>, B) {
        let head = Message {
            line: self.line,
            version: self.version,
            headers: self.headers,
            body: (),
        };
        (head, self.body)
    }

    /// The message with another body.
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Message<L, C> {
        Message {
            line: self.line,
            version: self.version,
            headers: self.headers,
            body: change(self.body),
        }
    }
}

impl<B> Request<B> {
    /// `GET /` without fields.
    pub fn new(body: B) -> Self {
        let (method, uri) = (Method::GET, Uri::default());
        Self::with_head(method, uri, Version::HTTP_11, Headers::new(), body)
    }

    /// A request of these parts.
    pub fn with_head(
        method: Method,
        uri: Uri,
        version: Version,
        headers: Headers,
        body: B,
    ) -> Self {
        Message {
            line: RequestLine {
                method,
                uri,
                has_checked_end: false,
            },
            version,
            headers,
            body,
        }
    }

    /// Returns true if the server that read it has checked where it ends, and what its client waits
    /// for.
    pub fn has_checked_end(&self) -> bool {
        self.line.has_checked_end
    }

    /// Notes that both are checked.
    pub fn set_checked_end(&mut self) {
        self.line.has_checked_end = true;
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.line.method
    }

    /// The method, to be changed.
    pub fn method_mut(&mut self) -> &mut Method {
        &mut self.line.method
    }

    /// The target.
    pub fn uri(&self) -> &Uri {
        &self.line.uri
    }

    /// The target, to be changed.
    pub fn uri_mut(&mut self) -> &mut Uri {
        &mut self.line.uri
    }
}

impl<B> Response<B> {
    /// 200 without fields.
    pub fn new(body: B) -> Self {
        Self::with_head(StatusCode::OK, Version::HTTP_11, Headers::new(), body)
    }

    /// A response of these parts.
    pub fn with_head(status: StatusCode, version: Version, headers: Headers, body: B) -> Self {
        Message {
            line: status,
            version,
            headers,
            body,
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.line
    }

    /// The status, to be changed.
    pub fn status_mut(&mut self) -> &mut StatusCode {
        &mut self.line
    }
}

impl<B> From<http::Request<B>> for Request<B> {
    fn from(request: http::Request<B>) -> Self {
        let (head, body) = request.into_parts();
        Self::with_head(
            head.method,
            head.uri,
            head.version,
            head.headers.into(),
            body,
        )
    }
}

impl<B> From<Request<B>> for http::Request<B> {
    fn from(request: Request<B>) -> Self {
        let mut into = http::Request::new(request.body);
        *into.method_mut() = request.line.method;
        *into.uri_mut() = request.line.uri;
        *into.version_mut() = request.version;
        *into.headers_mut() = request.headers.into();
        into
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (head, body) = response.into_parts();
        Self::with_head(head.status, head.version, head.headers.into(), body)
    }
}

impl<B> From<Response<B>> for http::Response<B> {
    fn from(response: Response<B>) -> Self {
        let mut into = http::Response::new(response.body);
        *into.status_mut() = response.line;
        *into.version_mut() = response.version;
        *into.headers_mut() = response.headers.into();
        into
    }
}

/// The reason phrase of a status, in RFC 9110's words; `None` if it has no meaning of its own.
pub fn reason_phrase(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => Some("Content Too Large"),
        StatusCode::UNPROCESSABLE_ENTITY => Some("Unprocessable Content"),
        _ => status.canonical_reason(),
    }
}
