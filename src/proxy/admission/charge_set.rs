//! The set of buckets that a request charges, all or none.

use smallvec::SmallVec;

use super::applicability::PolicyChoice;
use super::in_flight::InFlightGuard;
use super::settle::{AnyReservation, ReservedCharge};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Outcome, Verdict};
use crate::proxy::ruleset::{Limit, Policy, Route};
use crate::rules::Head;
use crate::store::{
    Charge, Refusals, Reservation, SettleableCharge, charge_and_reserve, charge_into,
    charge_with_shadow,
};

/// The index of a banned key in the charge set, and the end of its ban.
pub(super) type Ban = (usize, Timestamp);

/// A limit that applies to the request.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct MatchedLimit {
    /// The limit's place in the route's list.
    pub place: u16,
    pub chosen: PolicyChoice,
    /// The key that this limit bans; the bucket's key without a penalty.
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
        let suspect =
            penalties.map(|penalties| penalties.ban_key(&limit.spec.descriptor, head, key));
        Self {
            place,
            chosen,
            suspect: suspect.unwrap_or(key),
        }
    }

    /// The limit, out of its route's list.
    pub(in crate::proxy) fn limit<'r>(&self, limits: &'r [Limit]) -> &'r Limit {
        &limits[usize::from(self.place)]
    }

    /// The policy that decides, out of its route's list.
    pub(in crate::proxy) fn policy<'r>(&self, limits: &'r [Limit]) -> &'r Policy {
        self.limit(limits).chosen(self.chosen)
    }
}

/// Limits that apply, and the charge of each.
#[derive(Clone, Default)]
pub(in crate::proxy) struct ChargeSet<'r> {
    pub(in crate::proxy) limits: SmallVec<[MatchedLimit; 4]>,
    pub(in crate::proxy) charges: SmallVec<[Charge<'r>; 4]>,
}

impl<'r> ChargeSet<'r> {
    pub(in crate::proxy) fn push(&mut self, matched: MatchedLimit, charge: Charge<'r>) {
        self.limits.push(matched);
        self.charges.push(charge);
    }

    /// The bans among the enforced limits.
    pub(super) fn bans(&self, route: &Route, binding: usize, now: Timestamp) -> SmallVec<[Ban; 1]> {
        let binding = self.limits[..binding].iter().enumerate();
        binding
            .filter_map(|(index, matched)| {
                let penalties = matched.limit(&route.limits).policy.penalties.as_ref()?;
                Some((index, penalties.banned_until(matched.suspect, now)?))
            })
            .collect()
    }

    /// The verdict on a request with a banned key. Nothing is charged.
    pub(super) fn banned(&self, bans: &[Ban], binding: usize, now: Timestamp) -> Verdict {
        let mut verdict = Verdict::default();
        for (index, charge) in self.charges.iter().enumerate() {
            let decision = charge.peek(now);
            match index < binding {
                true => verdict.push(decision),
                false => verdict.push_shadowed(decision),
            }
        }
        for &(index, until) in bans {
            verdict.refuse_until(index, until);
        }
        verdict
    }

    /// Counts strikes for refusals, except of keys that are banned already.
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
        for index in 0..verdict.enforced() {
            let refuses = !verdict.decisions[index].is_admitted();
            if !refuses || bans.iter().any(|(banned, _)| *banned == index) {
                continue;
            }
            let matched = &self.limits[index];
            if let Some(penalties) = &matched.limit(&route.limits).policy.penalties
                && let Some(until) = penalties.strike(matched.suspect, now)
            {
                verdict.refuse_until(index, until);
            }
        }
    }

    /// The charges that can be given back. Units in use return by themselves.
    pub(in crate::proxy) fn settleable(
        &self,
        route: &'r Route,
        of: impl Fn(&Limit) -> bool,
    ) -> SmallVec<[SettleableCharge<'r>; 2]> {
        let all = self.limits.iter().zip(&self.charges).enumerate();
        let all = all.filter_map(|(index, (matched, charge))| {
            let table = &matched.policy(&route.limits).table;
            let is_one = of(matched.limit(&route.limits)) && !table.algorithm().is_concurrency();
            is_one.then_some(SettleableCharge {
                index,
                table,
                key: charge.key,
                cost: charge.cost,
            })
        });
        all.collect()
    }

    /// Charges the set, and returns reservations for the charges in `settled`, with their indices.
    pub(in crate::proxy) fn charge_reserving(
        &mut self,
        route: &'r Route,
        settled: &[SettleableCharge<'r>],
        binding: usize,
        now: Timestamp,
        last: Refusals,
        verdict: &mut Verdict,
    ) -> Vec<(usize, Reservation)> {
        let (charged, reserved) = charge_and_reserve(settled, now, || {
            let mut verdict = Verdict::default();
            charge_first_that_pays(route, self, binding, now, last, &mut verdict);
            verdict
        });
        *verdict = charged;
        reserved
    }

    /// Charges the set, and returns the charges that the response settles.
    pub(super) fn charge(
        &mut self,
        route: &'r Route,
        binding: usize,
        now: Timestamp,
        last: Refusals,
        verdict: &mut Verdict,
    ) -> Vec<ReservedCharge> {
        let settled = self.settleable(route, |limit| limit.spec.settlement.is_some());
        if settled.is_empty() {
            charge_first_that_pays(route, self, binding, now, last, verdict);
            return Vec::new();
        }
        let reserved = self.charge_reserving(route, &settled, binding, now, last, verdict);
        let reserved_charges = reserved.into_iter().map(|(index, reservation)| {
            let place = usize::from(self.limits[index].place);
            ReservedCharge::new(place, AnyReservation::Here(reservation))
        });
        reserved_charges.collect()
    }

    /// True if one of the first `binding` limits has a further overflow tier.
    pub(in crate::proxy) fn has_next_tier(&self, route: &Route, binding: usize) -> bool {
        let mut limits = self.limits[..binding].iter();
        limits.any(|matched| matched.limit(&route.limits).after(matched.chosen).is_some())
    }

    /// Moves the charge at `place` on to the next overflow tier; false if there is none.
    pub(in crate::proxy) fn move_to_next_tier(&mut self, route: &'r Route, place: usize) -> bool {
        let matched = &mut self.limits[place];
        let limit = matched.limit(&route.limits);
        let next = limit.after(matched.chosen);
        if let Some(next) = next {
            matched.chosen = next;
            self.charges[place].table = &limit.chosen(next).table;
        }
        next.is_some()
    }

    /// Guards for the units in use, which time does not return.
    pub(in crate::proxy) fn in_flight_guards(
        &self,
        route: &Route,
        verdict: &Verdict,
    ) -> Vec<InFlightGuard> {
        if !verdict.is_admitted() {
            return Vec::new();
        }
        let all = self.limits.iter().zip(&self.charges);
        let made = all.zip(&verdict.decisions);
        let made = made.filter(|(_, decision)| decision.is_admitted());
        made.filter_map(|((matched, charge), _)| {
            InFlightGuard::of(matched.policy(&route.limits), charge)
        })
        .collect()
    }
}

