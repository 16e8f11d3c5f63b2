//! Specs of a ruleset, compiled from the configuration.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, HeaderName, HeaderValue};

use super::Preflight;
use super::quota::Overflow;
use crate::http::client_ip::ClientIp;
use crate::http::path::EncodedSlashes;
use crate::http::token_digest::TokenDigest;
use crate::http::upgrade::Upgrades;
use crate::limiter::Algorithm;
use crate::limiter::penalty::Penalty;
use crate::proxy::admission::mode::{Enforcement, Mode};
use crate::proxy::answers::action::ActionSpec;
use crate::proxy::answers::error_pages::ErrorPages;
use crate::proxy::answers::limit_headers::{HeaderStyles, QuotaUnit};
use crate::proxy::answers::rejection::RejectSpec;
use crate::proxy::answers::response_changes::ResponseChanges;
use crate::proxy::answers::route_answer::RouteAnswer;
use crate::rules::{
    Access, BodyChange, Clients, Condition, Cost, Descriptor, Exceptions, KeyPart, LocalPeriods,
    PathRewrite, RouteMatch, SettlementRule, StatedLimit, Verifier,
};
use crate::store::{Home, OnFull, Refusals, StoreSpec};
use crate::upstream::UpstreamSpec;

/// Spec of a ruleset. Indices point into the lists of the same spec.
#[derive(Debug, Default)]
pub struct RulesetSpec {
    /// All policies, named or in place.
    pub policies: Vec<CompiledPolicy>,
    /// All upstreams, named or in place.
    pub upstreams: Vec<UpstreamSpec>,
    /// All routes, in the order of the file.
    pub routes: Vec<CompiledRoute>,
    /// The rules of requests without a route.
    pub unmatched: CompiledRoute,
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
    /// Memory for all buckets together, in bytes.
    pub max_size: u64,
    /// The verifier of tokens, if one is configured.
    pub tokens: Option<Verifier>,
    /// The known clients, if any are configured.
    pub clients: Option<ClientsSpec>,
    /// The Redis of shared and synchronised buckets, if there are any.
    pub store: Option<StoreSpec>,
}

/// The known clients, and the column that labels metrics.
#[derive(Debug)]
pub struct ClientsSpec {
    /// The clients.
    pub clients: Clients,
    /// The column, of few values, that is a label of the metrics of limits.
    pub metric_label: Option<String>,
}

impl ClientsSpec {
    /// The values that label metrics: that of unknown clients, then those of the column, 20 at most.
    pub fn labels(&self) -> Vec<String> {
        let column = self.metric_label.as_deref();
        let column = column.and_then(|column| self.clients.table.column(column));
        let values = column
            .iter()
            .flat_map(|&column| self.clients.table.distinct(column));
        let unknown = column.map(|_| "");
        unknown
            .into_iter()
            .chain(values)
            .map(str::to_owned)
            .collect()
    }
}

/// The field that adds decisions to responses, and its token.
#[derive(Clone, Debug)]
pub struct DebugSpec {
    /// The field that has the token in requests, and the decisions in responses.
    pub header: HeaderName,
    /// The token.
    pub token: TokenDigest,
}

/// A policy as compiled: its spec, and the specs of what the ruleset builds for it.
#[derive(Debug)]
pub struct CompiledPolicy {
    /// The settings that the running policy keeps.
    pub spec: PolicySpec,
    /// Bans of keys that it refused too often.
    pub penalty: Option<Penalty>,
    /// Enforced or in shadow.
    pub mode: Mode,
    /// Action and rejections.
    pub refusal: RefusalSpec,
    /// The quota of keys without an override.
    pub quota: QuotaSpec,
    /// The overrides, in the order of the policy's.
    pub overrides: Vec<OverrideSpec>,
    /// The used units of a bucket beyond which requests get other answers, in ascending order, and
    /// these answers.
    pub soft_limits: Vec<(u64, Arc<RefusalSpec>)>,
}

