//! The buckets of one call, all locked before any is looked at.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::{Charge, PlannedCharge};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Fingerprint};
use crate::store::memory::bucket::{Bucket, Slots};
use crate::store::memory::permits::{LockedShard, Shard};
use crate::store::memory::table::Table;

/// How many charges a call holds without allocating.
const INLINE: usize = 4;

/// The bucket of a charge, and the table it belongs to: the charge's own, or a successor.
pub(super) struct LockedBucket<'a> {
    pub(super) table: &'a Table,
    /// `None` where an earlier charge of the same call has this bucket: it is charged once.
    guard: Option<Guard<'a>>,
    /// What the charge needs, between its decision and what becomes of it; what is in use needs nothing.
    plan: Option<PlannedCharge>,
}

/// Where units are counted, locked.
enum Guard<'a> {
    Slots(MutexGuard<'a, Slots>),
    InUse(LockedShard<'a>),
}

/// Where units are counted.
#[derive(Clone, Copy)]
enum LockTarget<'a> {
    Bucket(&'a Bucket),
    Shard(&'a Shard),
}

/// The bucket of this charge has moved to its table's successor.
struct Moved(usize);

impl LockedBucket<'_> {
    /// Decides, and holds what the charge needs.
    pub(super) fn plan(&mut self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        match &mut self.guard {
            Some(Guard::Slots(slots)) => {
                let rules = charge.rules(self.table);
                let (planned, decision) = charge.plan(rules, slots, now);
                self.plan = Some(planned);
                decision
            }
            Some(Guard::InUse(in_use)) => {
                let algorithm = self.table.algorithm();
                let cell = in_use.cell(charge.key, algorithm.capacity());
                algorithm.decide(cell, now, charge.cost)
            }
            None => self.table.rules().decide(Cell::EMPTY, now, 0),
        }
    }

    /// Makes a charge that was decided.
    pub(super) fn commit(&mut self, charge: &Charge<'_>, decision: &mut Decision, now: Timestamp) {
        match &mut self.guard {
            Some(Guard::Slots(slots)) => {
                if let Some(planned) = self.plan.take() {
                    charge.commit(self.table, slots, planned, decision, now);
                }
            }
            Some(Guard::InUse(in_use)) => in_use.take(charge.key, charge.cost),
            None => {}
        }
    }

    /// Makes the charge of a request that is refused, and says what it is told then. What is in flight owes nothing.
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

    /// Does not make it. What an admission announced does not happen, since another policy refused.
    pub(super) fn discard(&mut self, charge: &Charge<'_>, decision: &mut Decision, now: Timestamp) {
        let rules = self.table.rules();
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
    /// Where the units of `key` are counted; `None` when its bucket was moved before it was made.
    fn of(table: &'a Table, key: Fingerprint) -> Option<Self> {
        match table.permits() {
            Some(permits) => Some(Self::Shard(permits.shard(key))),
            None => table.bucket_of(key).map(Self::Bucket),
        }
    }

    /// What all calls lock in the same order by.
    fn address(self) -> usize {
        match self {
            Self::Bucket(bucket) => std::ptr::from_ref(bucket).addr(),
            Self::Shard(shard) => std::ptr::from_ref(shard).addr(),
        }
    }

    /// `None` when the bucket has moved.
    fn lock(self) -> Option<Guard<'a>> {
        match self {
            Self::Bucket(bucket) => bucket.lock().map(Guard::Slots),
            Self::Shard(shard) => Some(Guard::InUse(shard.lock())),
        }
    }

    /// Has its memory fetched. Locking waits for that of one bucket before it asks for the next; fetched before, all are on
    /// their way at once, which is most of what a decision costs in tables larger than the caches.
    fn prefetch(self) {
        match self {
            Self::Bucket(bucket) => bucket.prefetch(),
            Self::Shard(_) => {}
        }
    }
}

/// The buckets of one call.
pub(super) type LockedBuckets<'a> = SmallVec<[LockedBucket<'a>; INLINE]>;

/// Locks the bucket of each charge. They are held where the caller has room for them: they are large.
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

/// Locks the buckets in the order of their addresses, so that no two calls wait for each other.
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
