//! Explains the decision on one request without serving it: the checks, routes, keys and decisions
//! of [`gateway`](crate::proxy::gateway), with new buckets or with those of a running ruleset.

mod limit;
mod report;
mod text;

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::header::{HOST, HeaderValue};

use limit::LimitTrace;

pub use report::{AnswerReport, ExplanationReport};
use report::{MismatchReport, RequestReport};

use crate::clock::text::rfc_3339;
use crate::clock::{Clock, Timestamp};
use crate::http::forwarded::Peer;
use crate::http::framing;
use crate::http::message::Request;
use crate::limiter::Secret;
use crate::proxy::admission::{Admission, AdmissionInputs, Peeked};
use crate::proxy::answers::error::Error;
use crate::proxy::answers::redirect::RedirectedRequest;
use crate::proxy::answers::route_answer::PreparedAnswer;
use crate::proxy::inspect::{Checked, MatchedRequest, sender};
use crate::proxy::rewrite::origin_form;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::{self, Route, Ruleset, RulesetSpec};
use crate::proxy::target::{RequestTarget, Sender};
use crate::rules::{ClientLookup, Head, KeyPart, Mismatch, Token};
use crate::store::{Caller, Store};
use crate::telemetry::metrics::LimitDecision;
use crate::telemetry::registry::Registry;
use crate::visible;
use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The place of a value that stays secret.
const MASK: &str = "***";
/// The most routes of an explanation that do not match.
const MAX_MISMATCHES: usize = 100;

/// Explanation of one request, which lacks the decisions of Redis and the state of the request's keys
/// until it is concluded.
#[derive(Debug)]
pub struct Explanation<'r> {
    ruleset: &'r Ruleset,
    now: Timestamp,
    /// The facts that are known without a decision.
    report: ExplanationReport,
    /// The trace, or the error that ends the request before its limits.
    trace: Result<Trace<'r>, Error>,
}

#[derive(Debug)]
struct Trace<'r> {
    /// The rules of the route, or of requests without one.
    rules: &'r Route,
    /// The method of the request, if the given one is a question about it.
    question: Option<Method>,
    /// Where it goes if its limits allow, or why it goes nowhere.
    destination: Result<Destination<'r>, Error>,
    limits: Vec<LimitTrace<'r>>,
    /// The decisions of the limits.
    admission: Admission,
    peeked: Peeked,
    /// A limit refuses because its store does not answer.
    is_undecided: bool,
}

/// Where an allowed request goes.
#[derive(Debug, Display)]
enum Destination<'r> {
    #[display("forwarded to {_0}")]
    Upstream(&'r Arc<str>),
    /// The route answers it.
    #[display("{_0}")]
    Route(PreparedAnswer<'r>),
}

/// The outcome for a request, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// It is forwarded at once, or its route answers it.
    #[default]
    Allowed,
    /// The same after a delay.
    Delayed,
    /// A limit refuses it.
    Limited,
    /// The proxy answers it itself: no route takes it, or it breaks a rule of HTTP.
    Answered,
}

/// Explains the decision of `spec` on `request` from the peer at `from`, with new buckets.
pub fn explain(spec: RulesetSpec, request: Request<String>, from: IpAddr) -> ExplanationReport {
    let clock = Arc::new(Clock::system());
    let now = clock.now();
    let context = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock,
        secret: Secret::random(),
    };
    let ruleset = PreparedRuleset::new(spec, &context, None).migrate_buckets(now);
    Explanation::begin(&ruleset, &Store::Memory, request, from, None, now).report()
}

impl<'r> Explanation<'r> {
    /// Begins to explain the decision of a ruleset on `request` from the peer at `from`, with the buckets
    /// of `store`. `client` stands in for the key that the request lacks. Nothing is charged.
    pub fn begin(
        ruleset: &'r Ruleset,
        store: &Store,
        mut request: Request<String>,
        from: IpAddr,
        client: Option<u32>,
        now: Timestamp,
    ) -> Self {
        add_host(&mut request);
        let sender = sender(ruleset, &request, from);
        let (method, url) = (request.method().to_string(), request.uri().to_string());
        let mut report = ExplanationReport {
            at: rfc_3339(now),
            request: RequestReport { method, url },
            client_ip: sender.client_ip,
            host: None,
            path: None,
            forwarded_path: None,
            token: None,
            client: None,
            route: None,
            not_matched: Vec::new(),
            not_matched_omitted: 0,
            limits: Vec::new(),
            answer: AnswerReport::default(),
            text: String::new(),
        };
        let slashes = ruleset.encoded_slashes;
        let checked = framing::check(&mut request).map_err(Error::from);
        let target = checked.and_then(|()| RequestTarget::of(&request, slashes));
        let target = target.and_then(|target| {
            let asked = ruleset.router.find(&target.head(&request, sender));
            if !ruleset.route(asked).decides() {
                return Ok((target, false));
            }
            let peer = Peer::of(ruleset.client_ip.trusts(from.into()));
            let described = RequestTarget::described(&mut request, peer, ruleset)?;
            Ok((described, true))
        });
        let trace = target.and_then(|(target, is_question)| {
            let request = (&request, &target, sender);
            let mut trace = trace((ruleset, store), request, client, now, &mut report)?;
            if is_question {
                trace.question = Some(request.0.method().clone());
                if report.route.is_some() {
                    trace.destination = Ok(Destination::Route(PreparedAnswer::Decision));
                }
                report.forwarded_path = None;
            }
            Ok(trace)
        });
        Self {
            ruleset,
            now,
            report,
            trace,
        }
    }

