//! Applicability of a limit to a request: whether it applies, to which bucket, and at which quota.

use std::sync::Arc;

use http::StatusCode;

use crate::limiter::{Demand, Fingerprint, Secret};
use crate::proxy::admission::mode::{Enforcement, Mode};
use crate::proxy::answers::action::Action;
use crate::proxy::answers::rejection::Rejection;
use crate::proxy::ruleset::{Limit, Overflow, Quota};
use crate::rules::{Exception, Head, Key, KeyFault, KeyPart};
use crate::store::{ChargeId, OnStoreError, Penalties};
use crate::telemetry::metrics::LimitDecision;

/// The result of matching a request against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applicability {
    /// The limit applies, and charges this bucket: the policy's own, or that of the override at
    /// this place.
    Bucket(Fingerprint, Option<u32>),
    /// The limit's conditions exclude the request.
    Elsewhere,
    /// The client or value is exempt.
    Exempt,
    /// The request lacks the key, and the limit skips such requests.
    Skipped,
    /// The request lacks the key or states different values for it, and the limit refuses such
    /// requests: the policy, or the override at this place.
    Keyless(Option<u32>),
}

impl Applicability {
    /// The place of the override that the request is under, if it is under one.
    pub(crate) fn place(self) -> Option<u32> {
        match self {
            Self::Bucket(_, place) | Self::Keyless(place) => place,
            Self::Elsewhere | Self::Exempt | Self::Skipped => None,
        }
    }
}

impl Limit {
    /// Matches the request against this limit.
    pub(crate) fn evaluate(&self, head: &Head<'_>) -> Applicability {
        let spec = &self.spec;
        if *self.policy.mode.current() == Mode::Disabled {
            return Applicability::Elsewhere;
        }
        if spec.when.as_ref().is_some_and(|when| !when.applies(head)) {
            return Applicability::Elsewhere;
        }
        let exceptions = spec.exceptions.as_ref();
        let place = match exceptions.and_then(|exceptions| exceptions.find(head)) {
            None => None,
            Some(Exception::Override(place)) => Some(place),
            Some(Exception::Exempt) => return Applicability::Exempt,
        };
        if self.ambiguous_part(head).is_some() {
            return Applicability::Keyless(place);
        }
        match spec.descriptor.fingerprint(&self.secret, head) {
            Key::Bucket(key) => Applicability::Bucket(key, place),
            Key::Skip => Applicability::Skipped,
            Key::Refuse => Applicability::Keyless(place),
        }
    }

    /// The part of the body that the limit reads, and of which upstreams may find different values.
    #[inline]
    fn ambiguous_part(&self, head: &Head<'_>) -> Option<&KeyPart> {
        let body = head.body.filter(|_| !self.body_parts.is_empty())?;
        let mut parts = self.body_parts.iter();
        parts.find(|part| body.is_ambiguous(part))
    }

