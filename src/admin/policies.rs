//! Policies: settings, buckets and decisions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use tokio::task::spawn_blocking;

use super::actor::Actor;
use super::audit::{self, Action, Change};
use super::json::{Json, Names, Reason, Rfc3339};
use super::per_label::PerDecision;
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use super::totals::{Decisions, counts, less, rounded, sum};
use super::traffic_history::History;
use crate::clock::Timestamp;
use crate::proxy::ruleset::Policy;
use crate::proxy::shadow_clients::ShadowReport;
use crate::proxy::{Mode, ModeChange, ModeSwitch, Ruleset, ruleset};
use crate::store::{Home, OnStoreError, OperatorActionKind, Table};
use crate::telemetry::metrics::LimitDecision;

/// All policies.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyList {
    /// In the order of their names.
    pub policies: Vec<PolicyStatus>,
}

/// A policy.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its algorithm.
    pub algorithm: Cow<'static, str>,
    /// The quota as the configuration writes it.
    pub quota: String,
    /// The unit of the quota: `requests` or `tokens`.
    pub unit: Cow<'static, str>,
    /// Units in a window, or units in use at once.
    pub limit_units: u64,
    /// `null` for `concurrency`.
    pub window_s: Option<f64>,
    /// The most units at one instant.
    pub capacity_units: u64,
    /// The parts of its key.
    pub key: Vec<String>,
    /// Where its buckets are: `memory` or `redis`.
    pub store: Cow<'static, str>,
    /// The interval of synchronising with other machines, if buckets in memory are.
    pub sync_s: Option<f64>,
    /// Its mode.
    pub mode: ModeStatus,
    /// The routes that use it; an empty name stands for requests without a route.
    pub routes: Vec<Arc<str>>,
    /// The decision while Redis doesn't answer; `null` for buckets in memory.
    pub on_store_error: Option<OnStoreError>,
    /// The action on requests beyond the quota, as `on_limit` has it, such as `reject` or `decoy`.
    #[serde(default)]
    pub on_limit: Cow<'static, str>,
    /// The number of overrides.
    pub overrides: usize,
    /// The first 20 overrides, in their order. Absent in the list of all policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_OVERRIDES))]
    pub first_overrides: Option<Vec<OverrideStatus>>,
    /// Buckets in memory, those of overrides and overflow included.
    pub buckets: BucketCounts,
    /// Requests by decision, since the start of the process.
    pub decisions: PerDecision<u64>,
    /// The same a second, over the last 10 to 20 s. Null in the first 10 s after the start.
    pub recent: Option<PerDecision<f64>>,
    /// Units that responses have cost, since the start; of `usd` millionths of a dollar. `null` if
    /// responses settle no costs.
    pub settled_units: Option<u64>,
    /// Requests that were admitted with at least 80 % of the quota used, since the start.
    pub near: u64,
    /// Bans since the start; `null` without a penalty.
    pub bans: Option<u64>,
    /// Keys that the penalty or an operator bans now. A key that both ban counts twice.
    pub banned_keys: usize,
    /// Keys with a grant now, spent or not.
    pub granted_keys: usize,
    /// The clients that met it in shadow; `null` if it was never in shadow.
    pub shadow: Option<ShadowReport>,
}

/// The most overrides that a policy lists.
const MAX_OVERRIDES: usize = 20;

/// An override of a policy.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct OverrideStatus {
    /// The requests, as `override` in the state of a key has them.
    requests: String,
    /// The quota as the configuration writes it; `null` for the policy's.
    quota: Option<String>,
    /// The mode, if it isn't the policy's.
    #[schemars(extend("enum" = [MODES[0], MODES[1], null]))]
    mode: Option<Cow<'static, str>>,
}

/// The words for modes.
const MODES: [&str; 3] = ["enforce", "shadow", "disabled"];

/// The mode of a policy.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModeStatus {
    /// The mode of the configuration.
    #[schemars(extend("enum" = MODES))]
    pub configured: Cow<'static, str>,
    /// Differs from `configured` once it was set, until the configuration changes.
    #[schemars(extend("enum" = MODES))]
    pub current: Cow<'static, str>,
    /// The percentage of keys for which it is enforced, if not for all.
    #[schemars(range(max = 100))]
    pub percent: Option<u8>,
    /// The instant at which an operator set `current`; null for the mode of the configuration.
    pub set_at: Option<Rfc3339>,
    /// The operator's reason.
    pub reason: Option<Box<str>>,
}

impl ModeStatus {
    fn of(mode: &ModeSwitch) -> Self {
        let change = mode.change();
        Self {
            set_at: change.as_ref().map(|change| Rfc3339(change.at)),
            reason: change.and_then(|change| change.reason),
            configured: mode.configured.into_str().into(),
            current: mode.current().into_str().into(),
            percent: mode.current().percent(),
        }
    }
}

