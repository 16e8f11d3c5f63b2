//! What becomes of the entries of a table that another succeeds.

use super::{Entry, FLOOR, Loss, Origin, Place, Slots};
use crate::clock::Timestamp;
use crate::limiter::Cell;
use crate::store::memory::rules::Rules;
use crate::store::memory::table::OnFull;

impl Slots {
    /// Takes over an entry of a table that this one succeeds.
    pub(in crate::store::memory) fn adopt(
        &mut self,
        entry: Entry,
        rules: Rules<'_>,
        now: Timestamp,
    ) -> Loss {
        if !entry.is_live(now) {
            rules.release(entry.cell);
            return Loss::None;
        }
        if entry.tag == FLOOR {
            return self.adopt_floor(entry.cell, rules, now);
        }
        let seat = self.seat(entry.tag, rules, now);
        let used = |entry: Entry| rules.used(entry.cell, now);
        let loses = match seat.place {
            Place::Evict(victim) => used(entry) < used(self.entries[victim]),
            Place::Nowhere | Place::NoRoom => true,
            Place::At(_) | Place::Sink { .. } => false,
        };
        if loses {
            rules.release(entry.cell);
            return Loss::Evicted(1);
        }
        if seat.origin == Origin::Inherited {
            rules.release(seat.cell);
        }
        self.take(seat, entry.tag, entry.cell, rules)
    }

    fn adopt_floor(&mut self, cell: Cell, rules: Rules<'_>, now: Timestamp) -> Loss {
        if rules.on_full == OnFull::Forget {
            rules.release(cell);
            return Loss::None;
        }
        let (index, loss) = match self.position(FLOOR).or_else(|| self.free(now)) {
            Some(index) => (index, Loss::None),
            None => (self.least_used(rules, now, |_, _| true), Loss::Evicted(1)),
        };
        let present = self.entries[index];
        if !present.is_live(now) {
            self.put_floor(index, cell, rules);
            return loss;
        }
        match rules.join(cell, present.cell, now) {
            Some(joined) => {
                self.put_floor(index, joined, rules);
                rules.release(cell);
                loss
            }
            // What was used more is kept, and the rest is lost.
            None if rules.used(cell, now) > rules.used(present.cell, now) => {
                self.put_floor(index, cell, rules);
                Loss::Evicted(1)
            }
            None => {
                rules.release(cell);
                Loss::Evicted(1)
            }
        }
    }
}
