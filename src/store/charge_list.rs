//! Charges that memory decides together: overflow tiers, bans, reservations.

use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::memory::{
    self, Charge, Refusals, SettleableCharge, UnsettledLocks, charge_into, charge_with_shadow,
};
use super::redis::PendingReport;
use super::{
    Buckets, ChargeId, ChargeResult, ChargeSource, InUse, Payer, Penalties, PolicyCharge,
    QueuePlace,
};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Outcome, Verdict};

/// The index of a banned key, and the end of its ban.
pub(super) type ActiveBan = (usize, Timestamp);

/// Reservations in memory, with the indices of their charges.
pub(super) type Reserved = Vec<(usize, memory::Reservation)>;

/// The policy's part of a charge, by its deciding bucket.
#[derive(Clone, Copy)]
pub(super) struct ChargeEntry<'a> {
    pub(super) id: ChargeId,
    pub(super) buckets: &'a Arc<Buckets>,
    /// The response settles the charge.
    pub(super) settles: bool,
    pub(super) penalties: Option<(&'a Arc<Penalties>, Fingerprint)>,
    /// The buckets of units that an operator has granted to the key.
    pub(super) granted: Option<Granted<'a>>,
}

/// Granted units of a key, and the quota that they come after.
#[derive(Clone, Copy)]
pub(super) struct Granted<'a> {
    pub(super) buckets: &'a Arc<Buckets>,
    pub(super) quota: &'a Arc<Buckets>,
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
#[derive(Clone, Default)]
pub(super) struct ChargeList<'a> {
    pub(super) entries: SmallVec<[ChargeEntry<'a>; 4]>,
    pub(super) charges: SmallVec<[Charge<'a>; 4]>,
    /// The number of enforced charges.
    pub(super) enforced: usize,
    /// The enforced limits that ban the request's key, and the ends of the bans.
    pub(super) banned: Vec<(u16, Timestamp)>,
}

impl<'a> ChargeEntry<'a> {
    /// The entry for the next overflow tier, or after the last one for the granted units, if there
    /// is one.
    pub(super) fn next_tier(mut self) -> Option<Self> {
        if let Some(next) = &self.buckets.overflow {
            self.buckets = next;
            self.id.tier += 1;
            return Some(self);
        }
        let granted = self.granted.filter(|_| self.id.payer == Payer::Quota)?;
        self.buckets = granted.buckets;
        self.id = ChargeId {
            tier: 0,
            payer: Payer::Grant,
            ..self.id
        };
        Some(self)
    }

    /// The decision of a bucket in memory that another bucket's refusal spares.
    pub(super) fn peek_spared(
        &self,
        charge: &Charge<'_>,
        until: Timestamp,
        now: Timestamp,
    ) -> Decision {
        let decision = charge.peek(now);
        let mut spared = match decision.is_admitted() {
            true => Charge { cost: 0, ..*charge }.peek(now),
            false => decision,
        };
        if !spared.is_admitted() && charge.is_in_doubt(now) {
            spared.doubt(until);
        }
        self.with_granted(charge, spared, now)
    }

    /// The decision of the first bucket that could pay, or that can pay soonest.
    pub(super) fn peek_payer(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let decisions = self.tiers().map(|tier| {
            let table = &*tier.buckets.table;
            let charge = Charge { table, ..*charge };
            tier.with_granted(&charge, charge.peek(now), now)
        });
        let soonest = decisions.min_by_key(|decision| decision.outcome.wait());
        soonest.expect("an entry is the first of its tiers")
    }

    /// The decision with the units that the quota has left and those that are granted, whichever
    /// paid. `charge` is that of the deciding buckets.
    pub(super) fn with_granted(
        &self,
        charge: &Charge<'_>,
        decision: Decision,
        now: Timestamp,
    ) -> Decision {
        let Some(granted) = self.granted else {
            return decision;
        };
        let peek = |buckets: &Buckets| {
            let table = &*buckets.table;
            let nothing = Charge {
                table,
                cost: 0,
                ..*charge
            };
            nothing.peek(now)
        };
        let algorithm = granted.quota.algorithm();
        match self.id.payer {
            Payer::Quota => {
                let left = peek(granted.buckets).remaining;
                decision.with_granted(left, algorithm.more_at(&decision, now))
            }
            Payer::Grant => {
                let quota = peek(granted.quota);
                let told = quota.with_granted(decision.remaining, algorithm.more_at(&quota, now));
                Decision {
                    outcome: decision.outcome,
                    cell: decision.cell,
                    ..told
                }
            }
        }
    }

    /// The entry, and those of its further overflow tiers.
    pub(super) fn tiers(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |tier| tier.next_tier())
    }
}

impl<'a> From<&PolicyCharge<'a>> for ChargeEntry<'a> {
    fn from(charge: &PolicyCharge<'a>) -> Self {
        Self {
            id: charge.id,
            buckets: charge.buckets,
            settles: charge.settles,
            penalties: charge.penalties,
            granted: charge.granted(),
        }
    }
}