    /// Asks Redis, and reads the state of the keys, one after the other, each call within the client's
    /// deadline. Secrets of the request are masked: values of fields, cookies, parameters and
    /// claims.
    pub async fn conclude(mut self) -> ExplanationReport {
        let now = self.now;
        if let Ok(trace) = &mut self.trace {
            if let (Some(pending), Some(redis)) =
                (trace.peeked.pending.take(), self.ruleset.store.redis())
            {
                let caller = Caller {
                    worker: redis.operator_worker(),
                    client: None,
                };
                let (limits, result) = (&trace.rules.limits, &mut trace.admission.result);
                trace.is_undecided = pending.decide(caller, limits, result).await.is_err();
            }
            for limit in &mut trace.limits {
                if let Some((key, probe)) = &limit.key {
                    let facts = key.facts(*probe, now).await;
                    limit.report.state = facts.ok().map(|facts| facts.state(key));
                }
            }
        }
        self.mask_secrets();
        self.report()
    }

    /// Masks the query of the URL, and the values of key parts that only the client has to know.
    fn mask_secrets(&mut self) {
        let url = &mut self.report.request.url;
        if let Some(query) = url.find('?') {
            url.replace_range(query + 1.., MASK);
        }
        for limit in self.trace.iter_mut().flat_map(|trace| &mut trace.limits) {
            let parts = limit.report.key.iter_mut();
            let secrets = parts.filter(|part| part.is_secret);
            for secret in secrets.filter_map(|part| part.value.as_mut()) {
                MASK.clone_into(secret);
            }
        }
    }
}

impl Trace<'_> {
    /// Takes over the decisions of all stores.
    fn conclude(&mut self, now: Timestamp) {
        self.admission
            .conclude_peek(self.rules, self.is_undecided, now);
        let held = self.admission.result.held();
        let without_store = held.map(|held| std::mem::take(&mut held.without_store));
        let without_store = without_store.unwrap_or_default();
        let awaited = self.awaited(now);
        for limit in &mut self.limits {
            let number = limit.id.limit;
            let error = without_store.iter().find(|one| one.limit == number);
            let is_queued = self.peeked.queued.contains(&number);
            limit.decide(&self.admission, error, is_queued);
            if awaited.is_some() && limit.word == LimitDecision::Limited {
                limit.word = LimitDecision::Delayed;
            }
            limit.finish(now);
        }
        if let (Ok(Destination::Upstream(upstream)), Some(routed)) =
            (&mut self.destination, self.admission.routed(self.rules))
        {
            *upstream = routed.upstream.name();
        }
    }

    /// The instant until which the request waits for units, if it does.
    fn awaited(&self, now: Timestamp) -> Option<Timestamp> {
        let (bucket, until) = self.admission.awaited(self.rules)?;
        let max_wait = self.rules.limit(bucket.id.limit).max_wait(&bucket)?;
        (!self.is_undecided && until.since(now) <= max_wait).then_some(until)
    }

    /// The limit that answers.
    fn refusing(&self) -> Option<&LimitTrace<'_>> {
        let (_, id) = self.admission.refusing(self.rules)?;
        self.limits.iter().find(|one| one.id.limit == id.limit)
    }
}

/// Adds the Host that a client sends for this URL.
fn add_host(request: &mut Request<String>) {
    let authority = request.uri().authority();
    let host = HeaderValue::from_str(authority.map_or("localhost", |host| host.as_str()));
    if let Ok(host) = host {
        request.headers_mut().insert_missing(HOST, host);
    }
}

