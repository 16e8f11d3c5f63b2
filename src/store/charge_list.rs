//! Charges that memory decides together: overflow tiers, bans, reservations.

use std::sync::Arc;

use smallvec::SmallVec;

use super::memory::{self, Ask, Charge, Claims, DecidingRungs};
use super::{
    Buckets, ChargeResult, ChargeSource, ChargedLimits, DecidedBucket, InUse, Payer, PolicyCharge,
    QueuePlace, Role,
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
    /// The buckets of units that an operator has granted to the key.
    granted: Option<&'a Arc<Buckets>>,
}

/// Charges to make together: first those that can refuse, then those in shadow, last those that tag.
#[derive(Clone)]
pub(super) struct ChargeList<'a> {
    limits: &'a dyn ChargedLimits,
    pub(super) charges: SmallVec<[ListedCharge<'a>; 4]>,
    /// The number of charges that can refuse.
    pub(super) enforced: usize,
}

impl<'a> ListedCharge<'a> {
    /// The charge with the buckets that it names.
    pub(super) fn new(limits: &'a dyn ChargedLimits, charge: PolicyCharge) -> Self {
        let granted = charge.is_granted.then(|| limits.granted(charge.id.limit));
        let mut listed = Self {
            charge,
            buckets: limits.buckets(charge.id),
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

    /// The bucket that decides.
    pub(super) fn bucket(&self) -> DecidedBucket {
        DecidedBucket {
            id: self.charge.id,
            role: self.charge.role,
            key: self.charge.key,
            cost: self.charge.demand.needed(),
        }
    }

    /// True if the request is refused if this charge is.
    pub(super) fn can_refuse(&self) -> bool {
        self.charge.role == Role::Refuses
    }

    /// The charge to the bucket in memory.
    pub(super) fn in_memory(&self) -> Charge<'a> {
        Charge {
            table: &self.buckets.table,
            key: self.charge.key,
            demand: self.charge.demand_there(),
            window_end: self.charge.window_end,
        }
    }

    /// True if a request that another limit refuses is charged, too.
    pub(super) fn is_charged_if_refused(&self) -> bool {
        !self.charge.role.is_tag() && self.in_memory().is_charged_if_refused()
    }

    /// The bucket in memory that decides on this charge alone, and its decision. Nothing is written.
    pub(super) fn peek(self, ask: Ask, now: Timestamp) -> (Self, Decision) {
        let mut verdict = Verdict::default();
        let mut claims = Claims::default();
        claims.push(Role::Refuses, self.tiers().map(|tier| tier.in_memory()));
        let deciding = claims.decide(ask, now, &mut verdict);
        let decided = self.tiers().nth(deciding[0].rung).unwrap_or(self);
        (decided, verdict.decisions[0])
    }

    /// The same charge to the first bucket.
    pub(super) fn first(mut self, limits: &'a dyn ChargedLimits) -> Self {
        (self.charge.id.tier, self.charge.id.payer) = (0, Payer::Quota);
        Self::new(limits, self.charge)
    }

    /// Like [`peek`](Self::peek), for a request that another limit refuses by `until` at the latest.
    pub(super) fn peek_spared(self, until: Timestamp, now: Timestamp) -> (Self, Decision) {
        let (decided, mut spared) = self.peek(Ask::Banned, now);
        if !spared.is_admitted() && decided.in_memory().is_in_doubt(now) {
            spared.doubt(until);
        }
        (decided, spared)
    }

    /// The decision on a request that may have had to leave another number of units.
    pub(super) fn with_own_capacity(&self, decision: Decision) -> Decision {
        let all = match self.charge.id.payer {
            Payer::Grant => return decision,
            Payer::Quota => self.buckets.algorithm().capacity(),
        };
        let capacity = all.saturating_sub(self.charge.demand_there().kept);
        let remaining = decision.remaining.saturating_add(capacity);
        Decision {
            remaining: remaining.saturating_sub(decision.capacity),
            capacity,
            ..decision
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

    /// Adds a charge; those that tag come last.
    pub(super) fn push(&mut self, charge: ListedCharge<'a>) {
        let can_refuse = charge.can_refuse();
        let index = if can_refuse {
            self.enforced
        } else {
            self.charges.len()
        };
        self.charges.insert(index, charge);
        self.enforced += usize::from(can_refuse);
    }

    /// The charges to banned keys for which the request is refused, with their places.
    pub(super) fn bans(&self) -> impl Iterator<Item = (usize, &ListedCharge<'a>)> {
        let enforced = self.charges[..self.enforced].iter().enumerate();
        enforced.filter(|(_, one)| one.charge.banned_until.is_some())
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
    pub(super) fn conclude(&self, ask: Ask, result: &mut ChargeResult, now: Timestamp) {
        if result.doubted_until.is_none() {
            self.punish(ask, &mut result.verdict, now);
        }
        self.name_buckets(result);
    }

    /// Writes which buckets decided.
    pub(super) fn name_buckets(&self, result: &mut ChargeResult) {
        result.buckets.clear();
        let buckets = self.charges.iter().map(ListedCharge::bucket);
        result.buckets.extend(buckets);
    }

    /// Refuses by the bans, and counts strikes for the refusals of other limits; only for a tag's own
    /// refusal of a request that all others admit.
    fn punish(&self, ask: Ask, verdict: &mut Verdict, now: Timestamp) {
        for (place, one) in self.charges.iter().enumerate() {
            if let Some(until) = one.charge.banned_until {
                let decision = &mut verdict.decisions[place];
                if decision.is_admitted() && decision.remaining == 0 {
                    // The next unit may be there only after the ban.
                    let retry_at = one.buckets.algorithm().more_at(decision, now);
                    decision.outcome = Outcome::Refuse { retry_at };
                }
                verdict.ban(place, until);
            }
        }
        let is_admitted = verdict.is_admitted();
        for (place, one) in self.charges.iter().enumerate() {
            let counts = match one.charge.role {
                Role::Refuses => !is_admitted,
                Role::Shadows => false,
                Role::Tags | Role::ShadowTags => is_admitted,
            };
            let charge = &one.charge;
            let is_refused = !verdict.decisions[place].is_admitted();
            if counts
                && is_refused
                && charge.banned_until.is_none()
                && let Some(penalties) = self.limits.penalties(charge.id.limit)
                && let Some(until) = match ask {
                    Ask::Peek | Ask::Banned => penalties.next_ban(charge.ban_key, now),
                    _ => penalties.strike(charge.ban_key, now),
                }
            {
                verdict.ban(place, until);
            }
        }
    }

    /// Charges all or none, and returns reservations of the charges that the response settles: of all
    /// if another store decides after this one, so that they can be given back. Other machines learn
    /// of charges to synchronised buckets, whose keys `source` writes.
    ///
    /// The list is left with the buckets that decided.
    pub(super) fn charge(
        &mut self,
        is_undecided: bool,
        ask: Ask,
        now: Timestamp,
        verdict: &mut Verdict,
        source: Option<&dyn ChargeSource>,
    ) -> Reserved {
        let claims = self.claims();
        let locks = claims.lock_unsettled(|index| {
            let one = &self.charges[index].charge;
            one.demand.needed() > 0 && (one.settles || is_undecided)
        });
        let deciding = claims.decide(ask, now, verdict);
        self.follow(&deciding);
        let is_admitted = verdict.is_admitted() && ask != Ask::ChargeIfRefused;
        let table = |index: usize| Arc::clone(&self.charges[index].buckets.table);
        let mut reserved = locks.reserve(&deciding, is_admitted, now, is_undecided, table);
        if let Some(source) = source {
            self.record(source, &deciding, now, &mut reserved);
        }
        reserved
    }

    /// Asks the buckets of all charges, reserves nothing, and leaves the list with the buckets that
    /// decided.
    pub(super) fn decide(&mut self, ask: Ask, now: Timestamp, verdict: &mut Verdict) {
        let deciding = self.claims().decide(ask, now, verdict);
        self.follow(&deciding);
    }

    fn claims(&self) -> Claims<'a> {
        let mut claims = Claims::default();
        for charge in &self.charges {
            let rungs = charge.tiers().map(|tier| tier.in_memory());
            claims.push(charge.charge.role, rungs);
        }
        claims
    }

    /// Moves each charge to the bucket that decided.
    fn follow(&mut self, deciding: &DecidingRungs) {
        for (charge, one) in self.charges.iter_mut().zip(deciding) {
            *charge = charge.tiers().nth(one.rung).unwrap_or(*charge);
        }
    }

    /// Records the charges to synchronised buckets for other machines, or lets a reservation report
    /// its charge when it is settled.
    fn record(
        &self,
        source: &dyn ChargeSource,
        deciding: &DecidingRungs,
        now: Timestamp,
        reserved: &mut Reserved,
    ) {
        for (index, (one, decided)) in self.charges.iter().zip(deciding).enumerate() {
            let Some(recorder) = &one.buckets.sync_recorder else {
                continue;
            };
            let charge = &one.charge;
            let name = || recorder.name(|parts| _ = source.write_key(charge.id.limit, parts));
            let tracker = &recorder.tracker;
            match reserved.iter_mut().find(|(its, _)| *its == index) {
                Some((_, reservation)) => {
                    let (tracker, name) = (Arc::clone(tracker), name());
                    reservation.tell(move |key, units, made| {
                        tracker.record_late(key, units, (made.cell, made.at), name);
                    });
                }
                None if decided.charged > 0 => {
                    let cell = decided.decision.cell;
                    tracker.note(charge.key, decided.charged, cell, now, name);
                }
                None => {}
            }
        }
    }

    /// Keeps the units in use and the queue places of an admitted request.
    pub(super) fn hold(&self, result: &mut ChargeResult) {
        if !result.verdict.is_admitted() {
            return;
        }
        for (place, one) in self.charges.iter().enumerate() {
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
            if one.can_refuse() && decision.delayed_until().is_some() {
                let place = QueuePlace::in_memory(one.buckets, &charge, &decision);
                result
                    .held_mut()
                    .queue_places
                    .push((one.charge.id.limit, place));
            }
        }
    }
}

#[cfg(test)]
mod tests;
