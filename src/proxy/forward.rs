//! Forwarding: the request goes to its upstream, and the response head comes back.

use std::future::poll_fn;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, HeaderName,
    HeaderValue, UPGRADE,
};
use http::{StatusCode, Version};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use super::body::{ResponseBody, empty_response};
use super::echo::echo;
use super::exchange::Exchange;
use super::gateway::body::{DIGESTS, ask_for_usage, change_body};
use super::rewrite::{self, origin_form};
use super::ruleset::{ForwardedPath, Route};
use super::target::RequestTarget;
use crate::http::body::{RequestBody, RequestBodyError};
use crate::http::forwarded::{self, Peer, X_FORWARDED_PREFIX};
use crate::http::headers::Headers;
use crate::http::max_forwards::NoCount;
use crate::http::message::{Request, Response};
use crate::http::upgrade::Upgrades;
use crate::http::{event_stream, grpc, hop_by_hop, max_forwards};
use crate::proxy::answers::error::{Error, bad_request};
use crate::rules::{Key, ResponseOrigin};
use crate::upstream::{BALANCE_SECRET, BodyReplay, Cluster, OutboundRequest, UpstreamBody};

/// The longest time to receive a body that goes nowhere.
const MAX_RECEIVING: Duration = Duration::from_secs(60);

/// The hash of the key by which the route's upstream chooses a host. `None` if it hashes none, or a
/// part is missing or has several values.
pub(super) fn balance_key(
    exchange: &Exchange,
    request: &Request<RequestBody>,
    target: &RequestTarget,
) -> Option<u64> {
    let (context, route) = (&exchange.context, exchange.route());
    // The key is for the upstream of the route.
    let descriptor = route
        .balance_key
        .as_ref()
        .filter(|_| exchange.routed().is_none())?;
    let token = context.token(route, request.headers());
    let head = target.head(request, context.sender(&context.client, request.headers()));
    let head = head.with_token(token.as_ref()).with_body(context.body());
    let head = head.with_client(context.known_client());
    let key = descriptor.fingerprint(&BALANCE_SECRET, &head);
    context.count_identity();
    match key {
        Key::Bucket(hash) => Some(hash.bits()),
        Key::Skip | Key::Refuse => None,
    }
}

/// Forwards the request to its upstream. `key` is the hash of its [`balance_key`].
///
/// # Errors
/// There is no response: no route, a body that is too large, an upstream that fails.
pub(super) async fn forward(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    path: Option<String>,
    key: Option<u64>,
) -> Result<Response<ResponseBody>, Error> {
    let route = exchange.route();
    let upstream = exchange.upstream().ok_or(Error::NoRoute)?;
    if request.body().size_hint().lower() > route.max_body {
        return Err(Error::TooLarge);
    }
    let answers = max_forwards::count_down(request)
        .map_err(|NoCount| bad_request("Max-Forwards is not one whole number."))?;
    if answers {
        exchange.author = ResponseOrigin::Proxy;
        return Ok(empty_response(StatusCode::OK));
    }
    if let Some(routed) = exchange.routed()
        && !routed.changes.is_empty()
        && !request.body().is_end_stream()
    {
        let most = route.body.as_ref().map_or(0, |body| body.limit);
        if request.body().held().is_none_or(|held| held.len() > most) {
            return Err(Error::TooLarge);
        }
        change_body(request, &routed.changes)?;
    }
    prepare(request, path, exchange, route)?;
    let leaves_report_out = exchange.context.body().is_some() && ask_for_usage(exchange, request)?;
    let Some(cluster) = upstream.cluster() else {
        let response = echo(request);
        learn(exchange, request, &response);
        return Ok(response);
    };
    exchange.enter_upstream(upstream)?;
    let mut outbound = outbound(request, exchange, cluster, key);
    // Boxed: both futures are then smaller than 1 KiB, and quickly allocated.
    let sent = match &route.response {
        None => Box::pin(cluster.send(&mut outbound)).await,
        Some(changes) => {
            let waiting = &exchange.context.client.connection.informational;
            let mut sending = Box::pin(cluster.send(&mut outbound));
            let sending = poll_fn(move |cx| {
                let polled = sending.as_mut().poll(cx);
                waiting.change(|headers| changes.remove(|name| headers.remove(name)));
                polled
            });
            sending.await
        }
    };
    let response = sent.map_err(Error::Upstream)?;
    let deadline = outbound.deadline;
    exchange.response_arrived(response.status());
    let mut response = forwarded_response(response, deadline);
    if leaves_report_out {
        response = without_report(response);
    }
    if let ForwardedPath::Rewritten(rewrite) = &exchange.route().rewrite.path
        && rewrite.responses
    {
        rewrite::restore(rewrite, request, response.headers_mut());
    }
    learn(exchange, request, &response);
    Ok(response)
}

