//! One request and its response, from the first byte of the one to the last of the other: what is
//! counted and logged of it, and what limits get back. It ends when it is dropped, so that a client that leaves is
//! counted too, and gives back what it took.

mod logged;
mod ruleset_lease;

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, StatusCode, Version};
use http_body::{Body, Frame};

use super::admission::Admission;
use super::body::{BodyObserver, ResponseBody, ResponseBodyError};
use super::client::Client;
use super::ruleset::Route;
use crate::clock::{Clock, Timestamp};
use crate::http::body::RequestBody;
use crate::http::forwarded::Peer;
use crate::http::headers::Headers;
use crate::http::message::{Request, Response};
use crate::proxy::admission::redis_charge::PendingRedisCharge;
use crate::proxy::admission::settle::{RequestedFields, ResponseEnd, ResponseHead, Settling};
use crate::proxy::admission::tag::TagDecisions;
use crate::proxy::answers::error::Error;
use crate::proxy::answers::respond;
use crate::rules::{Author, BodyEnd, CheckedToken, Head};
use crate::telemetry::metrics::RequestMetrics;
use crate::upstream::Fault;
use logged::Logged;
use ruleset_lease::RulesetLease;

/// What is logged of a client that left before there was an answer; nginx's number for it.
static CLIENT_CLOSED_REQUEST: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(499).expect("a number from 100 to 999"));

/// What is logged of a request that gets no answer; nginx's number for it.
static NO_RESPONSE: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(444).expect("a number from 100 to 999"));

/// A response of more bytes may take long, as one whose length is not known: it holds no ruleset.
const LONG: u64 = 1024 * 1024;

/// The exchange of one request for one response.
#[derive(Debug)]
pub(super) struct Exchange {
    context: RequestContext,
    /// When its turn came; when it started unless it had to wait.
    forwarded: Timestamp,
    /// The place of the route that takes the request, once it is found.
    place: Option<usize>,
    /// The policy for whose permits it stands in line, or stood there last.
    line: Option<Arc<str>>,
    /// What its limits said: it is large, and stays where it is from the first of them on.
    admission: Admission,
    is_decided: bool,
    /// What the limits that tag made of it.
    tagged: TagDecisions,
    status: Option<StatusCode>,
    author: Author,
    sent: u64,
    /// Costs that the response stated, by policy.
    stated: Vec<(Arc<str>, u32)>,
    /// From the request's head, or its turn, to the upstream's response head.
    upstream: Option<Duration>,
    /// The number of the endpoint that it was sent to last.
    endpoint: Cell<Option<usize>>,
    /// Why there is no response of the upstream's, or not all of it.
    error: Option<&'static str>,
}

/// What is known from the request's head on, and does not change.
#[derive(Debug)]
pub(super) struct RequestContext {
    client: Rc<Client>,
    pub(super) ruleset: RulesetLease,
    /// Who the client is.
    pub client_ip: IpAddr,
    method: Method,
    version: Version,
    accept: Option<Box<[u8]>>,
    /// The instant at which everything about this request is decided, unless it has to wait.
    pub started: Timestamp,
    /// What became of its token, once a limit has asked for a claim.
    pub token: OnceCell<CheckedToken>,
    logged: Option<Logged>,
}

/// What a decision is made of.
pub(super) struct DecisionInputs<'a> {
    pub context: &'a RequestContext,
    /// The route that takes the request.
    pub route: &'a Route,
    /// When its turn came, at which it is decided on: when it started, unless it had to wait.
    pub now: Timestamp,
    /// Where what its limits say goes.
    pub admission: &'a mut Admission,
}

impl Exchange {
    /// Begins with the head of a request. The clock is read here, once for all that is decided.
    pub(super) fn begin(client: Rc<Client>, request: &Request<RequestBody>) -> Box<Self> {
        let snapshot = client.gateway.ruleset();
        let peer = client.connection.peer.ip();
        let started = client.gateway.clock.now();
        let log = snapshot.access_log.as_ref();
        // It moves from future to future, and into the response's body.
        Box::new(Exchange {
            context: RequestContext {
                client_ip: snapshot.client_ip.resolve(peer, request.headers()),
                logged: log.map(|log| Logged::new(request, log.spec().format)),
                method: request.method().clone(),
                version: request.version(),
                accept: request.headers().get(header::ACCEPT).map(Box::from),
                started,
                token: OnceCell::new(),
                ruleset: RulesetLease::new(snapshot),
                client,
            },
            forwarded: started,
            place: None,
            line: None,
            admission: Admission::default(),
            is_decided: false,
            tagged: TagDecisions::default(),
            status: None,
            author: Author::Upstream,
            sent: 0,
            stated: Vec::new(),
            upstream: None,
            endpoint: Cell::new(None),
            error: None,
        })
    }

