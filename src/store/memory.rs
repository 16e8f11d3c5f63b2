//! The memory store's one step: decide a request by all its policies, and charge all of them or
//! none.

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
/// allocated for up to four charges. In the verdict of a refusal, what other policies have
/// remaining is what it was, since they were not charged.
///
/// # Panics
/// When two charges meet in one bucket: no table may appear twice, not even as another's successor.
pub fn charge_all(charges: &[Charge<'_>], now: Timestamp) -> Verdict {
    match charges {
        [charge] => charge_one(charge, now),
        _ => charge_many(charges, now),
    }
}

/// Most requests have one policy, and nothing to sort.
fn charge_one(charge: &Charge<'_>, now: Timestamp) -> Verdict {
    let mut table = charge.table;
    let mut slots = loop {
        match table.bucket_of(charge.key).and_then(Bucket::lock) {
            Some(slots) => break slots,
            None => table = table.next(),
        }
    };
    let seat = charge.seat(table, &slots, now);
    let decision = table.algorithm().decide(seat.cell, now, charge.cost);
    if decision.is_admitted() {
        charge.write(table, &mut slots, seat, &decision, now);
    }
    drop(slots);
    let mut verdict = Verdict::default();
    verdict.push(decision);
    verdict
}

fn charge_many(charges: &[Charge<'_>], now: Timestamp) -> Verdict {
    let mut locked = lock_all(charges);
    let mut seats: SmallVec<[Seat; INLINE]> = SmallVec::new();
    let mut verdict = Verdict::default();
    for (charge, Locked { table, slots }) in charges.iter().zip(&locked) {
        let seat = charge.seat(table, slots.as_ref().expect(LOCKED), now);
        verdict.push(table.algorithm().decide(seat.cell, now, charge.cost));
        seats.push(seat);
    }
    let admitted = verdict.is_admitted();
    for (index, (charge, Locked { table, slots })) in charges.iter().zip(&mut locked).enumerate() {
        let (seat, decision) = (seats[index], &mut verdict.decisions[index]);
        if admitted {
            charge.write(table, slots.as_mut().expect(LOCKED), seat, decision, now);
        } else if decision.is_admitted() {
            // What it announced does not happen, since another policy refused.
            *decision = table.algorithm().decide(seat.cell, now, 0);
        }
    }
    verdict
}

impl Charge<'_> {
    fn seat(&self, table: &Table, slots: &Slots, now: Timestamp) -> Seat {
        slots.seat(self.key.bits(), table.rules(), now)
    }

    fn write(
        &self,
        table: &Table,
        slots: &mut Slots,
        seat: Seat,
        decision: &Decision,
        now: Timestamp,
    ) {
        if self.cost == 0 {
            return;
        }
        let cell = match seat.origin {
            Origin::Own => decision.cell,
            // At least what the key has used by itself: a window that it takes over half-way must
            // not end before its own would.
            Origin::Inherited => {
                let new = table.rules().opened(Cell::EMPTY, self.key.bits(), now);
                let own = table.algorithm().decide(new, now, self.cost).cell;
                table.algorithm().join(decision.cell, own, now)
            }
        };
        table.count(slots.take(seat, self.key.bits(), cell));
    }
}

/// How many charges a call holds without allocating.
const INLINE: usize = 4;

/// The bucket of a charge, and the table it belongs to: the charge's own, or a successor.
struct Locked<'a> {
    table: &'a Table,
    slots: Option<MutexGuard<'a, Slots>>,
}

const LOCKED: &str = "all buckets are locked before any is looked at";

/// The bucket of this charge has moved to its table's successor.
struct Moved(usize);

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
