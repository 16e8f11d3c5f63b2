//! `GET /v1/top`: the keys with the highest counts over the last minutes. The text of a key is
//! included only with `admin.keys: readable`.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::json::Json;
use super::keys::owner::KeyOwner;
use super::policies;
use super::problem_details::ProblemDetails;
use super::query::Query;
use super::state::AdminState;
use crate::proxy::Ruleset;
use crate::proxy::activity::{KeyCounts, Measure, TopRow, Window};
use crate::telemetry::access_log::KeyForm;

/// The keys with the highest counts.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Top {
    /// The number that orders the keys.
    pub by: Measure,
    /// The window that was asked for.
    pub window: Window,
    /// The time over which keys were counted, in seconds: up to 10 s more than the window, or less if
    /// counting began later.
    pub counted_s: f64,
    /// admin.keys of the configuration.
    pub keys: KeyForm,
    /// The highest count first.
    #[schemars(length(max = 100))]
    pub items: Vec<TopItem>,
}

/// A key, and its counts.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopItem {
    /// The place in the list, from 1.
    #[schemars(range(min = 1))]
    pub rank: usize,
    /// The policy that the key belongs to.
    pub policy: Arc<str>,
    /// The name of the key in logs, on this machine.
    #[schemars(regex(pattern = "^k_[0-9a-f]{16}$"))]
    pub key_id: String,
    /// The text of the key, and who uses it.
    #[serde(flatten)]
    pub owner: KeyOwner,
    /// Its counts.
    #[serde(flatten)]
    pub counts: KeyCounts,
}

/// A question.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct TopQuery {
    /// The number that orders the keys.
    by: Measure,
    /// The time before now that counts.
    window: Window,
    /// Keys of this policy only.
    policy: Option<String>,
    /// The most keys.
    #[schemars(range(min = 1, max = 100))]
    limit: usize,
}

impl Default for TopQuery {
    fn default() -> Self {
        Self {
            by: Measure::Limited,
            window: Window::Minute,
            policy: None,
            limit: 20,
        }
    }
}

pub(super) async fn top(
    State(state): State<AdminState>,
    Query(query): Query<TopQuery>,
) -> Result<Json<Top>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let policy = match query.policy.as_deref() {
        None | Some("") => None,
        Some(name) => Some(policies::find(&ruleset, name)?.name_hash),
    };
    // Adding up full windows takes milliseconds.
    let answer = spawn_blocking(move || {
        let activity = &state.gateway.activity;
        let top = activity.top(query.by, query.window, policy, query.limit, now);
        Top {
            by: query.by,
            window: query.window,
            counted_s: top.counted.as_millis() as f64 / 1_000.0,
            keys: activity.key_form(),
            items: items(&ruleset, top.rows),
        }
    });
    answer.await.map(Json).map_err(ProblemDetails::internal)
}

/// The keys in their order, without those of policies that a reload has removed.
fn items(ruleset: &Ruleset, rows: Vec<TopRow>) -> Vec<TopItem> {
    let policy_of = |hash| ruleset.policies.iter().find(|one| one.name_hash == hash);
    let rows = rows.into_iter();
    let known = rows.filter_map(|row| Some((policy_of(row.record.policy)?, row)));
    let items = (1..).zip(known).map(|(rank, (policy, row))| TopItem {
        rank,
        policy: Arc::clone(&policy.name),
        key_id: row.record.key.to_string(),
        owner: KeyOwner::of(ruleset, policy, &row.record),
        counts: row.counts,
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::query;

    #[test]
    fn a_question_has_defaults() {
        let read = |text| query::read::<TopQuery>(text).ok();
        assert_eq!(read(""), Some(TopQuery::default()));
        let all = TopQuery {
            by: Measure::Units,
            window: Window::QuarterHour,
            policy: Some("a b".to_owned()),
            limit: 1,
        };
        assert_eq!(read("by=units&window=15m&policy=a+b&limit=1"), Some(all));
        for wrong in [
            "by=Units",
            "window=2m",
            "limit=0",
            "limit=101",
            "limit=x",
            "for=1",
            "by=units&by=units",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
