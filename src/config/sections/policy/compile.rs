//! Compiles policies, named and in place.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::tz::TimeZone;

use crate::config::schema;
use crate::config::sections::algorithm::{algorithm, period};
use crate::config::sections::prelude::*;
use crate::config::sections::{cost, penalty, responses};
use crate::config::value::all_time_zones;
use crate::limiter::QuotaError;
use crate::limiter::calendar::{Calendars, Period};
use crate::proxy::answers::error_pages::ErrorPages;
use crate::proxy::ruleset::{
    CompiledPolicy, Overflow, OverrideSpec, PolicySpec, QuotaSpec, RefusalSpec,
};
use crate::proxy::{Enforcement, Mode, Rollout};
use crate::rules::{self, LocalPeriods};
use crate::store::{Home, Refusals};
use crate::upstream::Dscp;

/// The smallest table, for policies with one key or none.
const ONE_KEY: usize = 1;

/// All policies of a configuration. An inline limit without a name is called after its route and
/// its position.
pub(crate) struct Policies<'a> {
    config: &'a schema::Config,
    error_pages: Arc<ErrorPages>,
    pub(crate) compiled: Vec<CompiledPolicy>,
    written: Vec<Cow<'a, Policy>>,
    names: HashMap<&'a str, usize>,
    zones: Zones,
    pub(crate) findings: Vec<Finding>,
}

impl<'a> Policies<'a> {
    pub(crate) fn new(config: &'a schema::Config, error_pages: Arc<ErrorPages>) -> Self {
        let mut policies = Policies {
            config,
            error_pages,
            compiled: Vec::new(),
            written: Vec::new(),
            names: HashMap::new(),
            zones: Zones::default(),
            findings: Vec::new(),
        };
        for (name, policy) in config.policies.iter() {
            let index = policies.add(name.as_str().to_owned(), policy);
            policies.names.insert(name.as_str(), index);
        }
        policies
    }

    /// The written policy at `index`.
    pub(crate) fn get(&self, index: usize) -> &Policy {
        &self.written[index]
    }

    /// The policy at `index` and its candidate; empty if the policy is disabled.
    pub(crate) fn applied(&self, index: usize) -> std::ops::Range<usize> {
        let policy = self.get(index);
        match policy.mode.value {
            schema::Mode::Disabled => index..index,
            _ => index..index + 1 + usize::from(policy.candidate.is_some()),
        }
    }

    /// The index of the policy that has this name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Adds a policy, and returns its index. Its candidate has the next.
    pub(crate) fn add(&mut self, name: String, policy: &'a Policy) -> usize {
        let index = self.push(&name, Cow::Borrowed(policy));
        if let Some(candidate) = &policy.candidate {
            // Names have no slash.
            let name = format!("{name}/candidate");
            self.push(&name, Cow::Owned(candidate.applied_to(policy)));
        }
        index
    }

    fn push(&mut self, name: &str, policy: Cow<'a, Policy>) -> usize {
        let compiled = self.compile(name, &policy);
        self.compiled.extend(compiled);
        self.written.push(policy);
        self.written.len() - 1
    }

    fn overrides(&mut self, key: &str, policy: &Policy) -> Vec<OverrideSpec> {
        if policy.overrides.is_empty() {
            return Vec::new();
        }
        let base = policy.without_exceptions();
        // By what is written.
        let mut refusals = HashMap::new();
        let overrides = policy.overrides.iter().filter_map(|one| {
            let selection = one.selection.identity();
            let mut quota = None;
            if one.has_buckets() {
                let key = format!("{key} where {selection}");
                let mut own = self.quota(key, &one.applied_to(&base))?;
                if has_one_bucket(&one.selection, policy) {
                    own.set_max_keys(ONE_KEY);
                }
                quota = Some(own);
            }
            Some(OverrideSpec {
                selection,
                quota,
                kept: one.kept(policy),
                enforcement: one.mode.as_ref().map(|mode| match mode.value {
                    schema::Mode::Enforce => Enforcement::Enforced,
                    schema::Mode::Shadow | schema::Mode::Disabled => Enforcement::Shadowed,
                }),
                refusal: self.refusal(one, policy, &mut refusals),
            })
        });
        overrides.collect()
    }

    /// The action and the rejections of an override, if they aren't the policy's.
    fn refusal(
        &self,
        one: &Override,
        policy: &Policy,
        known: &mut HashMap<String, Arc<RefusalSpec>>,
    ) -> Option<Arc<RefusalSpec>> {
        let own = one.on_limit.as_ref()?;
        let own = own.within(policy, &self.config.responses.on_limit);
        let refusal = known.entry(word(&own));
        Some(Arc::clone(
            refusal.or_insert_with(|| Arc::new(self.refusal_spec(&own))),
        ))
    }

    fn refusal_spec(&self, own: &OnLimit) -> RefusalSpec {
        let responses = &self.config.responses;
        RefusalSpec {
            action: responses::action(own, &responses.on_limit),
            reject: responses::reject(own, responses, &self.error_pages),
        }
    }

    fn soft_limits(&self, policy: &Policy) -> Vec<(u64, Arc<RefusalSpec>)> {
        let general = &self.config.responses.on_limit;
        let soft = policy.soft_limits.iter().map(|soft| {
            let own = soft.on_limit.within(policy, general);
            (soft.above.units(), Arc::new(self.refusal_spec(&own)))
        });
        soft.collect()
    }

