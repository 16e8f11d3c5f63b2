//! Builds a ruleset from its spec. Live state is found again in the ruleset before: buckets by
//! policy name and key, connections by endpoint, metric series by name.
//!
//! Building starts no task and changes nothing that serves. [`PreparedRuleset::migrate_buckets`]
//! then moves the buckets of policies whose quota or size has changed.

mod policy_series;
mod routes;
mod scripts;
mod shared;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::tokens::TokenVerifier;
use super::{Overflow, Policy, PolicySpec, Preflight, Ruleset, RulesetSpec};
use crate::clock::{Clock, Timestamp};
use crate::limiter::{KeyParts, Secret};
use crate::proxy::admission::mode::ModeSwitch;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::decoy::LearnedResponses;
use crate::proxy::answers::limit_headers::AdvertisedPolicy;
use crate::proxy::answers::rejection::Rejection;
use crate::proxy::ruleset::settlements::Settlements;
use crate::proxy::shadow_clients::ShadowClients;
use crate::rules::Router;
use crate::store::snapshot::{PolicyBans, PolicySteering};
use crate::store::{
    self, Buckets, BucketsSpec, HomeSpec, MemoryRequest, Penalties, Steering, SteeringSpec, Store,
    Table, TableBudget, TrackingBudget,
};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::PolicyMetrics;
use crate::telemetry::registry::Registry;
use crate::telemetry::spans::SpanQueue;
use crate::upstream::{Upstream, UpstreamSpec};
use shared::label_of_override;

/// State that outlives every ruleset.
#[derive(Clone, Debug)]
pub struct BuildContext {
    /// Number of workers.
    pub workers: usize,
    /// The registry of metric series.
    pub registry: Registry,
    /// The clock for the tables' metrics.
    pub clock: Arc<Clock>,
    /// The secret of the keys' fingerprints, the same for the life of the buckets.
    pub secret: Secret,
}

/// A ruleset that is ready to run once buckets have migrated to it.
#[derive(Debug)]
pub struct PreparedRuleset {
    ruleset: Ruleset,
    migrations: Vec<(Arc<Table>, Arc<Table>)>,
    tracking_room: TrackingBudget,
}

impl PreparedRuleset {
    /// Builds `spec`. `previous` is the running ruleset.
    pub fn new(spec: RulesetSpec, context: &BuildContext, previous: Option<&Ruleset>) -> Self {
        let mut builder = Builder {
            surroundings: context,
            previous,
            previous_policies: policies_by_id(previous),
            preflight: spec.preflight,
            successions: Vec::new(),
            refusal_cache: Duration::ZERO,
            store: Store::Memory,
            tracking_room: tracking_room(&spec.policies, spec.max_size),
            real_answers: learned_responses(previous),
        };
        if let Some(store) = &spec.store {
            builder.refusal_cache = store.refusal_cache;
            builder.store = Store::new(
                store,
                context.workers,
                previous.map_or(&Store::Memory, |previous| &previous.store),
                &context.clock,
                &context.registry,
            );
        }
        let policies = builder.policies(spec.policies, spec.max_size);
        let has_redis_policies = policies.iter().any(|policy| policy.buckets.is_in_redis());
        let upstreams = builder.upstreams(spec.upstreams);
        let router = Router::new(
            spec.routes
                .iter()
                .map(|route| route.matches.clone())
                .collect(),
        );
        let routes = spec
            .routes
            .into_iter()
            .map(|route| builder.route(route, &policies, &upstreams))
            .collect();
        let unmatched = builder.unmatched(&spec.unmatched, &policies);
        PreparedRuleset {
            migrations: builder.successions,
            tracking_room: builder.tracking_room,
            ruleset: Ruleset {
                router,
                routes,
                unmatched,
                policies,
                upstreams,
                client_ip: spec.client_ip,
                body_timeout: spec.body_timeout,
                styles: spec.styles,
                debug: spec.debug,
                access_log: None,
                spans: None,
                secret: context.secret,
                tokens: spec
                    .tokens
                    .map(|verifier| TokenVerifier::new(verifier, &context.registry)),
                startup_timeout: spec
                    .store
                    .map_or(Duration::ZERO, |store| store.startup_timeout),
                store: builder.store,
                has_redis_policies,
            },
        }
    }

    /// Sets the access log, or none.
    #[must_use]
    pub fn with_access_log(mut self, access_log: Option<Arc<AccessLog>>) -> Self {
        self.ruleset.access_log = access_log;
        self
    }

    /// Sets the queue of spans, or none.
    #[must_use]
    pub fn with_spans(mut self, spans: Option<Arc<SpanQueue>>) -> Self {
        self.ruleset.spans = spans;
        self
    }

