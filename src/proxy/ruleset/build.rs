//! Builds a ruleset from its spec. Live state is found again in the ruleset before: buckets by
//! policy name and key, connections by endpoint, metric series by name.
//!
//! Building starts no task and changes nothing that serves. [`PreparedRuleset::migrate_buckets`]
//! then moves the buckets of policies whose quota or size has changed.

mod memory;
mod policies;
mod policy_series;
mod routes;
mod shared;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::clients::KnownClients;
use super::tokens::TokenVerifier;
use super::{Policy, Quota, Ruleset, RulesetSpec};
use crate::clock::{Clock, Timestamp};
use crate::http::path::EncodedSlashes;
use crate::limiter::Secret;
use crate::proxy::answers::decoy::LearnedResponses;
use crate::rules::Router;
use crate::store::{Store, Table, TrackingBudget};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::registry::{Gauge, Observer, Registry};
use crate::telemetry::spans::SpanQueue;
use crate::upstream::{Upstream, UpstreamSpec};
pub use memory::memory_bytes;
pub(crate) use memory::{shares, tracking_room};

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
    /// The ruleset that is going to run.
    pub ruleset: Ruleset,
    migrations: Vec<(Arc<Table>, Arc<Table>)>,
    tracking_room: TrackingBudget,
}

impl PreparedRuleset {
    /// Builds `spec`. `previous` is the running ruleset.
    pub fn new(spec: RulesetSpec, context: &BuildContext, previous: Option<&Ruleset>) -> Self {
        let kept = previous.map_or_else(Vec::new, Ruleset::kept);
        let mut builder = Builder::new(&spec, context, previous, &kept);
        let upstreams = builder.upstreams(spec.upstreams);
        let policies = builder.policies(spec.policies, spec.max_size, &upstreams);
        let mut buckets = policies.iter().map(|policy| &policy.quota.buckets);
        let has_redis_policies = buckets.any(|buckets| buckets.is_in_redis());
        let matches = spec.routes.iter().map(|route| route.matches.clone());
        let router = Router::new(matches.collect());
        let mut slashes = spec.routes.iter().map(|route| route.spec.encoded_slashes);
        let encoded_slashes = slashes
            .find(|slashes| *slashes == EncodedSlashes::Keep)
            .unwrap_or_default();
        let routes: Vec<_> = spec
            .routes
            .into_iter()
            .map(|route| builder.route(route, &policies, &upstreams))
            .collect();
        let has_questions = routes.iter().any(|route| route.decides());
        let unmatched = builder.route(spec.unmatched, &policies, &upstreams);
        PreparedRuleset {
            migrations: builder.migrations,
            tracking_room: builder.tracking_room,
            ruleset: Ruleset {
                kept: previous
                    .map(|one| one.kept_beside(&policies, spec.max_size, context.clock.now()))
                    .unwrap_or_default()
                    .into(),
                _series: builder.series,
                router,
                routes,
                unmatched,
                policies,
                upstreams,
                encoded_slashes,
                has_questions,
                client_ip: spec.client_ip,
                body_timeout: spec.body_timeout,
                max_held_bodies: spec.max_held_bodies,
                styles: spec.styles,
                error_pages: spec.error_pages,
                debug: spec.debug,
                access_log: None,
                spans: None,
                secret: context.secret,
                tokens: spec
                    .tokens
                    .map(|verifier| TokenVerifier::new(verifier, &context.registry)),
                clients: spec
                    .clients
                    .map(|clients| KnownClients::new(clients, &context.registry)),
                startup_timeout: spec
                    .store
                    .map_or(Duration::ZERO, |store| store.startup_timeout),
                store: builder.store,
                has_redis_policies,
            },
        }
    }

    /// Sets the access log and the queue of spans, if there are any.
    #[must_use]
    pub fn with_logs(
        mut self,
        access_log: Option<Arc<AccessLog>>,
        spans: Option<Arc<SpanQueue>>,
    ) -> Self {
        self.ruleset.access_log = access_log;
        self.ruleset.spans = spans;
        self
    }

