//! One key of one policy: its state, and what an operator does to it. Keys are secrets: they come in
//! bodies, and no answer and no log line has one.

pub mod change;
pub mod key_input;
pub mod owner;
pub mod operator_actions;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, timeout_at};

use self::change::{ChangeRequest, KeyChanged, change};
use self::key_input::{Key, find, id_problem, store_problem};
pub(super) use self::operator_actions::{list, revoke};
use super::actor::Actor;
use super::json::{Json, Reason};
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use crate::clock::{Timestamp, duration, text};
use crate::proxy::activity::Refusals;
use crate::proxy::inspect::key::{KeyError, PolicyKey};
use crate::proxy::inspect::key_state::KeyState;
use crate::store::KeyChange;
use crate::{visible, whole_number};

/// A key to look at.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest {
    /// The name in the configuration.
    #[schemars(length(min = 1))]
    pub policy: String,
    /// The key.
    #[serde(default)]
    pub key: Key,
}

/// A key to look at in all policies that have it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindRequest {
    /// The key.
    #[serde(default)]
    pub key: Key,
    /// Only in these.
    #[serde(default)]
    pub policies: Option<HashSet<String>>,
}

/// A key in all policies that have it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FoundKeys {
    /// True if it is `any`, the name of a client.
    pub is_client: bool,
    /// The policies with such a key, the most limiting first.
    pub items: Vec<FoundKey>,
    /// Policies whose keys have further parts: stores have hashes, which one part doesn't find.
    pub longer: Vec<String>,
}

/// A key in a policy.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FoundKey {
    /// The policy.
    pub policy: Arc<str>,
    /// Its state, unless the store doesn't answer.
    pub state: Option<KeyState>,
    /// The reason why the store doesn't answer.
    pub problem: Option<String>,
}

/// Units for a key; either with `until`, or with `for`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "required": ["until"], "properties": { "until": { "type": "string" }, "for": { "type": "null" } } },
    { "required": ["for"], "properties": { "for": { "type": "string" }, "until": { "type": "null" } } },
]))]
pub struct GrantRequest {
    /// The name in the configuration.
    #[schemars(length(min = 1))]
    pub policy: String,
    /// The key.
    #[serde(default)]
    pub key: Key,
    /// Spendable at once; 0 takes an earlier grant back, and needs no end.
    #[serde(deserialize_with = "whole_number::deserialize")]
    #[schemars(range(max = u32::MAX))]
    pub units: u32,
    /// The end of the grant, within 366 days; either this or `for`.
    #[schemars(extend("format" = "date-time"))]
    pub until: Option<String>,
    /// The length of the grant, instead of `until`: a duration, such as `15m`, `24h` or `7d`.
    #[schemars(regex(pattern = DURATION))]
    pub r#for: Option<String>,
    /// Why, for the audit log.
    pub reason: Option<Reason>,
    /// Computes the answer and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A ban of a key.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BanRequest {
    /// The name in the configuration.
    #[schemars(length(min = 1))]
    pub policy: String,
    /// The key.
    #[serde(default)]
    pub key: Key,
    /// A duration, such as `15m`, `24h` or `7d`.
    #[schemars(regex(pattern = DURATION))]
    pub r#for: String,
    /// Why, for the audit log.
    pub reason: Option<Reason>,
    /// Computes the answer and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Also in every other policy whose key has the same parts.
    #[serde(default)]
    pub all_policies: bool,
}

/// Some of the durations up to 366 days.
const DURATION: &str = "^([1-9][0-9]{0,4}[sm]|([1-9][0-9]{0,2}|[1-7][0-9]{3})h|\
    ([1-9][0-9]?|[12][0-9]{2}|3[0-5][0-9]|36[0-5])d)$";

pub(super) async fn lookup(
    State(state): State<AdminState>,
    Json(request): Json<LookupRequest>,
) -> Result<Json<KeyState>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let key = find(&ruleset, &request.policy, &request.key)?;
    let mut found = key.state(now).await.map_err(store_problem)?;
    found.limited = refusals(&state, once(&key), now).await?.pop();
    if !found.is_known() && request.key.may_be_id() {
        return Err(id_problem());
    }
    Ok(Json(found))
}

/// The time for the stores of all policies in which a key is looked at.
const DEADLINE: Duration = Duration::from_secs(4);

/// Why nothing is known of a key of a policy.
const LATE: &str = "its store, and those of policies before it, took too long to answer";

/// Advice where all keys have more parts.
const LONGER: &str = "write a text for each of its parts";

pub(super) async fn find_all(
    State(state): State<AdminState>,
    Json(FindRequest { key, policies }): Json<FindRequest>,
) -> Result<Json<FoundKeys>, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let (mut keys, mut longer, mut why) = (Vec::new(), Vec::new(), None);
    let is_wanted = |name: &str| policies.as_ref().is_none_or(|names| names.contains(name));
    for policy in ruleset.policies.iter().filter(|one| is_wanted(&one.name)) {
        // Each looks through the limits of all routes.
        yield_now().await;
        let parts = policy.key_parts.iter().map(String::as_str);
        let parts: Vec<_> = parts.filter(|part| *part != "constant").collect();
        match key.of(&ruleset, policy) {
            Ok(key) => keys.push(key),
            Err(KeyError::UnusedPolicy(_)) => {}
            Err(_) if parts.len() > key.parts() => {
                longer.push(format!("{} ({})", policy.name, parts.join(", ")));
            }
            Err(error) => why = Some(error),
        }
    }
    let mut items = look_at(&state, &keys).await?;
    let is_known = items.iter().any(FoundKey::is_known);
    if key.may_be_id() && !is_known {
        return Err(id_problem());
    }
    if items.is_empty() {
        let why = why.map_or_else(|| LONGER.to_owned(), |why| why.to_string());
        let detail = format!("no policy has such a key: {why}");
        return Err(ProblemDetails::impossible(detail));
    }
    items.sort_by_key(|item| Reverse(item.state.as_ref().map(KeyState::urgency)));
    let is_client = matches!(&key, Key::Any { any } if ruleset.client_named(any).is_ok());
    Ok(Json(FoundKeys {
        is_client,
        items,
        longer,
    }))
}

