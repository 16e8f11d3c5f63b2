//! Changes a key, in one policy or in all policies of a client, and audits each change.

use std::fmt::Display;
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::spawn;

use super::key_input::{Key, find, id_problem, store_problem};
use super::owner::KeyOwner;
use super::refusals;
use crate::admin::actor::Actor;
use crate::admin::audit::{self, Action, Change};
use crate::admin::json::{Json, Reason};
use crate::admin::problem_details::ProblemDetails;
use crate::admin::state::AdminState;
use crate::clock::Timestamp;
use crate::clock::text::Span;
use crate::proxy::Ruleset;
use crate::proxy::activity::Refusals;
use crate::proxy::inspect::key::{ChangedKey, Execution, KeyChangeError, PolicyKey};
use crate::proxy::inspect::key_state::{KeyState, rfc_3339};
use crate::proxy::ruleset::Policy;
use crate::store::{Attribution, KeyChange, SteeringError};
use crate::telemetry::access_log::KeyForm;

/// A key to change.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// The name in the configuration.
    #[schemars(length(min = 1))]
    pub policy: String,
    /// The key.
    #[serde(default)]
    pub key: Key,
    /// Why, for the audit log.
    pub reason: Option<Reason>,
    /// Computes the answer and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Also in every other policy whose key has the same parts, or of the client that `key` names:
    /// with its name and further columns.
    #[serde(default)]
    pub all_policies: bool,
}

/// The state of a key before and after a change.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyChanged {
    /// The state before.
    pub before: KeyState,
    /// The state after.
    pub after: KeyState,
    /// A doubt about the key, what the change replaces, the ban that it leaves in force, its end at a
    /// restart, and policies that it fails in, in words; null without any.
    pub note: Option<String>,
    /// Effects on requests that wait or were refused, as sentences.
    #[serde(default)]
    pub effect: Vec<String>,
    /// The other policies of the client, with `all_policies`.
    pub also: Vec<OtherPolicy>,
}

/// The result of a change in another policy.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct OtherPolicy {
    /// The policy.
    pub policy: Arc<str>,
    /// `applied`, `dry_run`, or the reason why not.
    pub result: String,
}

/// Makes the change in a task of its own, so that it completes even if the caller disconnects.
pub(super) async fn change(
    state: AdminState,
    actor: Actor,
    request: ChangeRequest,
    change: KeyChange,
    now: Timestamp,
) -> Result<Json<KeyChanged>, ProblemDetails> {
    let task = spawn(async move {
        let call = KeyCall::new(&actor, &request, change, now);
        call.apply_and_answer(&state, now).await
    });
    task.await.map_err(ProblemDetails::internal)?.map(Json)
}

/// A change that a caller asks for, in one policy or in all.
struct KeyCall<'a> {
    actor: &'a Actor,
    request: &'a ChangeRequest,
    audit_record: Change<'a>,
    change: KeyChange,
    by: Attribution,
}

impl<'a> KeyCall<'a> {
    fn new(
        actor: &'a Actor,
        request: &'a ChangeRequest,
        change: KeyChange,
        now: Timestamp,
    ) -> Self {
        let reason = request.reason.as_deref();
        Self {
            actor,
            request,
            audit_record: Change {
                dry_run: request.dry_run,
                ..audit_record(change, reason, now)
            },
            change,
            by: Attribution {
                actor: actor.to_string().into(),
                reason: reason.unwrap_or_default().into(),
            },
        }
    }

    async fn apply_and_answer(
        &self,
        state: &AdminState,
        now: Timestamp,
    ) -> Result<KeyChanged, ProblemDetails> {
        let (ruleset, request) = (state.gateway.ruleset(), self.request);
        let key = find(&ruleset, &request.policy, &request.key)?;
        if request.key.may_be_id() && !key.state(now).await.map_err(store_problem)?.is_known() {
            return Err(id_problem());
        }
        let changed = self.apply(state, &key).await.map_err(change_problem)?;
        let also = if request.all_policies {
            self.apply_elsewhere(state, &ruleset, &key).await
        } else {
            Vec::new()
        };
        Ok(KeyChanged {
            effect: effect(
                self.change,
                &changed,
                &refusals(state, once(&key), now).await?[0],
                now,
            ),
            note: self.note(state, &changed, &also),
            before: changed.before,
            after: changed.after,
            also,
        })
    }

