//! Reservations: charges to settle once a request's cost is known, or to give back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::bucket::{Bucket, Slots};
use super::charge::{Charge, Claims, DecidingRung, DecidingRungs, charged_cell, lock_one};
use super::permits::{LockedShard, Permits, Shard};
use super::table::{Refusals, Table};
use super::table_rules::TableRules;
use crate::bucket::{Debt, ReservedCharge};
use crate::ring::BucketState;
use crate::{Cell, Decision, Fingerprint, Timestamp};

/// A charge to settle. Dropping it leaves the charge as it is.
#[derive(derive_more::Debug)]
pub struct Reservation {
    table: Arc<Table>,
    key: Fingerprint,
    reserved: ReservedCharge,
    /// The generation of the bucket. A later one no longer has this charge.
    generation: u64,
    /// The report of the charge to other machines, if buckets are synchronised.
    #[debug(skip)]
    report: Option<Report>,
    /// True while another store may refuse the request.
    is_undecided: bool,
}

/// Reports to others that a charge of a key has become so many units: none if it is given back.
type Report = Box<dyn FnOnce(Fingerprint, u32, &ReservedCharge) + Send + Sync>;
/// The locked counts of unsettled units, held while claims are decided.
#[derive(Debug)]
pub struct UnsettledLocks<'a>(SmallVec<[(LockedShard<'a>, SettleableRung); 2]>);

/// A bucket whose charge may be settled or given back.
#[derive(Clone, Copy, Debug)]
struct SettleableRung {
    claim: usize,
    rung: usize,
    key: Fingerprint,
    cost: u32,
}

impl<'a> Claims<'a> {
    /// Locks the counts of the claims `is_settled`, for [`decide`](Self::decide).
    ///
    /// Every charge that may be settled or given back must come through here, since this counts
    /// unsettled units and notices buckets that start empty. [Permits](Charge::permit) return units
    /// in use, which no reservation has.
    pub fn lock_unsettled(&self, is_settled: impl Fn(usize) -> bool) -> UnsettledLocks<'a> {
        let mut shards: SmallVec<[(&Shard, SettleableRung); 2]> = SmallVec::new();
        let claims = self.ladders().enumerate();
        for (claim, rungs) in claims.filter(|(claim, _)| is_settled(*claim)) {
            for (rung, charge) in rungs.iter().enumerate() {
                let settleable = SettleableRung {
                    claim,
                    rung,
                    key: charge.key,
                    cost: charge.demand.cost,
                };
                let unsettled = charge.table.unsettled();
                shards.extend(unsettled.map(|all| (all.shard(charge.key), settleable)));
            }
        }
        // Before any bucket, and always in the same order, which prevents deadlock.
        shards.sort_unstable_by_key(|(shard, _)| std::ptr::from_ref(*shard).addr());
        let locked = shards.into_iter().map(|(shard, one)| (shard.lock(), one));
        UnsettledLocks(locked.collect())
    }
}

impl UnsettledLocks<'_> {
    /// The reservations of the charges that were made, with the numbers of their claims, for a
    /// request that is `admitted` or not. While they are undecided, refusals of their buckets are
    /// [in doubt](Charge::is_in_doubt).
    pub fn reserve(
        mut self,
        deciding: &DecidingRungs,
        admitted: bool,
        now: Timestamp,
        is_undecided: bool,
        deciding_table: impl Fn(usize) -> Arc<Table>,
    ) -> Vec<(usize, Reservation)> {
        let made = self.0.iter_mut().filter_map(|(unsettled, one)| {
            let DecidingRung {
                decision,
                charged,
                rung,
            } = deciding[one.claim];
            let is_made = charged > 0 || admitted;
            if !is_made || !decision.is_admitted() || rung != one.rung {
                return None;
            }
            if was_whole(&decision, charged) {
                unsettled.start_generation(one.key);
            }
            if !admitted {
                return None;
            }
            let reserved = ReservedCharge {
                cell: decision.cell,
                at: now,
                units: one.cost,
                unsettled: unsettled.units(one.key),
            };
            unsettled.take(one.key, one.cost);
            if is_undecided {
                unsettled.add_undecided(one.key, one.cost);
            }
            let reservation = Reservation {
                table: deciding_table(one.claim),
                key: one.key,
                reserved,
                generation: unsettled.generation(one.key),
                report: None,
                is_undecided,
            };
            Some((one.claim, reservation))
        });
        made.collect()
    }
}

/// True if the bucket was whole before this charge, by recovery or eviction. Earlier charges are no
/// longer in it, so giving them back would take from later ones.
fn was_whole(decision: &Decision, cost: u32) -> bool {
    decision.remaining.checked_add(cost.into()) == Some(decision.capacity)
}

impl Reservation {
    /// The charged units.
    pub fn units(&self) -> u32 {
        self.reserved.units
    }

    /// Reports the charge to other machines when it is settled or stands. A charge that is given
    /// back is reported as 0.
    pub fn tell(
        &mut self,
        report: impl FnOnce(Fingerprint, u32, &ReservedCharge) + Send + Sync + 'static,
    ) {
        self.report = Some(Box::new(report));
    }

    /// Marks the request as admitted by all stores.
    pub fn decide(&mut self) {
        let is_undecided = std::mem::take(&mut self.is_undecided);
        let mut unsettled = self.unsettled().shard(self.key).lock();
        if is_undecided {
            unsettled.decide(self.key, self.units());
        }
    }

    /// Changes the charge to `units` units. Missing units are charged even if the bucket lacks
    /// them; excess units are given back unless they have recovered.
    pub fn settle(mut self, units: u32, now: Timestamp) {
        // Changed first: the report of a charge that found no window looks into the bucket.
        self.change(units, now);
        self.report(units);
    }

