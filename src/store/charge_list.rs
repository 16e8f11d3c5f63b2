//! Charges that memory decides together: overflow tiers, bans, reservations.

use std::sync::Arc;

use smallvec::SmallVec;

use super::memory::{
    self, Charge, Refusals, SettleableCharge, UnsettledLocks, charge_into, charge_with_shadow,
};
use super::redis::PendingReport;
use super::{
    Buckets, ChargeResult, ChargeSource, ChargedLimits, DecidedBucket, InUse, Payer, PolicyCharge,
    QueuePlace,
};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Outcome, Verdict};

/// Reservations in memory, with the indices of their charges.
pub(super) type Reserved = Vec<(usize, memory::Reservation)>;

/// A charge with its buckets.
#[derive(Clone, Copy)]
pub(super) struct ListedCharge<'a> {
    pub(super) charge: PolicyCharge,
    /// The deciding buckets.
    pub(super) buckets: &'a Arc<Buckets>,
    /// The first buckets of the quota.
    quota: &'a Arc<Buckets>,
    /// The buckets of units that an operator has granted to the key.
    granted: Option<&'a Arc<Buckets>>,
}

/// The charges to reserve, so that they can be given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReserveScope {
    /// The charges that the response settles.
    Settled,
    /// All, since another store decides after this one.
    All,
}

/// Charges to make together. Enforced ones come first, then shadowed ones.
#[derive(Clone)]
pub(super) struct ChargeList<'a> {
    limits: &'a dyn ChargedLimits,
    pub(super) charges: SmallVec<[ListedCharge<'a>; 4]>,
    /// The number of enforced charges.
    pub(super) enforced: usize,
}

impl<'a> ListedCharge<'a> {
    /// The charge with the buckets that it names.
    pub(super) fn new(limits: &'a dyn ChargedLimits, charge: PolicyCharge) -> Self {
        let quota = limits.buckets(charge.id);
        let granted = charge.is_granted.then(|| limits.granted(charge.id.limit));
        let mut listed = Self {
            charge,
            buckets: quota,
            quota,
            granted: granted.flatten(),
        };
        match (charge.id.payer, listed.granted) {
            (Payer::Grant, Some(granted)) => listed.buckets = granted,
            _ => {
                for _ in 0..charge.id.tier {
                    listed.buckets = listed.buckets.overflow.as_ref().unwrap_or(listed.buckets);
                }
            }
        }
        listed
    }

    /// The charge to the next overflow tier, or after the last one to the granted units, if there
    /// are any.
    fn next_tier(mut self) -> Option<Self> {
        let id = &mut self.charge.id;
        if let Some(next) = &self.buckets.overflow {
            self.buckets = next;
            id.tier += 1;
        } else {
            self.buckets = self.granted.filter(|_| id.payer == Payer::Quota)?;
            (id.tier, id.payer) = (0, Payer::Grant);
        }
        Some(self)
    }

    /// The charge, and those to further overflow tiers.
    pub(super) fn tiers(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |tier| tier.next_tier())
    }

    /// The charge to the bucket in memory.
    pub(super) fn in_memory(&self) -> Charge<'a> {
        Charge {
            table: &self.buckets.table,
            key: self.charge.key,
            cost: self.charge.cost,
            window_end: self.charge.window_end,
            required: self.charge.required,
            kept: self.charge.kept(),
        }
    }

    /// True if a refused request is charged, too.
    pub(super) fn is_charged_if_refused(&self) -> bool {
        self.in_memory().is_charged_if_refused()
    }

    /// The decision of a bucket in memory that another bucket's refusal spares.
    pub(super) fn peek_spared(&self, until: Timestamp, now: Timestamp) -> Decision {
        let charge = self.in_memory();
        let mut spared = charge.peek_uncharged(now);
        if !spared.is_admitted() && charge.is_in_doubt(now) {
            spared.doubt(until);
        }
        self.with_granted(spared, now)
    }

    /// The decision on a request that may have had to leave another number of units.
    pub(super) fn with_own_capacity(&self, decision: Decision) -> Decision {
        let all = match self.charge.id.payer {
            Payer::Grant => return decision,
            Payer::Quota => self.buckets.algorithm().capacity(),
        };
        let capacity = all.saturating_sub(self.charge.kept());
        let remaining = decision.remaining.saturating_add(capacity);
        Decision {
            remaining: remaining.saturating_sub(decision.capacity),
            capacity,
            ..decision
        }
    }

    /// The decision of the first bucket that could pay, or that can pay soonest, for a request that another
    /// limit refuses.
    pub(super) fn peek_payer(&self, now: Timestamp) -> Decision {
        let decisions = self
            .tiers()
            .map(|tier| tier.with_granted(tier.in_memory().peek_uncharged(now), now));
        let soonest = decisions.min_by_key(|decision| decision.outcome.wait());
        soonest.expect("a charge is the first of its tiers")
    }

    /// The decision with the units that the quota has left and those that are granted, whichever
    /// paid.
    pub(super) fn with_granted(&self, decision: Decision, now: Timestamp) -> Decision {
        let Some(granted) = self.granted else {
            return decision;
        };
        let peek = |buckets: &'a Buckets, kept| {
            let PolicyCharge {
                key, window_end, ..
            } = self.charge;
            let charge = buckets.charge(key, 0, window_end);
            Charge { kept, ..charge }.peek(now)
        };
        let algorithm = self.quota.algorithm();
        match self.charge.id.payer {
            Payer::Quota => {
                let left = peek(granted, 0).remaining;
                decision.with_granted(left, algorithm.more_at(&decision, now))
            }
            Payer::Grant => {
                let quota = peek(self.quota, self.charge.kept);
                let told = quota.with_granted(decision.remaining, algorithm.more_at(&quota, now));
                Decision {
                    outcome: decision.outcome,
                    cell: decision.cell,
                    ..told
                }
            }
        }
    }
}

