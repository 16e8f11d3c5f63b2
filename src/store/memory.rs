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
    let mut held = lock_all(charges);
    let seats: SmallVec<[Seat; INLINE]> = held
        .iter()
        .zip(charges)
        .map(|(held, charge)| held.seat(charge, now))
        .collect();
    let decide = |((held, charge), seat): ((&Held<'_>, &Charge<'_>), &Seat)| {
        held.table.algorithm().decide(seat.cell, now, charge.cost)
    };
    let mut verdict = Verdict::new(held.iter().zip(charges).zip(&seats).map(decide).collect());
    if verdict.is_admitted() {
        for (((held, charge), seat), decision) in held
            .iter_mut()
            .zip(charges)
            .zip(seats)
            .zip(&verdict.decisions)
        {
            held.write(charge, seat, decision, now);
        }
    } else {
        for ((held, seat), decision) in held.iter().zip(seats).zip(&mut verdict.decisions) {
            held.leave(seat, decision, now);
        }
    }
    verdict
}

/// How many charges a call holds without allocating.
const INLINE: usize = 4;

/// A bucket that is locked, and the table it belongs to: the charge's own or a successor.
struct Held<'a> {
    table: &'a Table,
    slots: MutexGuard<'a, Slots>,
}

impl Held<'_> {
    fn seat(&self, charge: &Charge<'_>, now: Timestamp) -> Seat {
        self.slots.seat(charge.key.bits(), self.table.rules(), now)
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
        self.table
            .count(self.slots.take(seat, charge.key.bits(), cell));
    }

    /// Takes back what an admission has announced, since another policy refused.
    fn leave(&self, seat: Seat, decision: &mut Decision, now: Timestamp) {
        if decision.is_admitted() {
            *decision = self.table.algorithm().decide(seat.cell, now, 0);
        }
    }
}

/// Locks the bucket of each charge, in the order of the buckets' addresses, so that no two calls wait
/// for each other. The result is in the order of the charges.
fn lock_all<'a>(charges: &[Charge<'a>]) -> SmallVec<[Held<'a>; INLINE]> {
    let mut tables: SmallVec<[&Table; INLINE]> =
        charges.iter().map(|charge| charge.table).collect();
    loop {
        match try_lock_all(charges, &tables) {
            Ok(held) => return held,
            Err(Moved(index)) => tables[index] = tables[index].next(),
        }
    }
}

/// The bucket of this charge has moved to its table's successor.
struct Moved(usize);

fn try_lock_all<'a>(
    charges: &[Charge<'a>],
    tables: &[&'a Table],
) -> Result<SmallVec<[Held<'a>; INLINE]>, Moved> {
    let mut buckets: SmallVec<[(usize, &Bucket); INLINE]> = SmallVec::new();
    for (index, (charge, table)) in charges.iter().zip(tables).enumerate() {
        buckets.push((index, table.bucket_of(charge.key).ok_or(Moved(index))?));
    }
    buckets.sort_unstable_by_key(|(_, bucket)| std::ptr::from_ref(*bucket).addr());
    let distinct = buckets
        .windows(2)
        .all(|pair| !std::ptr::eq(pair[0].1, pair[1].1));
    assert!(distinct, "a table is charged once a request");

    let mut locked: SmallVec<[(usize, Held<'a>); INLINE]> = SmallVec::new();
    for (index, bucket) in buckets {
        let slots = bucket.0.lock();
        if slots.moved {
            return Err(Moved(index));
        }
        locked.push((
            index,
            Held {
                table: tables[index],
                slots,
            },
        ));
    }
    locked.sort_unstable_by_key(|(index, _)| *index);
    Ok(locked.into_iter().map(|(_, held)| held).collect())
}

#[cfg(test)]
mod tests;
