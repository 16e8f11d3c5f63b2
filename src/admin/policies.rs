//! Policies: settings, buckets and decisions.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use tokio::task::spawn_blocking;

use super::AdminState;
use super::audit::{self, Action, Change, Extent, Target};
use super::auth::Actor;
use super::json::{Json, Names, Reason, Rfc3339};
use super::problem_details::ProblemDetails;
use crate::clock::Timestamp;
use crate::proxy::ruleset::{Limit, Policy};
use crate::proxy::shadow_clients::ShadowReport;
use crate::proxy::{Mode, ModeChange, Ruleset};
use crate::store::Table;
use crate::telemetry::metrics::LimitDecision;

#[derive(Serialize)]
pub(super) struct PolicyList {
    policies: Vec<PolicyStatus>,
}

#[derive(Serialize)]
pub(super) struct PolicyStatus {
    name: Arc<str>,
    algorithm: &'static str,
    /// The quota as the configuration writes it.
    quota: String,
    unit: &'static str,
    limit_units: u32,
    /// `None` for concurrency.
    window_s: Option<f64>,
    /// The most units at one instant.
    capacity_units: u32,
    /// The parts of its key.
    key: Vec<String>,
    store: &'static str,
    /// The interval of synchronising, if its buckets in memory are synchronised.
    sync_s: Option<f64>,
    mode: ModeStatus,
    /// The routes that use it; the name of requests without a route is empty.
    routes: Vec<Arc<str>>,
    /// The number of overrides.
    overrides: usize,
    buckets: BucketCounts,
    /// Requests by decision, since the start of the process.
    decisions: Decisions,
    /// Requests that were admitted with at least 80 % of the quota used, since the start.
    near: u64,
    /// Bans since the start; `None` without a penalty.
    bans: Option<u64>,
    /// Keys that the penalty or an operator bans now.
    banned_keys: usize,
    /// Keys with a grant now, spent or not.
    granted_keys: usize,
    /// The clients that met it in shadow; `None` if it was never in shadow.
    shadow: Option<ShadowReport>,
}

#[derive(Serialize)]
struct ModeStatus {
    configured: &'static str,
    current: &'static str,
    /// The percentage of keys for which it is enforced, if not for all.
    percent: Option<u8>,
    /// The instant at which an operator set it; `None` for the configured mode.
    set_at: Option<Rfc3339>,
    /// The operator's reason.
    reason: Option<Box<str>>,
}

impl ModeStatus {
    fn of(policy: &Policy) -> Self {
        let change = policy.mode.change();
        Self {
            set_at: change.as_ref().map(|change| Rfc3339(change.at)),
            reason: change.and_then(|change| change.reason),
            configured: policy.mode.configured().as_str(),
            current: policy.mode.current().as_str(),
            percent: policy.mode.current().percent(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModeRequest {
    mode: RequestedMode,
    reason: Option<Reason>,
}

#[derive(Clone, Copy, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum RequestedMode {
    Enforce,
    Shadow,
    Disabled,
    /// The mode of the configuration.
    Configured,
}

#[derive(Serialize)]
pub(super) struct ModeAnswer {
    policy: Arc<str>,
    before: &'static str,
    mode: ModeStatus,
}

/// Buckets in memory, those of overrides and overflow included.
#[derive(Default, Serialize)]
struct BucketCounts {
    in_use: usize,
    /// Keys with at most 20 % of the quota left.
    near: usize,
    capacity: usize,
    bytes: u64,
    max_bytes: u64,
}

impl BucketCounts {
    fn plus(self, table: &Table, now: Timestamp) -> Self {
        let census = table.census(now);
        Self {
            in_use: self.in_use + census.keys,
            near: self.near + census.near,
            capacity: self.capacity + table.keys(),
            bytes: self.bytes + census.bytes,
            max_bytes: self.max_bytes + table.max_bytes(),
        }
    }
}

/// Counts of requests.
#[derive(Default, Serialize)]
struct Decisions {
    allowed: u64,
    limited: u64,
    overflowed: u64,
    delayed: u64,
    shadowed: u64,
    tagged: u64,
    exempt: u64,
    error: u64,
}

impl Decisions {
    fn add(&mut self, limit: &Limit) {
        for &decision in LimitDecision::VARIANTS {
            let count = match decision {
                LimitDecision::Allowed => &mut self.allowed,
                LimitDecision::Limited => &mut self.limited,
                LimitDecision::Overflowed => &mut self.overflowed,
                LimitDecision::Delayed => &mut self.delayed,
                LimitDecision::Shadowed => &mut self.shadowed,
                LimitDecision::Tagged => &mut self.tagged,
                LimitDecision::Exempt => &mut self.exempt,
                LimitDecision::Error => &mut self.error,
            };
            *count += limit.metrics.count(decision);
        }
    }
}

pub(super) async fn list(
    State(state): State<AdminState>,
) -> Result<Json<PolicyList>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    // Counting the buckets of a large table takes milliseconds.
    let policies = spawn_blocking(move || {
        let uses = Uses::of(&ruleset);
        let policies = ruleset.policies.iter();
        policies.map(|policy| uses.status(policy, now)).collect()
    });
    let policies = policies.await.map_err(ProblemDetails::internal)?;
    Ok(Json(PolicyList { policies }))
}

pub(super) async fn one(
    State(state): State<AdminState>,
    Names(name): Names<String>,
) -> Result<Json<PolicyStatus>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let policy = Arc::clone(find(&ruleset, &name)?);
    let status = spawn_blocking(move || Uses::of(&ruleset).status(&policy, now));
    status.await.map(Json).map_err(ProblemDetails::internal)
}

/// Sets the mode of a policy until the configuration changes.
pub(super) async fn set_mode(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Names(name): Names<String>,
    Json(request): Json<ModeRequest>,
) -> Result<Json<ModeAnswer>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let policy = find(&ruleset, &name)?;
    if *policy.mode.configured() == Mode::Disabled {
        let detail = "the configuration has `mode: disabled`, so that no route uses the policy: \
                      change it there";
        return Err(ProblemDetails::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            detail,
        ));
    }
    let before = policy.mode.current().as_str();
    let set = ModeChange {
        at: state.clock.now(),
        reason: request.reason.as_deref().map(Box::from),
    };
    policy.mode.set(request.mode.into(), set);
    let change = Change {
        action: Action::Mode,
        target: Target::Policy(&policy.name),
        extent: Extent::default(),
        reason: request.reason.as_deref(),
        dry_run: false,
    };
    let mode = ModeStatus::of(policy);
    audit::log(
        &state,
        &actor,
        &change,
        &format!("{before} to {}", mode.current),
    );
    Ok(Json(ModeAnswer {
        policy: Arc::clone(&policy.name),
        before,
        mode,
    }))
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
    policies
        .find(|policy| *policy.name == *name)
        .ok_or_else(|| {
            let known: Vec<_> = ruleset
                .policies
                .iter()
                .map(|policy| &*policy.name)
                .collect();
            ProblemDetails::unknown_name("policy", name, &known)
        })
}