/// The mode to set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModeRequest {
    /// The mode.
    mode: RequestedMode,
    reason: Option<Reason>,
    /// Computes the answer and changes nothing.
    #[serde(default)]
    dry_run: bool,
}

/// A mode that an operator can set.
#[derive(Clone, Copy, Deserialize, IntoStaticStr, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum RequestedMode {
    /// It refuses requests of all keys.
    Enforce,
    /// It refuses nothing, and counts.
    Shadow,
    /// It applies to no request.
    Disabled,
    /// The mode of the configuration.
    Configured,
}

/// A policy whose mode was set.
#[derive(Serialize, JsonSchema)]
pub(super) struct ModeAnswer {
    /// The policy.
    policy: Arc<str>,
    /// The mode before.
    #[schemars(extend("enum" = MODES))]
    before: &'static str,
    /// The mode now.
    mode: ModeStatus,
    /// Effects on requests, as sentences.
    effect: Vec<String>,
}

/// Buckets in memory.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct BucketCounts {
    /// Keys that have a bucket now.
    pub in_use: usize,
    /// Keys with at most 20 % of the quota left.
    pub near: usize,
    /// Keys that have room.
    pub capacity: usize,
    /// Memory that buckets have touched so far, in bytes. The memory of units in flight is not
    /// counted.
    pub bytes: u64,
    /// The most memory that buckets can take, in bytes.
    pub max_bytes: u64,
}

impl BucketCounts {
    fn plus(self, table: &Table, now: Timestamp) -> Self {
        let census = table.census(now);
        Self {
            in_use: self.in_use + census.keys,
            near: self.near + census.near,
            capacity: self.capacity + table.keys,
            bytes: self.bytes + census.bytes,
            max_bytes: self.max_bytes + table.max_bytes(),
        }
    }
}

/// The name of a policy in a path.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PolicyPath {
    /// The name in the configuration.
    #[schemars(length(min = 1))]
    name: String,
}

pub(super) async fn list(
    State(state): State<AdminState>,
) -> Result<Json<PolicyList>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    // Counting the buckets of a large table takes milliseconds.
    let policies = spawn_blocking(move || {
        let uses = Uses::of(&ruleset);
        let policies = ruleset.policies.iter();
        let status = |policy| uses.status(policy, &state.history, now);
        policies.map(status).collect()
    });
    let policies = policies.await.map_err(ProblemDetails::internal)?;
    Ok(Json(PolicyList { policies }))
}

pub(super) async fn one(
    State(state): State<AdminState>,
    Names(PolicyPath { name }): Names<PolicyPath>,
) -> Result<Json<PolicyStatus>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let policy = Arc::clone(find(&ruleset, &name)?);
    let status = spawn_blocking(move || {
        let overrides = policy.overrides.iter().take(MAX_OVERRIDES);
        let overrides = overrides.map(|one| OverrideStatus {
            requests: policy.requests_of(one),
            quota: one.quota.as_ref().map(|quota| quota.text.clone()),
            mode: one.enforcement.map(|mode| mode.into_str().into()),
        });
        PolicyStatus {
            first_overrides: Some(overrides.collect()),
            ..Uses::of(&ruleset).status(&policy, &state.history, now)
        }
    });
    status.await.map(Json).map_err(ProblemDetails::internal)
}

/// Sets the mode of a policy until the configuration changes.
pub(super) async fn set_mode(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Names(PolicyPath { name }): Names<PolicyPath>,
    Json(request): Json<ModeRequest>,
) -> Result<Json<ModeAnswer>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let policy = find(&ruleset, &name)?;
    if policy.mode.configured == Mode::Disabled {
        let detail = "the configuration has `mode: disabled`, so that no route uses the policy: \
                      change it there";
        return Err(ProblemDetails::impossible(detail));
    }
    let (before, now) = (policy.mode.current().into_str(), state.clock.now());
    let set = ModeChange {
        at: now,
        reason: request.reason.as_deref().map(Box::from),
    };
    let trial = ModeSwitch::new(policy.mode.configured.clone());
    let switch = if request.dry_run {
        &trial
    } else {
        &policy.mode
    };
    switch.set(request.mode.into(), set);
    let mode = ModeStatus::of(switch);
    let change = Change {
        policy: Some(&policy.name),
        dry_run: request.dry_run,
        ..Change::new(Action::Mode, request.reason.as_deref())
    };
    let result = format!("{before} to {}", mode.current);
    audit::log(&state, &actor, change, &result);
    let (_, recent) = Uses::of(&ruleset).decisions(policy, &state.history, now);
    let is_enforced = mode.current == "enforce";
    Ok(Json(ModeAnswer {
        policy: Arc::clone(&policy.name),
        before,
        mode,
        effect: Vec::from_iter(recent.map(|recent| mode_effect(is_enforced, recent))),
    }))
}