    /// Moves the buckets of changed policies. Requests under the previous ruleset follow their
    /// bucket to its new place; no charge is lost.
    pub fn migrate_buckets(self, now: Timestamp) -> Arc<Ruleset> {
        for (old, new) in self.migrations {
            old.migrate_to(new, now);
        }
        self.ruleset.set_tracking_room(self.tracking_room);
        self.ruleset.follow();
        self.ruleset.clients.iter().for_each(KnownClients::show);
        self.ruleset.clusters().for_each(|one| one.take_over());
        Arc::new(self.ruleset)
    }
}

struct Builder<'a> {
    /// The running policies, and those that were removed lately, by names and keys.
    previous_policies: HashMap<(&'a str, &'a str), &'a Policy>,
    /// Their quotas, with those of overrides and overflow buckets, by the
    /// names of the policies and their own keys.
    previous_quotas: HashMap<(&'a str, &'a str), &'a Quota>,
    context: &'a BuildContext,
    previous: Option<&'a Ruleset>,
    migrations: Vec<(Arc<Table>, Arc<Table>)>,
    /// The series of the policies.
    series: Vec<(Vec<Observer>, Gauge)>,
    refusal_cache: Duration,
    store: Store,
    /// Memory for each kind of state that policies keep of keys beside their buckets.
    tracking_room: TrackingBudget,
    /// The values of clients that label metrics.
    client_labels: Vec<String>,
    /// The learned responses of the previous ruleset, by route name.
    learned_responses: HashMap<Arc<str>, Arc<LearnedResponses>>,
}

impl<'a> Builder<'a> {
    fn new(
        spec: &RulesetSpec,
        context: &'a BuildContext,
        previous: Option<&'a Ruleset>,
        kept: &'a [Arc<Policy>],
    ) -> Self {
        let store = spec.store.as_ref();
        let policies = || {
            let policies = previous.into_iter().flat_map(|ruleset| &ruleset.policies);
            // Later ones replace earlier ones.
            kept.iter().rev().chain(policies).map(|policy| &**policy)
        };
        let own = |policy: &'a Policy| ((&*policy.name, &*policy.quota.id), policy);
        Self {
            context,
            previous,
            previous_policies: policies().map(own).collect(),
            series: Vec::new(),
            previous_quotas: policies()
                .flat_map(|policy| policy.ids().zip(policy.quotas()))
                .collect(),
            migrations: Vec::new(),
            refusal_cache: store.map_or(Duration::ZERO, |store| store.refusal_cache),
            store: store.map_or(Store::Memory, |store| {
                Store::new(
                    store,
                    context.workers,
                    previous.map_or(&Store::Memory, |previous| &previous.store),
                    &context.clock,
                    &context.registry,
                )
            }),
            tracking_room: tracking_room(&spec.policies, spec.max_size),
            client_labels: spec
                .clients
                .as_ref()
                .map_or(Vec::new(), |clients| clients.labels()),
            learned_responses: learned_responses(previous),
        }
    }

    fn upstreams(&self, specs: Vec<UpstreamSpec>) -> Vec<Arc<Upstream>> {
        let BuildContext {
            workers, registry, ..
        } = self.context;
        let known = self.previous.iter().flat_map(|ruleset| &ruleset.upstreams);
        let known: HashMap<_, _> = known.map(|one| (&**one.name(), &**one)).collect();
        let upstreams = specs.into_iter().map(|spec| {
            let previous = known.get(&*spec.name).copied();
            Arc::new(Upstream::new(spec, *workers, registry, previous))
        });
        upstreams.collect()
    }
}

/// The learned responses of a ruleset, by route name.
fn learned_responses(ruleset: Option<&Ruleset>) -> HashMap<Arc<str>, Arc<LearnedResponses>> {
    let routes = ruleset.iter().flat_map(|ruleset| &ruleset.routes);
    let known = routes.filter_map(|route| Some((route, route.learned_responses.as_ref()?)));
    known
        .map(|(route, answers)| (Arc::clone(&route.name), Arc::clone(answers)))
        .collect()
}
