//! The compiled ruleset: immutable, shared by all workers, replaced as a whole. A new ruleset finds
//! live state again in the one before it, by identity: buckets, connections, metric series.

pub mod build;
pub(super) mod clients;
mod kept;
mod quota;
pub mod reload_diff;
mod settlements;
mod spec;
pub(super) mod tokens;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use derive_more::Deref;
use http::header::HeaderName;
use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::http::client_ip::ClientIp;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::http::path::EncodedSlashes;
use crate::limiter::{Fingerprint, KeyParts, Secret, Turns};
use crate::proxy::admission::mode::ModeSwitch;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::cors::is_preflight;
use crate::proxy::answers::decoy::LearnedResponses;
use crate::proxy::answers::error_pages::ErrorPages;
use crate::proxy::answers::limit_headers::HeaderStyles;
use crate::proxy::answers::route_answer::RouteAnswer;
use crate::proxy::shadow_clients::ShadowClients;
use crate::rules::{
    Access, BodyFields, ClientLookup, Denial, Head, KeyPart, RequestClient, RequestToken, Router,
    TokenCheck,
};
use crate::store::snapshot::PolicyKeyRules;
use crate::store::{Buckets, Home, OnStoreError, Penalties, Steered, Steering, Store, Table};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::{LimitMetrics, PolicyMetrics, RouteMetrics, access_denied};
use crate::telemetry::registry::{Counter, Gauge, Observer, Registry};
use crate::telemetry::spans::SpanQueue;
use crate::upstream::{Cluster, Upstream};
use clients::KnownClients;
use kept::Kept;
use settlements::Settlements;
use tokens::TokenVerifier;

pub use quota::{Overflow, Override, Quota, SoftLimit};
pub use spec::{
    BodySpec, ClientsSpec, CompiledPolicy, CompiledRoute, DebugSpec, Destination, ForwardedPath,
    LimitSpec, OverrideSpec, PolicySpec, QuotaSpec, RefusalSpec, Rewrite, RouteSpec, RulesetSpec,
};

/// The running ruleset.
#[derive(Debug)]
pub struct Ruleset {
    /// Finds the route of a request.
    pub router: Router,
    /// All routes, in the order of the file, which is that of the router's indices.
    pub routes: Vec<Arc<Route>>,
    /// The limits of requests without a route.
    pub unmatched: Arc<Route>,
    /// All policies, in the order of the spec.
    pub policies: Vec<Arc<Policy>>,
    /// All upstreams, in the order of the spec.
    pub upstreams: Vec<Arc<Upstream>>,
    /// A route keeps encoded slashes.
    pub encoded_slashes: EncodedSlashes,
    /// A route takes questions about other requests.
    pub has_questions: bool,
    /// Finds the client's address.
    pub client_ip: Arc<ClientIp>,
    /// Longest pause of a client within a request's body.
    pub body_timeout: Duration,
    /// The most bytes of bodies that are held at a time.
    pub max_held_bodies: u64,
    /// The header styles of responses.
    pub styles: HeaderStyles,
    /// The bodies of errors.
    pub error_pages: Arc<ErrorPages>,
    /// The field that adds decisions to responses, if one is configured.
    pub debug: Option<DebugSpec>,
    /// The access log, if there is one.
    pub access_log: Option<Arc<AccessLog>>,
    /// The queue of spans, if they are exported.
    pub spans: Option<Arc<SpanQueue>>,
    /// The secret of the keys' fingerprints.
    pub secret: Secret,
    /// The verifier of tokens, if one is configured.
    pub tokens: Option<TokenVerifier>,
    /// The known clients, if any are configured.
    pub clients: Option<KnownClients>,
    /// The store of all buckets.
    pub store: Store,
    /// At least one policy has its buckets in Redis, so that requests call it. Synchronised
    /// policies do not count.
    pub has_redis_policies: bool,
    /// Longest wait for Redis at a start or a reload.
    pub startup_timeout: Duration,
    /// Policies that a reload has removed, until they are forgotten.
    kept: Mutex<Vec<Kept>>,
    /// Series that live as long as the policies: figures that are read at each scrape, and settings.
    _series: Vec<(Vec<Observer>, Gauge)>,
}