/// Charges each limit's first bucket that can pay, or none. The first `binding` limits are
/// enforced.
///
/// The set is left with the buckets that decided. `last` says whether the last attempt charges
/// refusals.
fn charge_first_that_pays<'r>(
    route: &'r Route,
    charge_set: &mut ChargeSet<'r>,
    binding: usize,
    now: Timestamp,
    last: Refusals,
    verdict: &mut Verdict,
) {
    if !charge_set.has_next_tier(route, binding) {
        charge_into(verdict, &charge_set.charges, binding, last, now);
        return overflow_shadowed(route, verdict, charge_set, now);
    }
    let attempt = Refusals::Free;
    charge_into(verdict, &charge_set.charges, binding, attempt, now);
    let mut given_up = OverflowedDecisions::default();
    while !verdict.is_admitted() {
        let refused = verdict.decisions[..binding].iter().enumerate();
        let refused = refused.filter(|(_, decision)| !decision.is_admitted());
        let mut goes_on = false;
        for (place, decision) in refused {
            goes_on |= given_up.note_and_overflow(route, charge_set, place, decision);
        }
        if !goes_on {
            break;
        }
        charge_into(verdict, &charge_set.charges, binding, attempt, now);
    }
    if !verdict.is_admitted() {
        // The final attempt: policies that charge refusals do so now, once.
        charge_into(verdict, &charge_set.charges, binding, last, now);
    }
    if !verdict.is_admitted() {
        given_up.shortest(verdict, charge_set);
    }
    overflow_shadowed(route, verdict, charge_set, now);
}

/// Moves shadowed limits on to their overflow tiers, too.
fn overflow_shadowed<'r>(
    route: &'r Route,
    verdict: &mut Verdict,
    charge_set: &mut ChargeSet<'r>,
    now: Timestamp,
) {
    let is_admitted = verdict.is_admitted();
    for place in verdict.enforced()..verdict.decisions.len() {
        while !verdict.decisions[place].is_admitted() && charge_set.move_to_next_tier(route, place)
        {
            let charge = charge_set.charges[place];
            verdict.decisions[place] = match is_admitted {
                true => charge_with_shadow(&[charge], 0, now).decisions[0],
                false => charge.peek(now),
            };
        }
    }
}

/// Decisions of buckets that overflowed into others.
#[derive(Default)]
struct OverflowedDecisions(SmallVec<[(usize, MatchedLimit, Decision); 4]>);

impl OverflowedDecisions {
    /// Moves the limit at `place` on to its next overflow tier; false if there is none.
    fn note_and_overflow<'r>(
        &mut self,
        route: &'r Route,
        charge_set: &mut ChargeSet<'r>,
        place: usize,
        decision: &Decision,
    ) -> bool {
        let matched = charge_set.limits[place];
        let goes_on = charge_set.move_to_next_tier(route, place);
        if goes_on {
            self.0.push((place, matched, *decision));
        }
        goes_on
    }

    /// Rewrites the verdict: a limit that no bucket can pay tells its shortest wait.
    fn shortest(self, verdict: &mut Verdict, charge_set: &mut ChargeSet<'_>) {
        let binding = verdict.enforced();
        let mut decisions = std::mem::take(&mut verdict.decisions);
        for (place, matched, earlier) in self.0.into_iter().rev() {
            let one = &mut decisions[place];
            if !one.is_admitted() && wait(&earlier) <= wait(one) {
                *one = earlier;
                charge_set.limits[place] = matched;
            }
        }
        *verdict = Verdict::of(decisions, binding);
    }
}

/// Orders refusals by their length; a refusal without end is the longest.
fn wait(decision: &Decision) -> (bool, Option<Timestamp>) {
    match decision.outcome {
        Outcome::Refuse { retry_at } => (retry_at.is_none(), retry_at),
        Outcome::Admit | Outcome::Delay { .. } => (false, None),
    }
}
