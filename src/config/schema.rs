//! The configuration's types, with every key, its bounds and its default. The JSON Schema,
//! descriptions included, comes from them. `validate` finds contradictions.

mod json;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::NodeId;
use super::located::{List, Located, Table};
use super::value::{Duration, KeyPart, Name, UpstreamRef, Whole, Workers};

pub use super::sections::access::Access;
pub use super::sections::access_log::{AccessLog, AccessLogFormat};
pub use super::sections::admin::{Admin, ShutdownTimes};
pub use super::sections::allowed_warnings::CheckRules;
pub use super::sections::amounts::Amounts;
pub use super::sections::clients::{Clients, UnknownClients};
pub use super::sections::condition::Condition;
pub use super::sections::content::{Content, InFile};
pub use super::sections::cost::{Cost, Reserve};
pub use super::sections::exception::{Candidate, Override, Selection};
pub use super::sections::include::Include;
pub use super::sections::jwt::Jwt;
pub use super::sections::listener::{ClientBounds, ClientIp, Listener};
pub use super::sections::missing_key::OnMissingKey;
pub use super::sections::overflow::Overflow;
pub use super::sections::path_selection::PathSelection;
pub use super::sections::penalty::Penalty;
pub use super::sections::policy::{
    AlgorithmName, Key, Limit, Mode, OldestWindow, OnFull, Policy, WindowStart,
};
pub use super::sections::quota::Quota;
pub use super::sections::redis::{RedisStore, SyncInterval};
pub use super::sections::responses::{
    Action, BodyFormat, Cors, DebugHeader, HeaderFields, OnLimit, ResponseRules, Responses,
};
pub use super::sections::route::{Match, RequestChanges, Route};
pub use super::sections::secret_value::SecretValue;
pub use super::sections::soft_limit::SoftLimit;
pub use super::sections::store::{Store, StoreName};
pub use super::sections::traces::Tracing;
pub use super::sections::upstream::{Ejection, Upstream, UpstreamTls};
pub use super::sections::value_match::{Networks, ValueMatch};
pub use super::sections::zone::Zone;
pub(super) use json::KEYS;
pub use json::json_schema;

/// Milliseconds.
pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// A time-out.
pub type Timeout<const DEFAULT: u64> = Duration<1, DAY, DEFAULT>;
/// A delay, which may be zero.
pub type Delay<const DEFAULT: u64 = 0> = Duration<0, HOUR, DEFAULT>;
/// The `Retry-After` of refusals whose end is unknown.
pub type RetryAfter = Duration<1, DAY, SECOND>;
/// Units in use at once.
pub type InUse = Whole<0, { u32::MAX as u64 }>;

/// The whole configuration.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "sluicegate", extend("anyOf" = [{ "required": ["routes"] }, { "required": ["include"] }]))]
#[schemars(extend("patternProperties" = { "^x-": { "description": "Ignored: a place for YAML anchors." } }))]
pub struct Config {
    /// Further files with `policies`, `routes` and `upstreams`: a path, or a list, in this order.
    /// `*` and `?` in the last part of a path match files, by name.
    pub include: Option<Located<Include>>,
    /// Threads that serve: `auto` is one for each core that the process may use, else 1 to 1024.
    pub workers: Located<Workers>,
    /// Where requests come in; one on `[::]:8080` unless given.
    #[schemars(length(min = 1))]
    #[serde(default = "one_listener")]
    pub listeners: List<Listener>,
    /// Time-outs and bounds towards clients.
    pub client: Located<ClientBounds>,
    /// The listener for metrics, health and the admin API.
    pub admin: Located<Admin>,
    /// Identification of clients behind other proxies.
    pub client_ip: Located<ClientIp>,
    /// How tokens are verified whose claims are in keys and conditions.
    pub jwt: Option<Located<Jwt>>,
    /// Who the clients are, by the keys that they send: their names, and columns such as a plan.
    pub clients: Option<Located<Clients>>,
    /// A line a request; off unless this section is there.
    pub access_log: Option<Located<AccessLog>>,
    /// Spans of requests for a collector; off unless this section is there.
    pub tracing: Option<Located<Tracing>>,
    /// How the process ends.
    pub shutdown: Located<ShutdownTimes>,
    /// Where buckets live.
    pub store: Located<Store>,
    /// Where requests go, by name.
    pub upstreams: Table<Name, Upstream>,
    /// Limits by name: every route that names one shares its buckets.
    pub policies: Table<Name, Policy>,
    /// The requests that are served, before any route and any limit; all unless given.
    pub access: Option<Located<Access>>,
    /// Limits for every request, before any route: names of policies, or inline limits.
    pub limits: List<Limit>,
    /// Requests that no limit applies to, wherever it stands.
    pub exempt: List<Selection>,
    /// Routes: the first that matches a request takes it.
    #[schemars(length(min = 1), transform = json::remove_default)]
    pub routes: List<Route>,
    /// Responses to refused clients, and rate-limit fields.
    pub responses: Located<Responses>,
    /// Rules for `sluicegate check`.
    pub check: Located<CheckRules>,
}