impl Ruleset {
    /// The names of the policies that refuse requests now because their server of Redis cannot be
    /// reached: those of the store's [unreachable share](Store::unreachable_share) of keys.
    pub fn policies_without_store(&self) -> Vec<&str> {
        if self.store.unreachable_share() == 0.0 {
            return Vec::new();
        }
        let limits = self.all_routes();
        let limits = limits.flat_map(|route| &route.limits[..route.refusing]);
        let refusing = limits.filter(|limit| limit.refuses_without_store());
        let mut names: Vec<_> = refusing.map(|limit| &*limit.policy.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Drops bans and grants by operators that are over, and what is kept of policies that did not
    /// come back.
    pub fn sweep(&self, now: Timestamp) {
        self.forget_kept(now);
        for policy in &self.policies {
            policy.steering.keys().sweep(now);
        }
    }

    /// Keeps the modes that operators have set for the policies of an earlier ruleset.
    pub fn keep_modes(&self, before: &Self) {
        let modes = before.policies.iter().map(|one| (&one.name, &one.mode));
        let modes: HashMap<_, _> = modes.collect();
        for policy in &self.policies {
            if let Some(before) = modes.get(&policy.name) {
                policy.mode.keep(before);
            }
        }
    }

    /// A policy shares charges or bans with other machines through Redis.
    pub fn is_synchronised(&self) -> bool {
        self.policies.iter().any(|policy| {
            let penalties = policy.penalties.as_ref();
            penalties.is_some_and(|penalties| penalties.is_shared())
                || policy.quotas().any(|one| one.buckets.is_synchronised())
        })
    }

    /// All buckets, with the ids of their quotas.
    pub fn buckets(&self) -> impl Iterator<Item = (&str, &Buckets)> {
        let quotas = self.policies.iter().flat_map(|policy| policy.quotas());
        quotas.map(|quota| (quota.id.as_str(), &*quota.buckets))
    }

    /// All tables for the snapshot file, with the ids of their quotas.
    ///
    /// Leaves out synchronised tables: their charges return from Redis, and would count twice.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.buckets()
            .filter(|(_, buckets)| !buckets.is_synchronised())
            .map(|(id, buckets)| (id, &*buckets.table))
    }

    /// Strikes, bans and grants of all policies for the snapshot file. Shared bans are included,
    /// since Redis may be down at the next start.
    pub fn keys(&self) -> impl Iterator<Item = PolicyKeyRules<'_>> {
        self.policies.iter().map(|policy| PolicyKeyRules {
            policy: &policy.name,
            key: &policy.quota.id,
            secret: policy.steering.secret().unwrap_or(self.secret),
            bans: policy.penalties.as_deref(),
            steered: Some(policy.steering.keys()),
        })
    }

    /// The servers of each upstream that has some.
    pub fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.upstreams.iter().filter_map(|one| one.cluster())
    }

    /// All routes, and the limits of requests without one.
    pub fn all_routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().chain([&self.unmatched])
    }

    /// The route with this index, or the limits of requests without a route.
    pub fn route(&self, place: Option<usize>) -> &Arc<Route> {
        place.map_or(&self.unmatched, |place| &self.routes[place])
    }

    /// The token of a request on this route, if a limit there reads one. Verified at first use, for
    /// the instant `now`.
    pub fn token<'a>(
        &'a self,
        route: &Route,
        headers: &'a Headers,
        now: Timestamp,
        checked: &'a OnceCell<TokenCheck>,
    ) -> Option<RequestToken<'a>> {
        let tokens = self.tokens.as_ref().filter(|_| route.reads_token)?;
        Some(RequestToken {
            verifier: &tokens.verifier,
            headers,
            now,
            checked,
        })
    }

    /// The client of a request, if clients are known. It is looked up at first use.
    pub fn client<'a>(&'a self, found: &'a OnceCell<ClientLookup>) -> Option<RequestClient<'a>> {
        let known = self.clients.as_ref()?;
        Some(RequestClient {
            clients: &known.clients,
            found,
        })
    }
}

