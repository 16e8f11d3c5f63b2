//! Explains the decision on one request without serving it: the checks, routes, keys and decisions
//! of [`gateway`](crate::proxy::gateway), with new buckets or with those of a running ruleset.

mod report;
mod text;

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{HOST, HeaderValue};

pub use report::{
    AnswerReport, ExplanationReport, KeyPartReport, LimitReport, MismatchReport, QueueReport,
    RequestReport,
};

use crate::clock::{Clock, Timestamp};
use crate::http::message::Request;
use crate::limiter::{Decision, Fingerprint, Outcome, Secret};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::error::Error;
use crate::proxy::request::MatchedRequest;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::{Limit, Policy, Route, Ruleset, RulesetSpec};
use crate::proxy::target::RequestTarget;
use crate::rules::{Head, InvalidCost, LocalPeriods, Mismatch, PartDescription, Token};
use crate::store::HomeSpec;
use crate::telemetry::metrics::LimitDecision;
use crate::telemetry::registry::Registry;
use serde::Serialize;

/// Explanation of one request; `Display` prints it, and [`Explanation::report`] is for machines.
#[derive(Debug)]
pub struct Explanation {
    method: String,
    url: String,
    client_ip: IpAddr,
    now: Timestamp,
    /// The trace, or the error that ends the request before its limits.
    trace: Result<Trace, Error>,
}

#[derive(Debug)]
struct Trace {
    /// A note on the token, if a limit reads it and it is not valid.
    token: Option<String>,
    host: String,
    path: String,
    /// Routes that take precedence but do not match (all routes, if none matches), with the first
    /// mismatch.
    mismatches: Vec<(Arc<str>, Mismatch)>,
    route: Option<Arc<str>>,
    upstream: Option<Arc<str>>,
    limits: Vec<LimitTrace>,
}

/// The answer of a request, as the last line of the explanation says.
#[derive(Debug)]
enum Answer<'a> {
    /// It goes to the upstream, after a delay if a limit asks for one.
    Forwarded {
        upstream: &'a str,
        until: Option<Timestamp>,
    },
    /// A limit refuses it.
    Refused(&'a LimitTrace),
    /// The proxy answers it itself.
    Own { status: StatusCode, detail: &'a str },
}

/// The outcome for a request, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// It is forwarded at once.
    Allowed,
    /// It is forwarded after a delay.
    Delayed,
    /// A limit refuses it.
    Limited,
    /// The proxy answers it itself: no route takes it, or it breaks a rule of HTTP.
    Answered,
}

#[derive(Debug)]
struct LimitTrace {
    policy: Arc<str>,
    algorithm: &'static str,
    quota: String,
    /// The policy's action, as a verb and as the configuration writes it.
    action: [&'static str; 2],
    /// The status of its rejections, if the action answers.
    status: Option<StatusCode>,
    /// The action only tags.
    is_tag: bool,
    /// Number of buckets that cannot pay before the one that decides.
    overflows: usize,
    key: Vec<PartDescription>,
    /// The time zone of its windows, and its source, if a claim can name it.
    zone: Option<String>,
    cost: u32,
    /// The response settles the cost.
    settles: bool,
    /// The algorithm returns units at the end of a request, not with time.
    returns_units: bool,
    /// Places in the queue for such units, and the longest wait.
    queue: Option<(u32, Duration)>,
    enforcement: Enforcement,
    /// The home of its buckets.
    home: HomeSpec,
    outcome: LimitOutcome,
}

#[derive(Debug)]
enum LimitOutcome {
    /// The limit decides.
    Decided(Decision),
    /// The condition does not hold.
    NotApplicable,
    /// The key is exempt.
    Exempt,
    /// The limit does not apply without a key.
    Skipped,
    /// The limit refuses requests without a key.
    MissingKey,
    /// The limit would refuse: the request states no valid cost.
    InvalidCost,
}

/// Explains the decision of `spec` on `request` from the peer at `from`, with new buckets.
pub fn explain(spec: RulesetSpec, request: Request<()>, from: IpAddr) -> Explanation {
    let clock = Arc::new(Clock::system());
    let now = clock.now();
    let context = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock,
        secret: Secret::random(),
    };
    let ruleset = PreparedRuleset::new(spec, &context, None).migrate_buckets(now);
    explain_under(&ruleset, request, from, now)
}