fn trace<'r>(
    (ruleset, store): (&'r Ruleset, &Store),
    (request, target, sender): (&Request<String>, &RequestTarget, Sender<'_>),
    client: Option<u32>,
    now: Timestamp,
    report: &mut ExplanationReport,
) -> Result<Trace<'r>, Error> {
    let client = client.map(ClientLookup::Known);
    let checked = Checked {
        client: client.map_or_else(OnceCell::new, OnceCell::from),
        ..Checked::default()
    };
    let matched = MatchedRequest::new(ruleset, target.head(request, sender), now, &checked);
    // The route of the ruleset, which outlives the request.
    let route = &**ruleset.route(matched.route_index);
    let body = Some(request.body().as_bytes()).filter(|body| !body.is_empty());
    let body = body.and_then(|body| route.body_fields(request, Some(body)));
    let head = &matched.head().with_body(body.as_ref());
    target.check_route(route)?;
    let denial = route.access.as_ref().and_then(|access| access.denial(head));
    let denial = denial.filter(|_| !answers_preflight(route, head));
    let denied = denial.as_ref().map(|denial| denial.status);
    let (mismatches, mismatches_omitted) = nearest(ruleset.router.mismatches(head));
    let limits = (0_u16..).zip(route.limits_for(head));
    let limits = limits
        .filter(|(_, limit)| denied.is_none_or(|status| limit.counts_denied(status)))
        .chain(route.tags_for(head).filter(|_| denied.is_none()))
        .map(|(number, limit)| LimitTrace::new(number, limit, head, now));
    let limits = limits.collect();
    let inputs = AdmissionInputs::new(store, route, head, now);
    let mut admission = Admission::default();
    let peeked = inputs.peek(denied, &mut admission)?;
    let forwarded = origin_form(request.uri(), target.path.clone(), &route.rewrite.path);
    let (forwarded, destination) = match forwarded {
        Ok(uri) => (uri, destination(route, head, target.redirected(request))),
        Err(error) => (None, Err(error)),
    };
    let destination = match denial {
        Some(denial) => Err(Error::Denied(denial)),
        None => destination,
    };
    let forwarded = forwarded.as_ref().unwrap_or(request.uri()).path();
    report.client = (matched.client).and_then(|client| match client.lookup(head) {
        ClientLookup::Known(place) => {
            let name = client.clients.table.value(place, &KeyPart::Client);
            name.map(visible::key)
        }
        ClientLookup::NoKey => Some("none: the request has no key".to_owned()),
        ClientLookup::Unknown => Some("none: the key is unknown".to_owned()),
        ClientLookup::Several => Some("several different keys, so none counts".to_owned()),
    });
    report.token = checked
        .token
        .get()
        .and_then(|checked| match &checked.token {
            Ok(Some(Token::Several)) => Some("several different ones, so none counts".to_owned()),
            Ok(_) => None,
            Err(why) => Some(format!("rejected, and as none: {why}")),
        });
    report.host = Some(head.host.to_owned());
    report.path = Some(head.path.to_owned());
    report.forwarded_path =
        (forwarded != head.path && route.upstream().is_some()).then(|| forwarded.to_owned());
    let mismatches = mismatches.into_iter();
    report.not_matched = mismatches
        .map(|(place, mismatch)| MismatchReport {
            route: Arc::clone(&ruleset.routes[place].name),
            reason: mismatch.to_string(),
        })
        .collect();
    report.not_matched_omitted = mismatches_omitted;
    report.route = matched.route_index.map(|_| Arc::clone(&route.name));
    Ok(Trace {
        question: None,
        destination,
        limits,
        admission,
        peeked,
        is_undecided: false,
        rules: route,
    })
}

/// The proxy answers this preflight request.
fn answers_preflight(route: &Route, head: &Head<'_>) -> bool {
    let changes = route.response.as_ref();
    changes.is_some_and(|changes| changes.prepare(head, &route.name).answers_preflight())
}

/// Where the requests of a route go.
fn destination<'r>(
    route: &'r Route,
    head: &Head<'_>,
    request: RedirectedRequest<'_>,
) -> Result<Destination<'r>, Error> {
    if answers_preflight(route, head) {
        return Ok(Destination::Route(PreparedAnswer::Preflight));
    }
    match &route.destination {
        ruleset::Destination::Nowhere => Err(Error::NoRoute),
        ruleset::Destination::Upstream(upstream) => Ok(Destination::Upstream(upstream.name())),
        ruleset::Destination::Answer(answer) => Ok(Destination::Route(answer.prepare(request)?)),
    }
}

/// The mismatches in their order, and 0; of too many, those that match most conditions, and the
/// number of the others.
fn nearest(mut mismatches: Vec<(usize, Mismatch<'_>)>) -> (Vec<(usize, Mismatch<'_>)>, usize) {
    let omitted = mismatches.len().saturating_sub(MAX_MISMATCHES);
    if omitted > 0 {
        mismatches.sort_by_key(|(_, mismatch)| match mismatch {
            Mismatch::Host => 2,
            Mismatch::Path => 1,
            Mismatch::Condition(_) => 0,
        });
        mismatches.truncate(MAX_MISMATCHES);
    }
    (mismatches, omitted)
}
