//! One request and its response, from the first byte to the last: metrics, access log, settlement.
//! The exchange ends when it is dropped, so that a client that leaves is counted and returns its
//! permits.

mod kept_head;
mod logged;
mod ruleset_lease;
mod traced;

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
use super::debug_trail::{DebugTrail, RequestOutcome};
use super::ruleset::Route;
use super::upstream_shares::UpstreamShare;
use crate::clock::{Clock, Timestamp};
use crate::http::body::RequestBody;
use crate::http::forwarded::Peer;
use crate::http::headers::Headers;
use crate::http::message::{Request, Response};
use crate::proxy::admission::settle::{RequestedFields, ResponseEnd, ResponseHead, Settling};
use crate::proxy::answers::error::Error;
use crate::proxy::answers::respond::{self, FailedRequest};
use crate::proxy::answers::response_changes::PreparedChanges;
use crate::rules::{BodyEnd, Head, RequestToken, ResponseOrigin, TokenCheck};
use crate::store::{PendingCharge, Undecided};
use crate::telemetry::metrics::RequestMetrics;
use crate::upstream::Upstream;
pub(in crate::proxy) use kept_head::KeptHead;
pub(in crate::proxy) use logged::KeyText;
use logged::LoggedRequest;
use ruleset_lease::RulesetLease;
use traced::RequestTrace;

/// The logged status if the client leaves before the response; nginx has the same number.
static CLIENT_CLOSED_REQUEST: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(499).expect("a number from 100 to 999"));

/// The logged status of a request without a response; nginx has the same number.
static NO_RESPONSE: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(444).expect("a number from 100 to 999"));

/// True for a response by which a limiter refuses: 429, or 503 that says when to retry.
fn is_refusal(response: &Response<ResponseBody>) -> bool {
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => response.headers().get(header::RETRY_AFTER).is_some(),
        _ => false,
    }
}

/// A response with more bytes, or of unknown length, may take long: its exchange releases the
/// ruleset.
const LONG: u64 = 1024 * 1024;

/// The exchange of one request for one response.
#[derive(Debug)]
pub(super) struct Exchange {
    context: RequestContext,
    /// The instant of the last wait's end, or of the start.
    forwarded: Timestamp,
    /// The matched route, once it is found.
    place: Option<usize>,
    /// The policy whose permits the request waits for, or waited for last.
    line: Option<Arc<str>>,
    /// The limits' decisions. This is large, and is never moved.
    admission: Admission,
    is_decided: bool,
    /// The text of the deciding bucket's key, if the access log has it.
    key_text: Option<KeyText>,
    /// The trail for the debug header, if the request has its token.
    trail: Option<Box<DebugTrail>>,
    /// The changes to the response, if the route has any.
    changes: Option<Box<PreparedChanges>>,
    status: Option<StatusCode>,
    author: ResponseOrigin,
    sent: u64,
    /// Costs that the response stated, by policy.
    stated: Vec<(Arc<str>, u32)>,
    /// The time from the start, or the last wait's end, to the upstream's response head; without the
    /// wait for a slot.
    upstream: Option<Duration>,
    /// The number of the last endpoint.
    endpoint: Cell<Option<usize>>,
    /// How many hosts of the upstream were tried.
    pub(super) attempts: Cell<u32>,
    /// How long the request has waited for a slot of its upstream, if it had to.
    pending: Cell<Option<Duration>>,
    /// Its share of the requests in flight at upstreams, once it is forwarded.
    share: OnceCell<UpstreamShare>,
    /// The reason for a missing or incomplete response.
    error: Option<&'static str>,
}

