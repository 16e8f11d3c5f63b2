//! Policies: each finds its buckets, bans and steered keys again in the ruleset before.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Builder;
use super::memory::shares;
use super::shared::label_of_override;
use crate::limiter::KeyParts;
use crate::proxy::admission::mode::ModeSwitch;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::limit_headers::AdvertisedPolicy;
use crate::proxy::answers::rejection::Rejection;
use crate::proxy::ruleset::settlements::Settlements;
use crate::proxy::ruleset::{Overflow, Policy, PolicySpec};
use crate::proxy::shadow_clients::ShadowClients;
use crate::store::{
    self, Buckets, BucketsSpec, Home, Penalties, Steering, SteeringSpec, Store, Table,
    TableBudget,
};
use crate::telemetry::metrics::PolicyMetrics;

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
        let named = (&*spec.advertised_name, &*spec.quota);
        let announced = spec.is_announced.then_some(named);
        let new = Arc::new(Rejection::new(&spec.reject, announced));
        self.rejections.insert(spec.quota.clone(), Arc::clone(&new));
        new
    }
}

impl Builder<'_> {
    /// Builds the policies of `specs`.
    pub(super) fn policies(&mut self, specs: Vec<PolicySpec>, max_size: u64) -> Vec<Arc<Policy>> {
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
            let mut name_hash = self.context.secret.hasher();
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
                store::tracker_metrics(&policy.name, all, &self.context.registry);
            policy.key_gauges = self.key_gauges(&policy);
            policy.info = Some(self.policy_info(&policy));
            Arc::new(policy)
        });
        policies.collect()
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
        let algorithm = match before {
            Some(before) => algorithm.with_room_of(before.algorithm()),
            None => algorithm,
        };
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
            self.migrations.push((Arc::clone(old), Arc::clone(&table)));
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
            advertised: AdvertisedPolicy::new(&spec.advertised_name, algorithm, spec.unit),
            penalties: penalties.map(Arc::new),
            steering: None,
            shadow_clients: Arc::default(),
            tracker_metrics: None,
            key_gauges: None,
            info: None,
            buckets: Arc::new(self.buckets(&spec, &label, &table, next)),
            settlements: spec
                .settles
                .then(|| Settlements::new(&self.context.registry, &spec.name)),
            rejection: parts.rejection(&spec),
            is_announced: spec.is_announced,
            mode: ModeSwitch::new(spec.mode),
            action: Action::new(spec.action, &spec.name, &self.context.registry),
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
            Arc::ptr_eq(&before.table, table) || self.migrations.iter().any(is_its)
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
        Buckets::new(&self.store, Arc::clone(table), spec, &self.context.registry)
    }

    /// The clients that met the policy in shadow before, if it would have limited the same.
    fn shadow_clients(&self, spec: &PolicySpec) -> Arc<ShadowClients> {
        let id = (spec.name.as_str(), spec.key.as_str());
        let before = self.previous_policies.get(&id);
        let before = before.filter(|before| before.quota == spec.quota);
        before.map_or_else(Arc::default, |before| Arc::clone(&before.shadow_clients))
    }

    /// Keeps the bans of the policy of the same name and key. They are shared with other machines
    /// if the buckets are.
    fn penalties(&self, spec: &PolicySpec, label: &str) -> Option<Penalties> {
        let rule = spec.penalty.clone()?;
        let before = self.previous(spec);
        let before = before.and_then(|policy| policy.penalties.as_deref());
        let registry = &self.context.registry;
        let store = match spec.home {
            Home::Memory => &Store::Memory,
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
        Steering::new(steering, &self.store, before, &self.context.registry)
    }

    /// The running policy of the same name and key.
    fn previous(&self, spec: &PolicySpec) -> Option<&Policy> {
        let id = (spec.name.as_str(), spec.key.as_str());
        self.previous_policies.get(&id).copied()
    }
}

/// The table can go on as that of `spec`.
fn can_reuse(table: &Table, spec: &PolicySpec, share: TableBudget) -> bool {
    (table.algorithm(), table.on_full()) == (&spec.algorithm, spec.on_full)
        && table.refusals() == spec.refusals
        && table.has_settlement() == spec.settles
        && (table.keys(), table.ring_bytes()) == (share.keys, share.ring_bytes)
}
