//! What becomes of one request, and why, without serving it: the same checks, routes, keys and
//! decisions as in [`gateway`](crate::proxy::gateway), over new buckets.

mod text;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{HOST, HeaderValue};

use crate::clock::{Clock, Timestamp};
use crate::http::message::Request;
use crate::limiter::{Decision, Outcome, Secret};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::error::Error;
use crate::proxy::request::MatchedRequest;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::{Limit, Policy, PolicySpec, Route, Ruleset, RulesetSpec};
use crate::proxy::target::RequestTarget;
use crate::rules::{Head, InvalidCost, Mismatch, PartDescription, Token};
use crate::store::Charge;
use crate::telemetry::metrics::LimitDecision;
use crate::telemetry::registry::Registry;

/// The explanation of one request, to be printed.
#[derive(Debug)]
pub struct Explanation {
    request: String,
    client_ip: IpAddr,
    /// What the path is read as, or why it is refused.
    course: Result<Trace, Error>,
}

#[derive(Debug)]
struct Trace {
    /// What became of its token, where a limit asked for it and it is not good.
    token: Option<String>,
    host: String,
    path: String,
    /// Routes that would have been asked first, or all of them, with what they lack.
    others: Vec<(Arc<str>, Mismatch)>,
    route: Option<Arc<str>>,
    upstream: Option<Arc<str>>,
    limits: Vec<LimitTrace>,
    now: Timestamp,
}

#[derive(Debug)]
struct LimitTrace {
    policy: Arc<str>,
    algorithm: String,
    /// What becomes of requests that it refuses.
    action: &'static str,
    /// With which status they are answered, if at all.
    status: Option<StatusCode>,
    /// Whether it refuses nothing.
    tags: bool,
    /// How many buckets cannot pay before the one that is told of.
    overflows: usize,
    key: Vec<PartDescription>,
    /// Whose days it counts in, where its token can say so.
    zone: Option<String>,
    cost: u32,
    /// Whether the response says what it is in the end.
    settles: bool,
    /// Whether units come back when requests end, and not with time.
    in_use: bool,
    /// How many may wait for such units, and for how long.
    line: Option<(u32, Duration)>,
    stance: Enforcement,
    /// Whether its buckets are in Redis, or how often they are synchronised through it.
    home: BucketStore,
    says: LimitOutcome,
}

/// Where buckets are.
#[derive(Clone, Copy, Debug)]
enum BucketStore {
    Memory,
    Redis,
    Synchronised(Duration),
}

#[derive(Debug)]
enum LimitOutcome {
    /// The limit decides.
    Decides(Decision),
    /// It is for other requests.
    Elsewhere,
    /// It makes an exception.
    Exempt,
    /// It does not apply: the key is missing.
    Skips,
    /// It refuses, because the key is missing.
    RefusesKeyless,
    /// It would refuse, because the request says no cost.
    RefusesCost,
}

/// Explains what `spec` makes of `request` from the peer at `from`.
pub fn explain(spec: RulesetSpec, mut request: Request<()>, from: IpAddr) -> Explanation {
    let clock = Arc::new(Clock::system());
    let now = clock.now();
    let surroundings = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock,
        secret: Secret::random(),
    };
    let homes = spec.policies.iter();
    let homes: HashMap<_, _> = homes
        .map(|one| (one.name.clone(), BucketStore::of(one)))
        .collect();
    let snapshot = PreparedRuleset::new(spec, &surroundings, None).migrate_buckets(now);
    add_host(&mut request);
    let client_ip = snapshot.client_ip.resolve(from, request.headers());
    Explanation {
        request: format!("{} {}", request.method(), request.uri()),
        client_ip,
        course: RequestTarget::of(&request)
            .and_then(|target| course(&snapshot, target.head(&request, client_ip), now))
            .map(|mut course| {
                for step in &mut course.limits {
                    step.home = homes
                        .get(&*step.policy)
                        .copied()
                        .unwrap_or(BucketStore::Memory);
                }
                course
            }),
    }
}

/// What a client would send for a URL.
fn add_host(request: &mut Request<()>) {
    let authority = request.uri().authority();
    let host = HeaderValue::from_str(authority.map_or("localhost", |host| host.as_str()));
    if let Ok(host) = host {
        request.headers_mut().insert_missing(HOST, host);
    }
}

fn course(snapshot: &Ruleset, head: Head<'_>, now: Timestamp) -> Result<Trace, Error> {
    let checked = OnceCell::new();
    let matched = MatchedRequest::new(snapshot, head, now, &checked);
    let (route, head) = (matched.route, &matched.head());
    let others = snapshot.router.mismatches(head).into_iter();
    let limits = steps(snapshot, route, head, now)?;
    Ok(Trace {
        token: checked.get().and_then(|checked| match &checked.token {
            Ok(Some(Token::Several)) => Some("several different ones: it is nobody's".to_owned()),
            Ok(_) => None,
            Err(why) => Some(format!("rejected, and as none: {why}")),
        }),
        host: head.host.to_owned(),
        path: head.path.to_owned(),
        others: others
            .map(|(place, mismatch)| (Arc::clone(&snapshot.routes[place].name), mismatch))
            .collect(),
        route: matched.route_index.map(|_| Arc::clone(&route.name)),
        upstream: route
            .upstream
            .as_ref()
            .map(|running| Arc::clone(running.upstream.name())),
        limits,
        now,
    })
}

