//! Requests and responses in the proxy: those of the `http` crate, with a list of [`Headers`]
//! instead of its map.

use http::{Method, StatusCode, Uri, Version};

use super::headers::Headers;

/// A request.
#[derive(Clone, Debug)]
pub struct Request<B> {
    method: Method,
    uri: Uri,
    version: Version,
    headers: Headers,
    body: B,
}

impl<B> Request<B> {
    /// `GET /` without fields.
    pub fn new(body: B) -> Self {
        Request {
            method: Method::GET,
            uri: Uri::default(),
            version: Version::HTTP_11,
            headers: Headers::new(),
            body,
        }
    }

    /// A request of these parts.
    pub fn with_head(
        method: Method,
        uri: Uri,
        version: Version,
        headers: Headers,
        body: B,
    ) -> Self {
        Request {
            method,
            uri,
            version,
            headers,
            body,
        }
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The method, to be changed.
    pub fn method_mut(&mut self) -> &mut Method {
        &mut self.method
    }

    /// The target.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The target, to be changed.
    pub fn uri_mut(&mut self) -> &mut Uri {
        &mut self.uri
    }

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

    /// The body.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// The body, to be read.
    pub fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// The request without its body, and the body.
    pub fn into_parts(self) -> (Request<()>, B) {
        let head = Request {
            method: self.method,
            uri: self.uri,
            version: self.version,
            headers: self.headers,
            body: (),
        };
        (head, self.body)
    }

    /// The request with another body.
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Request<C> {
        Request {
            method: self.method,
            uri: self.uri,
            version: self.version,
            headers: self.headers,
            body: change(self.body),
        }
    }
}

impl<B> From<http::Request<B>> for Request<B> {
    fn from(request: http::Request<B>) -> Self {
        let (head, body) = request.into_parts();
        Request {
            method: head.method,
            uri: head.uri,
            version: head.version,
            headers: head.headers.into(),
            body,
        }
    }
}

impl<B> From<Request<B>> for http::Request<B> {
    fn from(request: Request<B>) -> Self {
        let mut into = http::Request::new(request.body);
        *into.method_mut() = request.method;
        *into.uri_mut() = request.uri;
        *into.version_mut() = request.version;
        *into.headers_mut() = request.headers.into();
        into
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response<B> {
    status: StatusCode,
    version: Version,
    headers: Headers,
    body: B,
}

impl<B> Response<B> {
    /// 200 without fields.
    pub fn new(body: B) -> Self {
        Response {
            status: StatusCode::OK,
            version: Version::HTTP_11,
            headers: Headers::new(),
            body,
        }
    }

    /// A response of these parts.
    pub fn with_head(status: StatusCode, version: Version, headers: Headers, body: B) -> Self {
        Response {
            status,
            version,
            headers,
            body,
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The status, to be changed.
    pub fn status_mut(&mut self) -> &mut StatusCode {
        &mut self.status
    }

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

    /// The body.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// The body, to be read.
    pub fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// The response without its body, and the body.
    pub fn into_parts(self) -> (Response<()>, B) {
        let head = Response {
            status: self.status,
            version: self.version,
            headers: self.headers,
            body: (),
        };
        (head, self.body)
    }

    /// The response with another body.
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Response<C> {
        Response {
            status: self.status,
            version: self.version,
            headers: self.headers,
            body: change(self.body),
        }
    }
}

impl<B> From<Response<B>> for http::Response<B> {
    fn from(response: Response<B>) -> Self {
        let mut into = http::Response::new(response.body);
        *into.status_mut() = response.status;
        *into.version_mut() = response.version;
        *into.headers_mut() = response.headers.into();
        into
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (head, body) = response.into_parts();
        Response {
            status: head.status,
            version: head.version,
            headers: head.headers.into(),
            body,
        }
    }
}
