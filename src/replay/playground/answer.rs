//! The answer: decisions, and buckets after them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::request::Arrival;
use crate::clock::text::Millis;
use crate::proxy::inspect::cell::CellView;

/// The decisions of all policies on all arrivals.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundAnswer")]
pub struct Answer {
    /// The number of arrivals.
    pub arrivals: usize,
    /// The first arrival whose decisions are told.
    pub from: usize,
    /// The policies, in the order of the request.
    pub policies: Vec<PolicyAnswer>,
    /// `policies` of the text, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
}

/// The decisions of one policy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PolicyAnswer {
    /// Its name.
    pub name: String,
    /// Its algorithm.
    pub algorithm: &'static str,
    /// Its quota, as configured.
    pub quota: String,
    /// The most units that one instant can take.
    pub capacity_units: u32,
    /// The bucket of a client that has not come yet, at the start.
    pub new_cell: CellView,
    /// A decision for each arrival from `from` on.
    pub decisions: Vec<DecisionRow>,
}

/// One decision; fields that do not apply are left out.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DecisionRow {
    /// The arrival.
    #[serde(flatten)]
    pub arrival: Arrival,
    /// The decision, in the words of the metrics.
    pub decision: &'static str,
    /// Units that remain after it.
    pub remaining: u32,
    /// The time until the bucket is whole.
    pub(super) reset_ms: Millis,
    /// The time until the same request is admitted; missing for ever, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_ms: Option<Millis>,
    /// The time for which a delayed request waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay_ms: Option<Millis>,
    /// The bucket after the decision; left out of all but the last decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellView>,
}
