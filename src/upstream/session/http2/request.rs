//! Requests in the form of HTTP/2 (RFC 9113 section 8.3.1).

use http::header::{self, HOST, HeaderMap, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Uri, Version};

use crate::http::body::RequestBody;
use crate::http::hop_by_hop::is_of_connection;
use crate::http::message::Request;

/// The head of `request`, with `:authority` instead of Host and without the fields of a connection.
/// A request for a WebSocket becomes an extended CONNECT (RFC 8441). `None` if Host is no authority.
pub(super) fn head(request: &Request<RequestBody>, scheme: Scheme) -> Option<http::Request<()>> {
    let is_tunnel = request.body().is_tunnel();
    let authority = Authority::try_from(request.headers().get(HOST)?).ok()?;
    let path = request.uri().path_and_query();
    let path = path.cloned().unwrap_or(PathAndQuery::from_static("/"));
    let uri = Uri::builder().scheme(scheme).authority(authority);
    let mut head = http::Request::new(());
    *head.uri_mut() = uri.path_and_query(path).build().ok()?;
    *head.version_mut() = Version::HTTP_2;
    *head.headers_mut() = fields(request, is_tunnel);
    if is_tunnel {
        *head.method_mut() = Method::CONNECT;
        let websocket = h2::ext::Protocol::from_static("websocket");
        head.extensions_mut().insert(websocket);
    } else {
        *head.method_mut() = request.method().clone();
    }
    Some(head)
}

fn fields(request: &Request<RequestBody>, is_tunnel: bool) -> HeaderMap {
    request.headers().to_map(|name, value| match *name {
        HOST => false,
        TE => value == b"trailers",
        header::SEC_WEBSOCKET_KEY => !is_tunnel,
        _ => !is_of_connection(name),
    })
}
