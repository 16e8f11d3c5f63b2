//! Reading a bucket without charging it.

use super::{Bucket, Charge, Table, refuse_for_memory};
use crate::bucket::{BucketFacts, BucketView};
use crate::memory::table_rules::TableRules;
use crate::{Cell, Decision, Fingerprint, Timestamp};

/// The bucket of a key, under its lock.
struct FoundBucket<'a> {
    rules: TableRules<'a>,
    cell: Cell,
    /// Memory lacks for the first ring of the key.
    has_no_memory: bool,
}

impl FoundBucket<'_> {
    /// The decision on the bucket, or the refusal for lack of memory.
    fn bounded(&self, decision: Decision, now: Timestamp) -> Decision {
        if self.has_no_memory {
            refuse_for_memory(decision, self.cell, now)
        } else {
            decision
        }
    }
}

impl Charge<'_> {
    /// The decision of `charge_all` for this charge alone, without charging.
    pub fn peek(&self, now: Timestamp) -> Decision {
        self.table.read(self, now, |found| {
            found.bounded(found.rules.decide(found.cell, now, self.demand.cost), now)
        })
    }

    /// True if a request may wait in the queue for permits.
    pub fn has_place_in_queue(&self) -> bool {
        match self.view(Timestamp::EPOCH) {
            BucketView::Concurrency { waiting, queue, .. } => waiting < queue,
            _ => false,
        }
    }

    /// The bucket as its algorithm sees it at `now`, for people to look at.
    pub fn view(&self, now: Timestamp) -> BucketView {
        self.table.read(self, now, |found| {
            let state = found.rules.state(found.cell);
            found.rules.algorithm.view(state, now)
        })
    }

    /// The bucket in the numbers of a decision at `now`.
    pub fn facts(&self, now: Timestamp) -> BucketFacts {
        self.table.read(self, now, |found| {
            let state = found.rules.state(found.cell);
            let facts = found.rules.algorithm.facts(state, self.demand, now);
            BucketFacts {
                next: found.bounded(facts.next, now),
                ..facts
            }
        })
    }
}

impl Table {
    /// True if the table has a live entry of this key, or requests in flight have units of it.
    pub fn contains(&self, key: Fingerprint, now: Timestamp) -> bool {
        if self.permits.is_some() {
            return self.units_in_flight(key) > 0;
        }
        let (segment, offset) = self.cut.place(self.index(key.bits()));
        let Some(segment) = self.segments[segment].get() else {
            return false;
        };
        match segment.get(offset).and_then(Bucket::lock) {
            Some(slots) => slots.live(now).any(|entry| entry.tag == key.bits()),
            None => self.next().contains(key, now),
        }
    }

    fn read<T>(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        look: impl FnOnce(FoundBucket<'_>) -> T,
    ) -> T {
        let rules = charge.rules(self);
        let found = |cell| FoundBucket {
            rules,
            cell,
            has_no_memory: false,
        };
        if let Some(permits) = &self.permits {
            let max = self.algorithm.capacity();
            let cell = permits.shard(charge.key).lock().cell(charge.key, max);
            return look(found(cell));
        }
        let (segment, offset) = self.cut.place(self.index(charge.key.bits()));
        let Some(segment) = self.segments[segment].get() else {
            return look(found(rules.open(Cell::EMPTY, charge.key.bits(), now)));
        };
        match segment.get(offset).and_then(Bucket::lock) {
            Some(slots) => {
                let mut slot = slots.choose_slot(charge.key.bits(), rules, now);
                // A charge would find the same end of its window.
                charge.decide(&mut slot, rules, now);
                let looked = look(FoundBucket {
                    has_no_memory: slot.has_no_memory(),
                    ..found(slot.cell)
                });
                slot.release(rules);
                looked
            }
            None => self.next().read(charge, now, look),
        }
    }
}
