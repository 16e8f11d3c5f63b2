//! What a limit makes of a request before any bucket is asked: whether it applies, and whose bucket is meant.

use super::snapshot::Limit;
use crate::limiter::{Fingerprint, Secret};
use crate::rules::{Head, Key};

/// A limit that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// This bucket is to be charged.
    Bucket(Fingerprint),
    /// The limit is for other requests.
    Elsewhere,
    /// It does not apply without its key.
    Skipped,
    /// It refuses: its key is missing, or given with different values.
    Keyless,
}

impl Limit {
    /// What the limit makes of this request.
    pub(super) fn meet(&self, secret: &Secret, head: &Head<'_>) -> Meeting {
        if self.when.as_ref().is_some_and(|when| !when.applies(head)) {
            return Meeting::Elsewhere;
        }
        match self.descriptor.fingerprint(secret, head) {
            Key::Bucket(key) => Meeting::Bucket(key),
            Key::Skip => Meeting::Skipped,
            Key::Refuse => Meeting::Keyless,
        }
    }
}