/// Facts of the request that do not change.
#[derive(Debug)]
pub(super) struct RequestContext {
    client: Rc<Client>,
    pub(super) ruleset: RulesetLease,
    pub client_ip: IpAddr,
    method: Method,
    /// The method of the request that a question is about; `None` if the request is no question.
    question: Option<Method>,
    version: Version,
    /// The head as the client sent it, once the request is changed.
    kept: OnceCell<Box<KeptHead>>,
    /// The instant of all decisions, unless the request waits.
    pub started: Timestamp,
    /// The result of checking the token, once a claim was read.
    token: OnceCell<TokenCheck>,
    is_token_counted: Cell<bool>,
    logged: Option<LoggedRequest>,
    /// The trace of the request, if spans are exported.
    pub(super) trace: Option<Box<RequestTrace>>,
}

/// The inputs of a decision.
pub(super) struct DecisionInputs<'a> {
    pub context: &'a RequestContext,
    pub route: &'a Route,
    /// The instant of the decision: the last wait's end, or the start.
    pub now: Timestamp,
    /// The place for the decisions.
    pub admission: &'a mut Admission,
    /// The place for their description, if the request asks for it.
    pub trail: Option<&'a mut DebugTrail>,
}

impl Exchange {
    /// Begins an exchange. All decisions use the time that is read here.
    pub(super) fn begin(client: Rc<Client>, request: &Request<RequestBody>) -> Box<Self> {
        let ruleset = client.gateway.ruleset();
        let peer = client.connection.peer;
        let started = client.gateway.clock.now();
        let log = ruleset.access_log.as_ref();
        let debug = ruleset.debug.as_ref();
        let trail = debug.and_then(|debug| debug.begin(request.headers()));
        let trace = ruleset.spans.as_ref().map(|queue| {
            let trust = Peer::of(ruleset.client_ip.trusts(peer));
            RequestTrace::begin(queue, request.headers(), request.uri().path(), trust)
        });
        // Boxed: it moves from future to future, and into the response body.
        Box::new(Exchange {
            context: RequestContext {
                client_ip: ruleset.client_ip.resolve(peer, request.headers()),
                logged: log.map(|log| LoggedRequest::new(request, log.parts())),
                method: request.method().clone(),
                question: None,
                version: request.version(),
                kept: OnceCell::new(),
                started,
                trace,
                token: OnceCell::new(),
                is_token_counted: Cell::new(false),
                ruleset: RulesetLease::new(ruleset),
                client,
            },
            forwarded: started,
            place: None,
            line: None,
            admission: Admission::default(),
            is_decided: false,
            key_text: None,
            trail,
            changes: None,
            status: None,
            author: ResponseOrigin::Upstream,
            sent: 0,
            stated: Vec::new(),
            upstream: None,
            endpoint: Cell::new(None),
            attempts: Cell::new(0),
            pending: Cell::new(None),
            share: OnceCell::new(),
            error: None,
        })
    }

    pub(super) fn context(&self) -> &RequestContext {
        &self.context
    }

