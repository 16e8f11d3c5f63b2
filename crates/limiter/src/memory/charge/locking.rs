//! Locking of all buckets of a call, before it looks at any.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::{Ask, Charge, PlannedCharge};
use crate::bucket::Debt;
use crate::memory::bucket::{Bucket, Slots};
use crate::memory::permits::{LockedShard, Shard};
use crate::memory::table::Table;
use crate::memory::table_rules::TableRules;
use crate::{Cell, Decision, Fingerprint, Timestamp};

/// Charges of a call that need no allocation.
const INLINE: usize = 4;

/// The bucket of a charge, and its present table: the charge's own, or a successor.
pub(super) struct LockedBucket<'a> {
    pub(super) table: &'a Table,
    /// `None` if an earlier charge of the call has this bucket, which is charged once.
    guard: Option<Guard<'a>>,
    /// The plan between decision and commit. Permits need none.
    plan: Option<PlannedCharge>,
}

enum Guard<'a> {
    Slots(MutexGuard<'a, Slots>),
    InUse(LockedShard<'a>),
}

#[derive(Clone, Copy)]
enum LockTarget<'a> {
    Bucket(&'a Bucket),
    Shard(&'a Shard),
}

/// The bucket of the charge at this index has moved to its table's successor.
struct Moved(usize);

impl LockedBucket<'_> {
    /// Decides, and keeps the plan.
    pub(super) fn plan(&mut self, charge: &Charge<'_>, ask: Ask, now: Timestamp) -> Decision {
        match &mut self.guard {
            Some(Guard::Slots(slots)) => {
                let rules = charge.rules(self.table);
                let (planned, decision) = charge.plan(rules, slots, ask, now);
                self.plan = Some(planned);
                decision
            }
            Some(Guard::InUse(in_use)) => {
                let algorithm = self.table.algorithm();
                let cell = in_use.cell(charge.key, algorithm.capacity());
                algorithm.decide(cell, now, charge.demand.cost.into())
            }
            None => self.table.rules().decide(Cell::EMPTY, now, 0),
        }
    }

    /// Makes the charge.
    pub(super) fn commit(&mut self, charge: &Charge<'_>, decision: &mut Decision, now: Timestamp) {
        match &mut self.guard {
            Some(Guard::Slots(slots)) => {
                if let Some(planned) = self.plan.take() {
                    charge.commit(self.table, slots, planned, decision, now);
                }
            }
            Some(Guard::InUse(in_use)) => in_use.take(charge.key, charge.demand.cost),
            None => {}
        }
    }

    /// Charges a refused request, and updates the decision. Permits are not charged.
    pub(super) fn charge_refused(
        &mut self,
        charge: &Charge<'_>,
        decision: &mut Decision,
        now: Timestamp,
    ) {
        match (&mut self.guard, self.plan.take()) {
            (Some(Guard::Slots(slots)), Some(planned)) => {
                *decision = charge.charge_refused(self.table, slots, planned, *decision, now);
            }
            _ => self.discard(charge, decision, now),
        }
    }

    /// Drops the plan, and keeps the decision.
    pub(super) fn forget(&mut self, charge: &Charge<'_>) {
        if let Some(planned) = self.plan.take() {
            planned.release(charge.rules(self.table));
        }
    }

    /// Decides as if a refused request was charged. Units in a ring or in use are not counted.
    pub(super) fn peek_refused(
        &mut self,
        charge: &Charge<'_>,
        decision: &mut Decision,
        now: Timestamp,
    ) {
        let rules = charge.rules(self.table);
        match self.plan.take() {
            Some(planned) if rules.slab.is_none() && !decision.is_admitted() => {
                let state = rules.state(planned.slot.cell);
                let debt = Debt::Refused;
                let (cell, _) = (rules.algorithm).owe(state, now, now, charge.demand.cost, debt);
                *decision = rules.decide(cell, now, charge.demand.cost);
            }
            planned => {
                self.plan = planned;
                if decision.is_admitted() {
                    self.forget(charge)
                } else {
                    self.discard(charge, decision, now)
                }
            }
        }
    }

    /// The decision on a request of no units that keeps what this one has to.
    pub(super) fn peek(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let rules = TableRules {
            demand: charge.demand.of_nothing(),
            ..charge.rules(self.table)
        };
        match &self.guard {
            Some(Guard::Slots(slots)) => {
                let slot = slots.choose_slot(charge.key.bits(), rules, now);
                let decision = rules.decide(slot.cell, now, 0);
                slot.release(rules);
                decision
            }
            Some(Guard::InUse(in_use)) => {
                let cell = in_use.cell(charge.key, rules.algorithm.capacity());
                rules.decide(cell, now, 0)
            }
            None => rules.decide(Cell::EMPTY, now, 0),
        }
    }

    /// Drops the plan. An admission becomes a decision without the charge, since another policy has
    /// refused.
    pub(super) fn discard(&mut self, charge: &Charge<'_>, decision: &mut Decision, now: Timestamp) {
        let rules = charge.rules(self.table);
        let planned = self.plan.take();
        let cell = match (&self.guard, &planned) {
            (Some(Guard::Slots(_)), Some(planned)) => planned.slot.cell,
            (Some(Guard::InUse(in_use)), _) => in_use.cell(charge.key, rules.algorithm.capacity()),
            (Some(Guard::Slots(_)) | None, _) => Cell::EMPTY,
        };
        if decision.is_admitted() {
            *decision = rules.decide(cell, now, 0);
        }
        if let Some(planned) = planned {
            planned.release(rules);
        }
    }
}

impl<'a> LockTarget<'a> {
    /// The lock for `key`; `None` if its bucket moved before it was allocated.
    fn of(table: &'a Table, key: Fingerprint) -> Option<Self> {
        match table.permits() {
            Some(permits) => Some(Self::Shard(permits.shard(key))),
            None => table.bucket_of(key).map(Self::Bucket),
        }
    }

    /// The order in which all calls lock.
    fn address(self) -> usize {
        match self {
            Self::Bucket(bucket) => std::ptr::from_ref(bucket).addr(),
            Self::Shard(shard) => std::ptr::from_ref(shard).addr(),
        }
    }

    /// Locks; `None` if the bucket has moved.
    fn lock(self) -> Option<Guard<'a>> {
        match self {
            Self::Bucket(bucket) => bucket.lock().map(Guard::Slots),
            Self::Shard(shard) => Some(Guard::InUse(shard.lock())),
        }
    }

    /// Fetches the bucket's memory. Locking waits for one bucket before it touches the next;
    /// prefetching overlaps them, which is most of a decision's cost in tables larger than the
    /// caches.
    fn prefetch(self) {
        match self {
            Self::Bucket(bucket) => bucket.prefetch(),
            Self::Shard(_) => {}
        }
    }
}