    /// What it began with.
    pub(super) fn context(&self) -> &RequestContext {
        &self.context
    }

    /// What a decision is made of, once the route is found.
    pub(super) fn decision_inputs(&mut self) -> DecisionInputs<'_> {
        DecisionInputs {
            route: self.context.ruleset.route(self.place),
            context: &self.context,
            now: self.forwarded,
            admission: &mut self.admission,
        }
    }

    /// Asks Redis what is to be asked.
    pub(super) async fn ask(&self, asking: Box<PendingRedisCharge>) -> Box<PendingRedisCharge> {
        let worker = self.context.client.connection.worker;
        match &self.context.ruleset.whole().redis {
            Some(store) => {
                asking
                    .pass(store, self.route(), worker, self.forwarded)
                    .await
            }
            None => asking,
        }
    }

    /// It is decided: what the limits said is for the header fields of whatever answer follows.
    pub(super) fn decided(&mut self) {
        self.is_decided = true;
    }

    /// It stands in the line of this policy.
    pub(super) fn stands(&mut self, policy: Arc<str>) {
        self.line = Some(policy);
    }

    /// Where the number of the endpoint goes that it is sent to.
    pub(super) fn endpoint(&self) -> &Cell<Option<usize>> {
        &self.endpoint
    }

    /// The upstream's response head is there.
    pub(super) fn answered(&mut self) {
        let elapsed = self.context.now().since(self.forwarded);
        if let Some(running) = &self.route().upstream {
            running.metrics.record(elapsed);
        }
        self.upstream = Some(elapsed);
    }

    /// The answer to a request with these header fields that met `error`.
    pub(super) fn failed(&mut self, error: &Error, request: &Headers) -> Response<ResponseBody> {
        if let (Error::Upstream(error), Some(running)) = (error, &self.route().upstream)
            && error.fault() != Fault::Client
        {
            running
                .complaints
                .report(self.context.started, running.upstream.name(), error);
        }
        self.author = Author::Proxy;
        self.error = Some(error.reason());
        let mut response = respond::error(error, self.context.accept.as_deref(), request);
        // Nobody knows for certain where a request ends that is refused for its head.
        if matches!(error, Error::Request { .. }) && self.context.version <= Version::HTTP_11 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    /// The answer to a request that is for this proxy, and asks nothing more than whether it is there.
    pub(super) fn answered_here(&mut self) -> Response<ResponseBody> {
        self.author = Author::Proxy;
        Response::new(ResponseBody::own(Bytes::new()))
    }

    /// Finds the route that takes the request.
    pub(super) fn find_route(&mut self, head: &Head<'_>) {
        self.place = self.context.ruleset.whole().router.find(head);
    }

    /// Keeps what the limits that tag made of it.
    pub(super) fn keep_tagged(&mut self, tagged: TagDecisions) {
        self.tagged = tagged;
    }

    /// What the limits that tag made of it.
    pub(super) fn tagged(&self) -> &TagDecisions {
        &self.tagged
    }

    /// Makes `response` the answer of the limit that refuses, as it is now.
    pub(super) fn refuse_now(&mut self, head: &Head<'_>, response: &mut Response<ResponseBody>) {
        self.admission.answered_at(self.context.now());
        let styles = &self.context.ruleset.whole().styles;
        self.admission.refuse(self.route(), styles, head, response);
    }

    /// The request has waited, and its turn has come: what is said of its limits is said from now on.
    pub(super) fn waited(&mut self) {
        self.forwarded = self.context.now();
        self.admission.answered_at(self.forwarded);
    }

    /// What its limits said, once they were asked.
    pub(super) fn admission(&self) -> Option<&Admission> {
        self.is_decided.then_some(&self.admission)
    }

    /// Ends with no answer at all.
    pub(super) fn unanswered(mut self: Box<Self>) {
        self.status = Some(*NO_RESPONSE);
    }

    /// Makes `response` the answer of this exchange, which ends with its body.
    pub(super) fn complete(mut self: Box<Self>, response: &mut Response<ResponseBody>) {
        self.status = Some(response.status());
        self.settle_by_head(response);
        if let Some(admission) = self.admission() {
            let styles = &self.context.ruleset.whole().styles;
            admission.write_headers(self.route(), styles, response.headers_mut());
        }
        let head_only = self.context.method == Method::HEAD;
        let length = response.body().size_hint().exact();
        if let Some(length) = length.filter(|length| head_only && *length > 0) {
            let headers = response.headers_mut();
            headers.insert_missing(header::CONTENT_LENGTH, length);
        }
        // HTTP/1 would leave the body out by itself, HTTP/2 would break its rules and send it.
        if head_only {
            *response.body_mut() = ResponseBody::own(Bytes::new());
        }
        if response.body().is_end_stream() {
            self.ended();
        }
        let length = response.body().size_hint().exact();
        if length.is_none_or(|length| length > LONG) {
            self.context.ruleset.release(self.place);
        }
        response.body_mut().observe(self);
    }

    /// Settles what the head of the response can settle.
    fn settle_by_head(&mut self, response: &Response<ResponseBody>) {
        let answered = ResponseHead {
            status: response.status(),
            author: self.author,
            headers: response.headers(),
            recorded: &[],
        };
        self.settle(|admission, tagged, settling| {
            admission.settle_by_head(answered, settling);
            tagged.settle_by_head(answered, settling);
        });
    }

    /// Settles the rest at the end of the response's body; without a response all stays as it was charged.
    fn settle_by_body(&mut self, body: BodyEnd<'_>) {
        let ended = self.ended_by(body);
        self.settle(|admission, tagged, settling| {
            admission.settle_by_body(ended, settling);
            tagged.settle_by_body(ended, settling);
        });
    }

    fn ended_by<'b>(&self, body: BodyEnd<'b>) -> ResponseEnd<'b> {
        ResponseEnd {
            status: self.status,
            bytes: self.sent,
            body,
        }
    }

    fn settle(&mut self, by: impl FnOnce(&mut Admission, &mut TagDecisions, &mut Settling<'_>)) {
        if !self.has_dues() {
            return;
        }
        let mut settling = Settling {
            now: self.context.now(),
            route: self.context.ruleset.route(self.place),
            stated: &mut self.stated,
        };
        by(&mut self.admission, &mut self.tagged, &mut settling);
    }

    /// What the upstream has to send so that its response can settle all.
    pub(super) fn wanted(&self) -> RequestedFields {
        let mut wanted = RequestedFields::default();
        self.admission.note_wanted(self.route(), &mut wanted);
        self.tagged.note_wanted(self.route(), &mut wanted);
        wanted
    }

    fn has_dues(&self) -> bool {
        self.admission.has_dues() || self.tagged.has_dues()
    }

    fn elapsed(&self) -> Duration {
        self.context.now().since(self.context.started)
    }

    /// The route that takes the request; what it meets that none takes, also before it is found.
    pub(super) fn route(&self) -> &Route {
        self.context.ruleset.route(self.place)
    }
}

