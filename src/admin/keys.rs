//! One key of one policy: its state, and what an operator does to it. Keys are secrets: they come in
//! bodies, and no answer and no log line has one.

mod change;
mod key_input;
mod operator_actions;
mod time_input;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use self::change::{Changed, OwnedChange, change};
use self::key_input::{KeyInput, id_problem};
pub(super) use self::operator_actions::{list, revoke};
use self::time_input::{duration, instant};
use super::AdminState;
use super::auth::Actor;
use super::json::{Json, Reason};
use super::problem_details::ProblemDetails;
use crate::proxy::Ruleset;
use crate::proxy::activity::KeyRefusals;
use crate::proxy::inspect::key::{KeyError, PolicyKey};
use crate::proxy::inspect::key_state::KeyState;
use crate::store::SteeringError;
use crate::whole_number;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookupRequest {
    policy: String,
    #[serde(default)]
    key: KeyInput,
}

/// A change that a caller asks for; the whole body of `reset` and `unban`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeRequest {
    policy: String,
    #[serde(default)]
    key: KeyInput,
    reason: Option<Reason>,
    #[serde(default)]
    dry_run: bool,
    /// Also in every other policy whose key has the same parts.
    #[serde(default)]
    all_policies: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GrantRequest {
    policy: String,
    #[serde(default)]
    key: KeyInput,
    #[serde(deserialize_with = "whole_number::deserialize")]
    units: u32,
    /// RFC 3339; instead of `for`. A grant of 0 units needs neither.
    until: Option<String>,
    /// A duration, such as `15m`, `24h` or `7d`; instead of `until`.
    r#for: Option<String>,
    reason: Option<Reason>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BanRequest {
    policy: String,
    #[serde(default)]
    key: KeyInput,
    /// A duration, such as `15m`, `24h` or `7d`.
    r#for: String,
    reason: Option<Reason>,
    #[serde(default)]
    dry_run: bool,
    /// Also in every other policy whose key has the same parts.
    #[serde(default)]
    all_policies: bool,
}

/// The state of a key, and how often it was refused.
#[derive(Debug, Serialize)]
pub(super) struct FoundKey {
    #[serde(flatten)]
    state: KeyState,
    limited: Refusals,
}

/// The refused requests of a key on this machine, over the last five minutes.
#[derive(Debug, Serialize)]
struct Refusals {
    requests: u64,
    error_bound: u64,
    counted_s: f64,
}

impl From<KeyRefusals> for Refusals {
    fn from(refusals: KeyRefusals) -> Self {
        Self {
            requests: refusals.requests,
            error_bound: refusals.error,
            counted_s: refusals.counted.as_secs_f64(),
        }
    }
}

pub(super) async fn lookup(
    State(state): State<AdminState>,
    Json(request): Json<LookupRequest>,
) -> Result<Json<FoundKey>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let key = find(&ruleset, &request.policy, &request.key)?;
    let found = key.state(now).await.map_err(store_problem)?;
    if !found.stored && request.key.has_id() {
        return Err(id_problem());
    }
    let (mark, id) = (key.policy().mark, key.fingerprint());
    // The sum goes over all keys that are counted: it does not hold up streams.
    let counting = spawn_blocking(move || state.gateway.activity().refusals_of(mark, id, now));
    Ok(Json(FoundKey {
        state: found,
        limited: counting.await.map_err(ProblemDetails::internal)?.into(),
    }))
}

pub(super) async fn reset(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<ChangeRequest>,
) -> Result<Json<Changed>, ProblemDetails> {
    change(state, actor, request, OwnedChange::Reset).await
}

pub(super) async fn unban(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<ChangeRequest>,
) -> Result<Json<Changed>, ProblemDetails> {
    change(state, actor, request, OwnedChange::Unban).await
}

pub(super) async fn grant(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<GrantRequest>,
) -> Result<Json<Changed>, ProblemDetails> {
    let GrantRequest {
        policy,
        key,
        units,
        until,
        r#for,
        reason,
        dry_run,
    } = request;
    let until = match (until, r#for) {
        (Some(until), None) => instant(&until)?,
        (None, Some(length)) => state.clock.now().saturating_add(duration(&length)?),
        // To take a grant back needs no end.
        (None, None) if units == 0 => state.clock.now(),
        _ => {
            let detail = "a grant has either `until`, an instant, or `for`, a duration such as 1h";
            return Err(ProblemDetails::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                detail,
            ));
        }
    };
    let request = ChangeRequest {
        policy,
        key,
        reason,
        dry_run,
        all_policies: false,
    };
    change(state, actor, request, OwnedChange::Grant { units, until }).await
}

pub(super) async fn ban(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<BanRequest>,
) -> Result<Json<Changed>, ProblemDetails> {
    let BanRequest {
        policy,
        key,
        r#for,
        reason,
        dry_run,
        all_policies,
    } = request;
    let length = duration(&r#for)?;
    let until = state.clock.now().saturating_add(length);
    let request = ChangeRequest {
        policy,
        key,
        reason,
        dry_run,
        all_policies,
    };
    change(state, actor, request, OwnedChange::Ban { length, until }).await
}

fn find<'r>(
    ruleset: &'r Ruleset,
    policy: &str,
    key: &KeyInput,
) -> Result<PolicyKey<'r>, ProblemDetails> {
    ruleset
        .policy_key(policy, &key.texts()?)
        .map_err(|error| match error {
            KeyError::UnknownPolicy(name) => {
                let known: Vec<_> = ruleset.policies.iter().map(|one| &*one.name).collect();
                ProblemDetails::unknown_name("policy", &name, &known)
            }
            KeyError::Text(_) if key.has_id() => id_problem(),
            KeyError::UnusedPolicy(_) | KeyError::Text(_) => {
                ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
            }
        })
}

fn store_problem(error: SteeringError) -> ProblemDetails {
    let status = match error {
        SteeringError::TooManyKeys(_) => StatusCode::UNPROCESSABLE_ENTITY,
        SteeringError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    ProblemDetails::new(status, error.to_string())
}
