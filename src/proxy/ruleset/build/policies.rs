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
use crate::proxy::answers::rejection::{RejectSpec, Rejection};
use crate::proxy::ruleset::reload_diff::shown_exception;
use crate::proxy::ruleset::settlements::Settlements;
use crate::proxy::ruleset::{
    CompiledPolicy, Overflow, Override, OverrideSpec, Policy, PolicySpec, Quota, QuotaSpec,
    RefusalSpec, SoftLimit,
};
use crate::proxy::shadow_clients::ShadowClients;
use crate::store::{
    self, Buckets, BucketsSpec, Home, Penalties, Steering, Store, Table, TableBudget,
};
use crate::upstream::Upstream;

/// Parts that the quotas of one policy share.
struct QuotaParts<'s> {
    policy: &'s PolicySpec,
    upstreams: &'s [Arc<Upstream>],
    reject: &'s RejectSpec,
    /// In the order of [`CompiledPolicy::quotas`].
    tables: std::vec::IntoIter<Arc<Table>>,
    /// The answers of the override whose quota is built.
    refusal: Option<Arc<RefusalSpec>>,
    /// By quota, and by the override's answers, which tell them apart. Shared: each takes kilobytes,
    /// and overrides are many.
    rejections: HashMap<(String, Option<*const RefusalSpec>), Arc<Rejection>>,
}

impl QuotaParts<'_> {
    fn rejection(&mut self, quota: &str) -> Arc<Rejection> {
        let own = self.refusal.as_ref();
        let known = (quota.to_owned(), own.map(Arc::as_ptr));
        let policy = self.policy;
        let announced = policy
            .is_announced
            .then_some((policy.advertised_name.as_str(), quota));
        let reject = own.map_or(self.reject, |own| &own.reject);
        let new = || Arc::new(Rejection::new(reject, announced));
        Arc::clone(self.rejections.entry(known).or_insert_with(new))
    }
}

impl<'a> Builder<'a> {
    /// Builds the policies of `specs`.
    pub(super) fn policies(
        &mut self,
        policies: Vec<CompiledPolicy>,
        max_size: u64,
        upstreams: &[Arc<Upstream>],
    ) -> Vec<Arc<Policy>> {
        let mut shares = shares(&policies, max_size).into_iter();
        // No two policies reuse the same table.
        let mut taken = HashSet::new();
        let policies = policies.into_iter().map(|policy| {
            let tables = policy.quotas().zip(&mut shares).map(|(quota, share)| {
                let before = self.previous_quota(&policy.spec.name, &quota.id);
                let before = before.map(|before| &before.buckets.table);
                let before = before.filter(|table| taken.insert(Arc::as_ptr(table)));
                self.table(&policy.spec, quota, share, before)
            });
            let tables = tables.collect();
            Arc::new(self.policy(policy, tables, upstreams))
        });
        policies.collect()
    }

    fn table(
        &mut self,
        policy: &PolicySpec,
        quota: &QuotaSpec,
        share: TableBudget,
        before: Option<&Arc<Table>>,
    ) -> Arc<Table> {
        if let Some(table) = before.filter(|table| can_reuse(table, policy, quota, share)) {
            return Arc::clone(table);
        }
        let TableBudget {
            keys,
            ring_bytes: rings,
        } = share;
        let algorithm = quota.algorithm.clone();
        let algorithm = match before {
            Some(before) => algorithm.with_room_of(before.algorithm()),
            None => algorithm,
        };
        let mut table = Table::with_rings(&*policy.name, algorithm, keys, rings, policy.on_full)
            .with_refusals(policy.refusals);
        table.settles = policy.settles;
        let Some(old) = before else {
            return Arc::new(table);
        };
        let table = Arc::new(table.sharing_permits_of(old));
        if table.can_succeed(old) {
            self.migrations.push((Arc::clone(old), Arc::clone(&table)));
        }
        table
    }

    fn policy(
        &mut self,
        policy: CompiledPolicy,
        tables: Vec<Arc<Table>>,
        upstreams: &[Arc<Upstream>],
    ) -> Policy {
        let waits = policy.waits();
        let CompiledPolicy { spec, refusal, .. } = policy;
        let (name, registry) = (&*spec.name, &self.context.registry);
        // The policy of the same name and key.
        let own = (name, &*policy.quota.id);
        let before = self.previous_policies.get(&own).copied();
        let steering_before = before.map(|before| &before.steering);
        let steering = Steering::new(name, spec.home, &self.store, steering_before, registry);
        let store = match spec.home {
            Home::Memory => &Store::Memory,
            _ => &self.store,
        };
        // Bans are shared with other machines if the buckets are.
        let penalties = policy.penalty.map(|rule| {
            let before = before.and_then(|policy| policy.penalties.as_deref());
            Arc::new(Penalties::new(rule, name, before, store, registry))
        });
        let mut name_hash = self.context.secret.hasher();
        name_hash.part(0, name.as_bytes());
        // Those that wait go before those that come after a reload.
        let turns = before.and_then(|before| before.turns.clone());
        let turns = waits.then(|| turns.unwrap_or_default());
        let metrics = self.policy_metrics(name, &tables, waits);
        let mut series = self.key_series(name, penalties.as_ref(), &steering);
        series.extend(self.table_series(name, &tables));
        let mut parts = QuotaParts {
            policy: &spec,
            upstreams,
            reject: &refusal.reject,
            tables: tables.into_iter(),
            refusal: None,
            rejections: HashMap::new(),
        };
        let text = policy.quota.text.clone();
        let quota = self.quota(policy.quota, name.into(), &mut parts);
        let overrides = policy.overrides.into_iter();
        let overrides = overrides.map(|one| self.override_of(one, &text, &mut parts));
        let overrides: Vec<_> = overrides.collect();
        let soft = policy.soft_limits.into_iter();
        let soft = soft.map(|(above, refusal)| {
            let label = format!("{name}/{above}");
            SoftLimit {
                refusal: self.refusal(refusal, &label, &quota.text, &mut parts),
                name: label.into(),
                above,
            }
        });
        let soft_limits = soft.collect();
        let own = overrides.iter().filter_map(|one| one.quota.as_ref());
        let quotas = std::iter::once(&quota).chain(own);
        let buckets = quotas.flat_map(Quota::tiers).map(|quota| &*quota.buckets);
        series.extend(store::tracker_series(name, buckets, registry));
        let info = self.policy_info(name, &spec.key_parts, &quota);
        self.series.push((series, info));
        Policy {
            name_hash: name_hash.finish().bits(),
            shadow_clients: shadow_clients(before, &quota),
            settlements: spec.settles.then(|| Settlements::new(registry, name)),
            action: Action::new(refusal.action, name, upstreams, registry),
            turns,
            mode: ModeSwitch::new(policy.mode),
            penalties,
            steering,
            quota,
            overrides,
            soft_limits,
            metrics,
            spec,
        }
    }