impl BodyObserver for Exchange {
    fn sent(&mut self, frame: &Frame<Bytes>) {
        let Some(data) = frame.data_ref() else {
            return self.settle_by_body(BodyEnd::Complete(frame.trailers_ref()));
        };
        self.sent += data.len() as u64;
        let ended = self.ended_by(BodyEnd::Complete(None));
        self.settle(|admission, tagged, settling| {
            admission.settle_by_piece(data, ended, settling);
            tagged.settle_by_piece(data, ended, settling);
        });
    }

    fn ended(&mut self) {
        self.settle_by_body(BodyEnd::Complete(None));
    }

    fn broken(&mut self, error: &ResponseBodyError) {
        self.error = Some(error.reason());
        tracing::debug!(
            error = error as &dyn std::error::Error,
            "response broken off"
        );
    }

    fn metrics(&self) -> &RequestMetrics {
        &self.context.client.gateway.metrics
    }
}

impl RequestContext {
    /// The client's connection.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The same, to be kept.
    pub(super) fn shared_client(&self) -> &Rc<Client> {
        &self.client
    }

    /// The clock by which everything about this request is decided, and by which it waits.
    pub(super) fn clock(&self) -> &Arc<Clock> {
        &self.client.gateway.clock
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// Whether what the peer says of the client is believed.
    pub(super) fn trust(&self) -> Peer {
        match self
            .ruleset
            .whole()
            .client_ip
            .trusts(self.client.connection.peer.ip())
        {
            true => Peer::Trusted,
            false => Peer::Untrusted,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.settle_by_body(BodyEnd::BrokenOff);
        let status = self.status.unwrap_or(*CLIENT_CLOSED_REQUEST);
        let elapsed = self.elapsed();
        let RequestContext { client, method, .. } = &self.context;
        client.gateway.metrics.record(method, status);
        self.route().metrics.record(status, elapsed);
        if let (Some(log), Some(logged)) = (self.context.ruleset.access_log(), &self.context.logged)
        {
            self.log(log, logged, status, elapsed);
        }
    }
}
