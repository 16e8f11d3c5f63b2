//! What a snapshot is made of.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};

use super::Preflight;
use crate::http::client_ip::ClientIp;
use crate::limiter::{Algorithm, Penalty};
use crate::proxy::admission::mode::Mode;
use crate::proxy::answers::action::ActionSpec;
use crate::proxy::answers::limit_headers::{HeaderStyles, QuotaUnit};
use crate::proxy::answers::rejection::RejectSpec;
use crate::rules::{
    Condition, Cost, Descriptor, Exceptions, KeyPart, LocalPeriods, RouteMatch, Settlement,
    Verifier,
};
use crate::store::{OnFull, Refusals, redis};
use crate::upstream::{self, Dscp};

/// Everything that a snapshot is made of. Indices point into the lists of the same spec.
#[derive(Debug)]
pub struct RulesetSpec {
    /// Every policy, named or in place.
    pub policies: Vec<PolicySpec>,
    /// Every upstream, named or in place.
    pub upstreams: Vec<upstream::Spec>,
    /// In the order of the file.
    pub routes: Vec<RouteSpec>,
    /// What a request meets that no route takes.
    pub unmatched: Vec<LimitSpec>,
    /// Who the client is.
    pub client_ip: ClientIp,
    /// How long a client may be quiet within a request's body.
    pub body_timeout: Duration,
    /// The header styles of responses.
    pub styles: HeaderStyles,
    /// Whether preflight requests meet limits.
    pub preflight: Preflight,
    /// The bytes that all buckets together may take.
    pub max_size: u64,
    /// What verifies the tokens of requests, if anything.
    pub tokens: Option<Verifier>,
    /// Where buckets are that several machines share, if there are any.
    pub redis: Option<RedisSpec>,
}

/// Buckets in Redis.
#[derive(Clone, Debug)]
pub struct RedisSpec {
    /// Where it is.
    pub client: redis::client::Spec,
    /// What tells the buckets apart there.
    pub naming: redis::Naming,
    /// For how long at most a refusal is remembered here; not at all where zero.
    pub refusal_cache: Duration,
    /// How long a start, or a reload that names another Redis, waits for it to be connected.
    pub startup_timeout: Duration,
}

/// A policy whose buckets are in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisPolicySpec {
    /// What becomes of requests that Redis says nothing of.
    pub on_error: OnStoreError,
}

/// What becomes of requests while the store of a policy does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreError {
    /// This process decides by buckets of its own.
    #[default]
    Local,
    /// The limit admits them.
    Admit,
    /// The limit refuses them.
    Refuse,
}

/// A policy.
#[derive(Debug)]
pub struct PolicySpec {
    /// The name that identifies it, with `key`, across reloads.
    pub name: String,
    /// The key as the configuration writes it.
    pub key: String,
    /// The quota as the configuration writes it.
    pub quota: String,
    /// What its units are.
    pub unit: QuotaUnit,
    /// What decides.
    pub algorithm: Algorithm,
    /// Where windows end, where a claim says in which zone.
    pub local_periods: Option<LocalPeriods>,
    /// Where its buckets are, if not in memory alone.
    pub shared: Option<RedisPolicySpec>,
    /// How often its buckets in memory are synchronised with those of other machines, if they are.
    pub sync: Option<Duration>,
    /// How many buckets it must hold; its share of the memory where `None`.
    pub max_keys: Option<usize>,
    /// What happens when it holds as many.
    pub on_full: OnFull,
    /// Whether requests that are refused are charged.
    pub refusals: Refusals,
    /// Whether responses say what requests cost.
    pub settles: bool,
    /// What it does to keys that it has refused too often.
    pub penalty: Option<Penalty>,
    /// Whether it does anything to requests beyond its quota.
    pub mode: Mode,
    /// What becomes of a request that it refuses.
    pub action: ActionSpec,
    /// What a client is told.
    pub reject: RejectSpec,
    /// By how much at most a client is told to come back later than it could.
    pub retry_after_jitter: Duration,
    /// Policies that stand in its place for some: under the same name, the key of each says for whom.
    pub overrides: Vec<PolicySpec>,
    /// What requests overflow into that it cannot pay; itself without overrides.
    pub overflow: Option<Box<OverflowSpec>>,
}

/// A further bucket of a policy.
#[derive(Debug)]
pub struct OverflowSpec {
    /// What decides, under the policy's name.
    pub policy: PolicySpec,
    /// Fields that tell the upstream of it.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The code point with which its requests are sent.
    pub dscp: Option<Dscp>,
}

impl PolicySpec {
    /// Bounds the keys of all its buckets, but for overrides.
    pub fn set_max_keys(&mut self, keys: usize) {
        self.max_keys = Some(keys);
        if let Some(overflow) = &mut self.overflow {
            overflow.policy.set_max_keys(keys);
        }
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

/// A policy, as a route meets it.
#[derive(Clone, Debug)]
pub struct LimitSpec {
    /// Which policy.
    pub policy: usize,
    /// On which requests; on all where `None`.
    pub when: Option<Condition>,
    /// Who is exempt, or has another quota; overrides are those of the policy, in their order.
    pub exceptions: Option<Exceptions>,
    /// Whose bucket is charged.
    pub descriptor: Descriptor,
    /// With how many units.
    pub cost: Cost,
    /// What responses make of that.
    pub settlement: Option<Settlement>,
}

/// A route.
#[derive(Debug)]
pub struct RouteSpec {
    /// Its name, or what it matches.
    pub name: String,
    /// Which requests it takes.
    pub matches: RouteMatch,
    /// The limits, top-level ones first.
    pub limits: Vec<LimitSpec>,
    /// Which upstream.
    pub upstream: usize,
    /// What is changed in a request before it is forwarded.
    pub rewrite: Rewrite,
    /// The most bytes in a request's body.
    pub max_body: u64,
}

/// What is changed in a request before it is forwarded.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Fields to set, in place of those that the client sent.
    pub set_headers: Vec<(HeaderName, HeaderValue)>,
    /// Fields to remove.
    pub remove_headers: Vec<HeaderName>,
    /// How many of the path's first segments to leave out.
    pub strip: usize,
}

impl Rewrite {
    /// Whether it sets or removes any: trailers, which may have the same names, do not pass then.
    pub fn changes_fields(&self) -> bool {
        !self.set_headers.is_empty() || !self.remove_headers.is_empty()
    }
}

impl LimitSpec {
    /// Whether it has to know what the token of a request says.
    pub fn reads_token(&self) -> bool {
        let when = self.when.as_ref();
        let mut excepted = self.exceptions.iter().flat_map(Exceptions::parts);
        self.descriptor.reads_token()
            || when.is_some_and(Condition::reads_token)
            || excepted.any(|part| matches!(part, KeyPart::Claim(_)))
    }
}
