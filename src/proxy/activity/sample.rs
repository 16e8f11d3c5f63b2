//! Samples of refusals: a few for each worker and second.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::text::Rfc3339;
use crate::limiter::Decision;
use crate::proxy::admission::{Admission, AdmissionInputs};

/// The most samples of a worker between two looks at them.
const MOST: usize = 4;

/// A refused request.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RefusalSample {
    at: Rfc3339,
    /// The policy that refuses.
    pub policy: Arc<str>,
    /// The route of the request.
    route: Arc<str>,
    /// Null if the request lacks its key.
    pub key_id: Option<String>,
    /// Null if the same request is never allowed.
    retry_after_s: Option<f64>,
    /// True if a ban refuses the request, whatever its bucket has.
    banned: bool,
    /// Refusals before this one that are not in the stream.
    pub omitted: u64,
}

/// Samples of refusals.
#[derive(Debug, Default)]
pub struct RefusalSamples {
    /// The samples.
    pub taken: Vec<RefusalSample>,
    /// The refusals beside them.
    pub omitted: u64,
}

impl RefusalSamples {
    /// Takes a refusal, or counts it if there are enough.
    pub(super) fn note(&mut self, inputs: &AdmissionInputs<'_>, admission: &Admission) {
        let logged = admission.logged(inputs.route);
        let Some(name) = logged.name.filter(|_| self.taken.len() < MOST) else {
            self.omitted += 1;
            return;
        };
        let retry_at = logged.decision.and_then(Decision::retry_at);
        self.taken.push(RefusalSample {
            at: Rfc3339(inputs.now),
            policy: Arc::clone(name),
            route: Arc::clone(&inputs.route.name),
            key_id: logged.key.map(|key| key.to_string()),
            retry_after_s: retry_at.map(|at| at.since(inputs.now).as_millis() as f64 / 1_000.0),
            banned: admission.is_ban(),
            omitted: 0,
        });
    }

    pub(super) fn append(&mut self, other: Self) {
        self.taken.extend(other.taken);
        self.omitted += other.omitted;
    }
}
