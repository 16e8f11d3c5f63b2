//! A bucket of a table: five entries behind a one-byte lock, in 128 bytes. It chooses the entry of
//! a key, also if all are in use. `table` maps keys to buckets.

mod import;
mod reclaim;

use std::hint::black_box;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::table::OnFull;
use super::table_rules::TableRules;
use crate::{Cell, Fingerprint, Timestamp};

/// Entries in a bucket.
pub(super) const ENTRIES: usize = 5;

/// Two aligned cache lines, the lock in the first.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Bucket {
    slots: Mutex<Slots>,
    /// True once the entries have moved to the table's successor, which then counts. Written and
    /// trusted only under the lock. In the second cache line.
    moved: AtomicBool,
}

const _: () = assert!(size_of::<Bucket>() == 128 && offset_of!(Bucket, moved) >= 64);

#[derive(Default)]
pub(super) struct Slots {
    entries: [Entry; ENTRIES],
}

/// A key's cell. An expired cell is free space.
///
/// Packed, so that five entries, the lock and `moved` fit.
#[repr(Rust, packed(4))]
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) tag: u64,
    pub(super) cell: Cell,
}

/// The tag of the *eviction floor* ([`OnFull::Strict`]), an entry without a key. An entry that was
/// never used has the tag 0.
///
/// The floor has used at least as much as every evicted key of this bucket, and new keys start from
/// it. So a key that returns after its eviction has no more left than before. A copy of one evicted
/// cell would leak: cells recover at different times, so the key may return to a free entry, or to
/// one that has recovered further than its own.
pub(super) const FLOOR: u64 = u64::MAX;

/// The entry for a key, chosen before the decision and written after it.
#[derive(Clone, Copy)]
pub(super) struct SlotChoice {
    /// The cell to decide on.
    pub(super) cell: Cell,
    /// The owner of that cell.
    pub(super) origin: Origin,
    target: Target,
}

/// The owner of the cell that decides on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The key, or an empty cell.
    Own,
    /// The eviction floor.
    Floor,
}

#[derive(Clone, Copy)]
enum Target {
    /// This entry, which is the key's own, or free.
    Entry(usize),
    /// This entry, whose cell is dropped.
    Evict(usize),
    /// The victim's entry. Its cell joins the floor.
    MergeIntoFloor {
        victim: usize,
        floor: usize,
        joined: Cell,
    },
    /// No entry: every one refuses, and must not be dropped.
    Unrecorded,
    /// No entry: memory lacks for the ring that the key would start with. The decision is on the cell
    /// that it would have inherited.
    NoMemory,
}

/// The loss that a write caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    None,
    /// This number of live entries was dropped, or merged into the floor.
    Entries(u64),
    /// The charge itself was not recorded.
    Unrecorded,
}

impl SlotChoice {
    const fn own(cell: Cell, target: Target) -> Self {
        Self {
            cell,
            origin: Origin::Own,
            target,
        }
    }

    /// Makes the cell the key's own: it is about to be written.
    pub(super) fn adopt(&mut self, tag: u64, rules: TableRules<'_>, now: Timestamp) {
        if self.origin == Origin::Floor {
            let key = Fingerprint::from_bits(tag);
            self.cell = rules.algorithm.adopt(self.cell, key, now);
        }
    }

    /// True if the charge has an entry.
    pub(super) const fn is_recorded(&self) -> bool {
        !matches!(self.target, Target::Unrecorded | Target::NoMemory)
    }

    /// True if the write drops no other key's cell.
    pub(super) const fn is_free(&self) -> bool {
        matches!(self.target, Target::Entry(_))
    }

    /// True if memory lacks even for the key's first ring.
    pub(super) const fn has_no_memory(&self) -> bool {
        matches!(self.target, Target::NoMemory)
    }

    pub(super) fn leave_unrecorded(&mut self) {
        self.target = Target::Unrecorded;
    }

    /// Releases the rings that were made for a new key, without writing it.
    pub(super) fn release(self, rules: TableRules<'_>) {
        if self.origin == Origin::Floor {
            rules.release(self.cell);
        }
        if let Target::MergeIntoFloor { joined, .. } = self.target {
            rules.release(joined);
        }
    }
}

impl Bucket {
    /// Locks the bucket; `None` if it has moved.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, Slots>> {
        let slots = self.slots.lock();
        (!self.has_moved()).then_some(slots)
    }

    /// Reads from both cache lines, so that they are fetched, without waiting for the values.
    pub(super) fn prefetch(&self) {
        black_box((self.slots.is_locked(), self.has_moved()));
    }

    /// True if the successor has the entries. The caller holds the lock.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    /// Drops all entries, and marks the bucket as moved.
    pub(super) fn mark_moved(&self, slots: &mut Slots, rules: TableRules<'_>) {
        for index in 0..ENTRIES {
            slots.put(index, Entry::default(), rules);
        }
        self.moved.store(true, Ordering::Relaxed);
    }

    /// Locks the bucket, moved or not, unless it is locked.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Slots>> {
        self.slots.try_lock()
    }
}