/// Spec of a policy.
#[derive(Debug)]
pub struct PolicySpec {
    /// The policy's name. With the key of its quota it identifies a policy across reloads.
    pub name: Arc<str>,
    /// The name that clients read.
    pub advertised_name: String,
    /// The parts of the key as configured.
    pub key_parts: Vec<String>,
    /// Unit of the quota.
    pub unit: QuotaUnit,
    /// The home of its buckets.
    pub home: Home,
    /// Treatment of new keys in a full table.
    pub on_full: OnFull,
    /// Charging of refused requests.
    pub refusals: Refusals,
    /// Responses settle the costs of requests.
    pub settles: bool,
    /// Clients may learn of the policy.
    pub is_announced: bool,
    /// Upper bound of the random delay added to Retry-After.
    pub retry_after_jitter: Duration,
}

/// Spec of an override.
#[derive(Debug)]
pub struct OverrideSpec {
    /// The requests that it is for. Secret.
    pub selection: String,
    /// Its quota; `None` for the policy's, and its buckets.
    pub quota: Option<QuotaSpec>,
    /// Units that its requests have to leave in the policy's bucket: the difference of the bursts.
    pub kept: u64,
    /// The effect of decisions, if it isn't the policy's.
    pub enforcement: Option<Enforcement>,
    /// Action and rejections, if they aren't the policy's. Overrides share equal ones.
    pub refusal: Option<Arc<RefusalSpec>>,
}

/// Spec of the answers to refused requests.
#[derive(Debug)]
pub struct RefusalSpec {
    /// Action on requests beyond the quota.
    pub action: ActionSpec,
    /// Rejections.
    pub reject: RejectSpec,
}

/// Spec of a quota: that of a policy, of an override, or of an overflow bucket.
#[derive(Debug)]
pub struct QuotaSpec {
    /// The key as configured, with the keys that an override is for. Identifies the quota among
    /// those of its policy.
    pub id: String,
    /// The quota as configured.
    pub text: String,
    /// Algorithm with its quota.
    pub algorithm: Algorithm,
    /// Ends of windows by the time zone in a claim.
    pub local_periods: Option<LocalPeriods>,
    /// The limit that each request states.
    pub stated: Option<StatedLimit>,
    /// Number of keys that it must hold; `None` for its share of the memory.
    pub max_keys: Option<usize>,
    /// The bucket for requests that this one cannot pay.
    pub overflow: Option<Box<Overflow<QuotaSpec>>>,
}

impl CompiledPolicy {
    /// The quota, its overflow buckets, and those of the overrides: all with a table.
    pub fn quotas(&self) -> impl Iterator<Item = &QuotaSpec> {
        let overrides = self.overrides.iter().filter_map(|one| one.quota.as_ref());
        let quotas = std::iter::once(&self.quota).chain(overrides);
        quotas.flat_map(QuotaSpec::tiers)
    }
}

impl CompiledPolicy {
    /// True if it has requests wait for units.
    pub(super) fn waits(&self) -> bool {
        let overrides = self
            .overrides
            .iter()
            .filter_map(|one| one.refusal.as_deref());
        let mut actions = overrides
            .chain([&self.refusal])
            .map(|refusal| &refusal.action);
        actions.any(|action| matches!(action, ActionSpec::Wait(_)))
    }
}

impl QuotaSpec {
    /// Sets `max_keys` of the quota and its overflow buckets.
    pub fn set_max_keys(&mut self, keys: usize) {
        self.max_keys = Some(keys);
        if let Some(overflow) = &mut self.overflow {
            overflow.quota.set_max_keys(keys);
        }
    }

    /// The quota, and its further overflow buckets.
    fn tiers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |quota| Some(&quota.overflow.as_ref()?.quota))
    }
}

/// Spec of a policy on a route.
#[derive(Clone, Debug)]
pub struct LimitSpec {
    /// Index of the policy.
    pub policy: usize,
    /// Condition of the requests it applies to; `None` for all.
    pub when: Option<Condition>,
    /// Exempt keys, and keys with an override, in the order of the policy's overrides.
    pub exceptions: Option<Exceptions>,
    /// Key of the bucket.
    pub descriptor: Descriptor,
    /// Units of a request.
    pub cost: Cost,
    /// Settlement of the cost by the response.
    pub settlement: Option<SettlementRule>,
    /// It applies to all routes.
    pub is_top_level: bool,
}

