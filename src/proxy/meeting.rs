//! What a limit makes of a request before any bucket is asked: whether it applies, whose bucket is meant, and
//! at which of its quotas.

use super::snapshot::{Limit, Policy};
use crate::limiter::{Fingerprint, Secret};
use crate::rules::{Exception, Head, Key};

/// A limit that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// This bucket is to be charged.
    Bucket(Fingerprint, Chosen),
    /// The limit is for other requests.
    Elsewhere,
    /// Whoever sent it is exempt.
    Exempt,
    /// It does not apply without its key.
    Skipped,
    /// It refuses: its key is missing, or given with different values.
    Keyless,
}

/// Which quota of a policy holds: its own, or that of the override at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen(Option<u16>);

impl Limit {
    /// What the limit makes of this request.
    pub(super) fn meet(&self, secret: &Secret, head: &Head<'_>) -> Meeting {
        if self.when.as_ref().is_some_and(|when| !when.applies(head)) {
            return Meeting::Elsewhere;
        }
        let exceptions = self.exceptions.as_ref();
        let chosen = match exceptions.and_then(|exceptions| exceptions.find(head)) {
            None => Chosen(None),
            Some(Exception::Override(place)) => Chosen(u16::try_from(place).ok()),
            Some(Exception::Exempt) => return Meeting::Exempt,
        };
        match self.descriptor.fingerprint(secret, head) {
            Key::Bucket(key) => Meeting::Bucket(key, chosen),
            Key::Skip => Meeting::Skipped,
            Key::Refuse => Meeting::Keyless,
        }
    }

    /// The policy, or what stands in its place for whom it makes an exception of.
    pub(super) fn chosen(&self, chosen: Chosen) -> &Policy {
        match chosen.0 {
            None => &self.policy,
            Some(place) => &self.policy.overrides[usize::from(place)],
        }
    }
}
