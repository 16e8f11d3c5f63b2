//! Reclaiming the memory of rings if it is scarce.

use super::{ENTRIES, Entry, Eviction, FLOOR, Slots};
use crate::Timestamp;
use crate::memory::table::OnFull;
use crate::memory::table_rules::TableRules;

impl Slots {
    /// Releases the rings of expired entries.
    pub(in crate::memory) fn release_expired(&mut self, rules: TableRules<'_>, now: Timestamp) {
        for index in 0..ENTRIES {
            if !self.entries[index].is_live(now) {
                self.put(index, Entry::default(), rules);
            }
        }
    }

    /// The use of the least used entry.
    pub(in crate::memory) fn least_use(
        &self,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> Option<(u128, u64)> {
        let uses = self.live(now);
        uses.map(|entry| (rules.used(entry.cell, now), entry.expires()))
            .min()
    }

    /// Releases one ring as if the bucket were full: drops the least used entry, or merges it into
    /// the floor.
    pub(in crate::memory) fn evict_ring(
        &mut self,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> Eviction {
        self.release_expired(rules, now);
        let keys = self.live(now).filter(|entry| entry.tag != FLOOR).count();
        if keys == 0 {
            return Eviction::None;
        }
        let live = |entry: &Entry| entry.is_live(now);
        let victim = self.least_used(rules, now, |_, entry| live(entry) && entry.tag != FLOOR);
        let cell = self.entries[victim].cell;
        match rules.table.on_full {
            OnFull::Forget if rules.refuses(cell, now) => Eviction::None,
            OnFull::Forget => {
                self.put(victim, Entry::default(), rules);
                Eviction::Entries(1)
            }
            OnFull::Strict => {
                let others = self.live(now).count() - 1;
                if others == 0 {
                    return Eviction::None;
                }
                let spare =
                    || self.least_used(rules, now, |index, entry| live(entry) && index != victim);
                let floor = self.floor(now).unwrap_or_else(spare);
                let Some(joined) = rules.join_last(self.entries[floor].cell, cell, now) else {
                    return Eviction::None;
                };
                let new = self.entries[floor].tag != FLOOR;
                self.put_floor(floor, joined, rules);
                self.put(victim, Entry::default(), rules);
                Eviction::Entries(1 + u64::from(new))
            }
        }
    }
}