fn one_listener() -> List<Listener> {
    vec![Located::from(Listener::default())].into()
}

impl Config {
    /// The top-level limits, then those of the routes.
    pub(super) fn all_limits(&self) -> impl Iterator<Item = &Located<Limit>> {
        let of_routes = self.routes.iter().flat_map(|route| route.limits.iter());
        self.limits.iter().chain(of_routes)
    }

    /// The policy of a limit, and the node of its definition.
    pub(super) fn policy<'a>(&'a self, limit: &'a Located<Limit>) -> Option<(&'a Policy, NodeId)> {
        match &limit.value {
            Limit::InPlace(policy) => Some((policy, limit.node)),
            Limit::Named(name) => {
                let policy = self.policies.get(name.as_str())?;
                Some((policy, policy.node))
            }
        }
    }

    /// Every policy, the named ones first.
    pub(super) fn all_policies(&self) -> impl Iterator<Item = &Policy> {
        let named = self.policies.values().map(|policy| &policy.value);
        named.chain(self.all_limits().filter_map(|limit| limit.in_place()))
    }

    /// The upstreams of limited requests.
    pub(super) fn limited_upstreams(&self) -> impl Iterator<Item = &Located<UpstreamRef>> {
        let own = self.all_policies().flat_map(|policy| {
            let overrides = policy
                .overrides
                .iter()
                .filter_map(|one| one.on_limit.as_ref());
            let soft = policy.soft_limits.iter().map(|soft| &soft.on_limit);
            overrides.chain(soft).chain([&policy.on_limit])
        });
        let all = own.chain([&self.responses.on_limit]);
        all.filter_map(|on_limit| on_limit.upstream.as_ref())
    }

    /// The parts of requests that keys, hashes, exceptions, quotas, zones and conditions read, where
    /// they stand. Of conditions they are claims and columns of the client.
    pub(super) fn used_parts(&self) -> impl Iterator<Item = (KeyPart, NodeId)> {
        let hashes = self.upstreams.values();
        let hashes = hashes.filter_map(|upstream| upstream.balance.key());
        let selections = self.all_policies().flat_map(Policy::selections);
        let selections = selections.chain(self.exempt.iter().map(|one| &one.value));
        let stated = self.all_policies().flat_map(Policy::quotas);
        let stated = stated.filter_map(|quota| Some(&quota.stated()?.from));
        let parts = hashes.flat_map(|key| &key.0).chain(stated);
        let parts = parts.chain(selections.filter_map(|one| one.part.as_ref()));
        let parts = parts.map(|part| (&part.value, part.node));
        let parts = parts.chain(self.all_policies().flat_map(Policy::parts));
        let zones = self.all_policies();
        let zones = zones.filter_map(|policy| policy.time_zone.as_ref()?.part());
        let parts = parts.chain(zones.map(|part| (&*part.value, part.node)));
        let conditions = self.conditions().flat_map(Condition::all);
        let of_conditions = conditions.flat_map(Condition::verified_parts);
        let parts = parts.map(|(part, node)| (part.clone(), node));
        let columns = self.access_log.iter();
        let columns = columns.flat_map(|log| log.client_columns.iter());
        let of_log = columns.map(|name| (KeyPart::ClientColumn(name.to_string()), name.node));
        parts.chain(of_conditions).chain(of_log)
    }

    /// The conditions of policies, with their exceptions, of routes and of access.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        let of_policies = self.all_policies();
        let of_policies = of_policies.filter_map(|policy| policy.when.as_ref());
        let of_routes = self.routes.iter();
        let of_routes = of_routes.filter_map(|route| route.matches.when.as_ref());
        let exceptions = self.all_policies().flat_map(Policy::selections);
        let exceptions = exceptions.chain(self.exempt.iter().map(|one| &one.value));
        let of_exceptions = exceptions.filter_map(|one| one.when.as_ref());
        let accesses = self.routes.iter();
        let accesses = accesses.filter_map(|route| route.access.as_ref());
        let accesses = self.access.iter().chain(accesses);
        let of_access = accesses.flat_map(|access| access.conditions());
        let all = of_policies.chain(of_routes).chain(of_exceptions);
        all.chain(of_access).map(|when| &when.value)
    }
}
