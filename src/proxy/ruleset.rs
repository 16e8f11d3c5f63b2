//! The compiled ruleset: immutable, shared by all workers, replaced as a whole. Live state (buckets,
//! connections, metric series) is found again in the snapshot before it, by identity.

pub mod build;
pub mod reload_diff;
mod redis_binding;
mod settlements;
mod spec;
mod sync_recorder;
pub(super) mod tokens;

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{self, HeaderName, HeaderValue};

use crate::clock::Timestamp;
use crate::http::client_ip::ClientIp;
use crate::http::headers::Headers;
use crate::limiter::{Secret, WindowEnd};
use crate::proxy::admission::mode::Mode;
use crate::proxy::admission::penalties::Penalties;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::decoy::LearnedResponses;
use crate::proxy::answers::limit_headers::{AdvertisedPolicy, HeaderStyles};
use crate::proxy::answers::rejection::Rejection;
use crate::rules::{Head, LocalPeriods, RequestToken, Router, TokenCheck};
use crate::store::{Table, redis};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{
    InUseMetrics, LimitMetrics, PolicyMetrics, RouteMetrics, UpstreamMetrics,
};
use crate::upstream::{self, Dscp, Upstream};
use settlements::Settlements;
use sync_recorder::SyncRecorder;
use tokens::TokenVerifier;

pub use redis_binding::RedisBinding;
pub use spec::{
    LimitSpec, OnStoreError, OverflowSpec, PolicySpec, RedisPolicySpec, RedisSpec, Rewrite,
    RouteSpec, RulesetSpec,
};

/// The running ruleset.
#[derive(Debug)]
pub struct Ruleset {
    /// Finds the route of a request.
    pub router: Router,
    /// In the order of the file, at the router's indices.
    pub routes: Vec<Arc<Route>>,
    /// For the requests that no route takes.
    pub unmatched: Arc<Route>,
    /// Every policy, in the order of the spec.
    pub policies: Vec<Arc<Policy>>,
    /// Every upstream, in the order of the spec.
    pub upstreams: Vec<Arc<RunningUpstream>>,
    /// Who the client is.
    pub client_ip: ClientIp,
    /// How long a client may be quiet within a request's body.
    pub body_timeout: Duration,
    /// The header styles of responses.
    pub styles: HeaderStyles,
    /// Where requests are logged, if anywhere.
    pub access_log: Option<Arc<AccessLog>>,
    /// Turns keys into fingerprints.
    pub secret: Secret,
    /// Verifies the tokens of requests, if anything does.
    pub tokens: Option<TokenVerifier>,
    /// Where buckets are that several machines share, or through which they are synchronised, if there are any.
    pub redis: Option<Arc<redis::Store>>,
    /// Whether requests ask there: not where all that there is is synchronised.
    pub has_redis_policies: bool,
    /// How long requests may be held up at the start, or a reload, until Redis is connected.
    pub startup_timeout: Duration,
}

impl Ruleset {
    /// The policies that refuse requests because Redis cannot be reached, now.
    pub fn policies_without_store(&self) -> Vec<&str> {
        let is_reachable = |store: &Arc<redis::Store>| store.is_reachable();
        if self.redis.as_ref().is_none_or(is_reachable) {
            return Vec::new();
        }
        let routes = self.routes.iter().chain([&self.unmatched]);
        let limits = routes.flat_map(|route| &route.limits);
        let refusing = limits.filter(|limit| limit.refuses_without_store());
        let mut names: Vec<_> = refusing.map(|limit| &*limit.policy.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether other machines hear of charges or bans through Redis.
    pub fn is_synchronised(&self) -> bool {
        self.policies.iter().any(|policy| {
            let penalties = policy.penalties.as_ref();
            penalties.is_some_and(|penalties| penalties.shared().is_some())
                || policy.all().iter().any(|one| one.sync_recorder.is_some())
        })
    }

    /// The route at this place, or what a request meets that no route takes.
    pub fn route(&self, place: Option<usize>) -> &Arc<Route> {
        place.map_or(&self.unmatched, |place| &self.routes[place])
    }

    /// The token of a request on this route, where a limit may ask for it. It has to be good at `now`.
    pub fn token<'a>(
        &'a self,
        route: &Route,
        headers: &'a Headers,
        now: Timestamp,
        checked: &'a OnceCell<TokenCheck>,
    ) -> Option<RequestToken<'a>> {
        let tokens = self.tokens.as_ref().filter(|_| route.reads_token)?;
        Some(RequestToken::new(&tokens.verifier, headers, now, checked))
    }
}

/// A route that runs.
#[derive(Debug)]
pub struct Route {
    /// Its name, or what it matches.
    pub name: Arc<str>,
    /// The limits, top-level ones first.
    pub limits: Vec<Limit>,
    /// Of its limits those that refuse nothing, but tag.
    pub tags: Vec<Limit>,
    /// Where its requests go; `None` for those that no route takes.
    pub upstream: Option<Arc<RunningUpstream>>,
    /// Fields by which its limits tell the upstream of a lower priority.
    pub priority_fields: Vec<HeaderName>,
    /// Whether preflight requests meet its limits.
    pub preflight: Preflight,
    /// Whether one of its limits asks what a request's token says.
    pub reads_token: bool,
    /// Whether other machines are told of what some of its limits charge.
    pub is_synchronised: bool,
    /// What is changed in a request before it is forwarded.
    pub rewrite: Rewrite,
    /// The most bytes in a request's body.
    pub max_body: u64,
    /// What its decoys look like, if a limit answers with one.
    pub(super) learned_responses: Option<Arc<LearnedResponses>>,
    /// Its counters.
    pub metrics: RouteMetrics,
}