    /// The inputs of a decision, once the route is found.
    pub(super) fn decision_inputs(&mut self) -> DecisionInputs<'_> {
        DecisionInputs {
            route: self.context.ruleset.route(self.place),
            context: &self.context,
            now: self.forwarded,
            admission: &mut self.admission,
            trail: self.trail.as_deref_mut(),
        }
    }

    /// Waits for the decision of the store.
    pub(super) async fn decide(&mut self, charge: Box<PendingCharge>) -> Result<(), Undecided> {
        let worker = self.context.client.connection.worker;
        let limits = &self.context.ruleset.route(self.place).limits;
        let result = &mut self.admission.result;
        charge.decide(worker, limits, result).await
    }

    /// Marks the decision as final: the response gets its rate-limit fields. `key_text` is that of
    /// the deciding bucket, for the access log.
    pub(super) fn set_decided(&mut self, key_text: Option<KeyText>) {
        self.is_decided = true;
        self.key_text = key_text;
    }

    /// Notes that the request waits for the permits of `policy`.
    pub(super) fn note_wait(&mut self, policy: Arc<str>) {
        self.line = Some(policy);
    }

    /// The place for the number of the endpoint.
    pub(super) fn endpoint(&self) -> &Cell<Option<usize>> {
        &self.endpoint
    }

    /// The place for the time that the request waits for a slot of its upstream.
    pub(super) fn pending(&self) -> &Cell<Option<Duration>> {
        &self.pending
    }

    /// Takes a share of the requests in flight at upstreams, for this upstream.
    ///
    /// # Errors
    /// When the client or the upstream has its share, or all are in use.
    pub(super) fn enter_upstream(&self, upstream: &Upstream) -> Result<(), Error> {
        let RequestContext {
            client, client_ip, ..
        } = &self.context;
        let (shares, ruleset) = (
            &client.gateway.upstream_shares,
            self.context.ruleset.whole(),
        );
        let client = || ruleset.client_ip.identify_client(*client_ip);
        let in_flight = || {
            upstream
                .in_flight()
                .filter(|_| ruleset.has_several_clusters())
        };
        let entered = shares.enter(client, in_flight);
        let share = entered.map_err(|refusal| {
            upstream.refuse(refusal);
            shares.log_refusal(refusal, *client_ip, upstream.name());
            Error::NoShare(refusal)
        })?;
        self.share.set(share).expect("a request is forwarded once");
        Ok(())
    }

    /// Notes that the upstream's response head has arrived.
    pub(super) fn response_arrived(&mut self, status: StatusCode) {
        let elapsed = self.context.now().since(self.forwarded);
        let elapsed = elapsed.saturating_sub(self.pending.get().unwrap_or_default());
        if let Some(upstream) = &self.route().upstream {
            upstream.record_response(status, elapsed);
        }
        self.upstream = Some(elapsed);
    }

    /// The response to a request that met `error`.
    pub(super) fn error_response(
        &mut self,
        error: &Error,
        request: &Request<RequestBody>,
    ) -> Response<ResponseBody> {
        if let (Error::Upstream(error), Some(upstream)) = (error, &self.route().upstream)
            && !error.is_clients()
        {
            upstream.record_failure(error, self.context.started);
        }
        self.author = ResponseOrigin::Proxy;
        self.error = Some(error.reason());
        let failed = FailedRequest {
            request,
            kept: self.context.kept.get().map(|kept| &**kept),
            client_ip: self.context.client_ip,
            route: &self.route().name,
            is_question: self.may_be_question(),
        };
        let pages = &self.context.ruleset.whole().error_pages;
        let mut response = respond::error_response(error, failed, pages);
        // The end of a request with an ambiguous head is unknown.
        if matches!(error, Error::Request { .. }) && self.context.version <= Version::HTTP_11 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    /// Another proxy may have asked; also before the route of its question was found.
    fn may_be_question(&self) -> bool {
        let is_unrouted = self.place.is_none();
        self.context.is_question()
            || self.route().decides()
            || is_unrouted && self.context.ruleset.whole().has_questions
    }

    /// The response to a request that ends at this proxy (`Max-Forwards: 0`).
    pub(super) fn own_response(&mut self) -> Response<ResponseBody> {
        self.set_own_response();
        Response::new(ResponseBody::own(Bytes::new()))
    }

    /// Notes that the response is the proxy's own.
    pub(super) fn set_own_response(&mut self) {
        self.author = ResponseOrigin::Proxy;
    }

    /// The proxy itself answers the request if the limits admit it: a question only if some route
    /// takes what it is about.
    pub(super) fn answers_itself(&self) -> bool {
        if self.context.is_question() {
            return self.place.is_some();
        }
        self.answers_preflight() || self.route().answers_itself()
    }

    /// The proxy answers this preflight request.
    pub(super) fn answers_preflight(&self) -> bool {
        let changes = self.changes.as_ref();
        changes.is_some_and(|changes| changes.answers_preflight()) && !self.context.is_question()
    }

    /// The instant of the last decision.
    pub(super) fn decided_at(&self) -> Timestamp {
        self.forwarded
    }

    /// Finds the matched route.
    #[inline]
    pub(super) fn find_route(&mut self, head: &Head<'_>) {
        self.place = self.context.ruleset.whole().router.find(head);
        let route = self.context.ruleset.route(self.place);
        if let Some(changes) = &route.response {
            self.changes = Some(Box::new(changes.prepare(head, &route.name)));
        }
    }

    /// Notes that a proxy asks about this request, which it serves itself. Finds its route; its line
    /// in the access log describes it.
    pub(super) fn set_question(&mut self, request: &Request<RequestBody>, head: &Head<'_>) {
        let log = self.context.ruleset.access_log();
        let logged = log.map(|log| LoggedRequest::new(request, log.parts()));
        self.context.logged = logged;
        self.context.question = Some(head.method.clone());
        self.find_route(head);
    }

    /// Turns `response` into the refusal, with the times of this instant.
    pub(super) fn refuse_now(&mut self, head: &Head<'_>, response: &mut Response<ResponseBody>) {
        self.admission.answered_at(self.context.now());
        let route = self.context.ruleset.route(self.place);
        if let Some(refusing) = self.admission.refusing(route) {
            let styles = &self.context.ruleset.whole().styles;
            self.admission
                .refuse(refusing, route, styles, head, response);
        }
    }

    /// Notes that the request has waited: decisions and their times count from now.
    pub(super) fn resume(&mut self) {
        self.forwarded = self.context.now();
        self.admission.answered_at(self.forwarded);
    }

    /// The limits' decisions, once they are final.
    pub(super) fn admission(&self) -> Option<&Admission> {
        self.is_decided.then_some(&self.admission)
    }

    /// Ends the exchange without a response.
    pub(super) fn end_without_response(mut self: Box<Self>) {
        self.status = Some(*NO_RESPONSE);
    }

    /// Completes `response`, and lets the exchange end with its body.
    pub(super) fn complete(mut self: Box<Self>, response: &mut Response<ResponseBody>) {
        self.status = Some(response.status());
        self.settle_by_head(response);
        if let Some(admission) = self.admission() {
            let styles = &self.context.ruleset.whole().styles;
            let is_upstreams = self.upstream.is_some() && self.author == ResponseOrigin::Upstream;
            let refuses = is_upstreams && is_refusal(response);
            admission.write_headers(self.route(), styles, refuses, response.headers_mut());
        }
        if let Some(prepared) = self.changes.take()
            && let Some(changes) = &self.route().response
        {
            let styles = &self.context.ruleset.whole().styles;
            changes.write(*prepared, styles, response.headers_mut());
        }
        if let Some(trail) = &self.trail {
            self.write_trail(trail, response.headers_mut());
        }
        let head_only = self.context.method == Method::HEAD;
        let length = response.body().size_hint().exact();
        if let Some(length) = length.filter(|length| head_only && *length > 0) {
            let headers = response.headers_mut();
            headers.insert_missing(header::CONTENT_LENGTH, length);
        }
        // A 204 has no length (RFC 9110 section 8.6).
        if response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        // HTTP/1 would leave the body out by itself; HTTP/2 would send it against its rules.
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

    /// Writes the debug header.
    fn write_trail(&self, trail: &DebugTrail, headers: &mut Headers) {
        let route = self.route();
        let request = RequestOutcome {
            route,
            decision: self.admission().map(|admission| {
                let logged = admission.logged(route);
                (logged.name.map_or("", |name| name), logged.word)
            }),
            error: self.error,
            elapsed: self.elapsed(),
            upstream: self.sent_to(route),
            upstream_time: self.upstream,
        };
        if let Some(debug) = &self.context.ruleset.whole().debug {
            debug.write(trail, &request, headers);
        }
    }

    /// Settles the charges whose cost the response head states. The answer to a question is not the
    /// response to its request, so that reserved charges stay.
    fn settle_by_head(&mut self, response: &Response<ResponseBody>) {
        if self.context.is_question() {
            return;
        }
        let answered = ResponseHead {
            status: response.status(),
            author: self.author,
            headers: response.headers(),
            recorded: &[],
        };
        self.settle(|admission, settling| admission.settle_by_head(answered, settling));
    }

    /// Settles the remaining charges at the end of the body. Without a response, reserved charges
    /// stay.
    fn settle_by_body(&mut self, body: BodyEnd<'_>) {
        let ended = self.response_end(body);
        self.settle(|admission, settling| admission.settle_by_body(ended, settling));
    }

    fn response_end<'b>(&self, body: BodyEnd<'b>) -> ResponseEnd<'b> {
        ResponseEnd {
            status: self.status.filter(|_| !self.context.is_question()),
            bytes: self.sent,
            body,
        }
    }

    fn settle(&mut self, by: impl FnOnce(&mut Admission, &mut Settling<'_>)) {
        if !self.admission.has_reserved_charges() {
            return;
        }
        let mut settling = Settling {
            now: self.context.now(),
            route: self.context.ruleset.route(self.place),
            stated: &mut self.stated,
        };
        by(&mut self.admission, &mut settling);
    }

    /// Requirements on the upstream's response, so that it can settle all charges.
    pub(super) fn requested_fields(&self) -> RequestedFields {
        self.admission.requested_fields(self.route())
    }

    /// The time since the request began.
    pub(super) fn elapsed(&self) -> Duration {
        self.context.now().since(self.context.started)
    }

    /// The matched route, or the default route.
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
        let ended = self.response_end(BodyEnd::Complete(None));
        self.settle(|admission, settling| admission.settle_by_piece(data, ended, settling));
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

    /// A proxy asks if it may serve the request, which is not forwarded.
    pub(super) fn is_question(&self) -> bool {
        self.question.is_some()
    }

    /// The client's connection, to be kept.
    pub(super) fn shared_client(&self) -> &Rc<Client> {
        &self.client
    }

    /// Keeps the head of a request that is about to change, for the proxy's own pages.
    pub(super) fn keep_head(&self, request: &Request<RequestBody>) {
        self.kept.get_or_init(|| Box::new(KeptHead::of(request)));
    }

    /// The clock of all decisions and waits.
    pub(super) fn clock(&self) -> &Arc<Clock> {
        &self.client.gateway.clock
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// The wall clock's time at which the request began.
    fn wall_start(&self) -> Timestamp {
        self.clock().wall_time(self.started)
    }

    /// The token of the request, if `route` reads one. Its first use checks it, by the wall clock as
    /// of the request's start: it stays valid while the request waits. [`Self::count_token`] follows.
    pub(super) fn token<'a>(
        &'a self,
        route: &Route,
        headers: &'a Headers,
    ) -> Option<RequestToken<'a>> {
        let ruleset = self.ruleset.whole();
        ruleset.token(route, headers, self.wall_start(), &self.token)
    }

    /// Counts and logs the result for the token, once, if it was checked.
    pub(super) fn count_token(&self) {
        if let Some(tokens) = &self.ruleset.whole().tokens
            && let Some(checked) = self.token.get()
            && !self.is_token_counted.replace(true)
        {
            tokens.record(checked, self.started);
        }
    }

    /// Trusted if the peer may name the client in forwarding fields.
    pub(super) fn trust(&self) -> Peer {
        let client_ip = &self.ruleset.whole().client_ip;
        Peer::of(client_ip.trusts(self.client.connection.peer))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.settle_by_body(BodyEnd::BrokenOff);
        let status = self.status.unwrap_or(*CLIENT_CLOSED_REQUEST);
        let elapsed = self.elapsed();
        let RequestContext { client, method, .. } = &self.context;
        if let Some(share) = self.share.get() {
            client.gateway.upstream_shares.leave(share);
        }
        client.gateway.metrics.record(method, status);
        self.route().metrics.record(status, elapsed);
        if let (Some(log), Some(logged)) = (self.context.ruleset.access_log(), &self.context.logged)
        {
            self.log(log, logged, status, elapsed);
        }
        if let Some(trace) = &self.context.trace {
            self.record_spans(trace, status, elapsed);
        }
    }
}