    /// The overflow bucket, if any.
    fn overflow(&mut self, key: &str, policy: &Policy) -> Option<Box<Overflow<QuotaSpec>>> {
        let overflow = policy.overflow.as_ref()?;
        let quota = self.quota(format!("{key} overflow"), &overflow.applied_to(policy))?;
        let dscp = overflow.dscp.as_ref();
        Some(Box::new(Overflow {
            quota,
            fields: fields(&overflow.priority_header).collect(),
            dscp: dscp.map(|dscp| Dscp::new(dscp.get() as u8)),
        }))
    }

    /// The windows of all time zones, if a claim or column names the zone.
    fn local(&mut self, policy: &Policy) -> Option<LocalPeriods> {
        let part = policy.time_zone.as_ref()?.part()?;
        let unit = policy.amounts.quota.as_ref()?.largest().calendar()?;
        Some(LocalPeriods {
            part: match &*part.value {
                KeyPart::ClientColumn(name) => rules::KeyPart::ClientColumn(name.clone()),
                KeyPart::Claim(name) => rules::KeyPart::Claim(name.clone()),
                _ => return None,
            },
            calendars: self.zones.calendars(period(policy, unit)),
        })
    }

    /// Compiles a policy. Returns `None`, and adds a finding, if no algorithm can have its quota.
    fn compile(&mut self, name: &str, policy: &Policy) -> Option<CompiledPolicy> {
        let penalty = policy.penalty.as_ref();
        let key = key_text(policy);
        let prefix = self.config.responses.policy_prefix.as_ref();
        let charged = &policy.charge_refused;
        let spec = PolicySpec {
            name: name.into(),
            advertised_name: [prefix.map_or("", |prefix| prefix.as_str()), name].concat(),
            key_parts: key_parts(policy).collect(),
            unit: policy.unit.value,
            home: match (policy.store.value, &policy.sync) {
                (StoreName::Memory, _) => Home::Memory,
                (StoreName::Redis, Some(interval)) => Home::Synchronised(interval.get()),
                (StoreName::Redis, None) => Home::Redis(policy.on_store_error.value),
            },
            on_full: policy.on_full.value.into(),
            refusals: charged.choose(Refusals::Charged, Refusals::Free),
            settles: cost::settlement_node(policy).is_some(),
            is_announced: policy.announce.get(),
            retry_after_jitter: policy.retry_after_jitter.get(),
        };
        Some(CompiledPolicy {
            spec,
            penalty: penalty.map(|penalty| penalty::compile(penalty)),
            mode: mode(name, policy),
            refusal: self.refusal_spec(&policy.on_limit),
            quota: self.quota(key.clone(), policy)?,
            overrides: self.overrides(&key, policy),
            soft_limits: self.soft_limits(policy),
        })
    }

    /// Compiles the quota of a policy. Returns `None`, and adds a finding, if no algorithm can have
    /// it.
    fn quota(&mut self, key: String, policy: &Policy) -> Option<QuotaSpec> {
        let node = policy.amounts.node();
        let wrong = |error: QuotaError| self.findings.push(invalid(node, error.to_string()));
        let algorithm = algorithm(policy).map_err(wrong).ok()?;
        let quota = policy.amounts.quota.as_ref();
        Some(QuotaSpec {
            overflow: self.overflow(&key, policy),
            id: key,
            text: policy.amounts.to_string(),
            local_periods: self.local(policy),
            stated: quota.and_then(|quota| quota.stated()?.limit()),
            max_keys: match &policy.max_keys {
                // Permits have no cells.
                _ if algorithm.is_concurrency() => Some(ONE_KEY),
                keys => keys.as_ref().map(|keys| keys.get() as usize),
            },
            algorithm,
        })
    }
}

/// Calendars of all time zones, read for the first policy that needs them, then shared.
#[derive(Default)]
struct Zones {
    all: Vec<(Arc<str>, TimeZone)>,
    calendars: Vec<Arc<Calendars>>,
}

impl Zones {
    fn calendars(&mut self, period: Period) -> Arc<Calendars> {
        let mut known = self.calendars.iter();
        if let Some(known) = known.find(|known| known.period == period) {
            return Arc::clone(known);
        }
        if self.all.is_empty() {
            self.all = all_time_zones();
        }
        let new = Arc::new(Calendars::new(period, &self.all));
        self.calendars.push(Arc::clone(&new));
        new
    }
}

/// True if an override covers a single key: one value, or the address of one client.
fn has_one_bucket(selection: &Selection, policy: &Policy) -> bool {
    let [part] = policy.key.0.as_slice() else {
        return false;
    };
    let is_single = |cidr: &Cidr| cidr.get().prefix_len() == cidr.get().max_prefix_len();
    let is_one_client = selection.cidr.as_ref().is_some_and(|cidr| is_single(cidr));
    selection.value.is_some() || is_one_client && part.is_address()
}

/// The written key. Together with the name it identifies a policy's buckets.
fn key_text(policy: &Policy) -> String {
    let parts: Vec<_> = key_parts(policy).collect();
    format!("{} or {}", parts.join(", "), policy.on_missing_key.value)
}

fn key_parts(policy: &Policy) -> impl Iterator<Item = String> {
    policy.key.0.iter().map(|part| part.value.to_string())
}

/// The mode of a policy.
fn mode(name: &str, policy: &Policy) -> Mode {
    match (policy.mode.value, &policy.percent) {
        (schema::Mode::Enforce, None) => Mode::Enforce,
        // Even of 100 percent, a request without a key is no part.
        (schema::Mode::Enforce, Some(percent)) => {
            Mode::Partly(Rollout::new(name, percent.get() as u8))
        }
        (schema::Mode::Shadow, _) => Mode::Shadow,
        (schema::Mode::Disabled, _) => Mode::Disabled,
    }
}
