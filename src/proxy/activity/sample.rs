//! Samples of refusals: a few for each worker and second.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint};
use crate::proxy::admission::{Admission, AdmissionInputs};

/// The most samples of a worker between two looks at them.
const MOST: usize = 4;

/// One refusal.
#[derive(Clone, Debug)]
pub struct RefusalSample {
    /// The instant of the decision.
    pub at: Timestamp,
    /// The policy that refuses.
    pub policy: Arc<str>,
    /// The route.
    pub route: Arc<str>,
    /// The key of the bucket; `None` if the request lacks its key.
    pub key: Option<Fingerprint>,
    /// The instant at which the same request is allowed, if it ever is.
    pub retry_at: Option<Timestamp>,
    /// True if the policy refuses because the key is banned.
    pub is_banned: bool,
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
        self.taken.push(RefusalSample {
            at: inputs.now,
            policy: Arc::clone(name),
            route: Arc::clone(&inputs.route.name),
            key: logged.key,
            retry_at: logged.decision.and_then(Decision::retry_at),
            is_banned: admission.is_ban(),
        });
    }

    pub(super) fn append(&mut self, other: Self) {
        self.taken.extend(other.taken);
        self.omitted += other.omitted;
    }
}