impl Slots {
    /// Chooses the entry for `tag`. Changes nothing.
    pub(super) fn choose_slot(
        &self,
        tag: u64,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> SlotChoice {
        if let Some(own) = self.position(tag) {
            let cell = rules.open(self.entries[own].cell, tag, now);
            return SlotChoice::own(cell, Target::Entry(own));
        }
        self.choose_for_new_key(tag, rules, now)
    }

    fn choose_for_new_key(&self, tag: u64, rules: TableRules<'_>, now: Timestamp) -> SlotChoice {
        let floor = self.floor(now);
        let Some(free) = self.free(now) else {
            return self.choose_in_full(tag, floor, rules, now);
        };
        let place = Target::Entry(free);
        match floor {
            None => SlotChoice::own(rules.open(Cell::EMPTY, tag, now), place),
            Some(floor) => {
                let cell = self.entries[floor].cell;
                inherit(cell, place, rules, now).unwrap_or(SlotChoice::own(cell, Target::NoMemory))
            }
        }
    }

    /// Chooses the entry for a new key if all entries are live.
    fn choose_in_full(
        &self,
        tag: u64,
        floor: Option<usize>,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> SlotChoice {
        let victim = self.least_used(rules, now, |_, entry| entry.tag != FLOOR);
        let refuses = || rules.refuses(self.entries[victim].cell, now);
        let place = match rules.table.on_full {
            OnFull::Strict => {
                let spare = || self.least_used(rules, now, |index, _| index != victim);
                let floor = floor.unwrap_or_else(spare);
                let (left, right) = (self.entries[floor].cell, self.entries[victim].cell);
                let Some(joined) = rules.join(left, right, now) else {
                    return SlotChoice::own(left, Target::NoMemory);
                };
                let place = Target::MergeIntoFloor {
                    victim,
                    floor,
                    joined,
                };
                return inherit(joined, place, rules, now).unwrap_or_else(|| {
                    rules.release(joined);
                    SlotChoice::own(left, Target::NoMemory)
                });
            }
            OnFull::Forget if refuses() => Target::Unrecorded,
            OnFull::Forget => Target::Evict(victim),
        };
        SlotChoice::own(rules.open(Cell::EMPTY, tag, now), place)
    }

    /// Writes `cell` to the chosen entry. The bucket must not have changed since the choice.
    pub(super) fn write(
        &mut self,
        slot: SlotChoice,
        tag: u64,
        cell: Cell,
        rules: TableRules<'_>,
    ) -> Eviction {
        let entry = Entry { tag, cell };
        match slot.target {
            Target::Entry(index) => {
                self.put(index, entry, rules);
                Eviction::None
            }
            Target::Evict(victim) => {
                self.put(victim, entry, rules);
                Eviction::Entries(1)
            }
            Target::MergeIntoFloor {
                victim,
                floor,
                joined,
            } => {
                let new = self.entries[floor].tag != FLOOR;
                self.put_floor(floor, joined, rules);
                self.put(victim, entry, rules);
                Eviction::Entries(1 + u64::from(new))
            }
            Target::Unrecorded | Target::NoMemory => Eviction::Unrecorded,
        }
    }

    /// Changes the cell of `tag`, if it has one.
    pub(super) fn change(
        &mut self,
        tag: u64,
        rules: TableRules<'_>,
        change: impl FnOnce(Cell) -> Cell,
    ) {
        if let Some(index) = self.position(tag) {
            let cell = change(self.entries[index].cell);
            self.put(index, Entry { tag, cell }, rules);
        }
    }

    /// Overwrites an entry, and releases its ring unless the new cell has the same.
    fn put(&mut self, index: usize, entry: Entry, rules: TableRules<'_>) {
        let (old, new) = (self.entries[index].cell, entry.cell);
        if rules.slab.is_some() && old.a != new.a {
            rules.release(old);
        }
        self.entries[index] = entry;
    }

    fn put_floor(&mut self, index: usize, cell: Cell, rules: TableRules<'_>) {
        self.put(index, Entry { tag: FLOOR, cell }, rules);
    }

    /// The entries that still count.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = Entry> {
        self.entries
            .iter()
            .copied()
            .filter(move |entry| entry.is_live(now))
    }

    fn position(&self, tag: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.tag == tag)
    }

    fn free(&self, now: Timestamp) -> Option<usize> {
        self.entries.iter().position(|entry| !entry.is_live(now))
    }

    fn floor(&self, now: Timestamp) -> Option<usize> {
        self.position(FLOOR)
            .filter(|floor| self.entries[*floor].is_live(now))
    }

    /// The entry whose eviction admits least: the smallest use, then the earliest recovery.
    fn least_used(
        &self,
        rules: TableRules<'_>,
        now: Timestamp,
        among: impl Fn(usize, &Entry) -> bool,
    ) -> usize {
        let candidates = self
            .entries
            .iter()
            .enumerate()
            .filter(|(index, entry)| among(*index, entry));
        candidates
            .min_by_key(|(_, entry)| (rules.used(entry.cell, now), entry.expires()))
            .map(|(index, _)| index)
            .expect("a bucket has more than one entry, and at most one is the floor")
    }
}

/// The choice for a new key that starts with the use of `cell`; `None` if memory lacks for that.
fn inherit(cell: Cell, place: Target, rules: TableRules<'_>, now: Timestamp) -> Option<SlotChoice> {
    let cell = match rules.slab {
        None => cell,
        Some(_) => rules.join(cell, cell, now)?,
    };
    Some(SlotChoice {
        cell,
        origin: Origin::Floor,
        target: place,
    })
}

impl Entry {
    fn is_live(&self, now: Timestamp) -> bool {
        self.expires() > now.as_micros()
    }

    fn expires(&self) -> u64 {
        let cell = self.cell;
        cell.expires
    }
}

#[cfg(test)]
mod tests;
