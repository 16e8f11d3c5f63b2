//! One request and its response, from the first byte to the last: metrics, access log, settlement.
//! The exchange ends when it is dropped, so that a client that leaves is counted and returns its
//! permits.

mod completion;
mod context;
mod logged;
pub(super) mod question;
mod ruleset_lease;
mod settling;
mod traced;

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{StatusCode, Version};
use tokio::sync::Semaphore;

use super::admission::Admission;
use super::body::ResponseBody;
use super::client::Client;
use super::debug_trail::DebugItem;
use super::ruleset::Route;
use super::upstream_shares::UpstreamShare;
use crate::clock::Timestamp;
use crate::http::body::RequestBody;
use crate::http::forwarded::Peer;
use crate::http::message::{Request, Response};
use crate::proxy::answers::action::Rerouting;
use crate::proxy::answers::error::Error;
use crate::proxy::answers::respond::{self, FailedRequest};
use crate::proxy::answers::response_changes::PreparedChanges;
use crate::rules::{Head, ResponseOrigin};
use crate::store::{PendingCharge, Undecided};
use crate::upstream::Upstream;
pub(in crate::proxy) use context::RequestContext;
use logged::{KeyTexts, LoggedRequest};
use ruleset_lease::RulesetLease;
use traced::RequestTrace;

/// The most calls of Redis for requests of lists, over all workers: far fewer than have a place on a
/// connection. The others wait for their turn, before the deadline of the call begins.
static LISTED_CALLS: Semaphore = Semaphore::const_new(64);

/// The exchange of one request for one response.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) context: RequestContext,
    /// The instant of the last wait's end, or of the start: that of the last decision.
    pub(super) forwarded: Timestamp,
    /// The matched route, once it is found.
    pub(super) place: Option<usize>,
    /// The policy whose permits the request waits for, or waited for last.
    pub(super) line: Option<Arc<str>>,
    /// The limits' decisions. This is large, and is never moved.
    pub(super) admission: Admission,
    /// The decisions are final: the response gets the rate-limit fields.
    pub(super) is_decided: bool,
    /// The texts of key and client, if the access log has them.
    pub(super) key_texts: Option<Box<KeyTexts>>,
    /// The trail for the debug header, if the request has its token.
    pub(super) trail: Option<Box<[DebugItem]>>,
    /// The changes to the response, if the route has any.
    changes: Option<Box<PreparedChanges>>,
    status: Option<StatusCode>,
    pub(super) author: ResponseOrigin,
    sent: u64,
    /// Costs that the response stated, by policy.
    stated: Vec<(Arc<str>, u32)>,
    /// The time from the start, or the last wait's end, to the upstream's response head; without the
    /// wait for a slot.
    upstream: Option<Duration>,
    /// The number of the last endpoint.
    pub(super) endpoint: Cell<Option<usize>>,
    /// How many hosts of the upstream were tried.
    pub(super) attempts: Cell<u32>,
    /// How long the request has waited for a slot of its upstream, if it had to.
    pub(super) pending: Cell<Option<Duration>>,
    /// The attempt at an upstream waits for the client to send more.
    pub(super) is_owed: Cell<bool>,
    /// Its share of the requests in flight at upstreams, once it is forwarded.
    share: OnceCell<UpstreamShare>,
    /// The whole response is on its way to the client.
    has_ended: bool,
    /// The reason for a missing or incomplete response.
    error: Option<&'static str>,
}

/// More would take the allocator's longer way.
const _: () = assert!(size_of::<Exchange>() <= 1_024);

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
        // Boxed: it moves from future to future, and into the response body. Not `Box::new`, which would
        // build it on the stack, and copy a KiB.
        Box::write(
            Box::new_uninit(),
            Exchange {
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
                    body: OnceCell::new(),
                    found_client: OnceCell::new(),
                    is_client_counted: Cell::new(false),
                    ruleset: RulesetLease::Whole(ruleset),
                    client,
                },
                forwarded: started,
                place: None,
                line: None,
                admission: Admission::default(),
                is_decided: false,
                key_texts: None,
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
                is_owed: Cell::new(false),
                share: OnceCell::new(),
                has_ended: false,
                error: None,
            },
        )
    }

    /// Waits for the decision of the store.
    pub(super) async fn decide(&mut self, mut charge: Box<PendingCharge>) -> Result<(), Undecided> {
        let mut turn = None;
        if self.context.client.is_list {
            turn = LISTED_CALLS.acquire().await.ok();
            self.resume();
            charge.decide_at(self.forwarded);
        }
        let caller = self.context.caller();
        let limits = &self.context.ruleset.route(self.place).limits;
        let result = &mut self.admission.result;
        let decided = charge.decide(caller, limits, result).await;
        drop(turn);
        decided
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
            let cluster = upstream.cluster()?;
            let has_others = ruleset.clusters().nth(1).is_some();
            has_others.then(|| cluster.in_flight())
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
        if let Some(upstream) = self.upstream() {
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
        if let (Error::Upstream(error), Some(upstream)) = (error, self.upstream())
            && !error.is_clients()
        {
            upstream.record_failure(error, self.context.started);
        }
        self.author = match error {
            Error::Denied(_) => ResponseOrigin::Access,
            _ => ResponseOrigin::Proxy,
        };
        self.error = Some(error.reason());
        if self.changes.is_none()
            && let Some(changes) = &self.context.ruleset.route(self.place).response
        {
            // It has met no route. Its host may be ambiguous.
            let head = Head::new(request, "", request.uri().path(), self.context.client_ip);
            self.changes = Some(Box::new(changes.prepare(&head, "")));
        }
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

    /// Finds the matched route.
    #[inline]
    pub(super) fn find_route(&mut self, head: &Head<'_>) {
        self.place = self.context.ruleset.whole().router.find(head);
        let route = self.context.ruleset.route(self.place);
        if let Some(changes) = &route.response {
            self.changes = Some(Box::new(changes.prepare(head, &route.name)));
        }
    }

    /// Turns `response` into the refusal, with the times of this instant.
    pub(super) fn refuse_now(&mut self, head: &Head<'_>, response: &mut Response<ResponseBody>) {
        self.admission.answered_at(self.context.now());
        let route = self.context.ruleset.route(self.place);
        if let Some((limit, id)) = self.admission.refusing(route) {
            let styles = &self.context.ruleset.whole().styles;
            let token = self.context.token(route, head.headers);
            let head = head
                .with_token(token.as_ref())
                .with_body(self.context.body());
            let head = head.with_client(self.context.known_client());
            self.admission
                .refuse(limit, id, route, styles, &head, response);
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

    /// The time since the request began.
    pub(super) fn elapsed(&self) -> Duration {
        self.context.now().since(self.context.started)
    }

    /// The upstream of the request, if it is forwarded: that of its route, unless a limit routes it to
    /// another.
    pub(super) fn upstream(&self) -> Option<&Arc<Upstream>> {
        let own = self.route().upstream()?;
        Some(self.routed().map_or(own, |routed| &routed.upstream))
    }

    /// The upstream to which a limit routes the request.
    pub(super) fn routed(&self) -> Option<&Rerouting> {
        self.admission()?.routed(self.route())
    }

    /// The matched route, or the default route.
    pub(super) fn route(&self) -> &Route {
        self.context.ruleset.route(self.place)
    }
}
