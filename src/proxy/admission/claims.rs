//! Limits in memory that read no claim decide first: if one of them refuses, no token is verified.
//!
//! Limits in Redis decide after the token is verified, in one call. Only a refusal of Redis that
//! this process remembers decides earlier, unless a limit without claims charges refusals.
//!
//! These limits are peeked at, not charged, and only if the request's token is not in the cache.
//! Limits with claims have no decision on a request that is refused this way: they are not charged,
//! and neither header fields nor Retry-After speak of them.

use super::Admission;
use super::context::AdmissionInputs;
use crate::rules::InvalidCost;

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
        let mut set = self.empty_set();
        self.add_limits(&mut set, admission, |limit| !limit.reads_token)?;
        let is_refused = admission.keyless.is_some() || set.refuse(&mut admission.result);
        if is_refused {
            admission.conclude(self);
        }
        Ok(is_refused)
    }
}
