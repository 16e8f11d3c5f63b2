//! Applicability of a limit to a request: whether it applies, to which bucket, and at which quota.

use crate::limiter::{Fingerprint, Secret};
use crate::proxy::ruleset::{Limit, Overflow, Policy};
use crate::rules::{Exception, Head, Key};

/// The result of matching a request against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applicability {
    /// The limit applies, and charges this bucket.
    Bucket(Fingerprint, PolicyChoice),
    /// The limit's conditions exclude the request.
    Elsewhere,
    /// The client or value is exempt.
    Exempt,
    /// The request lacks the key, and the limit skips such requests.
    Skipped,
    /// The request lacks the key or states different values for it, and the limit refuses such
    /// requests.
    Keyless,
}

/// The quota that holds (the policy's own, or that of an override), and which of its buckets
/// decides: the first, or an overflow bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyChoice {
    place: Option<u32>,
    tier: u8,
}

impl Limit {
    /// Matches the request against this limit.
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

    /// The policy, the override, or the overflow tier that decides.
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

    /// The overflow tier; `None` for the first bucket.
    pub(crate) fn overflow(&self, chosen: PolicyChoice) -> Option<&Overflow> {
        let first = self.first(chosen).overflow.as_deref();
        let tiers = std::iter::successors(first, |tier| tier.policy.overflow.as_deref());
        tiers.take(chosen.tier.into()).last()
    }

    /// The next overflow tier, if there is one.
    pub(crate) fn after(&self, chosen: PolicyChoice) -> Option<PolicyChoice> {
        let next = PolicyChoice {
            tier: chosen.tier + 1,
            ..chosen
        };
        self.chosen(chosen).overflow.as_ref().map(|_| next)
    }
}