/// What becomes of the requests by which a browser asks whether a script of another origin may ask (CORS preflight).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preflight {
    /// They meet the limits of their route, as any other request.
    Limited,
    /// They meet none.
    Exempt,
}

impl Preflight {
    /// Whether it keeps this request from all limits. Whoever may be exempt can forge such a request.
    fn is_exempt(self, head: &Head<'_>) -> bool {
        self == Self::Exempt
            && head.method == Method::OPTIONS
            && head.headers.contains(header::ORIGIN)
            && head.headers.contains(header::ACCESS_CONTROL_REQUEST_METHOD)
    }
}

impl Route {
    /// The limits that a request meets, but for those that tag.
    pub fn limits_for(&self, head: &Head<'_>) -> &[Limit] {
        match self.preflight.is_exempt(head) {
            true => &[],
            false => &self.limits,
        }
    }

    /// The limits that tag, of those that a request meets.
    pub fn tags_for(&self, head: &Head<'_>) -> &[Limit] {
        match self.preflight.is_exempt(head) {
            true => &[],
            false => &self.tags,
        }
    }

    /// Its limits, and after them those that tag.
    pub fn all_limits(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().chain(&self.tags)
    }
}

/// A policy, as a route meets it.
#[derive(Debug)]
pub struct Limit {
    /// What decides.
    pub policy: Arc<Policy>,
    /// Its requests, keys and costs.
    pub spec: LimitSpec,
    /// The condition, the key, an exception or the policy's time zone needs a claim of the token.
    pub reads_token: bool,
    /// The secret of its fingerprints, if it is not the ruleset's.
    pub secret: Option<Secret>,
    /// Its counters on this route.
    pub metrics: LimitMetrics,
}

impl Limit {
    fn refuses_without_store(&self) -> bool {
        let policies = self.policy.all().into_iter();
        let mut refusing = policies.filter(|policy| policy.mode != Mode::Shadow);
        refusing.any(|policy| {
            let shared = policy.shared.as_ref();
            shared.is_some_and(|shared| shared.on_error == OnStoreError::Refuse)
        })
    }
}

/// A policy that runs.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: Arc<str>,
    /// The key as the configuration writes it: with the name, what identifies it.
    pub key: String,
    /// The quota as the configuration writes it.
    pub quota: String,
    /// Whether it refuses.
    pub mode: Mode,
    /// Its buckets in memory; of a policy in Redis those that decide while Redis does not.
    pub table: Arc<Table>,
    /// What it has in Redis, if its buckets are there.
    pub shared: Option<RedisBinding>,
    /// What tells other machines of its charges, if its buckets in memory are synchronised.
    pub sync_recorder: Option<SyncRecorder>,
    /// Where windows end, where a claim says in which zone.
    pub local_periods: Option<LocalPeriods>,
    /// What its requests in flight have taken, where that comes back when they end.
    pub in_use_metrics: Option<InUseMetrics>,
    /// What it does to keys that it has refused too often; also to those of its overrides.
    pub penalties: Option<Penalties>,
    /// How responses settle its costs, if they do.
    pub settlements: Option<Settlements>,
    /// What header fields say of it.
    pub advertised: AdvertisedPolicy,
    /// What becomes of a request that it refuses.
    pub action: Action,
    /// What a refused client is told.
    pub rejection: Arc<Rejection>,
    /// By how much at most it is told to come back later than it could.
    pub retry_after_jitter: Duration,
    /// What stands in its place for some, by the same name.
    pub overrides: Vec<Policy>,
    /// What requests overflow into that it cannot pay, by the same name.
    pub overflow: Option<Box<Overflow>>,
    /// Its counters over all routes, and those of its overrides.
    pub metrics: Arc<PolicyMetrics>,
}

/// A further bucket of a policy: its requests are admitted at a lower priority.
#[derive(Debug)]
pub struct Overflow {
    /// What decides.
    pub policy: Policy,
    /// Fields that tell the upstream of it.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The code point with which its requests are sent.
    pub dscp: Option<Dscp>,
}

impl Policy {
    /// The period that a window is which this request opens, where it says that.
    pub fn period(&self, head: &Head<'_>, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        self.local_periods.as_ref()?.period(head, now)
    }

    /// When a window ends that this request opens, where it says that.
    pub fn window_end(&self, head: &Head<'_>, now: Timestamp) -> Option<WindowEnd> {
        self.period(head, now).map(WindowEnd::of)
    }

    /// Whether it has to know what the token of a request says, apart from whose bucket it is.
    pub fn reads_token(&self) -> bool {
        self.all()
            .iter()
            .any(|policy| policy.local_periods.is_some())
    }

    /// The policy, what it overflows into, and the same of its overrides: all that have a table.
    pub fn all(&self) -> Vec<&Self> {
        let mut all = vec![self];
        if let Some(overflow) = &self.overflow {
            all.extend(overflow.policy.all());
        }
        all.extend(self.overrides.iter().flat_map(Self::all));
        all
    }
}

/// An upstream with its counters.
#[derive(Debug)]
pub struct RunningUpstream {
    /// Its endpoints and connections.
    pub upstream: Upstream,
    /// Its counters.
    pub metrics: UpstreamMetrics,
    /// Bounds the log lines about its failures.
    pub failure_log: LogThrottle,
}

impl RunningUpstream {
    /// Logs that a request got no response: at most once a second.
    pub(crate) fn log_failure(&self, error: &upstream::Error, now: Timestamp) {
        if let Some(omitted) = self.failure_log.admit(now) {
            let (upstream, error) = (self.upstream.name(), error as &dyn std::error::Error);
            tracing::warn!(
                upstream = &**upstream,
                error,
                omitted,
                "no response from the upstream"
            );
        }
    }
}
