//! The charge: decides on a request by all its policies, and charges all of them or none.

mod ladder;
mod locking;

use parking_lot::MutexGuard;

use super::bucket::{Bucket, Origin, SlotChoice, Slots};
use super::slab::Chunks;
use super::table::{OnFull, Refusals, Table};
use super::table_rules::{TableRules, refuse_for_memory};
use crate::algorithms::WindowEnd;
use crate::bucket::{Debt, ReservedCharge};
use crate::ring::BucketState;
use crate::{Cell, Decision, Demand, Fingerprint, Timestamp, Verdict};
pub use ladder::{Claims, DecidingRung, DecidingRungs, Role};

/// A charge to one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The policy's table.
    pub table: &'a Table,
    /// The key of the bucket.
    pub key: Fingerprint,
    /// The units that the request needs. A cost of 0 decides and charges nothing.
    pub demand: Demand,
    /// The end of a window that this charge opens, after now, if requests set it
    /// ([`Start::Local`](crate::algorithms::Start::Local)).
    pub window_end: Option<WindowEnd>,
}

/// The question to the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Decides, and charges all claims or none. A refused request is charged where the table says so.
    Charge,
    /// Decides, and charges only an admitted request.
    ChargeIfAdmitted,
    /// Decides, and charges only a refused request.
    ChargeIfRefused,
    /// Another store refuses the request, which is charged where the table says so.
    RefusedElsewhere,
    /// Decides as if charged, and writes nothing.
    Peek,
    /// Decides on a request that a ban refuses, and writes nothing.
    Banned,
}