/// Rewrites the request for the upstream, and bounds its body.
fn prepare(
    request: &mut Request<RequestBody>,
    path: Option<String>,
    exchange: &Exchange,
    route: &Route,
) -> Result<(), Error> {
    let ruleset = exchange.context.ruleset.whole();
    let upgrade = upgrade(request, &route.upgrades)?;
    rewrite_headers(request, exchange, route, upgrade);
    if let Some(target) = origin_form(request.uri(), path, &route.rewrite.path)? {
        *request.uri_mut() = target;
    }
    request
        .body_mut()
        .bound(route.max_body, ruleset.body_timeout);
    let writes_fields = route.rewrite.changes_fields()
        || !route.told_fields.is_empty()
        || ruleset.client_ip.has_own_field();
    if writes_fields {
        request.body_mut().withhold_trailers();
    }
    Ok(())
}

/// The request with all that a cluster needs to send it.
fn outbound<'a>(
    request: &'a mut Request<RequestBody>,
    exchange: &'a Exchange,
    cluster: &'a Cluster,
    key: Option<u64>,
) -> OutboundRequest<'a> {
    let connection = &exchange.context.client.connection;
    // HTTP/1.0 has no interim responses (RFC 9110 section 15.2).
    let is_understood = request.version() > Version::HTTP_10;
    let deadline = grpc::timeout(request.headers()).map(|limit| {
        let left = limit.saturating_sub(exchange.elapsed());
        (Instant::now() + left, limit)
    });
    let admission = exchange.admission();
    let lowered = admission.map(|admission| admission.lowered(exchange.route()));
    OutboundRequest {
        spec: cluster.spec(),
        client: connection,
        worker: connection.worker,
        request,
        informational: is_understood.then_some(&connection.informational),
        dscp: lowered.and_then(|mut lowered| lowered.find_map(|(_, overflow)| overflow.dscp)),
        key,
        endpoint: &exchange.endpoint,
        attempts: &exchange.attempts,
        pending: &exchange.pending,
        deadline,
        replay: BodyReplay::Once,
        is_owed: &exchange.is_owed,
    }
}

/// Teaches decoys the look of real responses, and how long they take.
pub(super) fn learn(
    exchange: &Exchange,
    request: &Request<RequestBody>,
    response: &Response<ResponseBody>,
) {
    // The answer to a question is that of no other request.
    if let Some(answers) = &exchange.route().learned_responses
        && !exchange.context.is_question()
    {
        answers.learn(request.method(), response, exchange.elapsed());
    }
}

/// Takes the body of a request that gets a decoy as [`forward`] does, and sends it nowhere.
///
/// # Errors
/// The body is larger than the route allows.
pub(super) async fn receive(
    exchange: &Exchange,
    request: &mut Request<RequestBody>,
) -> Result<(), Error> {
    let route = exchange.route();
    if request.body().size_hint().lower() > route.max_body {
        return Err(Error::TooLarge);
    }
    let quiet = exchange.context.ruleset.whole().body_timeout;
    let body = request.body_mut();
    body.bound(route.max_body, quiet);
    let reading = timeout(MAX_RECEIVING, async {
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(())
    });
    match reading.await {
        Ok(Err(RequestBodyError::TooLarge)) => Err(Error::TooLarge),
        // Any other end of the body ends the connection after the response.
        _ => Ok(()),
    }
}

fn forwarded_response(
    mut response: Response<UpstreamBody>,
    deadline: Option<(Instant, Duration)>,
) -> Response<ResponseBody> {
    let version = std::mem::replace(response.version_mut(), Version::HTTP_11);
    let upgrade = response.headers().get_owned(UPGRADE);
    hop_by_hop::remove(response.headers_mut());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let upgrade = upgrade.map(|upgrade| (UPGRADE, upgrade));
        response.headers_mut().extend(upgrade);
    }
    let (name, value) = forwarded::via(version);
    response.headers_mut().append(name, value);
    // A tunnel has no end to wait for.
    let deadline = deadline.filter(|_| response.status() != StatusCode::SWITCHING_PROTOCOLS);
    response.map(|body| ResponseBody::upstream(body, deadline))
}