/// A route as compiled: its spec, and the specs of what the ruleset builds for it. By default one
/// that forwards nothing, under no limit.
#[derive(Debug, Default)]
pub struct CompiledRoute {
    /// The settings that the running route keeps.
    pub spec: RouteSpec,
    /// Conditions of its requests.
    pub matches: RouteMatch,
    /// The rules of access, the top-level one first.
    pub access: Vec<Arc<Access>>,
    /// The limits, top-level ones first.
    pub limits: Vec<LimitSpec>,
    /// The limits that the route reports to clients; none unless its upstream is the report.
    pub reported: Vec<LimitSpec>,
    /// Where its requests go.
    pub destination: Destination<usize>,
}

/// Spec of a route.
#[derive(Debug, Default)]
pub struct RouteSpec {
    /// The configured name, or a text of its conditions.
    pub name: Arc<str>,
    /// The key by which the upstream chooses hosts, if it hashes one.
    pub balance_key: Option<Descriptor>,
    /// Treatment of preflight requests.
    pub preflight: Preflight,
    /// Changes to requests before they are forwarded.
    pub rewrite: Rewrite,
    /// Treatment of encoded slashes in paths.
    pub encoded_slashes: EncodedSlashes,
    /// Changes to responses, if there are any.
    pub response: Option<Box<ResponseChanges>>,
    /// The protocols to which requests may switch.
    pub upgrades: Upgrades,
    /// Largest body of a request, in bytes.
    pub max_body: u64,
    /// How bodies are read before limits decide, if they are.
    pub body: Option<BodySpec>,
}

/// Spec of reading bodies.
#[derive(Debug)]
pub struct BodySpec {
    /// Longest body that is read, in bytes.
    pub limit: usize,
    /// Changes to bodies that are read.
    pub changes: Vec<BodyChange>,
}

/// Destination of the requests of a route, where `U` names an upstream.
#[derive(Debug, Default)]
pub enum Destination<U> {
    /// No route takes the requests.
    #[default]
    Nowhere,
    /// This upstream.
    Upstream(U),
    /// The proxy, which gives this answer.
    Answer(RouteAnswer),
}

/// Changes to a request before it is forwarded.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Fields to set, which replace the client's.
    pub set_headers: Vec<(HeaderName, HeaderValue)>,
    /// Fields to remove.
    pub remove_headers: Vec<HeaderName>,
    /// The path that the upstream gets.
    pub path: ForwardedPath,
}

/// The path that the upstream gets.
#[derive(Clone, Debug, Default)]
pub enum ForwardedPath {
    /// The normal form, by which the request was matched.
    #[default]
    Normalised,
    /// The path as the client sent it, byte for byte.
    AsReceived,
    /// The normal form, rewritten.
    Rewritten(Box<PathRewrite>),
}

impl Rewrite {
    /// Sets or removes fields. Trailers, which may have the same names, are then dropped.
    pub fn changes_fields(&self) -> bool {
        !self.set_headers.is_empty() || !self.remove_headers.is_empty()
    }

    /// Sets or removes Accept.
    pub(crate) fn changes_accept(&self) -> bool {
        let mut set = self.set_headers.iter().map(|(name, _)| name);
        set.any(|name| *name == ACCEPT) || self.remove_headers.contains(&ACCEPT)
    }
}

impl LimitSpec {
    /// The parts that the condition, the key, an exception, the cost or its settlement reads.
    pub fn inputs(&self) -> impl Iterator<Item = KeyPart> {
        let when = self.when.iter().flat_map(Condition::inputs);
        let excepted = self.exceptions.iter().flat_map(Exceptions::inputs);
        let settled = self.settlement.iter().flat_map(|one| one.inputs());
        let key = self.descriptor.inputs().chain(self.cost.inputs());
        let key = key.chain(settled);
        key.cloned().chain(when).chain(excepted)
    }

    /// One of its inputs is a claim of the token.
    pub fn reads_token(&self) -> bool {
        self.inputs().any(|part| matches!(part, KeyPart::Claim(_)))
    }
}
