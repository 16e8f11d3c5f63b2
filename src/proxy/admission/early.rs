//! Limits that need less decide first: if one of them refuses, no token is verified, and no body is
//! read.
//!
//! Limits in Redis decide after the token is verified, in one call. Only a refusal of Redis that
//! this process remembers decides earlier, unless a limit without claims charges refusals. Before a
//! body is read, Redis is asked, too, except by limits that count refusals: those decide with the
//! others.
//!
//! These limits are peeked at, not charged, and only if the request's token is not in the cache, or
//! its body is still to come. The others have no decision on a request that is refused this way:
//! they are not charged, and neither header fields nor Retry-After speak of them.

use super::Admission;
use super::context::AdmissionInputs;
use crate::proxy::ruleset::Limit;
use crate::rules::InvalidCost;
use crate::store::{ChargeResult, PendingCharge, Refusals, Undecided};

/// The outcome of a look at the head.
pub(in crate::proxy) enum Early {
    /// A limit refuses the request.
    Refused,
    /// All limits have to decide.
    Open,
    /// The store is to be asked.
    Pending(Box<PendingCharge>),
}

impl AdmissionInputs<'_> {
    /// Refuses a request with an unknown token if limits without claims refuse it. Returns `false`
    /// if nothing is decided.
    ///
    /// # Errors
    /// As [`admit_in_memory`](super::context::admit_in_memory).
    pub(super) fn refuse_without_claims(
        &self,
        admission: &mut Admission,
    ) -> Result<bool, InvalidCost> {
        let token = self.head.token;
        let mut limits = self.route.limits_for(self.head).iter();
        if limits.all(|limit| limit.reads_token)
            || token.is_none_or(|token| token.is_known_without_signature())
        {
            return Ok(false);
        }
        self.refuse_by(admission, |limit| !limit.reads_token)
    }

    /// Refuses a request whose body is still to be read if limits that don't read it refuse.
    ///
    /// # Errors
    /// As [`admit_in_memory`](super::context::admit_in_memory).
    pub(in crate::proxy) fn refuse_by_head(
        &self,
        admission: &mut Admission,
    ) -> Result<Early, InvalidCost> {
        let is_known = |limit: &Limit| limit.body_parts.is_empty();
        let token = self
            .head
            .token
            .filter(|token| !token.is_known_without_signature());
        if token.is_some()
            && self.refuse_by(admission, |limit| is_known(limit) && !limit.reads_token)?
            || self.refuse_by(admission, is_known)?
        {
            return Ok(Early::Refused);
        }
        let mut set = self.empty_set();
        let counts = |limit: &Limit| {
            limit.policy.refusals == Refusals::Charged || limit.policy.penalties.is_some()
        };
        self.add_limits(&mut set, admission, |limit| {
            is_known(limit) && refuses_early(limit) && self.decides_later(limit) && !counts(limit)
        })?;
        set.skip_queues();
        let pending = set
            .is_remote()
            .then(|| set.peek(&mut admission.result))
            .flatten();
        Ok(pending.map_or(Early::Open, Early::Pending))
    }

    /// Refuses the request if some limits refuse it.
    fn refuse_by(
        &self,
        admission: &mut Admission,
        is_known: impl Fn(&Limit) -> bool,
    ) -> Result<bool, InvalidCost> {
        let mut set = self.empty_set();
        self.add_limits(&mut set, admission, |limit| {
            is_known(limit) && refuses_early(limit)
        })?;
        let is_refused = admission.keyless.is_some() || set.refuse(&mut admission.result);
        if is_refused {
            admission.conclude(self);
        }
        Ok(is_refused)
    }
}

/// A limit that lets requests wait for units decides with all others.
fn refuses_early(limit: &Limit) -> bool {
    limit.policy.turns.is_none()
}

impl Admission {
    /// Keeps the decision of the store on the head of a request if it is a refusal.
    pub(in crate::proxy) fn conclude_early(
        &mut self,
        decided: Result<(), Undecided>,
        inputs: &AdmissionInputs<'_>,
    ) -> bool {
        let is_refused = decided.is_ok() && self.is_refused();
        if is_refused {
            self.conclude(inputs);
        } else {
            self.result = ChargeResult::default();
        }
        is_refused
    }
}