/// Explains the decision of a ruleset on `request` from the peer at `from`, with its buckets in
/// memory. Nothing is charged.
pub fn explain_under(
    ruleset: &Ruleset,
    mut request: Request<()>,
    from: IpAddr,
    now: Timestamp,
) -> Explanation {
    add_host(&mut request);
    let client_ip = ruleset.client_ip.resolve(from.into(), request.headers());
    Explanation {
        method: request.method().to_string(),
        url: request.uri().to_string(),
        client_ip,
        now,
        trace: RequestTarget::of(&request)
            .and_then(|target| trace(ruleset, target.head(&request, client_ip), now)),
    }
}

impl Explanation {
    /// The outcome, in a word.
    pub fn answer(&self) -> AnswerKind {
        match self.find_answer() {
            Answer::Forwarded { until: None, .. } => AnswerKind::Allowed,
            Answer::Forwarded { .. } => AnswerKind::Delayed,
            Answer::Refused(_) => AnswerKind::Limited,
            Answer::Own { .. } => AnswerKind::Answered,
        }
    }

    fn find_answer(&self) -> Answer<'_> {
        match &self.trace {
            Ok(trace) => trace.answer(),
            Err(error) => Answer::Own {
                status: error.status(),
                detail: error.detail(),
            },
        }
    }
}

