//! Runs arrivals through policies on virtual time, for people who compare algorithms. Every policy
//! decides by itself about all arrivals, by the proxy's own code over a memory store of its own,
//! and shows its bucket after each decision.
//!
//! Time begins at 0, when every window of the clock begins. `request` reads what is asked,
//! `lane` decides.

mod lane;
mod request;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::clock::text::Millis;
use crate::config::Report;
use crate::proxy::inspect::cell::CellView;

pub use request::{MAX_ARRIVALS, PlayRequest};

use lane::Lane;
use request::Arrival;

/// The largest number of buckets that an answer shows of one policy, those after the last
/// decisions.
const MAX_CELLS: usize = 2_000;

/// The reason why nothing was decided.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The request is no JSON, or has unknown or ill-typed fields.
    #[error("{0}")]
    Malformed(serde_json::Error),
    /// The request asks for too much, or for what virtual time cannot decide.
    #[error("{0}")]
    Impossible(String),
    /// The policies are not valid.
    #[error("the policies are not valid")]
    Policies(Box<Report>),
}

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
    /// Units in a window, or units in use at once.
    pub limit_units: u64,
    /// The window of the quota; `null` for `concurrency`.
    window_ms: Option<Millis>,
    /// The most units that one instant can take.
    pub capacity_units: u64,
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
    pub remaining: u64,
    /// The time until the bucket is whole.
    reset_ms: Millis,
    /// The time until the same request is admitted; missing for ever, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<Millis>,
    /// The time for which a delayed request waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<Millis>,
    /// The bucket after the decision; left out of all but the last decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellView>,
}

/// Decides about the arrivals of a request, which is JSON.
///
/// # Errors
/// See [`PlayError`].
pub fn play(body: &[u8]) -> Result<Answer, PlayError> {
    let request: PlayRequest = serde_json::from_slice(body).map_err(PlayError::Malformed)?;
    let arrivals = request.arrivals()?;
    let (policies, settings) = request.policies()?;
    let from = request.from.min(arrivals.len());
    let lanes = policies.into_iter().map(Lane::new);
    let policies = lanes.map(|lane| lane.play(&arrivals, from));
    Ok(Answer {
        arrivals: arrivals.len(),
        from,
        policies: policies.collect(),
        settings,
    })
}

#[cfg(test)]
mod tests;
