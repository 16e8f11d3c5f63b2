//! Runs arrivals through policies on virtual time, for people who compare algorithms. Every policy
//! decides by itself about all arrivals, by the proxy's own code over a memory store of its own,
//! and shows its bucket after each decision.
//!
//! Time begins at 0, when every window of the clock begins. `request` reads what is asked,
//! `answer` is what is told, `lane` decides.

mod answer;
mod lane;
mod request;

use crate::config::Report;

pub use answer::Answer;
pub use request::{MAX_ARRIVALS, PlayRequest};

use lane::Lane;

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