impl<'a> ChargeList<'a> {
    /// An empty list of charges to these limits.
    pub(super) fn new(limits: &'a dyn ChargedLimits) -> Self {
        Self {
            limits,
            charges: SmallVec::new(),
            enforced: 0,
        }
    }

    /// The charge with the buckets that it names.
    pub(super) fn resolve(&self, charge: PolicyCharge) -> ListedCharge<'a> {
        ListedCharge::new(self.limits, charge)
    }

    pub(super) fn push(&mut self, charge: ListedCharge<'a>, is_enforced: bool) {
        let index = if is_enforced {
            self.enforced
        } else {
            self.charges.len()
        };
        self.charges.insert(index, charge);
        self.enforced += usize::from(is_enforced);
    }

    /// All charges; true for enforced ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ListedCharge<'a>, bool)> {
        let all = self.charges.iter().enumerate();
        all.map(|(index, charge)| (charge, index < self.enforced))
    }

    /// The indices of the banned keys among these charges, and the ends of the bans.
    pub(super) fn bans(&self) -> impl Iterator<Item = (usize, Timestamp)> {
        let enforced = self.charges[..self.enforced].iter().enumerate();
        enforced.filter_map(|(index, one)| Some((index, one.charge.banned_until?)))
    }

    /// The verdict on a request that is charged nowhere.
    pub(super) fn peek(&self, now: Timestamp) -> Verdict {
        let decisions = self.charges.iter().map(|charge| charge.peek_payer(now));
        Verdict::of(decisions, self.enforced)
    }

    /// Shortens refusals that are in doubt: the units may be back by `until`. True if no refusal is
    /// certain.
    pub(super) fn doubt(&self, verdict: &mut Verdict, now: Timestamp, until: Timestamp) -> bool {
        if verdict.is_admitted() {
            return false;
        }
        let mut decisions = std::mem::take(&mut verdict.decisions);
        let mut is_certain = self.charges.iter().any(ListedCharge::is_charged_if_refused);
        let all = self.charges.iter().zip(&mut decisions);
        for (charge, decision) in all.take(self.enforced) {
            match decision.outcome {
                Outcome::Refuse { retry_at: Some(_) } if charge.in_memory().is_in_doubt(now) => {
                    decision.doubt(until);
                }
                Outcome::Refuse { .. } => is_certain = true,
                Outcome::Admit | Outcome::Delay { .. } => {}
            }
        }
        *verdict = Verdict::of(decisions, self.enforced);
        !is_certain
    }

    /// Completes a result that has the decisions: refuses by bans, counts strikes unless the refusal
    /// is in doubt, and writes which buckets decided.
    pub(super) fn conclude(&self, result: &mut ChargeResult, now: Timestamp) {
        if result.doubted_until.is_none() {
            self.punish(&mut result.verdict, now);
        }
        result.buckets.clear();
        let buckets = self.charges.iter().map(|listed| DecidedBucket {
            id: listed.charge.id,
            key: listed.charge.key,
        });
        result.buckets.extend(buckets);
    }

    /// Refuses by the bans, and counts strikes for the refusals of other limits.
    fn punish(&self, verdict: &mut Verdict, now: Timestamp) {
        for (index, until) in self.bans() {
            verdict.ban(index, until);
        }
        if verdict.is_admitted() {
            return;
        }
        for index in 0..verdict.enforced() {
            let charge = &self.charges[index].charge;
            if verdict.decisions[index].is_admitted() || charge.banned_until.is_some() {
                continue;
            }
            if let Some(penalties) = self.limits.penalties(charge.id.limit)
                && let Some(until) = penalties.strike(charge.ban_key, now)
            {
                verdict.ban(index, until);
            }
        }
    }

    /// Charges all or none, and returns the reservations that `reserve` asks for. Other machines
    /// learn of charges to synchronised buckets, whose keys `source` writes.
    ///
    /// The list is left with the buckets that decided. `last` says whether the last attempt charges
    /// refusals.
    pub(super) fn charge(
        &mut self,
        reserve: ReserveScope,
        last: Refusals,
        now: Timestamp,
        verdict: &mut Verdict,
        source: Option<&dyn ChargeSource>,
    ) -> Reserved {
        let settled = self.settleable(reserve);
        let mut reserved = Vec::new();
        if settled.is_empty() {
            self.charge_first_that_pays(now, last, verdict);
        } else {
            let locks = UnsettledLocks::lock(&settled);
            self.charge_first_that_pays(now, last, verdict);
            let is_undecided = reserve == ReserveScope::All;
            let is_its_table = |one: &SettleableCharge<'_>| {
                Arc::ptr_eq(one.table, &self.charges[one.index].buckets.table)
            };
            reserved = locks.reserve(verdict, now, is_undecided, is_its_table);
        }
        if let Some(source) = source {
            self.record(source, (verdict, last), now, &mut reserved);
        }
        self.add_granted(verdict, now);
        reserved
    }

    /// Adds granted units to the remaining ones of each decision.
    fn add_granted(&self, verdict: &mut Verdict, now: Timestamp) {
        if self.charges.iter().all(|one| one.granted.is_none()) {
            return;
        }
        let decisions = std::mem::take(&mut verdict.decisions);
        let all = self.charges.iter().zip(decisions);
        let decisions = all.map(|(charge, decision)| charge.with_granted(decision, now));
        *verdict = Verdict::of(decisions, self.enforced);
    }

    /// The charges that can be given back, with those of overflow tiers. Units in use return by
    /// themselves.
    fn settleable(&self, reserve: ReserveScope) -> SmallVec<[SettleableCharge<'a>; 2]> {
        let mut settleable = SmallVec::new();
        for (index, one) in self.charges.iter().enumerate() {
            let is_wanted = one.charge.settles || reserve == ReserveScope::All;
            let is_made = one.charge.cost > 0 || one.charge.required > 0;
            if is_wanted && is_made && !one.buckets.algorithm().is_concurrency() {
                settleable.extend(one.tiers().map(|tier| SettleableCharge {
                    index,
                    table: &tier.buckets.table,
                    key: tier.charge.key,
                    cost: tier.charge.cost,
                }));
            }
        }
        settleable
    }

    /// Records the charges to synchronised buckets for other machines, or lets a reservation report
    /// its charge when it is settled. Refusals are charged if both the table and `last` say so.
    pub(super) fn record(
        &self,
        source: &dyn ChargeSource,
        (verdict, last): (&Verdict, Refusals),
        now: Timestamp,
        reserved: &mut Reserved,
    ) {
        for (index, one) in self.charges.iter().enumerate() {
            let Some(recorder) = &one.buckets.sync_recorder else {
                continue;
            };
            let (charge, decision) = (&one.charge, &verdict.decisions[index]);
            let is_charged = (verdict.is_admitted() && decision.is_admitted())
                || [one.buckets.table.refusals(), last] == [Refusals::Charged; 2];
            let name = || recorder.name(|parts| _ = source.write_key(charge.id.limit, parts));
            let tracker = &recorder.tracker;
            match reserved.iter_mut().find(|(its, _)| *its == index) {
                Some((_, reservation)) => reservation.tell(PendingReport::new(tracker, name())),
                None if is_charged => {
                    tracker.note(charge.key, charge.cost, decision.cell, now, name);
                }
                None => {}
            }
        }
    }

    /// Moves the charge at `index` on to the next overflow tier; false if there is none.
    fn move_to_next_tier(&mut self, index: usize) -> bool {
        let next = self.charges[index].next_tier();
        if let Some(next) = next {
            self.charges[index] = next;
        }
        next.is_some()
    }

    /// Decides all charges by their present buckets, and makes them if none refuses.
    fn attempt(&self, verdict: &mut Verdict, refusals: Refusals, now: Timestamp) {
        let charges = self.charges.iter().map(ListedCharge::in_memory);
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        charge_into(verdict, &charges, self.enforced, refusals, now);
    }

    /// Charges each policy's first bucket that can pay, or none.
    fn charge_first_that_pays(&mut self, now: Timestamp, last: Refusals, verdict: &mut Verdict) {
        let mut enforced = self.charges[..self.enforced].iter();
        if !enforced.any(|one| one.buckets.overflow.is_some() || one.granted.is_some()) {
            self.attempt(verdict, last, now);
            return self.overflow_shadowed(verdict, now);
        }
        self.attempt(verdict, Refusals::Free, now);
        let mut overflowed = OverflowedDecisions::default();
        while !verdict.is_admitted() && self.overflow_refused(verdict, &mut overflowed) {
            self.attempt(verdict, Refusals::Free, now);
        }
        if !verdict.is_admitted() {
            // The final attempt: policies that charge refusals do so now, once.
            self.return_to_charged_refusals(verdict);
            self.attempt(verdict, last, now);
        }
        if !verdict.is_admitted() {
            self.choose_shortest_wait(overflowed, verdict);
        }
        self.overflow_shadowed(verdict, now);
    }

    /// Moves refused charges on to their overflow tiers; false if none has another.
    fn overflow_refused(
        &mut self,
        verdict: &Verdict,
        overflowed: &mut OverflowedDecisions<'a>,
    ) -> bool {
        let mut has_moved = false;
        for index in 0..self.enforced {
            let (charge, decision) = (self.charges[index], verdict.decisions[index]);
            if !decision.is_admitted() && self.move_to_next_tier(index) {
                overflowed.push((index, charge, decision));
                has_moved = true;
            }
        }
        has_moved
    }

    /// Moves charges from granted units that do not suffice back to quotas that charge refusals.
    fn return_to_charged_refusals(&mut self, verdict: &Verdict) {
        for (one, decision) in self.charges.iter_mut().zip(&verdict.decisions) {
            if !decision.is_admitted()
                && one.charge.id.payer == Payer::Grant
                && one.quota.table.refusals() == Refusals::Charged
            {
                one.charge.id.payer = Payer::Quota;
                one.buckets = one.quota;
            }
        }
    }

    /// Rewrites the verdict: a policy that no bucket can pay has the decision with its shortest wait.
    /// The refusal of a quota that has been charged since is no longer true.
    fn choose_shortest_wait(&mut self, overflowed: OverflowedDecisions<'a>, verdict: &mut Verdict) {
        let mut decisions = std::mem::take(&mut verdict.decisions);
        for (index, charge, earlier) in overflowed.into_iter().rev() {
            let decision = &mut decisions[index];
            let is_charged = charge.charge.id == self.charges[index].charge.id;
            let is_sooner = earlier.outcome.wait() <= decision.outcome.wait();
            if !decision.is_admitted() && is_sooner && !is_charged {
                *decision = earlier;
                self.charges[index] = charge;
            }
        }
        *verdict = Verdict::of(decisions, self.enforced);
    }

    /// Moves shadowed charges on to their overflow tiers, too.
    fn overflow_shadowed(&mut self, verdict: &mut Verdict, now: Timestamp) {
        let is_admitted = verdict.is_admitted();
        for index in verdict.enforced()..verdict.decisions.len() {
            while !verdict.decisions[index].is_admitted() && self.move_to_next_tier(index) {
                let charge = self.charges[index].in_memory();
                verdict.decisions[index] = if is_admitted {
                    charge_with_shadow(&[charge], 0, now).decisions[0]
                } else {
                    charge.peek(now)
                };
            }
        }
    }

    /// Keeps the units in use and the queue places of an admitted request.
    pub(super) fn hold(&self, result: &mut ChargeResult) {
        if !result.verdict.is_admitted() {
            return;
        }
        for (place, (one, is_enforced)) in self.iter().enumerate() {
            let Some(decision) = result.verdict.decisions.get(place).copied() else {
                return;
            };
            if !decision.is_admitted() {
                continue;
            }
            let charge = one.in_memory();
            if let Some(in_use) = InUse::of(one.buckets, &charge) {
                result.held_mut().in_use.push(in_use);
            }
            if is_enforced && decision.delayed_until().is_some() {
                let place = QueuePlace::in_memory(one.buckets, &charge, &decision);
                result
                    .held_mut()
                    .queue_places
                    .push((one.charge.id.limit, place));
            }
        }
    }
}

/// The decisions of buckets that overflowed into others.
type OverflowedDecisions<'a> = SmallVec<[(usize, ListedCharge<'a>, Decision); 4]>;

#[cfg(test)]
mod tests;
