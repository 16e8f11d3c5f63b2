//! Setting the bucket of a key, as operators ask.

use super::Table;
use crate::memory::charge::{Charge, lock_one};
use crate::{Cell, Fingerprint, Timestamp};

impl Table {
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