fn steps(
    snapshot: &Ruleset,
    route: &Route,
    head: &Head<'_>,
    now: Timestamp,
) -> Result<Vec<LimitTrace>, Error> {
    let step = |limit: &Limit| step(limit, &snapshot.secret, head, now);
    let met = route.limits_for(head).iter().chain(route.tags_for(head));
    met.map(step).collect()
}

fn step(
    limit: &Limit,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
) -> Result<LimitTrace, Error> {
    let meeting = limit.evaluate(secret, head);
    let stance = limit.policy.mode.enforcement(&limit.spec.descriptor, head);
    let mut policy = match meeting {
        Applicability::Bucket(_, chosen) => limit.chosen(chosen),
        _ => &limit.policy,
    };
    let mut overflows = 0;
    let peek = |policy: &Policy, key, cost| {
        let charge = Charge {
            table: &policy.table,
            key,
            cost,
            window_end: policy.window_end(head, now),
        };
        charge.peek(now)
    };
    if let (Applicability::Bucket(key, _), Ok(cost)) = (meeting, limit.spec.cost.of(head)) {
        let pays = |policy: &Policy| peek(policy, key, cost).is_admitted();
        while let Some(next) = policy.overflow.as_ref().filter(|_| !pays(policy)) {
            (policy, overflows) = (&next.policy, overflows + 1);
        }
    }
    let tags = policy.action.tag().is_some();
    let refusable = stance == Enforcement::Enforced && !tags;
    let says = match (meeting, limit.spec.cost.of(head)) {
        (Applicability::Bucket(key, _), Ok(cost)) => LimitOutcome::Decides(peek(policy, key, cost)),
        (Applicability::Bucket(..), Err(error)) if refusable => return Err(error.into()),
        (Applicability::Bucket(..), Err(InvalidCost)) => LimitOutcome::RefusesCost,
        (Applicability::Elsewhere, _) => LimitOutcome::Elsewhere,
        (Applicability::Exempt, _) => LimitOutcome::Exempt,
        (Applicability::Skipped, _) => LimitOutcome::Skips,
        (Applicability::Keyless, _) => LimitOutcome::RefusesKeyless,
    };
    let line = policy.table.algorithm().queueing();
    Ok(LimitTrace {
        policy: Arc::clone(&policy.name),
        algorithm: format!("{}, {}", policy.table.algorithm().kind(), policy.quota),
        action: policy.action.name(),
        status: match policy.action {
            Action::Drop => None,
            _ => Some(policy.rejection.status()),
        },
        tags,
        overflows,
        key: limit.spec.descriptor.describe(head),
        zone: policy
            .local_periods
            .as_ref()
            .map(|local| match local.zone(head) {
                Some(zone) => format!("{zone}, from jwt:{}", local.claim),
                None => format!("the default: jwt:{} names none", local.claim),
            }),
        cost: limit.spec.cost.of(head).unwrap_or(1),
        settles: limit.spec.settlement.is_some(),
        in_use: policy.table.algorithm().is_concurrency(),
        line: line.map(|bound| (bound.queue(), bound.max_wait())),
        stance,
        home: BucketStore::Memory,
        says,
    })
}

impl BucketStore {
    fn of(policy: &PolicySpec) -> Self {
        match (policy.shared, policy.sync) {
            (_, Some(interval)) => Self::Synchronised(interval),
            (Some(_), None) => Self::Redis,
            (None, None) => Self::Memory,
        }
    }
}

impl LimitTrace {
    fn refuses(&self) -> bool {
        if self.stance == Enforcement::Shadowed {
            return false;
        }
        match &self.says {
            LimitOutcome::Decides(decision) => !decision.is_admitted(),
            LimitOutcome::Elsewhere | LimitOutcome::Exempt | LimitOutcome::Skips => false,
            LimitOutcome::RefusesKeyless | LimitOutcome::RefusesCost => true,
        }
    }

    /// When a request goes on that it delays.
    fn delayed_until(&self) -> Option<Timestamp> {
        match (&self.says, self.stance) {
            (LimitOutcome::Decides(decision), Enforcement::Enforced) => decision.delayed_until(),
            _ => None,
        }
    }

    /// How many may stand in line where it would wait for what is in use, and for how long.
    fn waits(&self) -> Option<(u32, Duration)> {
        let waits = self.stance == Enforcement::Enforced && !self.tags && !self.refuses();
        self.line.filter(|_| waits && self.decides())
    }

    fn decides(&self) -> bool {
        matches!(self.says, LimitOutcome::Decides(_))
    }

    /// The decision that metrics would count for this limit if the request were served.
    fn decision(&self) -> LimitDecision {
        let outcome = match &self.says {
            LimitOutcome::Elsewhere | LimitOutcome::Skips => LimitDecision::Allowed,
            LimitOutcome::Exempt => LimitDecision::Exempt,
            LimitOutcome::RefusesKeyless | LimitOutcome::RefusesCost => LimitDecision::Limited,
            LimitOutcome::Decides(decision) => match decision.outcome {
                Outcome::Admit if self.overflows > 0 => LimitDecision::Overflowed,
                Outcome::Admit => LimitDecision::Allowed,
                Outcome::Delay { .. } => LimitDecision::Delayed,
                Outcome::Refuse { .. } => LimitDecision::Limited,
            },
        };
        match (outcome, self.stance) {
            (LimitDecision::Limited | LimitDecision::Delayed, Enforcement::Shadowed) => {
                LimitDecision::Shadowed
            }
            (LimitDecision::Limited, Enforcement::Enforced) if self.tags => LimitDecision::Tagged,
            (outcome, _) => outcome,
        }
    }
}
