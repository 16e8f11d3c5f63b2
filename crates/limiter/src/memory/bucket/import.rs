//! Importing the entries of another table.

use super::{Entry, Eviction, FLOOR, Origin, Slots, Target};
use crate::memory::table::OnFull;
use crate::memory::table_rules::TableRules;
use crate::{Cell, Timestamp};

impl Slots {
    /// Takes over an entry of the table that this one succeeds.
    pub(in crate::memory) fn import(
        &mut self,
        entry: Entry,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> Eviction {
        if !entry.is_live(now) {
            rules.release(entry.cell);
            return Eviction::None;
        }
        if entry.tag == FLOOR {
            return self.import_floor(entry.cell, rules, now);
        }
        let slot = self.choose_slot(entry.tag, rules, now);
        let used = |entry: Entry| rules.used(entry.cell, now);
        let loses = match slot.target {
            Target::Evict(victim) => used(entry) < used(self.entries[victim]),
            Target::Unrecorded | Target::NoMemory => true,
            Target::Entry(_) | Target::MergeIntoFloor { .. } => false,
        };
        if loses {
            rules.release(entry.cell);
            return Eviction::Entries(1);
        }
        if slot.origin == Origin::Floor {
            rules.release(slot.cell);
        }
        self.write(slot, entry.tag, entry.cell, rules)
    }

    fn import_floor(&mut self, cell: Cell, rules: TableRules<'_>, now: Timestamp) -> Eviction {
        if rules.table.on_full == OnFull::Forget {
            rules.release(cell);
            return Eviction::None;
        }
        let (index, eviction) = match self.position(FLOOR).or_else(|| self.free(now)) {
            Some(index) => (index, Eviction::None),
            None => (
                self.least_used(rules, now, |_, _| true),
                Eviction::Entries(1),
            ),
        };
        let present = self.entries[index];
        if !present.is_live(now) {
            self.put_floor(index, cell, rules);
            return eviction;
        }
        match rules.join(cell, present.cell, now) {
            Some(joined) => {
                self.put_floor(index, joined, rules);
                rules.release(cell);
                eviction
            }
            // The larger use is kept, and the other lost.
            None if rules.used(cell, now) > rules.used(present.cell, now) => {
                self.put_floor(index, cell, rules);
                Eviction::Entries(1)
            }
            None => {
                rules.release(cell);
                Eviction::Entries(1)
            }
        }
    }
}
