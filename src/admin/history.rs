//! `GET /v1/history`: what became of requests in the last hour, and what policies decided, in steps
//! of 10 s.

use std::time::Duration;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::{Json, Rfc3339};
use super::per_label::PerDecision;
use super::policies;
use super::problem_details::ProblemDetails;
use super::problems;
use super::query::Query;
use super::state::AdminState;
use super::traffic_history::{MAX_STEPS, Step, StepCounts};

/// The time between two steps.
const STEP: Duration = Duration::from_secs(10);

/// The last hour.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct HistoryAnswer {
    /// The instant of the answer.
    now: Rfc3339,
    /// The time between two steps in seconds, while none is missing.
    step_s: u64,
    /// The steps, the oldest first. None is there of the time before the proxy's start, unless it took
    /// over from another process, and of a time in which it stood still.
    #[schemars(length(max = MAX_STEPS))]
    pub steps: Vec<StepAnswer>,
}

/// The counts up to an instant.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StepAnswer {
    #[serde(flatten)]
    pub counts: StepCounts,
    /// Decisions of the policy. Null without `policy`, and where 100 policies decided more.
    decisions: Option<PerDecision<u64>>,
}

/// The part of the history to read.
#[derive(Deserialize, JsonSchema)]
pub(super) struct HistoryQuery {
    /// Also the decisions of this policy.
    policy: Option<String>,
    /// The time before now, in seconds. Without it, the hour.
    #[schemars(range(min = 10, max = 3_600))]
    seconds: Option<u64>,
}

pub(super) async fn history(
    State(state): State<AdminState>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<HistoryAnswer>, ProblemDetails> {
    let policy = query.policy.as_deref().filter(|name| !name.is_empty());
    if let Some(name) = policy {
        policies::find(&state.gateway.ruleset(), name)?;
    }
    let span = query
        .seconds
        .map_or(u64::MAX, |seconds| seconds * 1_000_000);
    let now = state.clock.now();
    let since = now.saturating_sub_micros(span);
    let steps = state.history.read(|steps| {
        let recent = steps.iter().filter(|step| step.counts.at.0 > since);
        recent.map(|step| step.answer(policy)).collect()
    });
    Ok(Json(HistoryAnswer {
        now: Rfc3339(now),
        step_s: STEP.as_secs(),
        steps,
    }))
}

/// Ends a step of the history if its time has passed.
pub(super) fn sample(state: &AdminState) {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let problems = || problems::settle(state, &ruleset);
    state.history.end_step(&ruleset, now, STEP, problems);
}

impl Step {
    fn answer(&self, policy: Option<&str>) -> StepAnswer {
        let mut policies = self.policies.iter();
        let decided = policies.find(|(name, _)| Some(&**name) == policy);
        StepAnswer {
            counts: self.counts.clone(),
            decisions: decided.map(|(_, made)| *made),
        }
    }
}
