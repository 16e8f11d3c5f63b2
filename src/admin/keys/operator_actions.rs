//! The bans and grants of operators: a page of them, and the end of one by its id in that list.

use axum::Extension;
use axum::extract::State;
use http::{StatusCode, Uri};
use serde::{Deserialize, Serialize};
use tokio::spawn;
use tokio::task::spawn_blocking;

use super::change::{change_store_problem, result_word};
use crate::admin::audit::{self, Action, Change, Extent, Target};
use crate::admin::auth::Actor;
use crate::admin::json::{Json, Reason};
use crate::admin::problem_details::ProblemDetails;
use crate::admin::query::{number, parameters};
use crate::admin::{AdminState, policies};
use crate::limiter::Fingerprint;
use crate::proxy::inspect::key::Execution;
use crate::proxy::inspect::operator_actions::{
    self, ActionPage, ListPlace, ListedAction, operator_actions,
};
use crate::store::OperatorActionKind;

/// The most items of a page.
const MOST: usize = 1_000;
/// The items of a page, unless the question says another number.
const USUAL: usize = 100;

/// The end of a ban or a grant, named by its id in the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct RevokeRequest {
    policy: String,
    id: String,
    what: OperatorActionKind,
    reason: Option<Reason>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
pub(in crate::admin) struct Revoked {
    /// The ban or the grant as it was.
    revoked: ListedAction,
}

pub(in crate::admin) async fn list(
    State(state): State<AdminState>,
    uri: Uri,
) -> Result<Json<ActionPage>, ProblemDetails> {
    let [policy, after, limit] = parameters(uri.query(), ["policy", "after", "limit"])?;
    let most = number("limit", limit.as_deref(), 1..=MOST)?.unwrap_or(USUAL);
    let after: Option<ListPlace> = match after {
        Some(after) => Some(after.parse().map_err(|()| {
            let detail = "`after` is the `next` of another page";
            ProblemDetails::new(StatusCode::BAD_REQUEST, detail)
        })?),
        None => None,
    };
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    if let Some(name) = &policy {
        policies::find(&ruleset, name)?;
    }
    // A policy may have 65,536 of them.
    let page = spawn_blocking(move || {
        let is_asked = |name: &str| policy.as_deref().is_none_or(|policy| *policy == *name);
        let policies = ruleset.policies.iter().filter(|one| is_asked(&one.name));
        operator_actions(policies, after.as_ref(), most, now)
    });
    page.await.map(Json).map_err(ProblemDetails::internal)
}

pub(in crate::admin) async fn revoke(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Json(request): Json<RevokeRequest>,
) -> Result<Json<Revoked>, ProblemDetails> {
    let made = spawn(async move { make(&state, &actor, &request).await });
    made.await.map_err(ProblemDetails::internal)?.map(Json)
}

async fn make(
    state: &AdminState,
    actor: &Actor,
    request: &RevokeRequest,
) -> Result<Revoked, ProblemDetails> {
    let ruleset = state.gateway.ruleset();
    let policy = policies::find(&ruleset, &request.policy)?;
    let key: Fingerprint = request.id.parse().map_err(|()| {
        let detail = "`id` is that of a ban or a grant in /v1/keys, such as k_5f0c1a2b3c4d5e6f";
        ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    })?;
    let execution = match request.dry_run {
        true => Execution::DryRun,
        false => Execution::Apply,
    };
    let asked = (key, request.what);
    let revoked = operator_actions::revoke(policy, asked, execution, state.clock.now()).await;
    let (action, units) = match request.what {
        OperatorActionKind::Ban => (Action::Unban, None),
        OperatorActionKind::Grant => (Action::Grant, Some(0)),
    };
    let change = Change {
        action,
        target: Target::Key {
            policy: &request.policy,
            key,
        },
        extent: Extent {
            units,
            ..Extent::default()
        },
        reason: request.reason.as_deref(),
        dry_run: request.dry_run,
    };
    let result = match &revoked {
        Ok(Some(_)) => result_word(request.dry_run).to_owned(),
        Ok(None) => "unknown".to_owned(),
        Err(error) => error.to_string(),
    };
    audit::log(state, actor, &change, &result);
    let revoked = revoked.map_err(|error| change_store_problem(error).logged())?;
    let revoked = revoked.ok_or_else(|| {
        let what: &str = request.what.into();
        let detail = format!(
            "policy `{}` has no {what} of the key {key} in force: /v1/keys lists them",
            policy.name
        );
        ProblemDetails::new(StatusCode::NOT_FOUND, detail).logged()
    })?;
    Ok(Revoked { revoked })
}