impl<'a> ChargeList<'a> {
    pub(super) fn push(&mut self, entry: ChargeEntry<'a>, charge: Charge<'a>, is_enforced: bool) {
        if is_enforced && self.enforced < self.entries.len() {
            self.entries.insert(self.enforced, entry);
            self.charges.insert(self.enforced, charge);
        } else {
            self.entries.push(entry);
            self.charges.push(charge);
        }
        self.enforced += usize::from(is_enforced);
    }

    /// All entries and charges; true for enforced ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ChargeEntry<'a>, &Charge<'a>, bool)> {
        let all = self.entries.iter().zip(&self.charges).enumerate();
        all.map(|(index, (entry, charge))| (entry, charge, index < self.enforced))
    }

    /// The bans among these charges.
    pub(super) fn bans(&self) -> SmallVec<[ActiveBan; 1]> {
        let enforced = self.entries[..self.enforced].iter().enumerate();
        let bans = enforced.filter_map(|(index, entry)| {
            let mut banned = self.banned.iter();
            let (_, until) = banned.find(|(limit, _)| *limit == entry.id.limit)?;
            Some((index, *until))
        });
        bans.collect()
    }

    /// The verdict on a request that is charged nowhere.
    pub(super) fn peek(&self, now: Timestamp) -> Verdict {
        let all = self.entries.iter().zip(&self.charges);
        let decisions = all.map(|(entry, charge)| entry.peek_payer(charge, now));
        Verdict::of(decisions, self.enforced)
    }

    /// Shortens refusals that are in doubt: the units may be back by `until`. True if no refusal is
    /// certain.
    pub(super) fn doubt(&self, verdict: &mut Verdict, now: Timestamp, until: Timestamp) -> bool {
        if verdict.is_admitted() {
            return false;
        }
        let mut decisions = std::mem::take(&mut verdict.decisions);
        let mut is_certain = self.charges.iter().any(Charge::is_charged_if_refused);
        let all = self.charges.iter().zip(&mut decisions);
        for (charge, decision) in all.take(self.enforced) {
            match decision.outcome {
                Outcome::Refuse { retry_at: Some(_) } if charge.is_in_doubt(now) => {
                    decision.doubt(until);
                }
                Outcome::Refuse { .. } => is_certain = true,
                Outcome::Admit | Outcome::Delay { .. } => {}
            }
        }
        *verdict = Verdict::of(decisions, self.enforced);
        !is_certain
    }

    /// Refuses by the bans, and counts strikes for the refusals of other limits.
    pub(super) fn punish(&self, verdict: &mut Verdict, now: Timestamp) {
        let bans = self.bans();
        for &(index, until) in &bans {
            verdict.ban(index, until);
        }
        if verdict.is_admitted() {
            return;
        }
        for index in 0..verdict.enforced() {
            let refuses = !verdict.decisions[index].is_admitted();
            if !refuses || bans.iter().any(|(banned, _)| *banned == index) {
                continue;
            }
            if let Some((penalties, key)) = self.entries[index].penalties
                && let Some(until) = penalties.strike(key, now)
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
            let table = |index: usize| self.charges[index].table;
            let is_undecided = reserve == ReserveScope::All;
            let is_its_table = |one: &SettleableCharge<'_>| ptr::eq(&**one.table, table(one.index));
            reserved = locks.reserve(verdict, now, is_undecided, is_its_table);
        }
        if let Some(source) = source {
            self.record(source, (verdict, last), now, &mut reserved);
        }
        self.tell_granted(verdict, now);
        reserved
    }

    /// Adds granted units to the remaining ones of each decision.
    fn tell_granted(&self, verdict: &mut Verdict, now: Timestamp) {
        if self.entries.iter().all(|entry| entry.granted.is_none()) {
            return;
        }
        let mut decisions = std::mem::take(&mut verdict.decisions);
        let all = self.entries.iter().zip(&self.charges).zip(&mut decisions);
        for ((entry, charge), decision) in all {
            *decision = entry.with_granted(charge, *decision, now);
        }
        *verdict = Verdict::of(decisions, self.enforced);
    }

    /// The charges that can be given back, with those of overflow tiers. Units in use return by
    /// themselves.
    fn settleable(&self, reserve: ReserveScope) -> SmallVec<[SettleableCharge<'a>; 2]> {
        let mut settleable = SmallVec::new();
        for (index, (entry, charge, _)) in self.iter().enumerate() {
            let is_wanted = entry.settles || reserve == ReserveScope::All;
            if is_wanted && !charge.table.algorithm().is_concurrency() {
                settleable.extend(entry.tiers().map(|tier| SettleableCharge {
                    index,
                    table: &tier.buckets.table,
                    key: charge.key,
                    cost: charge.cost,
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
        for (index, (entry, charge, _)) in self.iter().enumerate() {
            let Some(recorder) = entry.buckets.sync_recorder() else {
                continue;
            };
            let decision = &verdict.decisions[index];
            let is_charged = (verdict.is_admitted() && decision.is_admitted())
                || [charge.table.refusals(), last] == [Refusals::Charged; 2];
            let name = || recorder.name(|parts| _ = source.write_key(entry.id, parts));
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
        let next = self.entries[index].next_tier();
        if let Some(next) = next {
            self.entries[index] = next;
            self.charges[index].table = &next.buckets.table;
        }
        next.is_some()
    }

    /// Charges each policy's first bucket that can pay, or none.
    fn charge_first_that_pays(&mut self, now: Timestamp, last: Refusals, verdict: &mut Verdict) {
        let enforced = self.enforced;
        let mut entries = self.entries[..enforced].iter();
        if !entries.any(|entry| entry.buckets.overflow.is_some() || entry.granted.is_some()) {
            charge_into(verdict, &self.charges, enforced, last, now);
            return self.overflow_shadowed(verdict, now);
        }
        let attempt = Refusals::Free;
        charge_into(verdict, &self.charges, enforced, attempt, now);
        let mut overflowed = OverflowedDecisions::default();
        while !verdict.is_admitted() && self.overflow_refused(verdict, &mut overflowed) {
            charge_into(verdict, &self.charges, enforced, attempt, now);
        }
        if !verdict.is_admitted() {
            // The final attempt: policies that charge refusals do so now, once.
            self.return_to_charged_refusals(verdict);
            charge_into(verdict, &self.charges, enforced, last, now);
        }
        if !verdict.is_admitted() {
            self.tell_shortest_wait(overflowed, verdict);
        }
        self.overflow_shadowed(verdict, now);
    }

    /// Moves refused charges on to their overflow tiers; false if none has another.
    fn overflow_refused(
        &mut self,
        verdict: &Verdict,
        overflowed: &mut OverflowedDecisions<'a>,
    ) -> bool {
        let mut goes_on = false;
        for index in 0..self.enforced {
            let (entry, decision) = (self.entries[index], verdict.decisions[index]);
            if !decision.is_admitted() && self.move_to_next_tier(index) {
                overflowed.push((index, entry, decision));
                goes_on = true;
            }
        }
        goes_on
    }

    /// Moves charges from granted units that do not suffice back to quotas that charge refusals.
    fn return_to_charged_refusals(&mut self, verdict: &Verdict) {
        let all = self.entries.iter_mut().zip(&mut self.charges);
        for ((entry, charge), decision) in all.zip(&verdict.decisions) {
            if let Some(granted) = entry.granted
                && !decision.is_admitted()
                && entry.id.payer == Payer::Grant
                && granted.quota.table.refusals() == Refusals::Charged
            {
                entry.id.payer = Payer::Quota;
                entry.buckets = granted.quota;
                charge.table = &granted.quota.table;
            }
        }
    }

    /// Rewrites the verdict: a policy that no bucket can pay tells its shortest wait. The refusal of
    /// a quota that has been charged since is no longer true.
    fn tell_shortest_wait(&mut self, overflowed: OverflowedDecisions<'a>, verdict: &mut Verdict) {
        let mut decisions = std::mem::take(&mut verdict.decisions);
        for (index, entry, earlier) in overflowed.into_iter().rev() {
            let decision = &mut decisions[index];
            let is_charged = entry.id == self.entries[index].id;
            let is_sooner = earlier.outcome.wait() <= decision.outcome.wait();
            if !decision.is_admitted() && is_sooner && !is_charged {
                *decision = earlier;
                self.entries[index] = entry;
                self.charges[index].table = &entry.buckets.table;
            }
        }
        *verdict = Verdict::of(decisions, self.enforced);
    }

    /// Moves shadowed charges on to their overflow tiers, too.
    fn overflow_shadowed(&mut self, verdict: &mut Verdict, now: Timestamp) {
        let is_admitted = verdict.is_admitted();
        for index in verdict.enforced()..verdict.decisions.len() {
            while !verdict.decisions[index].is_admitted() && self.move_to_next_tier(index) {
                let charge = self.charges[index];
                verdict.decisions[index] = match is_admitted {
                    true => charge_with_shadow(&[charge], 0, now).decisions[0],
                    false => charge.peek(now),
                };
            }
        }
    }

    /// Writes which buckets decided.
    pub(super) fn describe(&self, result: &mut ChargeResult) {
        result.ids.clear();
        result.keys.clear();
        for (entry, charge) in self.entries.iter().zip(&self.charges) {
            result.ids.push(entry.id);
            result.keys.push(charge.key);
        }
    }

    /// Keeps the units in use and the queue places of an admitted request.
    pub(super) fn hold(&self, result: &mut ChargeResult) {
        if !result.verdict.is_admitted() {
            return;
        }
        for ((entry, charge, is_enforced), decision) in self.iter().zip(&result.verdict.decisions) {
            if !decision.is_admitted() {
                continue;
            }
            if let Some(in_use) = InUse::of(entry.buckets, charge) {
                result.in_use.push(in_use);
            }
            if is_enforced && decision.delayed_until().is_some() {
                let place = QueuePlace::in_memory(entry.buckets, charge, decision);
                result.queue_places.push((entry.id.limit, place));
            }
        }
    }
}

/// The decisions of buckets that overflowed into others.
type OverflowedDecisions<'a> = SmallVec<[(usize, ChargeEntry<'a>, Decision); 4]>;

#[cfg(test)]
mod tests;
