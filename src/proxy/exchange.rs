//! One request and its response, from the first byte of the one to the last of the other: what is
//! counted and logged of it, and what limits get back. It ends when it is dropped, so that a client that leaves is
//! counted too, and gives back what it took.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;

use super::admission::Admission;
use super::body::{ResponseBody, ResponseBodyError};
use super::error::Error;
use super::gateway::{Client, Gateway};
use super::limit_headers::Styles;
use super::respond;
use super::settle::Answered;
use super::snapshot::{Policy, Route, RunningUpstream, Snapshot};
use super::tag::Tagged;
use crate::clock::{Clock, Timestamp};
use crate::http_ext::body::RequestBody;
use crate::http_ext::forwarded::Peer;
use crate::rules::{Author, Head};
use crate::telemetry::access_log::{AccessLog, Record};
use crate::telemetry::metrics::LimitDecision;
use crate::upstream::Fault;

/// What is logged of a client that left before there was an answer; nginx's number for it.
static CLIENT_CLOSED_REQUEST: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(499).expect("a number from 100 to 999"));

/// What is logged of a request that gets no answer; nginx's number for it.
static NO_RESPONSE: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(444).expect("a number from 100 to 999"));

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The exchange of one request for one response.
#[derive(Debug)]
pub(super) struct Exchange {
    gateway: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    client: Arc<Client>,
    client_ip: IpAddr,
    method: Method,
    version: Version,
    accept: Option<HeaderValue>,
    started: Timestamp,
    /// When its turn came; `started` unless it had to wait.
    forwarded: Timestamp,
    route: Option<Arc<Route>>,
    /// The policy for whose permits it stands in line, or stood there last.
    line: Option<Arc<str>>,
    admission: Option<Admission>,
    /// What the limits that tag made of it.
    tagged: Tagged,
    status: Option<StatusCode>,
    author: Author,
    sent: u64,
    /// From the request's head, or its turn, to the upstream's response head.
    upstream: Option<Duration>,
    logged: Option<Box<Logged>>,
}

/// What the access log wants to know of a request, and the request itself no longer has at its end.
#[derive(Debug)]
struct Logged {
    uri: Uri,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
}

impl Exchange {
    /// Begins with the head of a request. The clock is read here, once for all that is decided.
    pub(super) fn begin(
        gateway: Arc<Gateway>,
        client: Arc<Client>,
        request: &Request<RequestBody>,
    ) -> Box<Self> {
        let snapshot = gateway.snapshot();
        let peer = client.connection.peer.ip();
        let started = gateway.clock.now();
        // It moves from future to future, and into the response's body.
        Box::new(Exchange {
            client_ip: snapshot.client_ip.resolve(peer, request.headers()),
            logged: snapshot
                .access_log
                .is_some()
                .then(|| Box::new(Logged::new(request))),
            method: request.method().clone(),
            version: request.version(),
            accept: request.headers().get(header::ACCEPT).cloned(),
            started,
            forwarded: started,
            gateway,
            snapshot,
            client,
            route: None,
            line: None,
            admission: None,
            tagged: Tagged::default(),
            status: None,
            author: Author::Upstream,
            sent: 0,
            upstream: None,
        })
    }

    /// The ruleset that this request is served by, whatever is loaded meanwhile.
    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The client's connection.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Who the client is.
    pub(super) fn client_ip(&self) -> IpAddr {
        self.client_ip
    }

    /// Whether what the peer says of the client is believed.
    pub(super) fn trust(&self) -> Peer {
        match self
            .snapshot
            .client_ip
            .trusts(self.client.connection.peer.ip())
        {
            true => Peer::Trusted,
            false => Peer::Untrusted,
        }
    }

    /// The instant at which everything about this request is decided.
    pub(super) fn started(&self) -> Timestamp {
        self.started
    }

    /// When its turn came, at which it is decided on: when it started, unless it had to wait.
    pub(super) fn turn(&self) -> Timestamp {
        self.forwarded
    }

