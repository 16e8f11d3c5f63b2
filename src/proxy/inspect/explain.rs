//! Explains the decision on one request without serving it: the checks, routes, keys and decisions
//! of [`gateway`](crate::proxy::gateway), with new buckets or with those of a running ruleset.

mod limit;
mod live;
mod report;
mod text;

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::header::{HOST, HeaderValue};

use limit::{LimitOutcome, LimitTrace};

pub use live::explain_live;
pub use report::{AnswerReport, ExplanationReport};

use crate::clock::{Clock, Timestamp};
use crate::http::connection::Scheme;
use crate::http::forwarded::Peer;
use crate::http::framing;
use crate::http::message::Request;
use crate::limiter::Secret;
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::{Admission, AdmissionInputs, Peeked};
use crate::proxy::answers::error::Error;
use crate::proxy::answers::redirect::RedirectedRequest;
use crate::proxy::answers::route_answer::PreparedAnswer;
use crate::proxy::request::MatchedRequest;
use crate::proxy::rewrite::origin_form;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::{self, Limit, Route, Ruleset, RulesetSpec};
use crate::proxy::target::{Connection, RequestTarget, Sender};
use crate::rules::{Denial, Head, Mismatch, Token};
use crate::store::Store;
use crate::telemetry::registry::Registry;
use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most routes of an explanation that do not match.
const MAX_MISMATCHES: usize = 100;

/// Explanation of one request: `Display` prints it for people.
#[derive(Debug)]
struct Explanation<'r> {
    method: String,
    url: String,
    client_ip: IpAddr,
    now: Timestamp,
    /// The trace, or the error that ends the request before its limits.
    trace: Result<Trace<'r>, Error>,
}

#[derive(Debug)]
struct Trace<'r> {
    /// A note on the token, if a limit reads it and it is not valid.
    token: Option<String>,
    host: String,
    path: String,
    /// The path that the upstream is sent, if it is another one.
    forwarded_path: Option<String>,
    /// Routes that take precedence but do not match (all routes, if none matches), with the first
    /// mismatch.
    mismatches: Vec<(&'r Arc<str>, Mismatch<'r>)>,
    /// The number of such routes beside these.
    mismatches_omitted: usize,
    route: Option<&'r Arc<str>>,
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

/// The answer of a request, as the last line of the explanation says.
#[derive(Debug)]
enum Answer<'a> {
    /// The request goes on at once.
    Allowed { destination: &'a Destination<'a> },
    /// The request goes on at this instant, or else once other requests have ended.
    Delayed {
        destination: &'a Destination<'a>,
        until: Option<Timestamp>,
    },
    /// A limit refuses it.
    Refused(&'a LimitTrace<'a>),
    /// The proxy answers it itself.
    Own(&'a Error),
}

/// The outcome for a request, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// It is forwarded at once, or its route answers it.
    Allowed,
    /// The same after a delay.
    Delayed,
    /// A limit refuses it.
    Limited,
    /// The proxy answers it itself: no route takes it, or it breaks a rule of HTTP.
    Answered,
}

/// Explains the decision of `spec` on `request` from the peer at `from`, with new buckets.
pub fn explain(spec: RulesetSpec, request: Request<()>, from: IpAddr) -> ExplanationReport {
    let clock = Arc::new(Clock::system());
    let now = clock.now();
    let context = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock,
        secret: Secret::random(),
    };
    let ruleset = PreparedRuleset::new(spec, &context, None).migrate_buckets(now);
    let mut explanation = begin(&ruleset, &Store::Memory, request, from, now, |_, _, _| {});
    explanation.conclude();
    explanation.report()
}

/// Begins to explain the decision of a ruleset on `request` from the peer at `from`, with the buckets
/// of `store`. Nothing is charged. `look` sees each limit, its applicability, and the request.
fn begin<'r>(
    ruleset: &'r Ruleset,
    store: &Store,
    mut request: Request<()>,
    from: IpAddr,
    now: Timestamp,
    look: impl FnMut(&'r Limit, Applicability, &Head<'_>),
) -> Explanation<'r> {
    add_host(&mut request);
    let client_ip = ruleset.client_ip.resolve(from.into(), request.headers());
    let connection = Connection {
        local: None,
        scheme: Scheme::of(request.uri()),
        peer: Peer::of(ruleset.client_ip.trusts(from.into())),
    };
    let sender = Sender::new(client_ip, &ruleset.client_ip, connection, request.headers());
    let (method, url) = (request.method().to_string(), request.uri().to_string());
    let slashes = ruleset.encoded_slashes;
    let checked = framing::check(&mut request).map_err(Error::from);
    let target = checked.and_then(|()| RequestTarget::of(&request, slashes));
    let target = target.and_then(|target| {
        let asked = ruleset.router.find(&target.head(&request, sender));
        if !ruleset.route(asked).decides() {
            return Ok((target, false));
        }
        let described = RequestTarget::described(&mut request, connection.peer, ruleset)?;
        Ok((described, true))
    });
    Explanation {
        method,
        url,
        client_ip,
        now,
        trace: target.and_then(|(target, is_question)| {
            let mut trace = trace((ruleset, store), (&request, &target, sender), now, look)?;
            if is_question {
                trace.question = Some(request.method().clone());
                if trace.route.is_some() {
                    trace.destination = Ok(Destination::Route(PreparedAnswer::Decision));
                }
                trace.forwarded_path = None;
            }
            Ok(trace)
        }),
    }
}

