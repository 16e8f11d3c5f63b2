//! What a limit makes of a request before any bucket is asked: whether it applies, whose bucket is meant, and
//! at which of its quotas.

use crate::limiter::{Fingerprint, Secret};
use crate::proxy::ruleset::{Limit, Overflow, Policy};
use crate::rules::{Exception, Head, Key};

/// A limit that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applicability {
    /// This bucket is to be charged.
    Bucket(Fingerprint, PolicyChoice),
    /// The limit is for other requests.
    Elsewhere,
    /// Whoever sent it is exempt.
    Exempt,
    /// It does not apply without its key.
    Skipped,
    /// It refuses: its key is missing, or given with different values.
    Keyless,
}

/// Which quota of a policy holds: its own, or that of the override at this place; and which of its buckets is asked,
/// the first or one that requests overflow into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyChoice {
    place: Option<u32>,
    tier: u8,
}

impl Limit {
    /// What the limit makes of this request.
    pub(crate) fn evaluate(&self, secret: &Secret, head: &Head<'_>) -> Applicability {
        let spec = &self.spec;
        if spec.when.as_ref().is_some_and(|when| !when.applies(head)) {
            return Applicability::Elsewhere;
        }
        let exceptions = spec.exceptions.as_ref();
        let place = match exceptions.and_then(|exceptions| exceptions.find(head)) {
            None => None,
            Some(Exception::Override(place)) => u32::try_from(place).ok(),
            Some(Exception::Exempt) => return Applicability::Exempt,
        };
        let chosen = PolicyChoice { place, tier: 0 };
        let secret = self.secret.as_ref().unwrap_or(secret);
        match spec.descriptor.fingerprint(secret, head) {
            Key::Bucket(key) => Applicability::Bucket(key, chosen),
            Key::Skip => Applicability::Skipped,
            Key::Refuse => Applicability::Keyless,
        }
    }

    /// The policy, or what stands in its place for whom it makes an exception of; or what that overflows into.
    pub(crate) fn chosen(&self, chosen: PolicyChoice) -> &Policy {
        match self.overflow(chosen) {
            None => self.first(chosen),
            Some(overflow) => &overflow.policy,
        }
    }

    fn first(&self, chosen: PolicyChoice) -> &Policy {
        match chosen.place {
            None => &self.policy,
            Some(place) => &self.policy.overrides[place as usize],
        }
    }

    /// The further bucket that is asked; `None` while it is the first.
    pub(crate) fn overflow(&self, chosen: PolicyChoice) -> Option<&Overflow> {
        let first = self.first(chosen).overflow.as_deref();
        let tiers = std::iter::successors(first, |tier| tier.policy.overflow.as_deref());
        tiers.take(chosen.tier.into()).last()
    }

    /// The bucket to ask after this one, if there is any.
    pub(crate) fn after(&self, chosen: PolicyChoice) -> Option<PolicyChoice> {
        let next = PolicyChoice {
            tier: chosen.tier + 1,
            ..chosen
        };
        self.chosen(chosen).overflow.as_ref().map(|_| next)
    }
}
