//! Sends an admitted request to its upstream, and takes the head of the response.

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;

use super::body::ResponseBody;
use super::echo::echo;
use super::error::Error;
use super::exchange::Exchange;
use super::snapshot::{Rewrite, Route};
use crate::http_ext::body::RequestBody;
use crate::http_ext::{forwarded, hop_by_hop};
use crate::upstream::{Endpoints, RunningTarget};

/// Forwards the request, and answers with what the route's upstream says.
///
/// # Errors
/// Where no response comes: no route, a body that is too large, an upstream that fails.
pub(super) async fn forward(
    exchange: &Exchange,
    route: &Route,
    mut parts: Parts,
    path: Option<String>,
    body: Incoming,
) -> Result<Response<ResponseBody>, Error> {
    let running = route.upstream.as_ref().ok_or(Error::NoRoute)?;
    if body.size_hint().lower() > route.max_body {
        return Err(Error::TooLarge);
    }
    rewrite_target(&mut parts, path, &route.rewrite)?;
    rewrite_headers(&mut parts, exchange, &route.rewrite);
    parts.version = Version::HTTP_11;
    let body = RequestBody::new(body, route.max_body, exchange.snapshot().body_timeout);
    let request = Request::from_parts(parts, body);
    match running.upstream.target() {
        RunningTarget::Echo => Ok(echo(request)),
        RunningTarget::Endpoints(endpoints) => ask(exchange, endpoints, request).await,
    }
}

async fn ask(
    exchange: &Exchange,
    endpoints: &Endpoints,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, Error> {
    let worker = exchange.connection().worker;
    let (response, lease) = endpoints.send(worker, request).await?;
    let (mut parts, body) = response.into_parts();
    hop_by_hop::remove(&mut parts.headers);
    forwarded::via(&mut parts.headers, parts.version);
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    let body = ResponseBody::upstream(body, lease, endpoints.timeouts().idle);
    Ok(Response::from_parts(parts, body))
}