    /// The ruleset that is going to run.
    pub fn ruleset(&self) -> &Ruleset {
        &self.ruleset
    }

    /// Moves the buckets of changed policies. Requests under the previous ruleset follow their
    /// bucket to its new place; no charge is lost.
    pub fn migrate_buckets(self, now: Timestamp) -> Arc<Ruleset> {
        for (old, new) in self.migrations {
            old.migrate_to(new, now);
        }
        self.ruleset.set_tracking_room(self.tracking_room);
        self.ruleset.follow(now);
        for upstream in &self.ruleset.upstreams {
            upstream.take_over();
        }
        Arc::new(self.ruleset)
    }
}

struct Builder<'a> {
    preflight: Preflight,
    /// The running policies, with overrides and overflow buckets, by name and key.
    previous_policies: HashMap<(&'a str, &'a str), &'a Policy>,
    surroundings: &'a BuildContext,
    previous: Option<&'a Ruleset>,
    successions: Vec<(Arc<Table>, Arc<Table>)>,
    refusal_cache: Duration,
    store: Store,
    /// Memory for each kind of state that policies keep of keys beside their buckets.
    tracking_room: TrackingBudget,
    /// The learned responses of the previous ruleset, by route name.
    real_answers: HashMap<Arc<str>, Arc<LearnedResponses>>,
}

/// Parts of a policy beside its spec, shared with its overrides and overflow buckets.
struct PolicyParts {
    name: Arc<str>,
    mark: u64,
    /// In the order of [`PolicySpec::all`].
    tables: std::vec::IntoIter<Arc<Table>>,
    metrics: Arc<PolicyMetrics>,
    /// By quota, which alone tells them apart. Shared: each takes kilobytes, and overrides are
    /// many.
    rejections: HashMap<String, Arc<Rejection>>,
}

impl PolicyParts {
    fn rejection(&mut self, spec: &PolicySpec) -> Arc<Rejection> {
        if let Some(known) = self.rejections.get(&spec.quota) {
            return Arc::clone(known);
        }
        let named = (&*spec.name, &*spec.quota);
        let announced = spec.is_announced.then_some(named);
        let new = Arc::new(Rejection::new(&spec.reject, announced));
        self.rejections.insert(spec.quota.clone(), Arc::clone(&new));
        new
    }
}

/// Memory of all buckets once every part of their tables has been touched, in bytes.
pub fn memory_bytes(spec: &RulesetSpec) -> u64 {
    let shares = shares(&spec.policies, spec.max_size).into_iter();
    let bytes = shares.map(|share| Table::bytes_for(share.keys) as u64 + share.ring_bytes);
    bytes.sum()
}

/// The memory of each policy, followed by those of its overrides.
pub(crate) fn shares(policies: &[PolicySpec], max_size: u64) -> Vec<TableBudget> {
    let all = policies.iter().flat_map(PolicySpec::all);
    let wishes: Vec<_> = all
        .map(|spec| MemoryRequest::new(&spec.algorithm, spec.max_keys))
        .collect();
    store::divide_memory(max_size, &wishes)
}

/// The memory for state of keys beside their buckets. An override for one key needs almost none.
pub(crate) fn tracking_room(policies: &[PolicySpec], max_size: u64) -> TrackingBudget {
    let all = policies.iter().flat_map(PolicySpec::all);
    let maps = all.filter(|spec| spec.max_keys != Some(1)).map(|spec| {
        let kinds = [spec.penalty.is_some(), spec.home != HomeSpec::Memory];
        kinds.into_iter().filter(|kind| *kind).count()
    });
    TrackingBudget::new(max_size, maps.sum())
}

