//! The memory store's one step: decide a request by all its policies, and charge all of them or
//! none.

mod locking;

use parking_lot::MutexGuard;

use super::bucket::{Bucket, Origin, SlotChoice, Slots};
use super::permits::Permit;
use super::slab::Chunks;
use super::table::{OnFull, Refusals, Table};
use super::table_rules::{TableRules, refuse_for_memory};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Fingerprint, Verdict, WindowEnd};
use locking::{LockedBuckets, lock_all};

/// Units planned of one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The policy's buckets.
    pub table: &'a Table,
    /// Which of them.
    pub key: Fingerprint,
    /// How many units; 0 asks and charges nothing.
    pub cost: u32,
    /// When a window ends that this opens, after now, where requests say that
    /// ([`Start::Local`](crate::limiter::Start::Local)).
    pub window_end: Option<WindowEnd>,
}

/// Decides these charges together at `now`, and makes all of them if none is refused.
///
/// Check and charge are one step: concurrent calls see either all of it or nothing. Nothing is
/// allocated for up to four charges. In the verdict of a refusal, what other policies have
/// remaining is what it was, since they were not charged.
///
/// Of several charges to one bucket only the first in memory is made: no table is to appear twice.
pub fn charge_all(charges: &[Charge<'_>], now: Timestamp) -> Verdict {
    charge_with_shadow(charges, charges.len(), now)
}

/// The same where only the first `enforced` of the charges may refuse. The others watch: what one of them refuses
/// is not charged there, and everywhere else as if it had not been planned.
pub fn charge_with_shadow(charges: &[Charge<'_>], enforced: usize, now: Timestamp) -> Verdict {
    let mut verdict = Verdict::default();
    charge_into(&mut verdict, charges, enforced, Refusals::Charged, now);
    verdict
}

/// The same where a refusal is not the last word: it charges nobody, whatever the tables say of refusals.
pub fn try_charge(charges: &[Charge<'_>], enforced: usize, now: Timestamp) -> Verdict {
    let mut verdict = Verdict::default();
    charge_into(&mut verdict, charges, enforced, Refusals::Free, now);
    verdict
}

/// What the others do, where the caller has room for the verdict: it is large. Refusals are charged where both `refusals` and
/// the table say so.
pub fn charge_into(
    verdict: &mut Verdict,
    charges: &[Charge<'_>],
    enforced: usize,
    refusals: Refusals,
    now: Timestamp,
) {
    verdict.clear();
    match charges {
        [charge] if charge.table.permits().is_none() => {
            charge_one(verdict, charge, enforced, refusals, now);
        }
        _ => charge_many(verdict, charges, enforced, refusals, now),
    }
}

/// Adds what the charge at this place is told.
fn add(verdict: &mut Verdict, place: usize, enforced: usize, decision: Decision) {
    match place < enforced {
        true => verdict.push(decision),
        false => verdict.push_shadowed(decision),
    }
}

/// Most requests have one policy, and nothing to sort; most policies have no rings.
fn charge_one(
    verdict: &mut Verdict,
    charge: &Charge<'_>,
    enforced: usize,
    refusals: Refusals,
    now: Timestamp,
) {
    let (table, mut slots) = lock_one(charge);
    let rules = charge.rules(table);
    if rules.rings.is_some() || rules.refusals == Refusals::Charged {
        drop(slots);
        let charges = std::slice::from_ref(charge);
        return charge_many(verdict, charges, enforced, refusals, now);
    }
    let slot = slots.choose_slot(charge.key.bits(), rules, now);
    let mut decision = table.algorithm().decide(slot.cell, now, charge.cost);
    if decision.is_admitted() && charge.cost > 0 {
        let cell = charge.cell_after(rules, &slot, &decision, now);
        decision.cell = table.write(&mut slots, slot, charge.key, cell, rules);
    }
    drop(slots);
    add(verdict, 0, enforced, decision);
}

/// Gives back what a charge took that left the cell `charged`, for somebody who has left before his turn: whether it
/// did. It does not where others came after him ([`Algorithm::leave_queue`](crate::limiter::Algorithm::leave_queue)).
pub fn leave_queue(charge: &Charge<'_>, charged: Cell, now: Timestamp) -> bool {
    let (table, mut slots) = lock_one(charge);
    let rules = table.rules();
    let slot = slots.choose_slot(charge.key.bits(), rules, now);
    let given = rules
        .algorithm
        .leave_queue(slot.cell, charged, charge.cost, now)
        .filter(|_| slot.origin == Origin::Own);
    match given {
        Some(cell) => _ = table.write(&mut slots, slot, charge.key, cell, rules),
        None => slot.release(rules),
    }
    given.is_some()
}

/// Locks the bucket of a charge, and finds the table that it is in by now.
pub(super) fn lock_one<'a>(charge: &Charge<'a>) -> (&'a Table, MutexGuard<'a, Slots>) {
    let mut table = charge.table;
    loop {
        match table.bucket_of(charge.key).and_then(Bucket::lock) {
            Some(slots) => return (table, slots),
            None => table = table.next(),
        }
    }
}

fn charge_many(
    verdict: &mut Verdict,
    charges: &[Charge<'_>],
    enforced: usize,
    refusals: Refusals,
    now: Timestamp,
) {
    let mut locked = LockedBuckets::new();
    lock_all(charges, &mut locked);
    for (place, (charge, locked)) in charges.iter().zip(&mut locked).enumerate() {
        add(verdict, place, enforced, locked.plan(charge, now));
    }
    let admitted = verdict.is_admitted();
    let mut owes = false;
    let each = charges.iter().zip(&mut locked).zip(&mut verdict.decisions);
    for ((charge, locked), decision) in each {
        let charged = [locked.table.refusals(), refusals] == [Refusals::Charged; 2];
        match admitted && decision.is_admitted() {
            true => locked.commit(charge, decision, now),
            false if charged && charge.cost > 0 => {
                locked.charge_refused(charge, decision, now);
                owes = true;
            }
            false => locked.discard(charge, decision, now),
        }
    }
    if owes {
        // Who owes is told to come back later than was first decided.
        *verdict = Verdict::of(std::mem::take(&mut verdict.decisions), enforced);
    }
}

/// What a charge needs to be made, held until all others are decided.
struct PlannedCharge {
    slot: SlotChoice,
    /// What its ring lacks.
    chunks: Chunks,
}

impl PlannedCharge {
    fn without_chunks(slot: SlotChoice) -> Self {
        Self {
            slot,
            chunks: Chunks::new(),
        }
    }

    /// Gives back what was held for a charge that is not made.
    fn release(self, rules: TableRules<'_>) {
        if let Some(rings) = &rules.rings {
            rings.slab.give_back(self.chunks);
            self.slot.release(rules);
        }
    }
}

impl Charge<'_> {
    /// Whether it is charged also if the request is refused.
    pub fn is_charged_if_refused(&self) -> bool {
        self.cost > 0 && self.table.refusals() == Refusals::Charged
    }

    /// What gives back the units of this charge, once it has been made, when it is dropped; `None` where they come
    /// back with time. To be planned for once: units that nobody gives back stay in use.
    pub fn permit(&self) -> Option<Permit> {
        self.table.permit(self.key, self.cost)
    }

    /// What [`charge_all`] would say to this charge alone; leaves everything as it is.
    pub fn peek(&self, now: Timestamp) -> Decision {
        self.table.peek_at(self, now)
    }

    /// The rules of a table, its own or a successor, for this charge.
    pub(super) fn rules<'t>(&self, table: &'t Table) -> TableRules<'t> {
        TableRules {
            window_end: self.window_end,
            ..table.rules()
        }
    }

    /// Takes the units of this charge, or a place in the line for them, which is given up where it is dropped; `None`
    /// where the line is full, and where units come back with time. To be planned for in the same order by all, so that
    /// nobody waits for somebody who waits for him.
    pub fn acquire(&self) -> Option<Permit> {
        self.table.acquire(self.key, self.cost)
    }

    /// Decides, and holds what the charge needs.
    fn plan(
        &self,
        rules: TableRules<'_>,
        slots: &mut Slots,
        now: Timestamp,
    ) -> (PlannedCharge, Decision) {
        if rules.rings.is_some() {
            slots.release_expired(rules, now);
        }
        let mut slot = slots.choose_slot(self.key.bits(), rules, now);
        let decision = rules.decide(slot.cell, now, self.cost);
        let planned = PlannedCharge::without_chunks;
        if slot.has_no_memory() {
            return (planned(slot), refuse_for_memory(decision, slot.cell, now));
        }
        if !decision.is_admitted() || self.cost == 0 || !slot.is_recorded() {
            return (planned(slot), decision);
        }
        match rules.reserve(slot.cell, decision.cell, now) {
            Some(chunks) => (PlannedCharge { slot, chunks }, decision),
            None if rules.on_full == OnFull::Strict => {
                let refused = refuse_for_memory(decision, slot.cell, now);
                (planned(slot), refused)
            }
            None => {
                slot.leave_unrecorded();
                (planned(slot), decision)
            }
        }
    }

    /// Makes the charge, and says in the decision what is kept of it.
    fn commit(
        &self,
        table: &Table,
        slots: &mut Slots,
        planned: PlannedCharge,
        decision: &mut Decision,
        now: Timestamp,
    ) {
        let (rules, slot) = (self.rules(table), planned.slot);
        if self.cost == 0 {
            return planned.release(rules);
        }
        let cell = match rules.rings {
            None => self.cell_after(rules, &slot, decision, now),
            Some(_) if slot.is_recorded() => {
                rules.record(slot.cell, decision.cell, self.cost, planned.chunks)
            }
            Some(_) => decision.cell,
        };
        decision.cell = table.write(slots, slot, self.key, cell, rules);
    }

    /// Charges a request that is refused, by this policy or another, and says what it is told then.
    fn charge_refused(
        &self,
        table: &Table,
        slots: &mut Slots,
        planned: PlannedCharge,
        mut decision: Decision,
        now: Timestamp,
    ) -> Decision {
        if decision.is_admitted() {
            self.commit(table, slots, planned, &mut decision, now);
            return decision;
        }
        let (rules, slot) = (self.rules(table), planned.slot);
        let (cell, cost) = rules
            .algorithm
            .charge_refused(rules.state(slot.cell), now, self.cost);
        let owed = Decision { cell, ..decision };
        let chunks = slot
            .is_recorded()
            .then(|| rules.reserve(slot.cell, cell, now))
            .flatten();
        let Some(chunks) = chunks else {
            planned.release(rules);
            return decision;
        };
        let cell = match rules.rings {
            None => self.cell_after(rules, &slot, &owed, now),
            Some(_) => rules.record(slot.cell, cell, cost, chunks),
        };
        table.write(slots, slot, self.key, cell, rules);
        rules.decide(cell, now, self.cost)
    }

    /// The cell after a charge, where it is all that there is.
    fn cell_after(
        &self,
        rules: TableRules<'_>,
        slot: &SlotChoice,
        decision: &Decision,
        now: Timestamp,
    ) -> Cell {
        match slot.origin {
            Origin::Own => decision.cell,
            // At least what the key has used by itself: a window that it takes over half-way must
            // not end before its own would.
            Origin::Floor => {
                let new = rules.open(Cell::EMPTY, self.key.bits(), now);
                let own = rules.algorithm.decide(new, now, self.cost).cell;
                rules.algorithm.join(decision.cell, own, now)
            }
        }
    }
}

#[cfg(test)]
mod tests;