    /// Changes a key of one policy, and audits that.
    async fn apply(
        &self,
        state: &AdminState,
        key: &PolicyKey<'_>,
    ) -> Result<ChangedKey, KeyChangeError> {
        let execution = Execution::of(self.request.dry_run);
        // The calls for other policies may have taken a while.
        let now = state.clock.now();
        let result = key.change(self.change, &self.by, execution, now).await;
        let change = Change {
            policy: Some(&key.policy().name),
            key_id: Some(key.fingerprint().to_string()),
            owner: self.owner(state, key),
            ..self.audit_record.clone()
        };
        audit::log(state, self.actor, change, &result_text(execution, &result));
        result
    }

    /// The owner of the key; of one that was not refused lately, its text as the caller gave it.
    fn owner(&self, state: &AdminState, key: &PolicyKey<'_>) -> KeyOwner {
        let known = KeyOwner::find(&state.gateway, key.policy(), key.fingerprint());
        let is_readable = state.gateway.activity.key_form() == KeyForm::Readable;
        let given = is_readable.then(|| self.request.key.clone());
        KeyOwner {
            key: known.key.or(given),
            ..known
        }
    }

    /// Changes the key in the other policies whose keys have the same parts, or are of the client alone,
    /// up to one whose store does not answer.
    async fn apply_elsewhere(
        &self,
        state: &AdminState,
        ruleset: &Ruleset,
        first: &PolicyKey<'_>,
    ) -> Vec<OtherPolicy> {
        let others = ruleset.policies.iter();
        let others = others.filter(|policy| *policy.name != *self.request.policy);
        let mut results = Vec::new();
        let has_client = |policy: &Policy| policy.key_parts.iter().any(|part| part == "client");
        let is_alike = |policy: &&Arc<Policy>| match &self.request.key {
            // Those by a column alone are of others, too.
            Key::Client { .. } => has_client(policy),
            Key::Any { .. } if has_client(first.policy()) => has_client(policy),
            _ => policy.key_parts == first.policy().key_parts,
        };
        for policy in others.filter(is_alike) {
            // One that no route uses has no keys.
            let Ok(key) = self.request.key.of(ruleset, policy) else {
                continue;
            };
            let result = self.apply(state, &key).await;
            let is_over = matches!(result, Err(KeyChangeError::Store(SteeringError::Store(_))));
            results.push(OtherPolicy {
                policy: Arc::clone(&policy.name),
                result: result_text(Execution::of(self.request.dry_run), &result),
            });
            if is_over {
                break;
            }
        }
        results
    }