pub(super) type LockedBuckets<'a> = SmallVec<[LockedBucket<'a>; INLINE]>;

/// Locks the bucket of each charge, into the caller's list, which is large.
pub(super) fn lock_all<'a>(charges: &[Charge<'a>], locked: &mut LockedBuckets<'a>) {
    locked.extend(charges.iter().map(|charge| LockedBucket {
        table: charge.table,
        guard: None,
        plan: None,
    }));
    while let Err(Moved(index)) = try_lock_all(charges, locked) {
        locked.iter_mut().for_each(|locked| locked.guard = None);
        locked[index].table = locked[index].table.next();
    }
}

/// Locks the buckets in the order of their addresses, which prevents deadlock.
fn try_lock_all<'a>(charges: &[Charge<'a>], locked: &mut [LockedBucket<'a>]) -> Result<(), Moved> {
    let mut places: SmallVec<[(LockTarget<'a>, usize); INLINE]> = SmallVec::new();
    for (index, (charge, locked)) in charges.iter().zip(&*locked).enumerate() {
        let place = LockTarget::of(locked.table, charge.key).ok_or(Moved(index))?;
        places.push((place, index));
    }
    places.iter().for_each(|(place, _)| place.prefetch());
    places.sort_unstable_by_key(|(place, _)| place.address());
    let mut last = None;
    for (place, index) in places {
        if last.replace(place.address()) != Some(place.address()) {
            locked[index].guard = Some(place.lock().ok_or(Moved(index))?);
        }
    }
    Ok(())
}