/// The effect that a mode would have had on the requests of the last seconds.
fn mode_effect(is_enforced: bool, (decided, seconds): (Decisions, f64)) -> String {
    let (decision, before, after) = if is_enforced {
        (LimitDecision::Shadowed, "passed", "been limited or delayed")
    } else {
        (LimitDecision::Limited, "were limited", "passed")
    };
    let (count, all) = (decided[decision as usize], decided.iter().sum::<u64>());
    format!(
        "of {all} requests in the last {seconds:.0} s, {count} that {before} would have {after}"
    )
}

/// The policy with this name.
///
/// # Errors
/// 404 with the nearest name.
pub(super) fn find<'a>(
    ruleset: &'a Ruleset,
    name: &str,
) -> Result<&'a Arc<Policy>, ProblemDetails> {
    let mut policies = ruleset.policies.iter();
    let found = policies.find(|policy| *policy.name == *name);
    found.ok_or_else(|| {
        let known: Vec<_> = ruleset.policies.iter().map(|one| &*one.name).collect();
        ProblemDetails::unknown_name("policy", name, &known)
    })
}

/// The routes that use each policy, with their limits.
struct Uses<'a>(HashMap<*const Policy, Vec<(&'a Arc<str>, &'a ruleset::Limit)>>);

impl<'a> Uses<'a> {
    fn of(ruleset: &'a Ruleset) -> Self {
        let mut uses = HashMap::<_, Vec<_>>::new();
        for route in ruleset.all_routes() {
            for limit in &route.limits {
                let of_policy = uses.entry(Arc::as_ptr(&limit.policy)).or_default();
                of_policy.push((&route.name, limit));
            }
        }
        Self(uses)
    }

    fn of_policy(&self, policy: &Arc<Policy>) -> &[(&'a Arc<str>, &'a ruleset::Limit)] {
        self.0.get(&Arc::as_ptr(policy)).map_or(&[], Vec::as_slice)
    }

    /// The decisions of a policy since the start, and those of the last seconds with their time.
    fn decisions(
        &self,
        policy: &Arc<Policy>,
        history: &History,
        now: Timestamp,
    ) -> (Decisions, Option<(Decisions, f64)>) {
        let uses = self.of_policy(policy).iter();
        let made = uses.map(|(_, limit)| counts(&limit.metrics));
        let made = made.fold(Decisions::default(), sum);
        let recent = history.since(now, |before, seconds| {
            let earlier = before.policies.get(&policy.name).copied();
            (less(made, earlier.unwrap_or_default()), seconds)
        });
        (made, recent)
    }

    fn status(&self, policy: &Arc<Policy>, history: &History, now: Timestamp) -> PolicyStatus {
        let uses = self.of_policy(policy);
        let (quota, home) = (&policy.quota, policy.quota.buckets.home);
        let algorithm = quota.algorithm();
        let tables = policy.quotas().map(|quota| &quota.buckets.table);
        let seconds = |duration: std::time::Duration| duration.as_secs_f64();
        let (penalties, steered) = (policy.penalties.as_ref(), policy.steering.keys());
        let (made, recent) = self.decisions(policy, history, now);
        let recent = recent
            .map(|(gained, seconds)| gained.map(|made| rounded(made as f64 / seconds)).into());
        let banned_by_penalty = penalties.map_or(0, |penalties| penalties.banned_keys(now));
        PolicyStatus {
            name: Arc::clone(&policy.name),
            algorithm: algorithm.kind().into(),
            quota: quota.text.clone(),
            unit: quota.advertised.unit.into_str().into(),
            limit_units: algorithm.limit(),
            window_s: algorithm.window().map(seconds),
            capacity_units: algorithm.capacity(),
            key: policy.key_parts.clone(),
            store: home.store_name().into(),
            sync_s: home.sync_interval().map(seconds),
            mode: ModeStatus::of(&policy.mode),
            routes: uses.iter().map(|(route, _)| Arc::clone(route)).collect(),
            on_store_error: match home {
                Home::Redis(on_error) => Some(on_error),
                Home::Memory | Home::Synchronised(_) => None,
            },
            on_limit: policy.action.into_str().into(),
            overrides: policy.overrides.len(),
            first_overrides: None,
            buckets: tables.fold(BucketCounts::default(), |counts, table| {
                counts.plus(table, now)
            }),
            decisions: made.into(),
            recent,
            settled_units: policy.settlements.as_ref().map(|one| one.units.get()),
            near: policy.metrics.near.get(),
            bans: penalties.map(|penalties| penalties.bans_so_far()),
            banned_keys: banned_by_penalty + steered.count(OperatorActionKind::Ban, now),
            granted_keys: steered.count(OperatorActionKind::Grant, now),
            shadow: policy.shadow_clients.report(),
        }
    }
}
