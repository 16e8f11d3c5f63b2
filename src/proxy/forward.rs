//! Sends an admitted request to its upstream, and takes the head of the response.

use std::time::Duration;

use http::header::{COOKIE, EXPECT, HOST, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;

use super::body::ResponseBody;
use super::echo::echo;
use super::error::Error;
use super::exchange::Exchange;
use super::snapshot::{Rewrite, Route};
use crate::http_ext::body::RequestBody;
use crate::http_ext::{forwarded, hop_by_hop};
use crate::upstream::{Lease, RunningTarget};

/// Forwards the request, and answers with what the route's upstream says.
///
/// # Errors
/// Where no response comes: no route, a body that is too large, an upstream that fails.
pub(super) async fn forward(
    exchange: &mut Exchange,
    route: &Route,
    mut parts: Parts,
    path: Option<String>,
    body: Incoming,
) -> Result<Response<ResponseBody>, Error> {
    let running = route.upstream.as_ref().ok_or(Error::NoRoute)?;
    if body.size_hint().lower() > route.max_body {
        return Err(Error::TooLarge);
    }
    rewrite_headers(&mut parts, exchange, &route.rewrite);
    parts.uri = origin_form(&parts.uri, path, &route.rewrite)?;
    parts.version = Version::HTTP_11;
    let body = RequestBody::new(body, route.max_body, exchange.snapshot().body_timeout);
    let request = Request::from_parts(parts, body);
    match running.upstream.target() {
        RunningTarget::Echo => Ok(echo(request)),
        RunningTarget::Endpoints(endpoints) => {
            let worker = exchange.client().connection.worker;
            let (response, lease) = endpoints.send(worker, request).await?;
            exchange.answered(running);
            Ok(forwarded_response(
                response,
                lease,
                endpoints.timeouts().idle,
            ))
        }
    }
}

fn forwarded_response(
    response: Response<Incoming>,
    lease: Lease,
    idle: Duration,
) -> Response<ResponseBody> {
    let (mut parts, body) = response.into_parts();
    hop_by_hop::remove(&mut parts.headers);
    forwarded::via(&mut parts.headers, parts.version);
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    Response::from_parts(parts, ResponseBody::upstream(body, lease, idle))
}

/// The target as an origin server is sent it: the path that was matched, and the query.
fn origin_form(uri: &Uri, path: Option<String>, rewrite: &Rewrite) -> Result<Uri, Error> {
    let whole = path.as_deref().unwrap_or(uri.path());
    let stripped = rewrite
        .strip_prefix
        .as_deref()
        .and_then(|prefix| strip(whole, prefix));
    if path.is_none() && stripped.is_none() {
        let same = uri.path_and_query().cloned();
        return Ok(same.map_or_else(Uri::default, Uri::from));
    }
    let path = stripped.unwrap_or(whole);
    let slash = if path.starts_with('/') { "" } else { "/" };
    let target = match uri.query() {
        Some(query) => format!("{slash}{path}?{query}"),
        None => format!("{slash}{path}"),
    };
    let target = PathAndQuery::try_from(target).map_err(|_| Error::Request {
        status: StatusCode::BAD_REQUEST,
        reason: "The path cannot be forwarded.",
    })?;
    Ok(Uri::from(target))
}

/// What is left of `path` behind `prefix`, if that is the whole of its first segments.
fn strip<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let prefix = prefix.trim_end_matches('/');
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The fields that the upstream is sent. The client's for this hop go before ours are added, so that
/// nobody removes ours by naming them in Connection.
fn rewrite_headers(parts: &mut Parts, exchange: &Exchange, rewrite: &Rewrite) {
    let headers = &mut parts.headers;
    hop_by_hop::remove(headers);
    // The proxy invites the body itself, when the upstream takes it.
    headers.remove(EXPECT);
    if let Some(authority) = parts.uri.authority()
        && !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(headers);
    }
    exchange
        .client()
        .forwarding
        .write(exchange.trust(), headers);
    forwarded::via(headers, parts.version);
    for name in &rewrite.remove_headers {
        headers.remove(name);
    }
    for (name, value) in &rewrite.set_headers {
        headers.insert(name, value.clone());
    }
}

/// HTTP/2 may split cookies into several fields, HTTP/1.1 may not (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}
