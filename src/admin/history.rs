//! `GET /v1/history`: what became of requests in the last hour, and what policies decided, in steps
//! of 10 s.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::{Json, Rfc3339};
use super::per_label::PerDecision;
use super::policies;
use super::problem_details::ProblemDetails;
use super::problems::problems;
use super::query::Query;
use super::state::AdminState;
use super::totals::{Totals, made, rounded};
use super::traffic_history::{MAX_STEPS, Step, StepCounts};

/// The time between two steps.
const STEP: Duration = Duration::from_secs(10);
/// The most policies of a step, those that decide most: an hour of them takes 3.2 MB.
const MAX_POLICIES: usize = 100;

/// Makes steps from the counts of two instants.
#[derive(Default)]
pub(super) struct HistorySource {
    before: Option<Totals>,
}

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

impl HistorySource {
    /// Adds a step if one has passed.
    pub(super) fn sample(&mut self, state: &AdminState) {
        let now = state.clock.now();
        let before = self.before.get_or_insert_with(|| Totals {
            at: now,
            ..Totals::default()
        });
        if now.since(before.at) < STEP {
            return;
        }
        let ruleset = state.gateway.ruleset();
        let totals = Totals::of(&ruleset, now);
        let policies = made(before, &totals).map(|(name, made)| (Arc::clone(name), made.into()));
        let mut policies: Vec<(_, PerDecision<u64>)> = policies.collect();
        policies.sort_unstable_by_key(|(_, made)| Reverse(made.0.iter().sum::<u64>()));
        policies.truncate(MAX_POLICIES);
        let counts = StepCounts {
            at: Rfc3339(now),
            seconds: rounded(now.since(before.at).as_secs_f64()),
            requests: totals.requests_since(before).outcomes.into(),
            problems: problems(state, &ruleset).len(),
        };
        let step = Step { counts, policies };
        if let Some(before) = self.before.replace(totals) {
            state.history.add(step, before);
        }
    }
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
