//! Limits in memory that read no claim decide first: if one of them refuses, no token is verified.
//!
//! Limits in Redis decide after the token is verified, in one call. Only a refusal of Redis that
//! this process remembers decides earlier, unless a limit without claims charges refusals.
//!
//! These limits are peeked at, not charged, and only if the request's token is not in the cache.
//! Limits with claims have no decision on a request that is refused this way: they are not charged,
//! and neither header fields nor Retry-After speak of them.

use super::acquired_permits::AcquiredPermits;
use super::context::AdmissionContext;
use super::sync_charges;
use crate::limiter::Verdict;
use crate::rules::{Head, InvalidCost};
use crate::store::redis::Store;
use crate::store::{Charge, Refusals};

impl<'a> AdmissionContext<'_, 'a> {
    /// Refuses a request with an unknown token if limits without claims refuse it. Returns `false`
    /// if nothing is decided.
    ///
    /// # Errors
    /// As [`admit`](super::context::admit).
    pub(in crate::proxy) fn refuse_without_claims(
        &mut self,
        head: &'a Head<'a>,
        store: Option<&Store>,
    ) -> Result<bool, InvalidCost> {
        let mut limits = self.route.limits_for(head).iter();
        if limits.all(|limit| limit.reads_token)
            || head
                .token
                .is_none_or(|token| token.is_known_without_signature())
        {
            return Ok(false);
        }
        self.evaluate_limits(head, store, |limit| !limit.reads_token)?;
        let is_refused = self.recall_refusals() || self.refuse_from_memory();
        if !is_refused {
            self.forget();
        }
        Ok(is_refused)
    }

    /// Refuses by a cached refusal of Redis.
    fn recall_refusals(&mut self) -> bool {
        let is_recalled = self.asks_redis() && !self.is_banned() && self.recall();
        if is_recalled {
            self.store_decision(Vec::new(), Vec::new(), AcquiredPermits::default());
        }
        is_recalled
    }

    /// Refuses by limits in memory, and charges refusals to policies that ask for it.
    fn refuse_from_memory(&mut self) -> bool {
        let (local, _, binding) = self.in_memory();
        (self.charge_set, self.binding) = (local, binding);
        self.remote.clear();
        let bans = self.charge_set.bans(self.route, self.binding, self.now);
        if !bans.is_empty() {
            self.admission.verdict = self.charge_set.banned(&bans, self.binding, self.now);
        } else if self.limit_without_key.is_none()
            && !(self.is_sure_to_refuse() && self.charge_refusal())
        {
            return false;
        }
        self.strike(&bans);
        self.store_decision(Vec::new(), Vec::new(), AcquiredPermits::default());
        true
    }

    /// True if one limit refuses by each of its buckets and lets no request wait.
    fn is_sure_to_refuse(&self) -> bool {
        let mut binding = self.charge_set.limits[..self.binding]
            .iter()
            .zip(&self.charge_set.charges);
        binding.any(|(matched, charge)| {
            let limit = matched.limit(&self.route.limits);
            let mut tiers = std::iter::successors(Some(matched.chosen), |tier| limit.after(*tier));
            tiers.all(|tier| {
                let table = &limit.chosen(tier).table;
                let charge = Charge { table, ..*charge };
                table.algorithm().queueing().is_none() && !charge.peek(self.now).is_admitted()
            })
        })
    }

    /// Decides by the limits that were about to refuse. If units came back meanwhile and they
    /// admit, gives everything back and returns `false`.
    fn charge_refusal(&mut self) -> bool {
        let settled = self.charge_set.settleable(self.route, |_| true);
        let verdict = &mut self.admission.verdict;
        let last = Refusals::Charged;
        let mut reserved = self.charge_set.charge_reserving(
            self.route,
            &settled,
            self.binding,
            self.now,
            last,
            verdict,
        );
        if verdict.is_admitted() {
            drop(self.charge_set.in_flight_guards(self.route, verdict));
            for (_, reservation) in reserved {
                reservation.give_back(self.now);
            }
            return false;
        }
        if let Some(head) = self.head.filter(|_| self.route.is_synchronised) {
            let of_limits = reserved
                .iter_mut()
                .map(|(index, its)| (usize::from(self.charge_set.limits[*index].place), its));
            let (rules, said) = ((self.route, head), (&*verdict, last));
            sync_charges::record(rules, &self.charge_set, said, self.now, of_limits);
        }
        true
    }

    /// Resets the context to its state before the first limit.
    fn forget(&mut self) {
        (self.charge_set, self.binding) = Default::default();
        self.limit_without_key = None;
        self.remote.clear();
        self.uncharged.clear();
        self.admission.verdict = Verdict::default();
    }
}
