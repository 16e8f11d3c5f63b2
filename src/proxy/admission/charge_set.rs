//! The buckets that a request is charged to, all or none.

use smallvec::SmallVec;

use super::applicability::PolicyChoice;
use super::in_flight::InFlightGuard;
use super::overflow;
use super::settle::{PendingSettlement, Reserved};
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Verdict};
use crate::proxy::ruleset::{Limit, Policy, Route};
use crate::rules::Head;
use crate::store::{Charge, Refusals, Reservation, Settled, charge_reserving};

/// A place among those that are asked, and the end of the ban there.
pub(super) type Ban = (usize, Timestamp);

/// A limit that applies.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct MatchedLimit {
    /// Its place in the route's list.
    pub place: u16,
    /// Which of its quotas.
    pub chosen: PolicyChoice,
    /// Whom it bans, if it does.
    pub suspect: Fingerprint,
}

impl MatchedLimit {
    pub(in crate::proxy) fn new(
        (place, limit): (u16, &Limit),
        chosen: PolicyChoice,
        head: &Head<'_>,
        key: Fingerprint,
    ) -> Self {
        let penalties = limit.policy.penalties.as_ref();
        let suspect = penalties.map(|penalties| penalties.ban_key(limit, head, key));
        Self {
            place,
            chosen,
            suspect: suspect.unwrap_or(key),
        }
    }

    /// The limit, of those of its route.
    pub(in crate::proxy) fn limit<'r>(&self, limits: &'r [Limit]) -> &'r Limit {
        &limits[usize::from(self.place)]
    }

    /// What of it decides.
    pub(in crate::proxy) fn policy<'r>(&self, limits: &'r [Limit]) -> &'r Policy {
        self.limit(limits).chosen(self.chosen)
    }
}

/// Limits that apply, and what they are asked.
#[derive(Clone, Default)]
pub(in crate::proxy) struct ChargeSet<'r> {
    pub(in crate::proxy) applied: SmallVec<[MatchedLimit; 4]>,
    pub(in crate::proxy) charges: SmallVec<[Charge<'r>; 4]>,
}

impl<'r> ChargeSet<'r> {
    pub(in crate::proxy) fn push(&mut self, met: MatchedLimit, charge: Charge<'r>) {
        self.applied.push(met);
        self.charges.push(charge);
    }

    /// Who is banned by which of those that may refuse, and until when.
    pub(super) fn bans(&self, route: &Route, binding: usize, now: Timestamp) -> SmallVec<[Ban; 1]> {
        let binding = self.applied[..binding].iter().enumerate();
        binding
            .filter_map(|(index, met)| {
                let penalties = met.limit(&route.limits).policy.penalties.as_ref()?;
                Some((index, penalties.banned_until(met.suspect, now)?))
            })
            .collect()
    }

    /// What they say of a request of somebody who is banned: nothing is charged.
    pub(super) fn banned(&self, bans: &[Ban], binding: usize, now: Timestamp) -> Verdict {
        let mut verdict = Verdict::default();
        for (index, charge) in self.charges.iter().enumerate() {
            let decision = charge.peek(now);
            match index < binding {
                true => verdict.push(decision),
                false => verdict.watch(decision),
            }
        }
        for &(index, until) in bans {
            verdict.refuse_until(index, until);
        }
        verdict
    }

    /// Counts the refusals of those who may ban for it, and are not about to.
    pub(super) fn strike(
        &self,
        route: &Route,
        bans: &[Ban],
        verdict: &mut Verdict,
        now: Timestamp,
    ) {
        if verdict.is_admitted() {
            return;
        }
        for index in 0..verdict.binding() {
            let refuses = !verdict.decisions[index].is_admitted();
            if !refuses || bans.iter().any(|(banned, _)| *banned == index) {
                continue;
            }
            let met = &self.applied[index];
            if let Some(penalties) = &met.limit(&route.limits).policy.penalties
                && let Some(until) = penalties.strike(met.suspect, now)
            {
                verdict.refuse_until(index, until);
            }
        }
    }

    /// What can be given back of the charges of these limits: what is in use comes back by itself.
    pub(in crate::proxy) fn settled(
        &self,
        route: &'r Route,
        of: impl Fn(&Limit) -> bool,
    ) -> SmallVec<[Settled<'r>; 2]> {
        let all = self.applied.iter().zip(&self.charges).enumerate();
        let all = all.filter_map(|(index, (met, charge))| {
            let table = &met.policy(&route.limits).table;
            let is_one = of(met.limit(&route.limits)) && !table.algorithm().is_permits();
            is_one.then_some(Settled {
                index,
                table,
                key: charge.key,
                cost: charge.cost,
            })
        });
        all.collect()
    }

    /// Charges them together, to the verdict; returns what can be given back of those that are `settled`, with their places.
    pub(in crate::proxy) fn charge_reserving(
        &mut self,
        route: &'r Route,
        settled: &[Settled<'r>],
        binding: usize,
        now: Timestamp,
        last: Refusals,
        verdict: &mut Verdict,
    ) -> Vec<(usize, Reservation)> {
        let (charged, reserved) = charge_reserving(settled, now, || {
            let mut verdict = Verdict::default();
            overflow::charge(route, self, binding, now, last, &mut verdict);
            verdict
        });
        *verdict = charged;
        reserved
    }

    /// Charges them together, to the verdict; returns what the response is to settle.
    pub(super) fn charge(
        &mut self,
        route: &'r Route,
        binding: usize,
        now: Timestamp,
        last: Refusals,
        verdict: &mut Verdict,
    ) -> Vec<PendingSettlement> {
        let settled = self.settled(route, |limit| limit.spec.settlement.is_some());
        if settled.is_empty() {
            overflow::charge(route, self, binding, now, last, verdict);
            return Vec::new();
        }
        let reserved = self.charge_reserving(route, &settled, binding, now, last, verdict);
        let dues = reserved.into_iter().map(|(index, reservation)| {
            let place = usize::from(self.applied[index].place);
            PendingSettlement::new(place, Reserved::Here(reservation))
        });
        dues.collect()
    }

    /// Whether one of the first `binding` limits has a bucket after the one that is asked.
    pub(in crate::proxy) fn overflows(&self, route: &Route, binding: usize) -> bool {
        let mut limits = self.applied[..binding].iter();
        limits.any(|met| met.limit(&route.limits).after(met.chosen).is_some())
    }

    /// Asks the next bucket of the limit at this place: whether there is one.
    pub(in crate::proxy) fn go_on(&mut self, route: &'r Route, place: usize) -> bool {
        let met = &mut self.applied[place];
        let limit = met.limit(&route.limits);
        let next = limit.after(met.chosen);
        if let Some(next) = next {
            met.chosen = next;
            self.charges[place].table = &limit.chosen(next).table;
        }
        next.is_some()
    }

    /// What gives back the units that were taken and do not come back with time.
    pub(in crate::proxy) fn taken(&self, route: &Route, verdict: &Verdict) -> Vec<InFlightGuard> {
        if !verdict.is_admitted() {
            return Vec::new();
        }
        let all = self.applied.iter().zip(&self.charges);
        let made = all.zip(&verdict.decisions);
        let made = made.filter(|(_, decision)| decision.is_admitted());
        made.filter_map(|((met, charge), _)| InFlightGuard::of(met.policy(&route.limits), charge))
            .collect()
    }
}
