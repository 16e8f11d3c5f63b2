//! Charges that are settled once it is known what a request costs.

use std::sync::Arc;

use smallvec::SmallVec;

use super::bucket::{Bucket, Origin, Slots};
use super::permits::{Permits, Shard};
use super::table::Table;
use crate::clock::Timestamp;
use crate::limiter::{Cell, Fingerprint, Reserved, Verdict};

/// A charge that is still to be settled. Dropped, it stands as it was made.
#[derive(Debug)]
pub struct Reservation {
    table: Arc<Table>,
    key: Fingerprint,
    reserved: Reserved,
}

/// A charge that is made together with others, and settled later.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    /// The place of the charge among them.
    pub index: usize,
    /// Its table, which has to [settle](Table::settling).
    pub table: &'a Arc<Table>,
    /// Its key.
    pub key: Fingerprint,
    /// The units that it takes until it is settled.
    pub cost: u32,
}

/// Calls `charge`, which decides and charges; what can be settled of that is returned with the places of its charges.
pub fn charge_reserving(
    settled: &[Settled<'_>],
    now: Timestamp,
    charge: impl FnOnce() -> Verdict,
) -> (Verdict, Vec<(usize, Reservation)>) {
    let mut shards: SmallVec<[(&Shard, &Settled<'_>); 2]> = settled
        .iter()
        .filter_map(|one| Some((one.table.unsettled()?.shard(one.key), one)))
        .collect();
    // Before any bucket, and always in the same order, so that no two calls wait for each other.
    shards.sort_unstable_by_key(|(shard, _)| std::ptr::from_ref(*shard).addr());
    let mut locked: SmallVec<[_; 2]> = shards
        .into_iter()
        .map(|(shard, one)| (shard.lock(), one))
        .collect();
    let verdict = charge();
    let admitted = verdict.is_admitted();
    let made = locked.iter_mut().filter_map(|(unsettled, one)| {
        let decision = verdict.decisions[one.index];
        if !admitted || !decision.is_admitted() || one.cost == 0 {
            return None;
        }
        let reserved = Reserved {
            cell: decision.cell,
            at: now,
            units: one.cost,
            unsettled: unsettled.units(one.key),
        };
        unsettled.take(one.key, one.cost);
        let reservation = Reservation {
            table: Arc::clone(one.table),
            key: one.key,
            reserved,
        };
        Some((one.index, reservation))
    });
    let made = made.collect();
    (verdict, made)
}

impl Reservation {
    /// How many units were charged.
    pub fn units(&self) -> u32 {
        self.reserved.units
    }

    /// Makes the charge one of `units`: the rest is charged, whether it is there or not, or what was too much is
    /// given back, as far as it has not come back with time.
    pub fn settle(self, units: u32, now: Timestamp) {
        // Nobody reserves units of this key meanwhile, who would not count these.
        let _unsettled = self.unsettled().shard(self.key).lock();
        self.table.settle(self.key, self.reserved, units, now);
    }

    fn unsettled(&self) -> &Permits {
        let unsettled = self.table.unsettled();
        unsettled.expect("only tables that settle have reservations")
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut unsettled = self.unsettled().shard(self.key).lock();
        unsettled.give_back(self.key, self.reserved.units);
    }
}

impl Table {
    /// Makes a charge of `key` one of `units`.
    fn settle(&self, key: Fingerprint, mut reserved: Reserved, units: u32, now: Timestamp) {
        let more = units.saturating_sub(reserved.units);
        let mut less = reserved.units.saturating_sub(units);
        let mut table = self;
        loop {
            if let Some(mut slots) = table.bucket_of(key).and_then(Bucket::lock) {
                table.give_back(&mut slots, key, &reserved, less, now);
                return table.owe(&mut slots, key, more, now);
            }
            let next = table.next();
            match table
                .algorithm()
                .reserved_under(next.algorithm(), reserved, now)
            {
                Some((same, most)) => (reserved, less) = (same, less.min(most)),
                None => less = 0,
            }
            table = next;
        }
    }

    fn give_back(
        &self,
        slots: &mut Slots,
        key: Fingerprint,
        reserved: &Reserved,
        units: u32,
        now: Timestamp,
    ) {
        if units == 0 {
            return;
        }
        slots.change(key.bits(), self.rules(), |cell| {
            self.algorithm().give_back(cell, reserved, units, now)
        });
    }

    fn owe(&self, slots: &mut Slots, key: Fingerprint, units: u32, now: Timestamp) {
        if units == 0 {
            return;
        }
        let rules = self.rules();
        let seat = slots.seat(key.bits(), rules, now);
        let owes = |cell| self.algorithm().owe(cell, now, units);
        let cell = match seat.origin {
            Origin::Own => owes(seat.cell),
            Origin::Inherited => {
                let own = owes(rules.opened(Cell::EMPTY, key.bits(), now));
                self.algorithm().join(owes(seat.cell), own, now)
            }
        };
        self.count(slots.take(seat, key.bits(), cell, rules));
    }
}

#[cfg(test)]
mod tests;