/// A route that runs.
#[derive(Debug, Deref)]
pub struct Route {
    /// Its settings.
    #[deref]
    pub spec: RouteSpec,
    /// All limits: first those that can refuse, top-level ones first, then those that only tag.
    pub limits: Vec<Limit>,
    /// The number of limits that can refuse.
    pub refusing: usize,
    /// Most requests can take the short way of admission.
    pub(super) is_plain: bool,
    /// The limits that the route reports to clients, if its answer is the report.
    pub reported: Vec<Limit>,
    /// Where its requests go.
    pub destination: Destination<Arc<Upstream>>,
    /// Fields that tell the upstream of a lower priority, or of exceeded limits.
    pub told_fields: Vec<HeaderName>,
    /// A limit may have requests wait for units.
    pub(super) may_wait: bool,
    /// A limit may route requests to another upstream.
    pub(super) may_route: bool,
    /// The rules of access; `None` if all requests are served.
    pub access: Option<RouteAccess>,
    /// A limit, an access rule or the balancer's key reads a claim of the token.
    pub reads_token: bool,
    /// The parts of the body that a limit or the balancer's key reads.
    pub body_parts: Vec<KeyPart>,
    /// The responses that decoys imitate, if a limit has decoys.
    pub(super) learned_responses: Option<Arc<LearnedResponses>>,
    /// Counters of its requests.
    pub metrics: RouteMetrics,
}

/// Treatment of CORS preflight requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preflight {
    /// The limits of the route apply.
    #[default]
    Limited,
    /// No limit applies.
    Exempt,
}

impl Preflight {
    /// The request is exempt from all limits. Clients can forge such a request.
    fn is_exempt(self, head: &Head<'_>) -> bool {
        self == Self::Exempt && is_preflight(head)
    }
}

impl Route {
    /// The upstream, if its requests are forwarded.
    pub fn upstream(&self) -> Option<&Arc<Upstream>> {
        match &self.destination {
            Destination::Upstream(upstream) => Some(upstream),
            Destination::Nowhere | Destination::Answer(_) => None,
        }
    }

    /// What its limits read of the body of `request`, if they do; `None` for a body that is too long.
    pub fn body_fields<B>(&self, request: &Request<B>, body: Option<&[u8]>) -> Option<BodyFields> {
        let limit = self.spec.body.as_ref()?.limit;
        Some(match body.filter(|body| body.len() <= limit) {
            Some(body) => {
                let query = request.uri().query();
                BodyFields::read(&self.body_parts, request.headers(), query, body)
            }
            None => BodyFields::unread(),
        })
    }

    /// Its requests are questions about other requests.
    pub fn decides(&self) -> bool {
        matches!(self.destination, Destination::Answer(RouteAnswer::Decision))
    }

    /// The proxy itself answers the requests that the limits admit.
    pub fn answers_itself(&self) -> bool {
        matches!(self.destination, Destination::Answer(_))
    }

    /// The limits that apply to a request, except those that tag.
    pub fn limits_for(&self, head: &Head<'_>) -> &[Limit] {
        if self.preflight.is_exempt(head) {
            &[]
        } else {
            &self.limits[..self.refusing]
        }
    }

    /// The tagging limits that apply to a request, with their numbers.
    pub fn tags_for(&self, head: &Head<'_>) -> impl Iterator<Item = (u16, &Limit)> {
        let tags = if self.preflight.is_exempt(head) {
            &[]
        } else {
            self.tags()
        };
        (self.refusing as u16..).zip(tags)
    }

    /// All limits that tag.
    pub fn tags(&self) -> &[Limit] {
        &self.limits[self.refusing..]
    }

    /// True if the limit with this number tags.
    pub fn is_tag(&self, number: u16) -> bool {
        usize::from(number) >= self.refusing
    }

    /// The limit with this number.
    pub fn limit(&self, number: u16) -> &Limit {
        &self.limits[usize::from(number)]
    }
}

/// The access rules of a route: the top-level ones and its own.
#[derive(Debug)]
pub struct RouteAccess {
    /// All of these have to let a request pass.
    pub rules: Vec<Arc<Access>>,
    /// Requests that were denied.
    pub denied: Counter,
}

impl RouteAccess {
    /// Makes the access rules of the route with this name; `None` if there are none.
    pub fn new(registry: &Registry, route: &str, rules: Vec<Arc<Access>>) -> Option<Self> {
        if rules.is_empty() {
            return None;
        }
        Some(Self {
            rules,
            denied: access_denied(registry, route),
        })
    }

    /// The reason if the rules deny a request.
    pub fn denial(&self, head: &Head<'_>) -> Option<Denial> {
        self.rules.iter().find_map(|access| access.denial(head))
    }
}