impl Builder<'_> {
    fn policies(&mut self, specs: Vec<PolicySpec>, max_size: u64) -> Vec<Arc<Policy>> {
        let mut shares = shares(&specs, max_size).into_iter();
        let known = self.previous_policies.clone();
        // No two policies reuse the same table.
        let mut taken = HashSet::new();
        let policies = specs.into_iter().map(|spec| {
            let tables = spec.all().into_iter().zip(&mut shares);
            let tables = tables.map(|(spec, share)| {
                let before = known.get(&(spec.name.as_str(), spec.key.as_str()));
                let before = before.map(|before| &before.buckets.table);
                let before = before.filter(|table| taken.insert(Arc::as_ptr(table)));
                self.table(spec, share, before)
            });
            let tables: Vec<_> = tables.collect();
            let metrics = Arc::new(self.policy_metrics(&spec.name, &tables));
            let label = spec.name.as_str().into();
            let steering = self.steering(&spec);
            let mut name_hash = self.surroundings.secret.hasher();
            name_hash.part(0, spec.name.as_bytes());
            let mut parts = PolicyParts {
                name: spec.name.as_str().into(),
                mark: name_hash.finish().bits(),
                tables: tables.into_iter(),
                metrics,
                rejections: HashMap::new(),
            };
            let watched = self.shadow_clients(&spec);
            let mut policy = self.policy(spec, label, &mut parts);
            policy.shadow_clients = watched;
            policy.steering = Some(steering);
            let all = policy.all().into_iter().map(|one| &*one.buckets);
            policy.tracker_metrics =
                store::tracker_metrics(&policy.name, all, &self.surroundings.registry);
            policy.key_gauges = self.key_gauges(&policy);
            policy.info = Some(self.policy_info(&policy));
            Arc::new(policy)
        });
        policies.collect()
    }

    /// The clients that met the policy in shadow before, if it would have limited the same.
    fn shadow_clients(&self, spec: &PolicySpec) -> Arc<ShadowClients> {
        let id = (spec.name.as_str(), spec.key.as_str());
        let before = self.previous_policies.get(&id);
        let before = before.filter(|before| before.quota == spec.quota);
        before.map_or_else(Arc::default, |before| Arc::clone(&before.shadow_clients))
    }

    fn table(
        &mut self,
        spec: &PolicySpec,
        share: TableBudget,
        before: Option<&Arc<Table>>,
    ) -> Arc<Table> {
        if let Some(table) = before.filter(|table| can_reuse(table, spec, share)) {
            return Arc::clone(table);
        }
        let TableBudget {
            keys,
            ring_bytes: rings,
        } = share;
        let algorithm = spec.algorithm.clone();
        let mut table = Table::with_rings(&*spec.name, algorithm, keys, rings, spec.on_full)
            .with_refusals(spec.refusals);
        if spec.settles {
            table = table.with_settlement();
        }
        let Some(old) = before else {
            return Arc::new(table);
        };
        let table = Arc::new(table.sharing_permits_of(old));
        if table.can_succeed(old) {
            self.successions.push((Arc::clone(old), Arc::clone(&table)));
        }
        table
    }

    fn policy(&self, mut spec: PolicySpec, label: Box<str>, parts: &mut PolicyParts) -> Policy {
        let table = parts.tables.next().expect("there is a table for each");
        let overflow = spec.overflow.take().map(|overflow| {
            let label = format!("{label}/overflow").into();
            Box::new(Overflow {
                policy: self.policy(overflow.policy, label, parts),
                fields: overflow.fields,
                dscp: overflow.dscp,
            })
        });
        let next = overflow
            .as_ref()
            .map(|next| Arc::clone(&next.policy.buckets));
        let algorithm = table.algorithm();
        let penalties = self.penalties(&spec, &label);
        Policy {
            advertised: AdvertisedPolicy::new(&spec.name, algorithm, spec.unit),
            penalties: penalties.map(Arc::new),
            steering: None,
            shadow_clients: Arc::default(),
            tracker_metrics: None,
            key_gauges: None,
            info: None,
            buckets: Arc::new(self.buckets(&spec, &label, &table, next)),
            settlements: spec
                .settles
                .then(|| Settlements::new(&self.surroundings.registry, &spec.name)),
            rejection: parts.rejection(&spec),
            is_announced: spec.is_announced,
            mode: ModeSwitch::new(spec.mode),
            action: Action::new(spec.action, &spec.name, &self.surroundings.registry),
            retry_after_jitter: spec.retry_after_jitter,
            metrics: Arc::clone(&parts.metrics),
            name: Arc::clone(&parts.name),
            mark: parts.mark,
            local_periods: spec.local_periods,
            key: spec.key,
            key_parts: spec.key_parts,
            quota: spec.quota,
            overflow,
            overrides: spec
                .overrides
                .into_iter()
                .map(|one| {
                    let label = label_of_override(&one);
                    self.policy(one, label, parts)
                })
                .collect(),
        }
    }

    /// The buckets of `table`. What other machines were told of it holds on if the table is the
    /// previous one, or takes its place.
    fn buckets(
        &self,
        spec: &PolicySpec,
        label: &str,
        table: &Arc<Table>,
        overflow: Option<Arc<Buckets>>,
    ) -> Buckets {
        let goes_on = |before: &Buckets| {
            let is_its = |(old, new): &(Arc<Table>, Arc<Table>)| {
                Arc::ptr_eq(old, &before.table) && Arc::ptr_eq(new, table)
            };
            Arc::ptr_eq(&before.table, table) || self.successions.iter().any(is_its)
        };
        let before = self.previous(spec).map(|before| &*before.buckets);
        let spec = BucketsSpec {
            home: spec.home,
            label,
            before: before.filter(|before| goes_on(before)),
            overflow,
            refusal_cache: self.refusal_cache,
            refusal_bytes: self.tracking_room.bytes(table.keys()),
        };
        Buckets::new(
            &self.store,
            Arc::clone(table),
            spec,
            &self.surroundings.registry,
        )
    }

    /// The running policy of the same name and key.
    fn previous(&self, spec: &PolicySpec) -> Option<&Policy> {
        let id = (spec.name.as_str(), spec.key.as_str());
        self.previous_policies.get(&id).copied()
    }

    /// Keeps the bans of the policy of the same name and key. They are shared with other machines
    /// if the buckets are.
    fn penalties(&self, spec: &PolicySpec, label: &str) -> Option<Penalties> {
        let rule = spec.penalty.clone()?;
        let before = self.previous(spec);
        let before = before.and_then(|policy| policy.penalties.as_deref());
        let registry = &self.surroundings.registry;
        let store = match spec.home {
            HomeSpec::Memory => &Store::Memory,
            _ => &self.store,
        };
        let name = (spec.name.as_str(), label);
        Some(Penalties::new(rule, name, before, store, registry))
    }

    /// Keeps what operators did to keys of the policy of the same name and key.
    fn steering(&self, spec: &PolicySpec) -> Steering {
        let before = self.previous(spec);
        let before = before.and_then(|policy| policy.steering.as_ref());
        let steering = SteeringSpec {
            policy: &spec.name,
            label: &spec.name,
            home: spec.home,
        };
        Steering::new(steering, &self.store, before, &self.surroundings.registry)
    }

    fn upstreams(&self, specs: Vec<UpstreamSpec>) -> Vec<Arc<Upstream>> {
        let BuildContext {
            workers, registry, ..
        } = self.surroundings;
        let known = self.previous.iter().flat_map(|ruleset| &ruleset.upstreams);
        let known: HashMap<_, _> = known.map(|one| (&**one.name(), &**one)).collect();
        let upstreams = specs.into_iter().map(|spec| {
            let previous = known.get(&*spec.name).copied();
            Arc::new(Upstream::new(spec, *workers, registry, previous))
        });
        upstreams.collect()
    }
}

