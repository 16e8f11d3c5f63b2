//! WebSocket over HTTP/2 (RFC 8441). To the service, an extended CONNECT looks like the upgrade of
//! HTTP/1.1, and its 101 becomes a 200 on whose stream both sides send.

use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT};
use http::{Method, StatusCode};

use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};
use crate::http::websocket;

/// A tunnel that a client asks for, with the answer of an upstream that has read the request's key.
#[derive(Debug)]
pub(super) struct Tunnel(websocket::Accept);

impl Tunnel {
    /// Turns an extended CONNECT for a WebSocket into a request to upgrade. Returns other requests
    /// as they are, also those that state content, which CONNECT has not (RFC 9110 section 9.3.6).
    pub(super) fn of(request: http::Request<RequestBody>) -> (Request<RequestBody>, Option<Self>) {
        let is_websocket = || {
            let protocol = request.extensions().get::<Protocol>();
            protocol.is_some_and(|protocol| protocol.as_str() == "websocket")
        };
        let has_content = || request.headers().contains_key(CONTENT_LENGTH);
        if *request.method() != Method::CONNECT || !is_websocket() || has_content() {
            return (Request::from(request), None);
        }
        let mut request = Request::from(request).map(RequestBody::into_tunnel);
        *request.method_mut() = Method::GET;
        websocket::add_key(request.headers_mut());
        let accept = websocket::Accept::of(request.headers());
        (request, Some(Tunnel(accept)))
    }

    /// Turns the response to the upgrade into one to CONNECT, with its body; true if that is the
    /// tunnel's, because the upstream has switched protocols.
    pub(super) fn open<B>(self, mut response: Response<B>) -> (Response<Option<B>>, bool) {
        let status = response.status();
        let is_accepted = self.0.is_in(response.headers());
        if status == StatusCode::SWITCHING_PROTOCOLS && is_accepted {
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
            return (response.map(Some), true);
        }
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            // To a client of HTTP/2 this would be an open tunnel. Content may say why it is none.
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
        }
        if status == StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().remove(CONTENT_LENGTH);
            return (response.map(|_| None), false);
        }
        (response.map(Some), false)
    }
}