    /// A doubt about the key, what the change replaces, the ban that it leaves in force, its end at a
    /// restart, and the policies that it fails in.
    fn note(
        &self,
        state: &AdminState,
        changed: &ChangedKey,
        also: &[OtherPolicy],
    ) -> Option<String> {
        let success: &str = Execution::of(self.request.dry_run).into();
        let failed = also.iter().filter(|one| one.result != success);
        let failed = failed.map(|one| format!("not in {}: {}", one.policy, one.result));
        let notes = [
            unknown_key(&changed.before),
            changed.replaced.clone(),
            remaining_ban(self.change, &changed.after),
            end_at_restart(self.change, &changed.after, state),
        ];
        let notes: Vec<_> = notes.into_iter().flatten().chain(failed).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// The result of a change, as the audit log has it.
pub(super) fn result_text<T>(execution: Execution, result: &Result<T, impl Display>) -> String {
    match result {
        Ok(_) => <&str>::from(execution).to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The answer to a failed change. It is marked as logged, since the audit log has it.
fn change_problem(error: KeyChangeError) -> ProblemDetails {
    let problem = match error {
        KeyChangeError::Impossible(why) => ProblemDetails::impossible(why),
        KeyChangeError::Store(error) => change_store_problem(error),
    };
    problem.logged()
}

/// The answer to a change that the store does not take.
pub(super) fn change_store_problem(error: SteeringError) -> ProblemDetails {
    match error {
        SteeringError::Store(_) => ProblemDetails::unavailable(format!(
            "{error}: the change may have been made or not; repeat it"
        )),
        SteeringError::TooManyKeys(_) => store_problem(error),
    }
}

/// A note on a key of which nothing was stored.
fn unknown_key(before: &KeyState) -> Option<String> {
    let is_unknown = !before.is_known() && !before.exempt;
    is_unknown.then(|| "nothing was stored of this key before: is it mistyped, or idle?".to_owned())
}

/// A note on the ban that a change leaves in force.
fn remaining_ban(change: KeyChange, after: &KeyState) -> Option<String> {
    let leaves_bans = matches!(change, KeyChange::Reset | KeyChange::Grant { .. });
    let ban = after.ban.as_ref().filter(|_| leaves_bans)?;
    let until = &ban.until;
    Some(format!(
        "the key stays banned until {until}: `unban` lifts the ban"
    ))
}

/// A note on a ban or a grant that a restart ends.
fn end_at_restart(change: KeyChange, after: &KeyState, state: &AdminState) -> Option<String> {
    let lasts = matches!(
        change,
        KeyChange::Ban { .. } | KeyChange::Grant { units: 1.., .. }
    );
    let is_lost = after.store == "memory" && !state.reloads.running().saves_buckets;
    let note = "a restart ends it: `store.memory.snapshot` isn't set";
    (lasts && is_lost).then(|| note.to_owned())
}

/// The effects of a change: on requests that wait, and those that were refused lately.
fn effect(
    change: KeyChange,
    changed: &ChangedKey,
    refused: &Refusals,
    now: Timestamp,
) -> Vec<String> {
    let (waiting, after) = (changed.before.waiting, &changed.after);
    let granted = after.granted.as_ref().map_or(0, |grant| grant.units);
    let room = after.remaining.saturating_add(granted.into()) as usize;
    let waiting_text = match (change, after.allowed) {
        (KeyChange::Ban { .. }, _) => format!("{waiting} waiting requests are limited"),
        (_, true) => format!("{} of {waiting} waiting requests pass", waiting.min(room)),
        (_, false) => format!("none of {waiting} waiting requests pass"),
    };
    let (requests, seconds) = (refused.requests, refused.counted_s.round());
    let refused_text = format!("limited {requests} of its requests in the last {seconds} s");
    let texts = [(waiting > 0, waiting_text), (requests > 0, refused_text)];
    let texts = texts.into_iter().filter(|(applies, _)| *applies);
    let texts = texts.map(|(_, text)| text);
    texts
        .chain(duration_of_grant(change, after, refused, now))
        .collect()
}

/// The time for which granted units last, if that ends before the grant: at the rate of the requests
/// that were refused lately, which take one unit each.
fn duration_of_grant(
    change: KeyChange,
    after: &KeyState,
    refused: &Refusals,
    now: Timestamp,
) -> Option<String> {
    let KeyChange::Grant { units, until } = change else {
        return None;
    };
    let counted_s = refused.first_s?.min(refused.counted_s).max(10.0);
    let per_s = refused.requests as f64 / counted_s;
    let (lasts_s, grant_s) = (f64::from(units) / per_s, until.since(now).as_secs_f64());
    let is_short = units > 0 && after.unit == "requests" && lasts_s < grant_s;
    let lasts = Span(Duration::from_secs_f64(lasts_s.round().min(grant_s)));
    let needed = (per_s * grant_s).ceil();
    is_short.then(|| {
        format!(
            "at the present rate {units} last about {lasts}; to last until the end takes {needed}"
        )
    })
}

/// The change, of no key so far, for the audit log.
fn audit_record(change: KeyChange, reason: Option<&str>, now: Timestamp) -> Change<'_> {
    match change {
        KeyChange::Reset => Change::new(Action::Reset, reason),
        KeyChange::Unban => Change::new(Action::Unban, reason),
        KeyChange::Grant { units, until } => Change {
            units: Some(units),
            until: Some(rfc_3339(until)),
            ..Change::new(Action::Grant, reason)
        },
        KeyChange::Ban { until } => Change {
            until: Some(rfc_3339(until)),
            for_s: Some(until.since(now).as_secs_f64()),
            ..Change::new(Action::Ban, reason)
        },
    }
}