/// Decides these charges together at `now`, and makes all of them if none is refused
/// ([`charge_into`]).
pub fn charge_all(charges: &[Charge<'_>], now: Timestamp) -> Verdict {
    let mut verdict = Verdict::default();
    charge_into(&mut verdict, charges, now);
    verdict
}

/// Decides these charges together at `now`, and makes all of them if none is refused. Refused requests
/// are charged where the table says so. [`Claims`] has charges with other roles.
///
/// Check and charge are one step: concurrent calls see all of it or nothing. Up to four charges
/// need no allocation. A refusal leaves the `remaining` of all policies unchanged.
///
/// Callers name each bucket once: of several charges to one bucket only the first in memory is
/// made.
pub fn charge_into(verdict: &mut Verdict, charges: &[Charge<'_>], now: Timestamp) {
    verdict.clear();
    match charges {
        [] => {}
        [charge] if charge.table.permits().is_none() => charge_one(verdict, charge, now),
        _ => charge_many(verdict, charges, now),
    }
}

/// The common case: one policy without rings needs no sorting.
fn charge_one(verdict: &mut Verdict, charge: &Charge<'_>, now: Timestamp) {
    let (table, mut slots) = lock_one(charge);
    let rules = charge.rules(table);
    if rules.slab.is_some() || rules.table.refusals == Refusals::Charged {
        drop(slots);
        return charge_many(verdict, std::slice::from_ref(charge), now);
    }
    let mut slot = slots.choose_slot(charge.key.bits(), rules, now);
    let mut decision = charge.decide(&mut slot, rules, now);
    if decision.is_admitted() && charge.demand.cost > 0 {
        let cell = charge.cell_after(rules, &slot, &decision, now);
        decision.cell = table.write(&mut slots, slot, charge.key, cell, rules);
    }
    drop(slots);
    verdict.push(decision);
}

fn charge_many(verdict: &mut Verdict, charges: &[Charge<'_>], now: Timestamp) {
    let mut claims = Claims::default();
    for charge in charges {
        claims.push(Role::Refuses, [*charge]);
    }
    claims.decide(Ask::Charge, now, verdict);
}

/// Gives back the units of a delayed request that leaves before its turn; its charge had left the
/// cell `charged`. False if later requests queue behind it, or the bucket has been replaced since.
pub fn leave_queue(charge: &Charge<'_>, charged: Cell, now: Timestamp) -> bool {
    let (table, mut slots) = lock_one(charge);
    let (rules, units, mut has_left) = (table.rules(), charge.demand.cost, false);
    let reserved = ReservedCharge {
        cell: charged,
        at: now,
        units,
        unsettled: 0,
    };
    if rules.algorithm.delays() {
        slots.change(charge.key.bits(), rules, |cell| {
            let left = (rules.algorithm).give_back(cell, &reserved, units, now);
            has_left = left != cell;
            left
        });
    }
    has_left
}

/// Locks the bucket of a charge, and finds the table that has it now.
pub(super) fn lock_one<'a>(charge: &Charge<'a>) -> (&'a Table, MutexGuard<'a, Slots>) {
    let mut table = charge.table;
    loop {
        match table.bucket_of(charge.key).and_then(Bucket::lock) {
            Some(slots) => return (table, slots),
            None => table = table.next(),
        }
    }
}

/// The entry and memory for a charge, held until all charges are decided.
struct PlannedCharge {
    slot: SlotChoice,
    /// The chunks that its ring lacks.
    chunks: Chunks,
}

impl PlannedCharge {
    fn without_chunks(slot: SlotChoice) -> Self {
        Self {
            slot,
            chunks: Chunks::new(),
        }
    }

    /// Releases the memory of a charge that is not made.
    fn release(self, rules: TableRules<'_>) {
        if let Some(slab) = rules.slab {
            slab.give_back(self.chunks);
            self.slot.release(rules);
        }
    }
}

impl<'a> Charge<'a> {
    /// A charge of `cost` units.
    pub const fn new(table: &'a Table, key: Fingerprint, cost: u32) -> Self {
        Self {
            table,
            key,
            demand: Demand::of(cost),
            window_end: None,
        }
    }
}

impl Charge<'_> {
    /// True if a refused request is charged, too.
    pub fn is_charged_if_refused(&self) -> bool {
        self.demand.needed() > 0 && self.table.refusals == Refusals::Charged
    }

    /// The rules of a table, its own or a successor, for this charge.
    pub(super) fn rules<'t>(&self, table: &'t Table) -> TableRules<'t> {
        TableRules {
            window_end: self.window_end,
            demand: self.demand,
            ..table.rules()
        }
    }

    /// Decides by the chosen cell, which becomes the key's own if the request is admitted.
    #[inline]
    pub(super) fn decide(
        &self,
        slot: &mut SlotChoice,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> Decision {
        let decision = rules.decide(slot.cell, now, self.demand.cost);
        if slot.origin == Origin::Own || !decision.is_admitted() {
            return decision;
        }
        slot.adopt(self.key.bits(), rules, now);
        rules.decide(slot.cell, now, self.demand.cost)
    }

    /// Decides, and reserves memory for the charge if it is to be made.
    fn plan(
        &self,
        rules: TableRules<'_>,
        slots: &mut Slots,
        ask: Ask,
        now: Timestamp,
    ) -> (PlannedCharge, Decision) {
        let writes = !matches!(ask, Ask::Peek | Ask::Banned);
        if writes && rules.slab.is_some() {
            slots.release_expired(rules, now);
        }
        let mut slot = slots.choose_slot(self.key.bits(), rules, now);
        let decision = self.decide(&mut slot, rules, now);
        let planned = PlannedCharge::without_chunks;
        if slot.has_no_memory() {
            return (planned(slot), refuse_for_memory(decision, slot.cell, now));
        }
        let is_charged = writes && decision.is_admitted() && self.demand.cost > 0;
        if !is_charged || !slot.is_recorded() {
            return (planned(slot), decision);
        }
        match rules.reserve(slot.cell, decision.cell, now) {
            Some(chunks) => (PlannedCharge { slot, chunks }, decision),
            None if rules.table.on_full == OnFull::Strict => {
                let refused = refuse_for_memory(decision, slot.cell, now);
                (planned(slot), refused)
            }
            None => {
                slot.leave_unrecorded();
                (planned(slot), decision)
            }
        }
    }

    /// Makes the charge, and updates the decision's cell to the recorded one.
    fn commit(
        &self,
        table: &Table,
        slots: &mut Slots,
        planned: PlannedCharge,
        decision: &mut Decision,
        now: Timestamp,
    ) {
        let (rules, slot) = (self.rules(table), planned.slot);
        if self.demand.cost == 0 {
            return planned.release(rules);
        }
        let cell = match rules.slab {
            None => self.cell_after(rules, &slot, decision, now),
            Some(_) if slot.is_recorded() => {
                rules.record(slot.cell, decision.cell, self.demand.cost, planned.chunks)
            }
            Some(_) => decision.cell,
        };
        decision.cell = table.write(slots, slot, self.key, cell, rules);
    }

    /// Charges a request that this or another policy refuses, and returns the new decision.
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
        let (rules, mut slot) = (self.rules(table), planned.slot);
        slot.adopt(self.key.bits(), rules, now);
        let owe = |state: BucketState<'_>| {
            (rules.algorithm).owe(state, now, now, self.demand.cost, Debt::Refused)
        };
        let owed = || charged_cell(rules, &slot, self.key, now, owe);
        let Some(cell) = slot.is_recorded().then(owed).flatten() else {
            planned.release(rules);
            return decision;
        };
        table.write(slots, slot, self.key, cell, rules);
        rules.decide(cell, now, self.demand.cost)
    }

    /// The cell after a charge without a ring.
    fn cell_after(
        &self,
        rules: TableRules<'_>,
        slot: &SlotChoice,
        decision: &Decision,
        now: Timestamp,
    ) -> Cell {
        match slot.origin {
            Origin::Own => decision.cell,
            // At least the key's own use: a window taken over half-way must not end before the
            // key's own.
            Origin::Floor => {
                let new = rules.open(Cell::EMPTY, self.key.bits(), now);
                let own = rules
                    .algorithm
                    .decide(new, now, self.demand.cost.into())
                    .cell;
                rules.algorithm.join(decision.cell, own, now)
            }
        }
    }
}

/// The cell after the charge `owe`; `None` if memory lacks for its ring.
pub(super) fn charged_cell(
    rules: TableRules<'_>,
    slot: &SlotChoice,
    key: Fingerprint,
    now: Timestamp,
    owe: impl Fn(BucketState<'_>) -> (Cell, u32),
) -> Option<Cell> {
    let owes = |cell| owe(rules.state(cell));
    if rules.slab.is_some() && !slot.is_recorded() {
        return None;
    }
    let (after, recorded) = owes(slot.cell);
    if rules.slab.is_some() {
        let chunks = rules.reserve(slot.cell, after, now)?;
        return Some(rules.record(slot.cell, after, recorded, chunks));
    }
    Some(match slot.origin {
        Origin::Own => after,
        Origin::Floor => {
            let (own, _) = owes(rules.open(Cell::EMPTY, key.bits(), now));
            rules.algorithm.join(after, own, now)
        }
    })
}

#[cfg(test)]
pub(super) mod tests;
