//! One key of one policy: its state, and what an operator does to it. Keys are secrets: they come in
//! bodies, and no answer and no log line has one.

mod key_input;
mod time_input;

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::spawn;
use tokio::task::spawn_blocking;

use self::key_input::{KeyInput, id_problem};
use self::time_input::{duration, instant};
use super::AdminState;
use super::audit::{self, Action, Change, Extent, Target};
use super::auth::Actor;
use super::json::{Json, Reason};
use super::problem_details::ProblemDetails;
use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::proxy::activity::KeyRefusals;
use crate::proxy::inspect::key::{Execution, KeyChange, KeyChangeError, KeyError, PolicyKey};
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

/// The state of a key before and after a change.
#[derive(Debug, Serialize)]
pub(super) struct Changed {
    before: KeyState,
    after: KeyState,
    /// A key of which nothing was stored, and a ban that the change leaves in force.
    note: Option<String>,
}

/// A change, with texts of its own.
enum OwnedChange {
    Reset,
    Grant { units: u32, until: Timestamp },
    Ban { length: Duration, until: Timestamp },
    Unban,
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
    let (mark, id) = (key.policy_mark(), key.fingerprint());
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
    } = request;
    let length = duration(&r#for)?;
    let until = state.clock.now().saturating_add(length);
    let request = ChangeRequest {
        policy,
        key,
        reason,
        dry_run,
    };
    change(state, actor, request, OwnedChange::Ban { length, until }).await
}

/// Makes a change, also if the caller leaves meanwhile: none is half made.
async fn change(
    state: AdminState,
    actor: Actor,
    request: ChangeRequest,
    change: OwnedChange,
) -> Result<Json<Changed>, ProblemDetails> {
    let made = spawn(async move { make(&state, &actor, &request, &change).await });
    made.await.map_err(ProblemDetails::internal)?.map(Json)
}

async fn make(
    state: &AdminState,
    actor: &Actor,
    request: &ChangeRequest,
    change: &OwnedChange,
) -> Result<Changed, ProblemDetails> {
    let reason = request.reason.as_deref();
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let key = find(&ruleset, &request.policy, &request.key)?;
    if request.key.has_id() && !key.state(now).await.map_err(store_problem)?.stored {
        return Err(id_problem());
    }
    let execution = match request.dry_run {
        true => Execution::DryRun,
        false => Execution::Apply,
    };
    let extent = change.extent();
    let (action, change) = change.borrowed(reason.unwrap_or_default());
    let result = key.change(change, execution, now).await;
    let audited = Change {
        action,
        target: Target::Key {
            policy: &request.policy,
            key: key.fingerprint(),
        },
        extent,
        reason,
        dry_run: request.dry_run,
    };
    match (&result, execution) {
        (Ok(_), Execution::Apply) => audit::log(state, actor, &audited, "applied"),
        (Ok(_), Execution::DryRun) => audit::log(state, actor, &audited, "dry_run"),
        (Err(error), _) => audit::log(state, actor, &audited, &error.to_string()),
    }
    let [before, after] = result.map_err(|error| {
        let problem = match error {
            KeyChangeError::Impossible(why) => {
                ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, why)
            }
            KeyChangeError::Store(error @ SteeringError::Store(_)) => ProblemDetails::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{error}: the change may have been made or not; repeat it"),
            ),
            KeyChangeError::Store(error) => store_problem(error),
        };
        problem.logged()
    })?;
    let notes = [unknown_key(&before), remaining_ban(change, &after)];
    let notes: Vec<_> = notes.into_iter().flatten().collect();
    Ok(Changed {
        before,
        after,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    })
}

/// A note on a key of which nothing was stored.
fn unknown_key(before: &KeyState) -> Option<String> {
    let is_unknown = !before.stored && !before.exempt;
    is_unknown.then(|| {
        "nothing was stored of this key before: is it typed right? Or it has not asked lately"
            .to_owned()
    })
}

/// A note on the ban that a change leaves in force.
fn remaining_ban(change: KeyChange<'_>, after: &KeyState) -> Option<String> {
    let leaves_bans = matches!(change, KeyChange::Reset | KeyChange::Grant { .. });
    let ban = after.ban.as_ref().filter(|_| leaves_bans)?;
    let until = &ban.until;
    Some(format!(
        "the key stays banned until {until}: `unban` lifts the ban"
    ))
}

impl OwnedChange {
    fn borrowed<'a>(&self, reason: &'a str) -> (Action, KeyChange<'a>) {
        match *self {
            Self::Reset => (Action::Reset, KeyChange::Reset),
            Self::Grant { units, until } => (Action::Grant, KeyChange::Grant { units, until }),
            Self::Ban { until, .. } => (Action::Ban, KeyChange::Ban { until, reason }),
            Self::Unban => (Action::Unban, KeyChange::Unban),
        }
    }

    fn extent(&self) -> Extent {
        match *self {
            Self::Reset | Self::Unban => Extent::default(),
            Self::Grant { units, until } => Extent {
                units: Some(units),
                until: Some(until),
                for_s: None,
            },
            Self::Ban { length, until } => Extent {
                units: None,
                until: Some(until),
                for_s: Some(length.as_secs_f64()),
            },
        }
    }
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
