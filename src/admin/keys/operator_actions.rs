//! The bans and grants of operators: a page of them, and the end of one by its id in that list.

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::spawn;
use tokio::task::spawn_blocking;

use super::change::{change_store_problem, result_text};
use super::owner::KeyOwner;
use crate::admin::actor::Actor;
use crate::admin::audit::{self, Action, Change};
use crate::admin::json::{Json, Reason};
use crate::admin::policies;
use crate::admin::problem_details::ProblemDetails;
use crate::admin::query::Query;
use crate::admin::state::AdminState;
use crate::limiter::Fingerprint;
use crate::proxy::inspect::key::Execution;
use crate::proxy::inspect::operator_actions::{
    self, ActionPage, ListPlace, ListedAction, operator_actions,
};
use crate::store::OperatorActionKind;

/// The page of a list.
#[derive(Deserialize, JsonSchema)]
#[serde(default)]
pub(in crate::admin) struct ListQuery {
    /// Bans and grants of this policy only.
    policy: Option<String>,
    /// The `next` of another page.
    #[schemars(regex(pattern = r"^[0-9]{1,16}\.[0-9a-f]{16}\.(ban|grant)\..*$"))]
    after: Option<String>,
    /// The most items of the page.
    #[schemars(range(min = 1, max = 1_000))]
    limit: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            policy: None,
            after: None,
            limit: 100,
        }
    }
}

/// The end of a ban or a grant, named by its id in the list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// The policy.
    #[schemars(length(min = 1))]
    pub policy: String,
    /// The id of the key in `/v1/keys`.
    #[schemars(regex(pattern = "^k_[0-9a-f]{16}$"))]
    pub id: String,
    /// The change that ends.
    pub what: OperatorActionKind,
    /// Why, for the audit log.
    pub reason: Option<Reason>,
    /// Computes the answer and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A ban or a grant that has ended.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// The ban or the grant as it was.
    pub revoked: ListedAction,
}

pub(in crate::admin) async fn list(
    State(state): State<AdminState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ActionPage>, ProblemDetails> {
    let ListQuery {
        policy,
        after,
        limit,
    } = query;
    let after = after.map(|after| after.parse()).transpose();
    let after: Option<ListPlace> =
        after.map_err(|()| ProblemDetails::malformed("`after` is the `next` of another page"))?;
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    if let Some(name) = &policy {
        policies::find(&ruleset, name)?;
    }
    // A policy may have 65,536 of them.
    let page = spawn_blocking(move || {
        let is_asked = |name: &str| policy.as_deref().is_none_or(|policy| *policy == *name);
        let policies = ruleset.policies.iter().filter(|one| is_asked(&one.name));
        operator_actions(policies, after.as_ref(), limit, now)
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
        ProblemDetails::impossible(detail)
    })?;
    let execution = Execution::of(request.dry_run);
    let asked = (key, request.what);
    let revoked = operator_actions::revoke(policy, asked, execution, state.clock.now()).await;
    let (action, units) = match request.what {
        OperatorActionKind::Ban => (Action::Unban, None),
        OperatorActionKind::Grant => (Action::Grant, Some(0)),
    };
    let change = Change {
        policy: Some(&request.policy),
        key_id: Some(key.to_string()),
        owner: KeyOwner::find(&state.gateway, policy, key),
        units,
        dry_run: request.dry_run,
        ..Change::new(action, request.reason.as_deref())
    };
    let result = match &revoked {
        Ok(None) => "unknown".to_owned(),
        result => result_text(execution, result),
    };
    audit::log(state, actor, change, &result);
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