impl Explanation<'_> {
    /// Takes over the decisions of all stores.
    fn conclude(&mut self) {
        if let Ok(trace) = &mut self.trace {
            trace.conclude(self.now);
        }
    }

    fn answer(&self) -> Answer<'_> {
        match &self.trace {
            Ok(trace) => trace.answer(),
            Err(error) => Answer::Own(error),
        }
    }
}

impl Trace<'_> {
    fn conclude(&mut self, now: Timestamp) {
        self.admission
            .conclude_peek(self.rules, self.is_undecided, now);
        let held = self.admission.result.held();
        let without_store = held.map(|held| std::mem::take(&mut held.without_store));
        let without_store = without_store.unwrap_or_default();
        for limit in &mut self.limits {
            let number = limit.id.limit;
            let error = without_store.iter().find(|one| one.limit == number);
            let is_queued = self.peeked.queued.contains(&number);
            limit.decide(&self.admission, error, is_queued);
        }
    }

    fn answer(&self) -> Answer<'_> {
        if let Some(limit) = self.refusing() {
            return Answer::Refused(limit);
        }
        if self.is_undecided {
            return Answer::Own(&Error::Undecided);
        }
        let destination = match &self.destination {
            Ok(destination) => destination,
            Err(error) => return Answer::Own(error),
        };
        let until = self.admission.delayed_until();
        if !self.peeked.queued.is_empty() {
            let until = None;
            Answer::Delayed { destination, until }
        } else if until.is_some() {
            Answer::Delayed { destination, until }
        } else {
            Answer::Allowed { destination }
        }
    }

    /// The limit that answers.
    fn refusing(&self) -> Option<&LimitTrace<'_>> {
        let (_, id) = self.admission.refusing(self.rules)?;
        self.limits.iter().find(|one| one.id.limit == id.limit)
    }
}

/// Adds the Host that a client sends for this URL.
fn add_host(request: &mut Request<()>) {
    let authority = request.uri().authority();
    let host = HeaderValue::from_str(authority.map_or("localhost", |host| host.as_str()));
    if let Ok(host) = host {
        request.headers_mut().insert_missing(HOST, host);
    }
}

fn trace<'r>(
    (ruleset, store): (&'r Ruleset, &Store),
    (request, target, sender): (&Request<()>, &RequestTarget, Sender<'_>),
    now: Timestamp,
    mut look: impl FnMut(&'r Limit, Applicability, &Head<'_>),
) -> Result<Trace<'r>, Error> {
    let checked = OnceCell::new();
    let matched = MatchedRequest::new(ruleset, target.head(request, sender), now, &checked);
    // The route of the ruleset, which outlives the request.
    let (route, head) = (&**ruleset.route(matched.route_index), &matched.head());
    target.check_route(route)?;
    let denial = route.access.as_ref().and_then(|access| access.denial(head));
    let denial = denial.filter(|_| !answers_preflight(route, head));
    let denied = denial.as_ref().map(Denial::status);
    let (mismatches, mismatches_omitted) = nearest(ruleset.router.mismatches(head));
    let limits = (0_u16..).zip(route.limits_for(head));
    let limits = limits
        .filter(|(_, limit)| denied.is_none_or(|status| limit.counts_denied(status)))
        .chain(route.tags_for(head).filter(|_| denied.is_none()))
        .map(|(number, limit)| {
            let applicability = limit.evaluate(&ruleset.secret, head);
            look(limit, applicability, head);
            LimitTrace::new((number, limit), applicability, head)
        });
    let limits = limits.collect();
    let inputs = AdmissionInputs {
        route,
        limits: &route.limits,
        secret: &ruleset.secret,
        head,
        store,
        now,
    };
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
    Ok(Trace {
        token: checked.get().and_then(|checked| match &checked.token {
            Ok(Some(Token::Several)) => Some("several different ones, so none counts".to_owned()),
            Ok(_) => None,
            Err(why) => Some(format!("rejected, and as none: {why}")),
        }),
        host: head.host.to_owned(),
        path: head.path.to_owned(),
        forwarded_path: (forwarded != head.path && route.upstream().is_some())
            .then(|| forwarded.to_owned()),
        mismatches: mismatches
            .into_iter()
            .map(|(place, mismatch)| (&ruleset.routes[place].name, mismatch))
            .collect(),
        mismatches_omitted,
        route: matched.route_index.map(|_| &route.name),
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