impl Trace {
    fn answer(&self) -> Answer<'_> {
        if let Some(limit) = self.refusing() {
            return Answer::Refused(limit);
        }
        let waits = self.limits.iter().filter_map(LimitTrace::delayed_until);
        match &self.upstream {
            Some(upstream) => Answer::Forwarded {
                upstream,
                until: waits.max(),
            },
            None => Answer::Own {
                status: Error::NoRoute.status(),
                detail: Error::NoRoute.detail(),
            },
        }
    }

    /// The limit that answers: one without its key or cost, else the one with the longest wait, the
    /// first of equals.
    fn refusing(&self) -> Option<&LimitTrace> {
        let refusing = || {
            let limits = self.limits.iter();
            limits.filter(|limit| limit.refuses() && !limit.is_tag)
        };
        let wait = |limit: &&LimitTrace| match &limit.outcome {
            LimitOutcome::Decided(decision) => decision.retry_at().unwrap_or(Timestamp::MAX),
            _ => Timestamp::MAX,
        };
        let keyless = refusing().find(|limit| !limit.is_decided());
        keyless.or_else(|| refusing().rev().max_by_key(wait))
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

fn trace(ruleset: &Ruleset, head: Head<'_>, now: Timestamp) -> Result<Trace, Error> {
    let checked = OnceCell::new();
    let matched = MatchedRequest::new(ruleset, head, now, &checked);
    let (route, head) = (matched.route, &matched.head());
    let mismatches = ruleset.router.mismatches(head).into_iter();
    let limits = limit_traces(ruleset, route, head, now)?;
    Ok(Trace {
        token: checked.get().and_then(|checked| match &checked.token {
            Ok(Some(Token::Several)) => Some("several different ones: it is nobody's".to_owned()),
            Ok(_) => None,
            Err(why) => Some(format!("rejected, and as none: {why}")),
        }),
        host: head.host.to_owned(),
        path: head.path.to_owned(),
        mismatches: mismatches
            .map(|(place, mismatch)| (Arc::clone(&ruleset.routes[place].name), mismatch))
            .collect(),
        route: matched.route_index.map(|_| Arc::clone(&route.name)),
        upstream: route
            .upstream
            .as_ref()
            .map(|upstream| Arc::clone(upstream.name())),
        limits,
    })
}

fn limit_traces(
    ruleset: &Ruleset,
    route: &Route,
    head: &Head<'_>,
    now: Timestamp,
) -> Result<Vec<LimitTrace>, Error> {
    let limits = route.limits_for(head).iter();
    let limits = limits.chain(route.tags_for(head).map(|(_, tag)| tag));
    limits
        .map(|limit| limit_trace(limit, &ruleset.secret, head, now))
        .collect()
}

fn limit_trace(
    limit: &Limit,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
) -> Result<LimitTrace, Error> {
    let applicability = limit.evaluate(secret, head);
    let cost = limit.spec.cost.of(head);
    let enforcement = limit
        .policy
        .mode
        .current()
        .enforcement(&limit.spec.descriptor, head);
    let mut policy = match applicability {
        Applicability::Bucket(_, place) => limit.quota(place),
        _ => &limit.policy,
    };
    let mut overflows = 0;
    if let (Applicability::Bucket(key, _), Ok(cost)) = (applicability, &cost) {
        let pays = |policy: &Policy| peek(policy, key, *cost, head, now).is_admitted();
        while let Some(next) = policy.overflow.as_ref().filter(|_| !pays(policy)) {
            (policy, overflows) = (&next.policy, overflows + 1);
        }
    }
    let is_tag = policy.action.tag().is_some();
    let can_refuse = enforcement == Enforcement::Enforced && !is_tag;
    let outcome = match (applicability, &cost) {
        (Applicability::Bucket(key, _), Ok(cost)) => {
            LimitOutcome::Decided(peek(policy, key, *cost, head, now))
        }
        (Applicability::Bucket(..), Err(InvalidCost)) if can_refuse => {
            return Err(InvalidCost.into());
        }
        (Applicability::Bucket(..), Err(InvalidCost)) => LimitOutcome::InvalidCost,
        (Applicability::Elsewhere, _) => LimitOutcome::NotApplicable,
        (Applicability::Exempt, _) => LimitOutcome::Exempt,
        (Applicability::Skipped, _) => LimitOutcome::Skipped,
        (Applicability::Keyless, _) => LimitOutcome::MissingKey,
    };
    let algorithm = policy.buckets.algorithm();
    let queue = algorithm.queueing();
    Ok(LimitTrace {
        policy: Arc::clone(&policy.name),
        algorithm: algorithm.kind(),
        quota: policy.quota.clone(),
        action: [policy.action.name(), policy.action.word()],
        status: match policy.action {
            Action::Drop => None,
            _ => Some(policy.rejection.status()),
        },
        is_tag,
        overflows,
        key: limit.spec.descriptor.describe(head),
        zone: policy.local_periods.as_ref().map(|local| zone(local, head)),
        cost: cost.unwrap_or(1),
        settles: limit.spec.settlement.is_some(),
        returns_units: algorithm.is_concurrency(),
        queue: queue.map(|bound| (bound.queue(), bound.max_wait())),
        enforcement,
        home: policy.buckets.home(),
        outcome,
    })
}

/// The decision of a bucket of this policy, which is not charged.
fn peek(policy: &Policy, key: Fingerprint, cost: u32, head: &Head<'_>, now: Timestamp) -> Decision {
    let window_end = policy.window_end(head, now);
    policy.buckets.peek(key, cost, window_end, now)
}

fn zone(periods: &LocalPeriods, head: &Head<'_>) -> String {
    match periods.zone(head) {
        Some(zone) => format!("{zone}, from jwt:{}", periods.claim),
        None => format!("the default: jwt:{} names none", periods.claim),
    }
}

impl LimitTrace {
    fn refuses(&self) -> bool {
        if self.enforcement == Enforcement::Shadowed {
            return false;
        }
        match &self.outcome {
            LimitOutcome::Decided(decision) => !decision.is_admitted(),
            LimitOutcome::NotApplicable | LimitOutcome::Exempt | LimitOutcome::Skipped => false,
            LimitOutcome::MissingKey | LimitOutcome::InvalidCost => true,
        }
    }

    /// The end of the delay, if the limit delays the request.
    fn delayed_until(&self) -> Option<Timestamp> {
        match (&self.outcome, self.enforcement) {
            (LimitOutcome::Decided(decision), Enforcement::Enforced) => decision.delayed_until(),
            _ => None,
        }
    }

    /// The places in the queue and the longest wait, if the request may have to queue.
    fn queue_bounds(&self) -> Option<(u32, Duration)> {
        let waits = self.enforcement == Enforcement::Enforced && !self.is_tag && !self.refuses();
        self.queue.filter(|_| waits && self.is_decided())
    }

    fn is_decided(&self) -> bool {
        matches!(self.outcome, LimitOutcome::Decided(_))
    }

    /// The decision that metrics would count for this limit if the request were served.
    fn decision(&self) -> LimitDecision {
        let outcome = match &self.outcome {
            LimitOutcome::NotApplicable | LimitOutcome::Skipped => LimitDecision::Allowed,
            LimitOutcome::Exempt => LimitDecision::Exempt,
            LimitOutcome::MissingKey | LimitOutcome::InvalidCost => LimitDecision::Limited,
            LimitOutcome::Decided(decision) => match decision.outcome {
                Outcome::Admit if self.overflows > 0 => LimitDecision::Overflowed,
                Outcome::Admit => LimitDecision::Allowed,
                Outcome::Delay { .. } => LimitDecision::Delayed,
                Outcome::Refuse { .. } => LimitDecision::Limited,
            },
        };
        match (outcome, self.enforcement) {
            (LimitDecision::Limited | LimitDecision::Delayed, Enforcement::Shadowed) => {
                LimitDecision::Shadowed
            }
            (LimitDecision::Limited, Enforcement::Enforced) if self.is_tag => LimitDecision::Tagged,
            (outcome, _) => outcome,
        }
    }
}