    /// It stands in the line of this policy.
    pub(super) fn stands(&mut self, policy: &Policy) {
        self.line = Some(Arc::clone(&policy.name));
    }

    /// The header styles of its response.
    pub(super) fn styles(&self) -> &Styles {
        &self.snapshot.styles
    }

    /// The upstream's response head is there.
    pub(super) fn answered(&mut self, upstream: &RunningUpstream) {
        let elapsed = self.gateway.clock.now().since(self.forwarded);
        upstream.metrics.record(elapsed);
        self.upstream = Some(elapsed);
    }

    /// The answer to a request with these header fields that met `error`.
    pub(super) fn failed(&mut self, error: &Error, request: &HeaderMap) -> Response<ResponseBody> {
        if let (Error::Upstream(error), Some(running)) = (error, &self.route().upstream)
            && error.fault() != Fault::Client
        {
            running
                .complaints
                .report(self.started, running.upstream.name(), error);
        }
        self.author = Author::Proxy;
        let mut response = respond::error(error, self.accept.as_ref(), request);
        // Nobody knows for certain where a request ends that is refused for its head.
        if matches!(error, Error::Request { .. }) && self.version <= Version::HTTP_11 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    /// Finds the route that takes the request.
    pub(super) fn find_route(&mut self, head: &Head<'_>) -> Arc<Route> {
        let route = self.snapshot.route(self.snapshot.router.find(head));
        self.route = Some(Arc::clone(route));
        Arc::clone(route)
    }

    /// Keeps what the limits said, for the header fields of whatever answer follows.
    pub(super) fn decided(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    /// Keeps what the limits that tag made of it.
    pub(super) fn keep_tagged(&mut self, tagged: Tagged) {
        self.tagged = tagged;
    }

    /// What the limits that tag made of it.
    pub(super) fn tagged(&self) -> &Tagged {
        &self.tagged
    }

    /// The answer of the limit that refuses, as it is now; `None` where none does.
    pub(super) fn refusal_now(&mut self, head: &Head<'_>) -> Option<Response<ResponseBody>> {
        let admission = self.admission.as_mut()?;
        admission.answered_at(self.gateway.clock.now());
        admission.refusal(self.route.as_ref()?, &self.snapshot.styles, head)
    }

    /// The request has waited, and its turn has come: what is said of its limits is said from now on.
    pub(super) fn waited(&mut self) {
        self.forwarded = self.gateway.clock.now();
        if let Some(admission) = &mut self.admission {
            admission.answered_at(self.forwarded);
        }
    }

    /// What its limits said, once they were asked.
    pub(super) fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// The clock by which it waits.
    pub(super) fn clock(&self) -> &Arc<Clock> {
        &self.gateway.clock
    }

    /// Ends with no answer at all.
    pub(super) fn unanswered(mut self: Box<Self>) {
        self.status = Some(*NO_RESPONSE);
    }

    /// Makes `response` the answer of this exchange, which ends with its body.
    pub(super) fn complete(mut self: Box<Self>, response: &mut Response<ResponseBody>) {
        self.status = Some(response.status());
        self.settle_by_head(response);
        if let (Some(admission), Some(route)) = (&self.admission, &self.route) {
            admission.write_headers(route, &self.snapshot.styles, response.headers_mut());
        }
        let head_only = self.method == Method::HEAD;
        let length = response.body().size_hint().exact();
        if let Some(length) = length.filter(|length| head_only && *length > 0) {
            let field = response.headers_mut().entry(header::CONTENT_LENGTH);
            field.or_insert_with(|| HeaderValue::from(length));
        }
        // HTTP/1 would leave the body out by itself, HTTP/2 would break its rules and send it.
        if head_only {
            *response.body_mut() = ResponseBody::own(Bytes::new());
        }
        response.body_mut().ends(self);
    }

    /// Settles what the head of the response can settle.
    fn settle_by_head(&mut self, response: &Response<ResponseBody>) {
        if !self.has_dues() {
            return;
        }
        let (Some(route), now) = (self.route.as_ref(), self.gateway.clock.now()) else {
            return;
        };
        let answered = Answered {
            status: response.status(),
            author: self.author,
            headers: response.headers(),
        };
        if let Some(admission) = &mut self.admission {
            admission.settle_by_head(route, answered, now);
        }
        self.tagged.settle_by_head(route, answered, now);
    }

    /// Settles the rest by what has been sent; without a response all stays as it was charged.
    fn settle_by_bytes(&mut self) {
        if self.status.is_none() || !self.has_dues() {
            return;
        }
        let (Some(route), now) = (self.route.as_ref(), self.gateway.clock.now()) else {
            return;
        };
        if let Some(admission) = &mut self.admission {
            admission.settle_by_bytes(route, self.sent, now);
        }
        self.tagged.settle_by_bytes(route, self.sent, now);
    }

    fn has_dues(&self) -> bool {
        self.admission.as_ref().is_some_and(Admission::has_dues) || self.tagged.has_dues()
    }

    /// `length` more bytes of the body have been sent.
    pub(super) fn sent(&mut self, length: usize) {
        self.sent += length as u64;
    }

    /// The response broke off.
    pub(super) fn broken(&self, error: &ResponseBodyError) {
        tracing::debug!(
            error = error as &dyn std::error::Error,
            "response broken off"
        );
    }

    fn elapsed(&self) -> Duration {
        self.gateway.clock.now().since(self.started)
    }

    fn log(&self, log: &AccessLog, logged: &Logged, status: StatusCode, duration: Duration) {
        let route = self.route();
        let (policy, decision) = match &self.admission {
            Some(admission) => admission.logged(route),
            // It has left before its turn.
            None => match &self.line {
                Some(policy) => (&**policy, LimitDecision::Delayed.as_str()),
                None => ("", LimitDecision::Allowed.as_str()),
            },
        };
        let record = Record {
            time: self.started,
            client_ip: self.client_ip,
            method: self.method.as_str().as_bytes(),
            host: text(&logged.host),
            path: logged
                .uri
                .path_and_query()
                .map_or(b"", |target| target.as_str().as_bytes()),
            version: self.version,
            status: status.as_u16(),
            bytes: self.sent,
            duration,
            delay: self.delay(duration),
            upstream: self.upstream,
            route: route.name.as_bytes(),
            policy: policy.as_bytes(),
            decision,
            referer: text(&logged.referer),
            user_agent: text(&logged.user_agent),
            request_id: text(&logged.request_id),
        };
        log.record(self.client.connection.worker, &record);
    }

    /// For how long it had to wait, if it had to.
    fn delay(&self, duration: Duration) -> Option<Duration> {
        let Some(admission) = &self.admission else {
            return self.line.as_ref().map(|_| duration);
        };
        let until = match admission.delayed_until() {
            None if self.line.is_some() => self.forwarded,
            until => until?,
        };
        Some(until.since(self.started))
    }

    fn route(&self) -> &Route {
        self.route.as_ref().unwrap_or(&self.snapshot.unmatched)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.settle_by_bytes();
        let status = self.status.unwrap_or(*CLIENT_CLOSED_REQUEST);
        let elapsed = self.elapsed();
        self.gateway.metrics.record(&self.method, status);
        self.route().metrics.record(status, elapsed);
        if let (Some(log), Some(logged)) = (&self.snapshot.access_log, &self.logged) {
            self.log(log, logged, status, elapsed);
        }
    }
}

impl Logged {
    fn new<B>(request: &Request<B>) -> Self {
        let field = |name| request.headers().get(name).cloned();
        // HTTP/2 has it in the target.
        let authority = || HeaderValue::from_str(request.uri().authority()?.as_str()).ok();
        Logged {
            uri: request.uri().clone(),
            host: field(header::HOST).or_else(authority),
            referer: field(header::REFERER),
            user_agent: field(header::USER_AGENT),
            request_id: field(X_REQUEST_ID),
        }
    }
}

/// What a field says; nothing where it is absent.
fn text(field: &Option<HeaderValue>) -> &[u8] {
    field.as_ref().map_or(b"", HeaderValue::as_bytes)
}