    /// The answers of an override or a soft limit, for the quota with this text. The rejections of
    /// quotas that are built next are the same.
    fn refusal(
        &self,
        spec: Arc<RefusalSpec>,
        label: &str,
        text: &str,
        parts: &mut QuotaParts<'_>,
    ) -> (Action, Arc<Rejection>) {
        let registry = &self.context.registry;
        let action = Action::new(spec.action.clone(), label, parts.upstreams, registry);
        parts.refusal = Some(spec);
        (action, parts.rejection(text))
    }

    /// The override of the policy whose quota has this text.
    fn override_of(&self, spec: OverrideSpec, text: &str, parts: &mut QuotaParts<'_>) -> Override {
        parts.refusal = None;
        let text = spec.quota.as_ref().map_or(text, |quota| &quota.text);
        let refusal = spec.refusal;
        let refusal =
            refusal.map(|refusal| Box::new(self.refusal(refusal, &parts.policy.name, text, parts)));
        let quota = spec.quota.map(|quota| {
            let label = label_of_override(&parts.policy.name, &quota.id);
            self.quota(quota, label, parts)
        });
        Override {
            selection: quota
                .is_none()
                .then(|| shown_exception(&spec.selection).into()),
            kept: spec.kept,
            enforcement: spec.enforcement,
            quota,
            refusal,
        }
    }

    fn quota(&self, spec: QuotaSpec, label: Box<str>, parts: &mut QuotaParts<'_>) -> Quota {
        let table = parts.tables.next().expect("there is a table for each");
        let overflow = spec.overflow.map(|overflow| {
            let label = format!("{label}/overflow").into();
            Box::new(Overflow {
                quota: self.quota(overflow.quota, label, parts),
                fields: overflow.fields,
                dscp: overflow.dscp,
            })
        });
        // What other machines were told of the buckets holds on if the table is the previous one,
        // or takes its place.
        let stays = |before: &&Buckets| {
            let is_its = |(old, new): &(Arc<Table>, Arc<Table>)| {
                Arc::ptr_eq(old, &before.table) && Arc::ptr_eq(new, &table)
            };
            Arc::ptr_eq(&before.table, &table) || self.migrations.iter().any(is_its)
        };
        let before = self.previous_quota(&parts.policy.name, &spec.id);
        let next = overflow.as_ref();
        let buckets = BucketsSpec {
            home: parts.policy.home,
            label: &label,
            before: before.map(|before| &*before.buckets).filter(stays),
            overflow: next.map(|next| Arc::clone(&next.quota.buckets)),
            refusal_cache: self.refusal_cache,
            refusal_bytes: self.tracking_room.bytes(table.keys),
        };
        let registry = &self.context.registry;
        let buckets = Buckets::new(&self.store, Arc::clone(&table), buckets, registry);
        Quota {
            advertised: AdvertisedPolicy::new(
                &parts.policy.advertised_name,
                table.algorithm(),
                parts.policy.unit,
            ),
            rejection: parts.rejection(&spec.text),
            buckets: Arc::new(buckets),
            local_periods: spec.local_periods,
            stated: spec.stated,
            id: spec.id,
            text: spec.text,
            overflow,
        }
    }

    /// The running quota of the same policy and key.
    fn previous_quota(&self, policy: &str, key: &str) -> Option<&'a Quota> {
        self.previous_quotas.get(&(policy, key)).copied()
    }
}

/// The clients that met the policy in shadow before, if it would have limited the same.
fn shadow_clients(before: Option<&Policy>, quota: &Quota) -> Arc<ShadowClients> {
    let before = before.filter(|before| before.quota.text == quota.text);
    before.map_or_else(Arc::default, |before| Arc::clone(&before.shadow_clients))
}

/// The table can go on as that of this quota.
fn can_reuse(table: &Table, policy: &PolicySpec, quota: &QuotaSpec, share: TableBudget) -> bool {
    (table.algorithm(), table.on_full) == (&quota.algorithm, policy.on_full)
        && table.refusals == policy.refusals
        && table.settles == policy.settles
        && (table.keys, table.ring_bytes) == (share.keys, share.ring_bytes)
}