/// Looks at each key, in stores that answer within [`DEADLINE`] altogether.
async fn look_at(
    state: &AdminState,
    keys: &[PolicyKey<'_>],
) -> Result<Vec<FoundKey>, ProblemDetails> {
    let (now, until) = (state.clock.now(), Instant::now() + DEADLINE);
    let limited = refusals(state, keys.iter(), now).await?;
    let mut items = Vec::new();
    for (key, limited) in keys.iter().zip(limited) {
        let looked = if key.is_remote() && Instant::now() >= until {
            Err(LATE.to_owned())
        } else {
            let looked = timeout_at(until, key.state(now)).await;
            looked.map_err(|_| LATE.to_owned())
        };
        let looked = looked.and_then(|state| state.map_err(|error| error.to_string()));
        let limited = Some(limited);
        items.push(FoundKey {
            policy: Arc::clone(&key.policy().name),
            problem: looked.as_ref().err().cloned(),
            state: looked.ok().map(|state| KeyState { limited, ..state }),
        });
    }
    Ok(items)
}

impl FoundKey {
    /// True if the policy knows something of the key, or may.
    pub fn is_known(&self) -> bool {
        self.state.as_ref().is_none_or(KeyState::is_known)
    }
}

/// The refused requests of each key.
async fn refusals<'k, 'r: 'k>(
    state: &AdminState,
    keys: impl Iterator<Item = &'k PolicyKey<'r>>,
    now: Timestamp,
) -> Result<Vec<Refusals>, ProblemDetails> {
    let keys = keys.map(|key| (key.policy().name_hash, key.fingerprint()));
    let (keys, gateway): (Vec<_>, _) = (keys.collect(), state.gateway.clone());
    // The sum goes over all keys that are counted: it does not hold up streams.
    let counting = spawn_blocking(move || gateway.activity.refusals_of(&keys, now));
    counting.await.map_err(ProblemDetails::internal)
}

pub(super) async fn reset(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<ChangeRequest>,
) -> Result<Json<KeyChanged>, ProblemDetails> {
    let now = state.clock.now();
    change(state, actor, request, KeyChange::Reset, now).await
}

pub(super) async fn unban(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<ChangeRequest>,
) -> Result<Json<KeyChanged>, ProblemDetails> {
    let now = state.clock.now();
    change(state, actor, request, KeyChange::Unban, now).await
}

pub(super) async fn grant(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<GrantRequest>,
) -> Result<Json<KeyChanged>, ProblemDetails> {
    let now = state.clock.now();
    let until = match (request.until, request.r#for) {
        (Some(until), None) => instant(&until)?,
        (None, Some(length)) => now.saturating_add(duration(&length)?),
        // To take a grant back needs no end.
        (None, None) if request.units == 0 => now,
        _ => {
            let detail = "a grant has either `until`, an instant, or `for`, a duration such as 1h";
            return Err(ProblemDetails::impossible(detail));
        }
    };
    let units = request.units;
    let request = ChangeRequest {
        policy: request.policy,
        key: request.key,
        reason: request.reason,
        dry_run: request.dry_run,
        all_policies: false,
    };
    let grant = KeyChange::Grant { units, until };
    change(state, actor, request, grant, now).await
}

pub(super) async fn ban(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<BanRequest>,
) -> Result<Json<KeyChanged>, ProblemDetails> {
    let now = state.clock.now();
    let until = now.saturating_add(duration(&request.r#for)?);
    let request = ChangeRequest {
        policy: request.policy,
        key: request.key,
        reason: request.reason,
        dry_run: request.dry_run,
        all_policies: request.all_policies,
    };
    change(state, actor, request, KeyChange::Ban { until }, now).await
}

/// The shortest grant or ban by its length, in microseconds.
const SHORTEST: u64 = 1_000;

/// The most characters of a text that an error repeats.
const MAX_SHOWN: usize = 200;

/// An instant. One before 1970 is over, and one beyond what a `Timestamp` may be is far away.
///
/// # Errors
/// The text is no instant of RFC 3339.
fn instant(text: &str) -> Result<Timestamp, ProblemDetails> {
    let instant = text::parse_instant(text).ok_or_else(|| {
        let detail = "`until` is an instant, such as 2026-11-24T18:00:00Z (RFC 3339); `for` takes \
                      a duration";
        ProblemDetails::impossible(detail)
    })?;
    Ok(text::timestamp(instant).unwrap_or(Timestamp::EPOCH))
}

/// A duration of 1 ms at least, as the configuration writes it; days have 24 hours.
///
/// # Errors
/// The text is no such duration.
fn duration(text: &str) -> Result<Duration, ProblemDetails> {
    let reason = match duration::parse_micros(text) {
        Ok(micros) if micros >= SHORTEST => return Ok(Duration::from_micros(micros)),
        Ok(_) => format!("`{text}` is shorter"),
        Err(error) => format!("{}; {}", error.message, error.help),
    };
    let reason = visible::text(&visible::cut(&reason, MAX_SHOWN));
    Err(ProblemDetails::impossible(format!(
        "`for` is a duration from 1ms to 366 days, such as 15m, 24h or 7d: {reason}"
    )))
}