/// The routes that use each policy, with their limits.
struct Uses<'a>(HashMap<*const Policy, Vec<(&'a Arc<str>, &'a Limit)>>);

impl<'a> Uses<'a> {
    fn of(ruleset: &'a Ruleset) -> Self {
        let mut uses = HashMap::<_, Vec<_>>::new();
        for route in ruleset.routes.iter().chain([&ruleset.unmatched]) {
            for limit in &route.limits {
                let of_policy = uses.entry(Arc::as_ptr(&limit.policy)).or_default();
                of_policy.push((&route.name, limit));
            }
        }
        Self(uses)
    }

    fn status(&self, policy: &Arc<Policy>, now: Timestamp) -> PolicyStatus {
        let uses = self
            .0
            .get(&Arc::as_ptr(policy))
            .map_or(&[][..], Vec::as_slice);
        let mut decisions = Decisions::default();
        uses.iter().for_each(|(_, limit)| decisions.add(limit));
        let (quota, home) = (&policy.quota, policy.quota.buckets.home);
        let algorithm = quota.algorithm();
        let tables = policy.quotas().map(|quota| &quota.buckets.table);
        let seconds = |duration: std::time::Duration| duration.as_secs_f64();
        PolicyStatus {
            name: Arc::clone(&policy.name),
            algorithm: algorithm.kind(),
            quota: quota.text.clone(),
            unit: quota.advertised.unit().name(),
            limit_units: algorithm.limit(),
            window_s: algorithm.window().map(seconds),
            capacity_units: algorithm.capacity(),
            key: policy.key_parts.clone(),
            store: home.store_name(),
            sync_s: home.sync_interval().map(seconds),
            mode: ModeStatus::of(policy),
            routes: uses.iter().map(|(route, _)| Arc::clone(route)).collect(),
            overrides: policy.overrides.len(),
            buckets: tables.fold(BucketCounts::default(), |counts, table| {
                counts.plus(table, now)
            }),
            decisions,
            near: policy.metrics.near_count(),
            bans: policy.penalties.as_ref().map(|one| one.bans_so_far()),
            banned_keys: banned_keys(policy, now),
            granted_keys: granted_keys(policy, now),
            shadow: policy.shadow_clients.report(),
        }
    }
}

/// The keys that the penalties of a policy and its overrides, or an operator, ban now. A key that
/// both ban counts twice.
fn banned_keys(policy: &Policy, now: Timestamp) -> usize {
    let penalties = policy.penalties.as_ref();
    let by_penalty = penalties.map_or(0, |penalties| penalties.banned_keys(now));
    by_penalty + policy.steering.keys().banned_keys(now)
}

/// The keys of a policy that have a grant now.
pub(super) fn granted_keys(policy: &Policy, now: Timestamp) -> usize {
    policy.steering.keys().granted_keys(now)
}
