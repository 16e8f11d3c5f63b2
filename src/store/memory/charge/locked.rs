//! The buckets of one call, all locked before any is looked at.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::{Asked, Charge};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Fingerprint};
use crate::store::memory::bucket::{Bucket, Slots};
use crate::store::memory::permits::{InUse, Shard};
use crate::store::memory::table::Table;

/// How many charges a call holds without allocating.
const INLINE: usize = 4;

/// The bucket of a charge, and the table it belongs to: the charge's own, or a successor.
pub(super) struct Locked<'a> {
    pub(super) table: &'a Table,
    /// `None` where an earlier charge of the same call has this bucket: it is charged once.
    held: Option<Held<'a>>,
    /// What the charge needs, between its decision and what becomes of it; what is in use needs nothing.
    asked: Option<Asked>,
}

/// Where units are counted, locked.
enum Held<'a> {
    Slots(MutexGuard<'a, Slots>),
    InUse(InUse<'a>),
}

/// Where units are counted.
#[derive(Clone, Copy)]
enum Place<'a> {
    Bucket(&'a Bucket),
    Shard(&'a Shard),
}

/// The bucket of this charge has moved to its table's successor.
struct Moved(usize);

impl Locked<'_> {
    /// Decides, and holds what the charge needs.
    pub(super) fn ask(&mut self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        match &mut self.held {
            Some(Held::Slots(slots)) => {
                let rules = charge.rules(self.table);
                let (asked, decision) = charge.ask(rules, slots, now);
                self.asked = Some(asked);
                decision
            }
            Some(Held::InUse(in_use)) => {
                let algorithm = self.table.algorithm();
                let cell = in_use.cell(charge.key, algorithm.capacity());
                algorithm.decide(cell, now, charge.cost)
            }
            None => self.table.rules().decide(Cell::EMPTY, now, 0),
        }
    }

    /// Makes a charge that was decided.
    pub(super) fn write(&mut self, charge: &Charge<'_>, decision: &mut Decision, now: Timestamp) {
        match &mut self.held {
            Some(Held::Slots(slots)) => {
                if let Some(asked) = self.asked.take() {
                    charge.write(self.table, slots, asked, decision, now);
                }
            }
            Some(Held::InUse(in_use)) => in_use.take(charge.key, charge.cost),
            None => {}
        }
    }

    /// Makes the charge of a request that is refused, and says what it is told then. What is in flight owes nothing.
    pub(super) fn owe(&mut self, charge: &Charge<'_>, decision: &mut Decision, now: Timestamp) {
        match (&mut self.held, self.asked.take()) {
            (Some(Held::Slots(slots)), Some(asked)) => {
                *decision = charge.owe(self.table, slots, asked, *decision, now);
            }
            _ => self.leave(charge, decision, now),
        }
    }

    /// Does not make it. What an admission announced does not happen, since another policy refused.
    pub(super) fn leave(&mut self, charge: &Charge<'_>, decision: &mut Decision, now: Timestamp) {
        let rules = self.table.rules();
        let asked = self.asked.take();
        let cell = match (&self.held, &asked) {
            (Some(Held::Slots(_)), Some(asked)) => asked.seat.cell,
            (Some(Held::InUse(in_use)), _) => in_use.cell(charge.key, rules.algorithm.capacity()),
            (Some(Held::Slots(_)) | None, _) => Cell::EMPTY,
        };
        if decision.is_admitted() {
            *decision = rules.decide(cell, now, 0);
        }
        if let Some(asked) = asked {
            asked.release(rules);
        }
    }
}

impl<'a> Place<'a> {
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
    fn lock(self) -> Option<Held<'a>> {
        match self {
            Self::Bucket(bucket) => bucket.lock().map(Held::Slots),
            Self::Shard(shard) => Some(Held::InUse(shard.lock())),
        }
    }

    /// Has its memory fetched. Locking waits for that of one bucket before it asks for the next; fetched before, all are on
    /// their way at once, which is most of what a decision costs in tables larger than the caches.
    fn touch(self) {
        match self {
            Self::Bucket(bucket) => bucket.touch(),
            Self::Shard(_) => {}
        }
    }
}

/// The buckets of one call.
pub(super) type AllLocked<'a> = SmallVec<[Locked<'a>; INLINE]>;

/// Locks the bucket of each charge. They are held where the caller has room for them: they are large.
pub(super) fn lock_all<'a>(charges: &[Charge<'a>], locked: &mut AllLocked<'a>) {
    locked.extend(charges.iter().map(|charge| Locked {
        table: charge.table,
        held: None,
        asked: None,
    }));
    while let Err(Moved(index)) = try_lock_all(charges, locked) {
        locked.iter_mut().for_each(|locked| locked.held = None);
        locked[index].table = locked[index].table.next();
    }
}

/// Locks the buckets in the order of their addresses, so that no two calls wait for each other.
fn try_lock_all<'a>(charges: &[Charge<'a>], locked: &mut [Locked<'a>]) -> Result<(), Moved> {
    let mut places: SmallVec<[(Place<'a>, usize); INLINE]> = SmallVec::new();
    for (index, (charge, locked)) in charges.iter().zip(&*locked).enumerate() {
        let place = Place::of(locked.table, charge.key).ok_or(Moved(index))?;
        places.push((place, index));
    }
    places.iter().for_each(|(place, _)| place.touch());
    places.sort_unstable_by_key(|(place, _)| place.address());
    let mut last = None;
    for (place, index) in places {
        if last.replace(place.address()) != Some(place.address()) {
            locked[index].held = Some(place.lock().ok_or(Moved(index))?);
        }
    }
    Ok(())
}