    fn change(&self, units: u32, now: Timestamp) {
        // Holding the lock keeps others from reserving units of this key without counting these.
        let mut unsettled = self.unsettled().shard(self.key).lock();
        let is_there = self.generation == unsettled.generation(self.key);
        let less = self.units().saturating_sub(units);
        let refund = if is_there { less } else { 0 };
        let extra = units.saturating_sub(self.units());
        if (self.table).settle(self.key, self.reserved, refund, extra, now) {
            unsettled.start_generation(self.key);
        }
    }

    /// Gives the whole charge back, for example after another store has refused the request.
    ///
    /// The bucket then has no more left than without the charge. If the charge was just made, it
    /// has no less either, with these exceptions:
    ///
    /// - A bucket that recovers continuously or in steps, and would have been whole meanwhile
    ///   without unsettled charges, may recover later: by at most the time since the charge (or one
    ///   refill).
    /// - A window that this first request opened, and that counts later requests, stays where it
    ///   is.
    /// - A place in a queue stays taken if later requests are behind it: they know their turns.
    /// - Requests that were refused meanwhile stay refused, and evicted keys stay evicted.
    /// - Debt beyond the bucket's maximum was forgiven, and is not charged after all.
    pub fn give_back(self, now: Timestamp) {
        self.settle(0, now);
    }

    fn report(&mut self, units: u32) {
        if let Some(report) = self.report.take() {
            report(self.key, units, &self.reserved);
        }
    }

    fn unsettled(&self) -> &Permits {
        let unsettled = self.table.unsettled();
        unsettled.expect("tables of units in use have no reservations")
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.report(self.units());
        let mut unsettled = self.unsettled().shard(self.key).lock();
        if self.is_undecided {
            unsettled.decide(self.key, self.reserved.units);
        }
        unsettled.give_back(self.key, self.reserved.units);
    }
}

impl Charge<'_> {
    /// True if a refusal of this charge may be wrong: another store may refuse requests that have
    /// charged the bucket, or has refused them meanwhile.
    pub fn is_in_doubt(&self, now: Timestamp) -> bool {
        let Some(unsettled) = self.table.unsettled() else {
            return false;
        };
        let is_undecided = unsettled.shard(self.key).lock().is_undecided(self.key);
        is_undecided || self.peek(now).is_admitted()
    }

    /// Charges units that other machines admitted at `at` or earlier, even if the bucket lacks them
    /// ([`Algorithm::owe`](crate::Algorithm::owe)). Does nothing unless the algorithm
    /// [allows it](crate::Algorithm::can_charge_remote).
    pub fn charge_remote(&self, at: Timestamp, now: Timestamp) {
        let can_charge = self.table.algorithm().can_charge_remote();
        let Some(unsettled) = self.table.unsettled().filter(|_| can_charge) else {
            return;
        };
        let mut unsettled = unsettled.shard(self.key).lock();
        let (table, mut slots) = lock_one(self);
        let rules = self.rules(table);
        // Refused requests are reported at their whole cost, also if their debt was forgiven.
        let debt = match self.table.refusals {
            Refusals::Free => Debt::CARRIED,
            Refusals::Charged => Debt::Windows(1),
        };
        let units = self.demand.cost;
        let owe = |state: BucketState<'_>| rules.algorithm.owe(state, at, now, units, debt);
        if table.force_charge(&mut slots, rules, self.key, now, owe) {
            unsettled.start_generation(self.key);
        }
    }
}

impl Table {
    /// Adjusts a charge of `key`: gives `refund` units back, and charges `extra`. True if that
    /// charged a bucket that was whole.
    fn settle(
        &self,
        key: Fingerprint,
        mut reserved: ReservedCharge,
        mut refund: u32,
        extra: u32,
        now: Timestamp,
    ) -> bool {
        let mut table = self;
        loop {
            if let Some(mut slots) = table.bucket_of(key).and_then(Bucket::lock) {
                let rules = table.rules();
                if refund > 0 {
                    slots.change(key.bits(), rules, |cell| {
                        let state = rules.state(cell);
                        rules.algorithm.give_back(state, &reserved, refund, now)
                    });
                }
                let owe = |state: BucketState<'_>| {
                    rules.algorithm.owe(state, now, now, extra, Debt::CARRIED)
                };
                return extra > 0 && table.force_charge(&mut slots, rules, key, now, owe);
            }
            let next = table.next();
            match table
                .algorithm()
                .convert_reserved(next.algorithm(), reserved, now)
            {
                Some((same, most)) => (reserved, refund) = (same, refund.min(most)),
                None => refund = 0,
            }
            table = next;
        }
    }

    /// Replaces a cell with the result of `owe`. True if the bucket was whole before.
    fn force_charge(
        &self,
        slots: &mut Slots,
        rules: TableRules<'_>,
        key: Fingerprint,
        now: Timestamp,
        owe: impl Fn(BucketState<'_>) -> (Cell, u32),
    ) -> bool {
        if rules.slab.is_some() {
            slots.release_expired(rules, now);
        }
        let mut slot = slots.choose_slot(key.bits(), rules, now);
        slot.adopt(key.bits(), rules, now);
        if owe(rules.state(slot.cell)).0 == slot.cell {
            slot.release(rules);
            return false;
        }
        let was_whole = rules.used(slot.cell, now) == 0;
        let cell = match charged_cell(rules, &slot, key, now, owe) {
            Some(cell) => cell,
            None => {
                slot.release(rules);
                slot.leave_unrecorded();
                slot.cell
            }
        };
        self.write(slots, slot, key, cell, rules);
        was_whole
    }
}

#[cfg(test)]
mod tests;
