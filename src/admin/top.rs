//! The keys with the highest counts over the last minutes. The text of a key is answered only if the
//! configuration allows it.

use std::sync::Arc;

use axum::extract::State;
use http::Uri;
use serde::Serialize;
use serde_json::{Value, json};
use strum::VariantNames;
use tokio::task::spawn_blocking;

use super::json::Json;
use super::problem_details::ProblemDetails;
use super::query::{number, parameters, word};
use super::{AdminState, policies};
use crate::proxy::Ruleset;
use crate::proxy::activity::{KeyRecord, Measure, TopRow, Window};
use crate::rules::{PartText, PartValue};
use crate::telemetry::access_log::KeyForm;

/// The most rows of an answer.
const MOST: usize = 100;
/// The rows of an answer, unless the question says another number.
const USUAL: usize = 20;

#[derive(Serialize)]
pub(super) struct TopAnswer {
    by: &'static str,
    window: &'static str,
    /// The time over which the counts were counted.
    counted_s: f64,
    /// The form of the keys: `hashed` or `readable`.
    keys: &'static str,
    items: Vec<TopItem>,
}

#[derive(Serialize)]
struct TopItem {
    /// From 1.
    rank: usize,
    policy: Arc<str>,
    key_id: String,
    /// The key as `/v1/keys/lookup` takes it; `None` unless texts are allowed.
    key: Option<Value>,
    limited: Option<u64>,
    requests: Option<u64>,
    units: Option<u64>,
    error_bound: u64,
}

/// A question.
#[derive(Debug, PartialEq)]
struct TopQuery {
    by: Measure,
    window: Window,
    policy: Option<String>,
    limit: usize,
}

pub(super) async fn top(
    State(state): State<AdminState>,
    uri: Uri,
) -> Result<Json<TopAnswer>, ProblemDetails> {
    let query = TopQuery::read(uri.query())?;
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let policy = match &query.policy {
        Some(name) => Some(policies::find(&ruleset, name)?.mark),
        None => None,
    };
    // Adding up full windows takes milliseconds.
    let answer = spawn_blocking(move || {
        let activity = state.gateway.activity();
        let top = activity.top(query.by, query.window, policy, query.limit, now);
        let form = activity.key_form();
        let rows = top.rows.into_iter();
        let items = rows.filter_map(|row| TopItem::new(&ruleset, row, form));
        let mut items: Vec<_> = items.collect();
        for (rank, item) in (1..).zip(&mut items) {
            item.rank = rank;
        }
        TopAnswer {
            by: query.by.into(),
            window: query.window.into(),
            counted_s: top.counted.as_millis() as f64 / 1_000.0,
            keys: match form {
                KeyForm::Hashed => "hashed",
                KeyForm::Readable => "readable",
            },
            items,
        }
    });
    answer.await.map(Json).map_err(ProblemDetails::internal)
}

impl TopQuery {
    /// # Errors
    /// 400 for an unknown or repeated parameter, or a value that is not allowed.
    fn read(query: Option<&str>) -> Result<Self, ProblemDetails> {
        let known = ["by", "window", "policy", "limit"];
        let [by, window, policy, limit] = parameters(query, known)?;
        Ok(Self {
            by: word("by", by.as_deref(), Measure::VARIANTS)?.unwrap_or(Measure::Limited),
            window: word("window", window.as_deref(), Window::VARIANTS)?.unwrap_or(Window::Minute),
            policy: policy.filter(|policy| !policy.is_empty()),
            limit: number("limit", limit.as_deref(), 1..=MOST)?.unwrap_or(USUAL),
        })
    }
}

impl TopItem {
    /// `None` for a key of a policy that a reload has removed.
    fn new(ruleset: &Ruleset, row: TopRow, form: KeyForm) -> Option<Self> {
        let mut policies = ruleset.policies.iter();
        let policy = policies.find(|policy| policy.mark == row.record.policy)?;
        Some(Self {
            rank: 0,
            policy: Arc::clone(&policy.name),
            key_id: row.record.key.to_string(),
            key: match form {
                KeyForm::Hashed => None,
                KeyForm::Readable => readable(ruleset, &policy.name, &row.record),
            },
            limited: row.limited,
            requests: row.requests,
            units: row.units,
            error_bound: row.error,
        })
    }
}

/// The key as `/v1/keys/lookup` takes it. `None` if that would find another bucket: a reload may
/// have changed the parts of the key.
fn readable(ruleset: &Ruleset, policy: &str, record: &KeyRecord) -> Option<Value> {
    let parts = record.text.as_deref()?;
    let texts: Vec<PartText<'_>> = parts.iter().map(PartValue::as_text).collect();
    let found = ruleset.policy_key(policy, &texts).ok()?;
    if found.fingerprint() != record.key {
        return None;
    }
    let mut parts: Vec<Value> = texts
        .into_iter()
        .map(|text| match text {
            PartText::Value(value) => json!(value),
            PartText::StandIn { part, value } => json!({ part: value }),
            PartText::Missing => Value::Null,
        })
        .collect();
    match &parts[..] {
        [Value::String(_)] => parts.pop(),
        _ => Some(Value::Array(parts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_defaults() {
        let read = |text| TopQuery::read(Some(text)).ok();
        let usual = TopQuery {
            by: Measure::Limited,
            window: Window::Minute,
            policy: None,
            limit: USUAL,
        };
        assert_eq!(read(""), Some(usual));
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
