//! One key of one policy: its state, and what an operator does to it. Keys are secrets: they come in
//! bodies, and no answer and no log line has one.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use jiff::SpanRelativeTo;
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Serialize};
use tokio::spawn;
use tokio::task::spawn_blocking;

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
use crate::rules::PartText;
use crate::store::SteeringError;
use crate::whole_number;

/// The shortest grant or ban by its length.
const SHORTEST: Duration = Duration::from_millis(1);

/// A key: the text of its only part, or a list of texts; nothing for a key without parts.
#[derive(Debug, Default, Deserialize)]
#[serde(
    untagged,
    expecting = "`key` is a text, or a list with a text, null or {\"client_ip\": \"192.0.2.1\"} for each part"
)]
enum KeyInput {
    #[default]
    None,
    One(String),
    Parts(Vec<PartInput>),
}

/// A part of a key.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PartInput {
    Value(String),
    /// Requests lack the part, and another part replaces it: its name and value.
    StandIn(BTreeMap<String, String>),
    /// Requests lack the part.
    Missing(()),
}

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

impl KeyInput {
    /// True if a part has the form of an id, by which logs and answers name keys.
    fn has_id(&self) -> bool {
        match self {
            Self::None => false,
            Self::One(text) => is_id(text),
            Self::Parts(parts) => parts
                .iter()
                .any(|part| matches!(part, PartInput::Value(text) if is_id(text))),
        }
    }

    /// # Errors
    /// A part is neither a text, nor one replacement, nor null.
    fn texts(&self) -> Result<Vec<PartText<'_>>, ProblemDetails> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::One(text) => Ok(vec![PartText::Value(text)]),
            Self::Parts(parts) => parts.iter().map(PartInput::text).collect(),
        }
    }
}

impl PartInput {
    fn text(&self) -> Result<PartText<'_>, ProblemDetails> {
        match self {
            Self::Value(text) => Ok(PartText::Value(text)),
            Self::Missing(()) => Ok(PartText::Missing),
            Self::StandIn(parts) => match parts.iter().next() {
                Some((part, value)) if parts.len() == 1 => Ok(PartText::StandIn { part, value }),
                _ => {
                    let detail = "name the one part that replaces a missing one, such as \
                                  {\"client_ip\": \"192.0.2.1\"}";
                    Err(ProblemDetails::new(
                        StatusCode::UNPROCESSABLE_ENTITY,
                        detail,
                    ))
                }
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

/// True for a text such as `k_5f0c1a2b3c4d5e6f`.
fn is_id(text: &str) -> bool {
    let digits = text.strip_prefix("k_");
    digits.is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The answer to an id in place of a key's text.
fn id_problem() -> ProblemDetails {
    let detail = "the key is an id, as logs and answers name keys, and no id leads back to its \
                  text: give the text that requests have, such as an API key or an address. Look \
                  for the id in the access log, whose lines have `client_ip` and with \
                  `access_log.headers` the fields of the key; or in `top --json`, which has texts, \
                  too, with `admin.keys: readable`";
    ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

fn store_problem(error: SteeringError) -> ProblemDetails {
    let status = match error {
        SteeringError::TooManyKeys(_) => StatusCode::UNPROCESSABLE_ENTITY,
        SteeringError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    ProblemDetails::new(status, error.to_string())
}

/// An instant. One before 1970 is over, and one beyond what a `Timestamp` may be is far away.
///
/// # Errors
/// The text is no instant of RFC 3339.
fn instant(text: &str) -> Result<Timestamp, ProblemDetails> {
    let instant = text.parse().ok().or_else(|| last_instant(text));
    let instant: jiff::Timestamp = instant.ok_or_else(|| {
        let detail = "`until` is an instant, such as 2026-11-24T18:00:00Z (RFC 3339); `for` takes \
                      a duration";
        ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    })?;
    let micros = u64::try_from(instant.as_microsecond()).unwrap_or_default();
    Ok(Timestamp::from_micros(micros))
}

/// The last instant of jiff, for an instant of the last day or two of 9999: jiff leaves room for
/// time zones there.
fn last_instant(text: &str) -> Option<jiff::Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    pieces.time()?;
    pieces.to_numeric_offset()?;
    (pieces.date().year() == 9999).then_some(jiff::Timestamp::MAX)
}

/// A duration of 1 ms at least; days have 24 hours.
///
/// # Errors
/// The text is no such duration.
fn duration(text: &str) -> Result<Duration, ProblemDetails> {
    let span: Option<jiff::Span> = text.parse().ok();
    let day = SpanRelativeTo::days_are_24_hours();
    let length = span.and_then(|span| span.to_duration(day).ok());
    let length = length.and_then(|length| Duration::try_from(length).ok());
    length.filter(|length| *length >= SHORTEST).ok_or_else(|| {
        let detail = "`for` is a duration from 1ms to 366 days, such as 15m, 24h or 7d";
        ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    })
}
