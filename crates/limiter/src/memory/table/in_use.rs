//! A table's units in use, the units of charges that may still be given back, and the buckets that
//! operators set regardless of both.

use std::sync::Arc;

use super::{Charge, Table};
use crate::memory::charge::lock_one;
use crate::memory::permits::{Permit, Permits};
use crate::{Cell, Fingerprint, Timestamp};

impl Charge<'_> {
    /// A guard that returns the units of this charge when it is dropped; `None` if they recover
    /// with time. Callers take it once, after the charge: units without a guard stay in use.
    pub fn permit(&self) -> Option<Permit> {
        let permits = self.table.permits.as_ref()?;
        Some(permits.permit(self.key, self.demand.cost))
    }

    /// Takes the units of this charge, or a place in the queue for them, which dropping the permit
    /// gives up. `None` if the queue is full, or if units recover with time. All callers acquire
    /// permits in the same order, which prevents deadlock.
    pub fn acquire(&self) -> Option<Permit> {
        let queue = self.table.algorithm.queueing()?.queue;
        let permits = self.table.permits.as_ref()?;
        permits.acquire(self.key, self.demand.cost, queue)
    }
}

impl Table {
    /// Shares the units in use and the unsettled units of `before`, whose place this table takes.
    #[must_use]
    pub fn sharing_permits_of(mut self, before: &Self) -> Self {
        if let (Some(own), Some(same)) = (&mut self.permits, &before.permits) {
            *own = Arc::clone(same);
        }
        self.unsettled = Arc::clone(&before.unsettled);
        self
    }

    /// True if this table can [replace](Self::migrate_to) `before`: both have cells, or both units
    /// in use.
    pub const fn can_succeed(&self, before: &Self) -> bool {
        self.permits.is_some() == before.permits.is_some()
    }

    /// The units in use; `None` for tables of cells.
    pub(in crate::memory) fn permits(&self) -> Option<&Permits> {
        self.permits.as_deref()
    }

    /// The units of charges that may still be settled or given back; `None` for concurrency, whose
    /// requests return them.
    pub(in crate::memory) fn unsettled(&self) -> Option<&Permits> {
        self.permits.is_none().then(|| &***self.unsettled)
    }

    /// Drops the charges of a key, and lets earlier reservations give nothing back. The key then
    /// starts as any new key does. False for units in use, which requests return.
    pub fn reset(&self, key: Fingerprint) -> bool {
        let Some(unsettled) = self.unsettled() else {
            return false;
        };
        // Before the bucket, as in all charges that are settled.
        let mut unsettled = unsettled.shard(key).lock();
        let (table, mut slots) = lock_one(&Charge::new(self, key, 0));
        slots.change(key.bits(), table.rules(), |_| Cell::EMPTY);
        unsettled.start_generation(key);
        true
    }

    /// Sets the cell of a key; earlier reservations give nothing back. False if another key would
    /// lose its cell. Only for tables of cells without rings.
    pub fn start(&self, key: Fingerprint, cell: Cell, now: Timestamp) -> bool {
        let Some(unsettled) = self.unsettled() else {
            return false;
        };
        let mut unsettled = unsettled.shard(key).lock();
        let (table, mut slots) = lock_one(&Charge::new(self, key, 0));
        let rules = table.rules();
        let slot = slots.choose_slot(key.bits(), rules, now);
        if !slot.is_free() {
            return false;
        }
        unsettled.start_generation(key);
        table.write(&mut slots, slot, key, cell, rules);
        true
    }

    /// The units of a key that requests in flight have in use, or are still to settle.
    pub fn units_in_flight(&self, key: Fingerprint) -> u64 {
        let counted = self.permits().or_else(|| self.unsettled());
        counted.map_or(0, |units| units.shard(key).lock().units(key))
    }
}