impl Ruleset {
    /// All tables for the snapshot file, with the key of their policy.
    ///
    /// Synchronised tables are missing: their charges come back from Redis, and would count twice.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        let all = self.policies.iter().flat_map(|policy| policy.all());
        all.filter(|policy| !policy.buckets.is_synchronised())
            .map(|policy| (policy.key.as_str(), &*policy.buckets.table))
    }

    /// Strikes and bans of all policies for the snapshot file. Shared ones are included, since
    /// Redis may be down at the next start.
    pub fn bans(&self) -> impl Iterator<Item = PolicyBans<'_>> {
        self.policies.iter().filter_map(|policy| {
            let penalties = policy.penalties.as_ref()?;
            Some(penalties.to_keep(&policy.name, &policy.key, self.secret))
        })
    }

    /// The keys that operators steer, for the snapshot file.
    pub fn steered(&self) -> impl Iterator<Item = PolicySteering<'_>> {
        self.policies.iter().filter_map(|policy| {
            let steering = policy.steering.as_ref()?;
            Some(steering.to_keep(&policy.name, &policy.key, self.secret))
        })
    }
}

/// The policies of a ruleset, by name and key.
fn policies_by_id(ruleset: Option<&Ruleset>) -> HashMap<(&str, &str), &Policy> {
    let policies = ruleset.iter().flat_map(|ruleset| &ruleset.policies);
    let all = policies.flat_map(|policy| policy.all());
    all.map(|policy| ((&*policy.name, policy.key.as_str()), policy))
        .collect()
}

/// The learned responses of a ruleset, by route name.
fn learned_responses(ruleset: Option<&Ruleset>) -> HashMap<Arc<str>, Arc<LearnedResponses>> {
    let routes = ruleset.iter().flat_map(|ruleset| &ruleset.routes);
    let known = routes.filter_map(|route| Some((route, route.learned_responses.as_ref()?)));
    known
        .map(|(route, answers)| (Arc::clone(&route.name), Arc::clone(answers)))
        .collect()
}

/// The table can go on as that of `spec`.
fn can_reuse(table: &Table, spec: &PolicySpec, share: TableBudget) -> bool {
    (table.algorithm(), table.on_full()) == (&spec.algorithm, spec.on_full)
        && table.refusals() == spec.refusals
        && table.has_settlement() == spec.settles
        && (table.keys(), table.ring_bytes()) == (share.keys, share.ring_bytes)
}