/// Leaves the report of usage out of a stream that the client hasn't asked for it.
fn without_report(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    let content_type = headers.get(CONTENT_TYPE);
    let is_stream = content_type.is_some_and(event_stream::is_content_type);
    if is_stream && !headers.contains(CONTENT_ENCODING) {
        headers.remove(CONTENT_LENGTH);
        for name in DIGESTS {
            headers.remove(HeaderName::from_static(name));
        }
        return response.map(ResponseBody::without_report);
    }
    response
}

/// The protocols to which the upstream may switch, if the request asks for some that are allowed. A
/// request for others is forwarded without.
///
/// # Errors
/// The request is a tunnel over HTTP/2, which nothing else can stand for.
fn upgrade(
    request: &mut Request<RequestBody>,
    allowed: &Upgrades,
) -> Result<Option<HeaderValue>, Error> {
    if !request.body().is_tunnel() {
        return Ok(None);
    }
    let upgrade = match request.version() {
        Version::HTTP_2 if allowed.allows(b"websocket") => {
            Some(HeaderValue::from_static("websocket"))
        }
        Version::HTTP_2 => {
            return Err(Error::Request {
                status: StatusCode::NOT_IMPLEMENTED,
                reason: "WebSockets are not served here.",
            });
        }
        _ => allowed.allowed(request.headers()),
    };
    if upgrade.is_none() {
        *request.body_mut() = RequestBody::empty();
    }
    Ok(upgrade)
}

/// Rewrites the fields for the upstream. The client's hop-by-hop fields are removed first, so that
/// its Connection field cannot name fields of the proxy.
fn rewrite_headers(
    request: &mut Request<RequestBody>,
    exchange: &Exchange,
    route: &Route,
    upgrade: Option<HeaderValue>,
) {
    let rewrite = &route.rewrite;
    let version = request.version();
    let host = request
        .uri()
        .authority()
        .and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    let context = &exchange.context;
    let changes_accept = rewrite.changes_accept() || !route.told_fields.is_empty();
    if changes_accept || !context.ruleset.whole().error_pages.is_empty() {
        context.keep_head(request);
    }
    let headers = request.headers_mut();
    hop_by_hop::remove(headers);
    // The proxy asks for the body itself when the upstream takes it.
    headers.remove(EXPECT);
    if let Some(host) = host {
        headers.insert_missing(HOST, host);
    }
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
    if let Some(protocols) = upgrade {
        headers.append(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.append(UPGRADE, protocols);
    }
    if let Some(debug) = &context.ruleset.whole().debug {
        headers.remove(&debug.header);
    }
    let (rules, trust) = (&context.ruleset.whole().client_ip, context.trust());
    context.client.forwarding.write(trust, rules, headers);
    if trust == Peer::Untrusted {
        rules.remove_untrusted(headers);
    }
    if let ForwardedPath::Rewritten(path) = &rewrite.path
        && let Some(prefix) = &path.forwarded_prefix
    {
        headers.append(X_FORWARDED_PREFIX, prefix.clone());
    }
    let (via, value) = forwarded::via(version);
    headers.append(via, value);
    if let Some(trace) = &context.trace {
        trace.write(headers);
    }
    if !route.told_fields.is_empty() {
        // Fields of the client are removed: an upstream believes them.
        for name in &route.told_fields {
            headers.remove(name);
        }
        if let Some(admission) = exchange.admission() {
            admission.tell_upstream(route, headers);
        }
    }
    // Of a request for a WebSocket, too: the answer may be another.
    exchange.admission.ask_for_costs(route, headers);
    for name in &rewrite.remove_headers {
        headers.remove(name);
    }
    for (name, value) in &rewrite.set_headers {
        headers.insert(name, value.clone());
    }
}

/// HTTP/2 may split cookies into several fields; HTTP/1.1 may not (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut Headers) {
    let cookies: Vec<_> = headers.get_all(COOKIE).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}
