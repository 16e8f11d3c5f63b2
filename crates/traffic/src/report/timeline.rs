//! Counts over time.

use std::sync::Arc;

use limiter::Timestamp;
use readable::time::{Millis, rfc_3339};
use serde::Serialize;

use crate::tally::{OutcomeCounts, Tally};

/// Counts over time, in at most 120 parts.
#[derive(Debug, Serialize)]
pub(super) struct TimelineReport {
    /// The beginning of the first part.
    #[serde(skip)]
    pub start: Timestamp,
    pub from: String,
    /// The length of a part.
    pub step_ms: Millis,
    pub parts: Vec<OutcomeCounts>,
    /// Policies that limit requests, or would.
    pub policies: Vec<PolicyTimeline>,
}

/// The decisions of a policy over time; parts at the end may be absent.
#[derive(Debug, Serialize)]
pub(super) struct PolicyTimeline {
    pub policy: Arc<str>,
    pub limited: Vec<u64>,
    pub shadowed: Vec<u64>,
}

impl TimelineReport {
    /// `policies` are the names of all, in their order.
    pub(super) fn new<'a>(policies: impl Iterator<Item = &'a Arc<str>>, tally: &Tally) -> Self {
        let timeline = &tally.timeline;
        let policies = policies.enumerate().filter_map(|(place, policy)| {
            let column = |which: usize| -> Vec<u64> {
                let parts = timeline.parts().iter();
                let counts = parts.map(|part| part.policies.get(place).map_or(0, |one| one[which]));
                counts.map(u64::from).collect()
            };
            let (limited, shadowed) = (column(0), column(1));
            let is_told = limited.iter().chain(&shadowed).any(|count| *count > 0);
            is_told.then(|| PolicyTimeline {
                policy: Arc::clone(policy),
                limited,
                shadowed,
            })
        });
        Self {
            start: timeline.from(),
            from: rfc_3339(timeline.from()),
            step_ms: Millis(timeline.step()),
            parts: timeline.parts().iter().map(|part| part.all).collect(),
            policies: policies.collect(),
        }
    }
}