    /// The part for which the limit refuses a request without a bucket.
    pub(crate) fn fault(&self, head: &Head<'_>) -> Option<KeyFault<'_>> {
        let ambiguous = self.ambiguous_part(head).map(KeyFault::Several);
        ambiguous.or_else(|| self.spec.descriptor.fault(head))
    }

    /// Returns true if the limit applies to requests that access rules deny with this status: if it
    /// counts such answers, or if it is a top-level one by the client's address. Another key is only
    /// claimed: its owner would pay for guesses.
    pub(crate) fn counts_denied(&self, status: StatusCode) -> bool {
        let is_counted = match &self.spec.settlement {
            Some(settlement) => settlement.counts_denial(status.as_u16()),
            None => self.spec.is_top_level && self.spec.descriptor.is_by_address(),
        };
        is_counted && !self.policy.quota.algorithm().is_concurrency()
    }

    /// The effect of the limit's decision on a request, under the override at this place.
    #[inline]
    pub(crate) fn enforcement(&self, place: Option<u32>, head: &Head<'_>) -> Enforcement {
        let descriptor = &self.spec.descriptor;
        self.enforcement_of(place, |secret| descriptor.whole_fingerprint(secret, head))
    }

    /// Like [`enforcement`](Self::enforcement), for a key whose fingerprint under a secret is `hash`. The
    /// mode that an operator has set goes before that of the override.
    #[inline]
    pub(crate) fn enforcement_of(
        &self,
        place: Option<u32>,
        hash: impl FnOnce(&Secret) -> Option<Fingerprint>,
    ) -> Enforcement {
        let mode = &self.policy.mode;
        let own = place.and_then(|place| self.policy.override_at(place).enforcement);
        match (mode.chosen(), own) {
            (None, Some(own)) => own,
            (chosen, _) => chosen.unwrap_or(&mode.configured).enforcement(hash),
        }
    }

    /// The policy's quota, or that of the override at this place.
    pub(crate) fn quota(&self, place: Option<u32>) -> &Quota {
        let own = place.and_then(|place| self.policy.override_at(place).quota.as_ref());
        own.unwrap_or(&self.policy.quota)
    }

    /// The units that a request of this cost needs, under the override at this place. It has to leave
    /// the rest of a larger burst, or of a limit above the one that its head states.
    #[inline]
    pub(crate) fn demand(&self, place: Option<u32>, head: Option<&Head<'_>>, cost: u32) -> Demand {
        let (cost, required) = match self.unreserved() {
            0 => (cost, 0),
            _ => (0, cost),
        };
        let kept = match &self.quota(place).stated {
            Some(stated) => head.map_or(0, |head| stated.kept(head)),
            None => place.map_or(0, |place| self.policy.override_at(place).kept),
        };
        Demand {
            cost,
            required,
            kept,
        }
    }

    /// The units that only the response charges.
    pub(crate) fn unreserved(&self) -> u32 {
        let settlement = self.spec.settlement.as_ref();
        settlement.and_then(|rule| rule.unreserved).unwrap_or(0)
    }

    /// Action and rejections of the soft limit or the override of a charge.
    #[inline]
    fn refusal(&self, id: ChargeId) -> Option<&(Action, Arc<Rejection>)> {
        match (self.soft_limit(id), id.place) {
            (Some(soft), _) => Some(&soft.refusal),
            (None, place) => self.policy.override_at(place?).refusal.as_deref(),
        }
    }

    /// The action on requests beyond the quota or the soft limit of a charge.
    #[inline]
    pub(crate) fn action(&self, id: ChargeId) -> &Action {
        self.refusal(id)
            .map_or(&self.policy.action, |(action, _)| action)
    }

    /// The word for a request beyond the quota or the soft limit of a charge that is forwarded
    /// nevertheless.
    pub(crate) fn forwarded_word(&self, id: ChargeId, effect: Enforcement) -> LimitDecision {
        match (effect, self.action(id)) {
            (Enforcement::Shadowed, _) => LimitDecision::Shadowed,
            (Enforcement::Enforced, Action::Route(_)) => LimitDecision::Routed,
            (Enforcement::Enforced, _) => LimitDecision::Tagged,
        }
    }

    /// The word for what the limit did to a request whose store does not answer.
    pub(crate) fn word_without_store(
        &self,
        id: ChargeId,
        on_error: OnStoreError,
        effect: Enforcement,
    ) -> LimitDecision {
        match on_error {
            OnStoreError::Refuse if self.policy.action.forwards() => {
                self.forwarded_word(id, effect)
            }
            _ => LimitDecision::Error,
        }
    }

    /// The rejections of this quota, or of the soft limit of a charge.
    pub(crate) fn rejection<'a>(&'a self, id: ChargeId, quota: &'a Quota) -> &'a Rejection {
        self.refusal(id)
            .map_or(&*quota.rejection, |(_, rejection)| rejection)
    }

    /// Responses may tell clients of the limit of a charge.
    #[inline]
    pub(crate) fn is_disclosed(&self, id: ChargeId) -> bool {
        self.policy.is_announced && !self.action(id).is_decoy()
    }

    /// The name of the policy, or of the soft limit that a charge exceeds.
    pub(crate) fn name(&self, id: ChargeId) -> &Arc<str> {
        self.soft_limit(id)
            .map_or(&self.policy.name, |soft| &soft.name)
    }

    /// The quota of the policy, of the override, or of the overflow tier that decides.
    pub(crate) fn chosen(&self, id: ChargeId) -> &Quota {
        match self.overflow(id) {
            None => self.quota(id.place),
            Some(overflow) => &overflow.quota,
        }
    }

    /// The overflow tier; `None` for the first bucket.
    pub(crate) fn overflow(&self, id: ChargeId) -> Option<&Overflow> {
        let first = self.quota(id.place).overflow.as_deref();
        let tiers = std::iter::successors(first, |tier| tier.quota.overflow.as_deref());
        tiers.take(id.tier.into()).last()
    }

    /// The key to ban for a request that charges `key`: the same on all machines that share bans.
    pub(crate) fn ban_key(
        &self,
        penalties: &Penalties,
        head: &Head<'_>,
        key: Fingerprint,
    ) -> Fingerprint {
        let descriptor = &self.spec.descriptor;
        match penalties
            .secret()
            .map(|secret| descriptor.fingerprint(&secret, head))
        {
            Some(Key::Bucket(ban_key)) => ban_key,
            _ => key,
        }
    }
}