/// A policy on a route.
#[derive(Debug)]
pub struct Limit {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The requests, keys and costs of the limit.
    pub spec: LimitSpec,
    /// The condition, the key, an exception or the policy's time zone reads a claim of the token.
    pub reads_token: bool,
    /// The parts of the body that it reads.
    pub body_parts: Vec<KeyPart>,
    /// The secret of its keys' fingerprints: the ruleset's, or one that all machines have.
    pub secret: Secret,
    /// Counters of this limit.
    pub metrics: LimitMetrics,
    /// Counters of the policy's soft limits, in their order.
    pub soft_metrics: Vec<LimitMetrics>,
    /// Counters by the label of the client, if clients have one.
    pub client_metrics: Vec<LimitMetrics>,
}

impl Limit {
    /// The ban and the grant of operators to the key of a request at `now`, which charges `buckets`
    /// under the fingerprint `key`.
    #[inline]
    pub(super) fn steered(
        &self,
        key: Fingerprint,
        buckets: &Buckets,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Option<Steered> {
        let descriptor = &self.spec.descriptor;
        let write = |mut parts: &mut dyn KeyParts| descriptor.feed(head, &mut parts).is_ok();
        self.policy.steering.find(key, buckets, now, write)
    }

    /// It may route requests to another upstream.
    fn may_route(&self) -> bool {
        self.policy
            .actions()
            .any(|action| action.rerouting().is_some())
    }

    fn refuses_without_store(&self) -> bool {
        let mut quotas = self.policy.quotas();
        self.policy.mode.current().can_refuse()
            && quotas.any(|one| one.buckets.home == Home::Redis(OnStoreError::Refuse))
    }
}

/// A policy that runs.
#[derive(Debug, Deref)]
pub struct Policy {
    /// Its settings.
    #[deref]
    pub spec: PolicySpec,
    /// A keyed hash of the name: tells its keys from equal ones of other policies.
    pub name_hash: u64,
    /// Enforced or in shadow.
    pub mode: ModeSwitch,
    /// Bans of keys that it refused too often.
    pub penalties: Option<Arc<Penalties>>,
    /// The clients that met it in shadow.
    pub shadow_clients: Arc<ShadowClients>,
    /// Keys that operators steer.
    pub steering: Steering,
    /// Counters of settlements, if responses settle costs.
    pub settlements: Option<Settlements>,
    /// Action on requests beyond the quota.
    pub action: Action,
    /// The turns of requests to wait for units, if the policy has them wait.
    pub(super) turns: Option<Turns>,
    /// The quota of keys without an override. Name and key identify a policy.
    pub quota: Quota,
    /// The overrides, in the order of the policy's.
    pub overrides: Vec<Override>,
    /// The soft limits of the quota's buckets, in ascending order.
    pub soft_limits: Vec<SoftLimit>,
    /// Counters over all routes, overrides included.
    pub metrics: PolicyMetrics,
}

impl Policy {
    /// The override at this place.
    pub(super) fn override_at(&self, place: u32) -> &Override {
        &self.overrides[place as usize]
    }

    /// The requests of one of its overrides, as the configuration has them, without values that may be
    /// secrets.
    pub fn requests_of(&self, one: &Override) -> String {
        let id = one.quota.as_ref().map(|quota| &quota.id);
        let named = id.and_then(|id| id.strip_prefix(&*self.quota.id)?.strip_prefix(" where "));
        let selection = one.selection.as_deref().unwrap_or_default();
        named.map_or_else(|| selection.to_owned(), reload_diff::shown_exception)
    }

    /// The actions on requests beyond a quota or a soft limit.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let refusals = self
            .overrides
            .iter()
            .filter_map(|one| one.refusal.as_deref());
        let soft = self.soft_limits.iter().map(|soft| &soft.refusal);
        let actions = refusals.chain(soft).map(|(action, _)| action);
        std::iter::once(&self.action).chain(actions)
    }

    /// A quota counts by the time zone of the token, or has the limit that it states.
    pub fn reads_token(&self) -> bool {
        self.quotas().any(Quota::reads_token)
    }

    /// The quota, its overflow buckets, and those of the overrides: all with a table.
    pub fn quotas(&self) -> impl Iterator<Item = &Quota> {
        let overrides = self.overrides.iter().filter_map(|one| one.quota.as_ref());
        let quotas = std::iter::once(&self.quota).chain(overrides);
        quotas.flat_map(Quota::tiers)
    }
}
