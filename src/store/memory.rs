//! The memory store's one step: decide a request by all its policies, and charge all of them or none.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::bucket::{Bucket, Origin, Seat, Slots};
use super::table::Table;
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Fingerprint, Verdict};

/// Units asked of one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The policy's buckets.
    pub table: &'a Table,
    /// Which of them.
    pub key: Fingerprint,
    /// How many units; 0 asks and charges nothing.
    pub cost: u32,
}

/// Decides these charges together at `now`, and makes all of them if none is refused.
///
/// Check and charge are one step: concurrent calls see either all of it or nothing. Nothing is
/// allocated for up to four charges. In the verdict of a refusal, what other policies have remaining is
/// what it was, since they were not charged.
///
/// # Panics
/// When two charges meet in one bucket: no table may appear twice, not even as another's successor.
pub fn charge_all(charges: &[Charge<'_>], now: Timestamp) -> Verdict {
    let mut locked = lock_all(charges);
    let mut seats: SmallVec<[Seat; INLINE]> = SmallVec::new();
    let mut verdict = Verdict::default();
    for (charge, locked) in charges.iter().zip(&locked) {
        let seat = locked.seat(charge, now);
        verdict.push(locked.table.algorithm().decide(seat.cell, now, charge.cost));
        seats.push(seat);
    }
    if verdict.is_admitted() {
        for (index, (charge, locked)) in charges.iter().zip(&mut locked).enumerate() {
            locked.write(charge, seats[index], &verdict.decisions[index], now);
        }
    } else {
        for (index, locked) in locked.iter().enumerate() {
            locked.leave(seats[index], &mut verdict.decisions[index], now);
        }
    }
    verdict
}

/// How many charges a call holds without allocating.
const INLINE: usize = 4;

/// The bucket of a charge, and the table it belongs to: the charge's own, or a successor.
struct Locked<'a> {
    table: &'a Table,
    slots: Option<MutexGuard<'a, Slots>>,
}

/// The bucket of this charge has moved to its table's successor.
struct Moved(usize);

impl Locked<'_> {
    fn seat(&self, charge: &Charge<'_>, now: Timestamp) -> Seat {
        let slots = self.slots.as_ref().expect(LOCKED);
        slots.seat(charge.key.bits(), self.table.rules(), now)
    }

    fn write(&mut self, charge: &Charge<'_>, seat: Seat, decision: &Decision, now: Timestamp) {
        if charge.cost == 0 {
            return;
        }
        let cell = match seat.origin {
            Origin::Own => decision.cell,
            // At least what the key has used by itself: a window that it takes over half-way must not
            // end before its own would.
            Origin::Inherited => {
                let algorithm = self.table.algorithm();
                let own = algorithm.decide(Cell::EMPTY, now, charge.cost).cell;
                algorithm.join(decision.cell, own, now)
            }
        };
        let slots = self.slots.as_mut().expect(LOCKED);
        self.table.count(slots.take(seat, charge.key.bits(), cell));
    }

    /// Takes back what an admission has announced, since another policy refused.
    fn leave(&self, seat: Seat, decision: &mut Decision, now: Timestamp) {
        if decision.is_admitted() {
            *decision = self.table.algorithm().decide(seat.cell, now, 0);
        }
    }
}

const LOCKED: &str = "all buckets are locked before any is looked at";

/// Locks the bucket of each charge.
fn lock_all<'a>(charges: &[Charge<'a>]) -> SmallVec<[Locked<'a>; INLINE]> {
    let unlocked = |charge: &Charge<'a>| Locked {
        table: charge.table,
        slots: None,
    };
    let mut locked: SmallVec<[Locked<'a>; INLINE]> = charges.iter().map(unlocked).collect();
    while let Err(Moved(index)) = try_lock_all(charges, &mut locked) {
        locked.iter_mut().for_each(|locked| locked.slots = None);
        locked[index].table = locked[index].table.next();
    }
    locked
}

/// Locks the buckets in the order of their addresses, so that no two calls wait for each other.
fn try_lock_all<'a>(charges: &[Charge<'a>], locked: &mut [Locked<'a>]) -> Result<(), Moved> {
    let mut buckets: SmallVec<[(&'a Bucket, usize); INLINE]> = SmallVec::new();
    for (index, (charge, locked)) in charges.iter().zip(&*locked).enumerate() {
        let bucket = locked.table.bucket_of(charge.key).ok_or(Moved(index))?;
        bucket.prefetch();
        buckets.push((bucket, index));
    }
    buckets.sort_unstable_by_key(|(bucket, _)| std::ptr::from_ref(*bucket).addr());
    let distinct = buckets
        .windows(2)
        .all(|pair| !std::ptr::eq(pair[0].0, pair[1].0));
    assert!(distinct, "a table is charged once a request");
    for (bucket, index) in buckets {
        locked[index].slots = Some(bucket.lock().ok_or(Moved(index))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
