//! The buckets that a request is charged to, all or none.

use smallvec::SmallVec;

use crate::clock::Timestamp;
use crate::limiter::Verdict;
use crate::proxy::meeting::Chosen;
use crate::proxy::overflow;
use crate::proxy::settle::{Due, Reserved};
use crate::proxy::snapshot::{Limit, Route};
use crate::proxy::taken::Taken;
use crate::store::{Charge, Refusals, Reservation, Settled, charge_reserving};

/// A place among those that are asked, and the end of the ban there.
pub(super) type Ban = (usize, Timestamp);

/// A limit that applies: its place in the route's list, and which of its quotas.
pub(in crate::proxy) type Met = (u16, Chosen);

/// Limits that apply, and what they are asked.
#[derive(Clone, Default)]
pub(in crate::proxy) struct Asked<'r> {
    pub(in crate::proxy) applied: SmallVec<[Met; 4]>,
    pub(in crate::proxy) charges: SmallVec<[Charge<'r>; 4]>,
}

impl<'r> Asked<'r> {
    pub(in crate::proxy) fn push(&mut self, met: Met, charge: Charge<'r>) {
        self.applied.push(met);
        self.charges.push(charge);
    }

    /// Who is banned by which of those that may refuse, and until when.
    pub(super) fn bans(&self, route: &Route, binding: usize, now: Timestamp) -> SmallVec<[Ban; 1]> {
        let binding = self.applied[..binding]
            .iter()
            .zip(&self.charges)
            .enumerate();
        binding
            .filter_map(|(index, (&(place, _), charge))| {
                let penalties = route.limits[usize::from(place)].policy.penalties.as_ref()?;
                Some((index, penalties.banned_until(charge.key, now)?))
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
            let (place, _) = self.applied[index];
            if let Some(penalties) = &route.limits[usize::from(place)].policy.penalties
                && let Some(until) = penalties.strike(self.charges[index].key, now)
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
        let all = all.filter_map(|(index, (&(place, chosen), charge))| {
            let limit = &route.limits[usize::from(place)];
            let table = &limit.chosen(chosen).table;
            let is_one = of(limit) && !table.algorithm().is_permits();
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
    ) -> Vec<Due> {
        let settled = self.settled(route, |limit| limit.settlement.is_some());
        if settled.is_empty() {
            overflow::charge(route, self, binding, now, last, verdict);
            return Vec::new();
        }
        let reserved = self.charge_reserving(route, &settled, binding, now, last, verdict);
        let dues = reserved.into_iter().map(|(index, reservation)| Due {
            place: usize::from(self.applied[index].0),
            reservation: Reserved::Here(reservation),
        });
        dues.collect()
    }

    /// Whether one of the first `binding` limits has a bucket after the one that is asked.
    pub(in crate::proxy) fn overflows(&self, route: &Route, binding: usize) -> bool {
        let mut limits = self.applied[..binding].iter();
        limits.any(|&(limit, chosen)| route.limits[usize::from(limit)].after(chosen).is_some())
    }

    /// Asks the next bucket of the limit at this place: whether there is one.
    pub(in crate::proxy) fn go_on(&mut self, route: &'r Route, place: usize) -> bool {
        let (limit, chosen) = self.applied[place];
        let limit = &route.limits[usize::from(limit)];
        let next = limit.after(chosen);
        if let Some(next) = next {
            self.applied[place].1 = next;
            self.charges[place].table = &limit.chosen(next).table;
        }
        next.is_some()
    }

    /// What gives back the units that were taken and do not come back with time.
    pub(in crate::proxy) fn taken(&self, route: &Route, verdict: &Verdict) -> Vec<Taken> {
        if !verdict.is_admitted() {
            return Vec::new();
        }
        let all = self.applied.iter().zip(&self.charges);
        let made = all.zip(&verdict.decisions);
        let made = made.filter(|(_, decision)| decision.is_admitted());
        made.filter_map(|((&(place, chosen), charge), _)| {
            let policy = route.limits[usize::from(place)].chosen(chosen);
            Taken::of(policy, charge)
        })
        .collect()
    }
}
