//! A bucket of a table: five entries behind a one-byte lock, in 128 bytes, and which of them a key
//! is charged in when there is no room.
//!
//! Not here: which bucket a key belongs to.

mod import;
mod reclaim;

use std::hint::black_box;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::table::OnFull;
use super::table_rules::TableRules;
use crate::clock::Timestamp;
use crate::limiter::Cell;

/// Entries in a bucket.
pub(super) const ENTRIES: usize = 5;

/// Two cache lines, aligned. The lock is in the first.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Bucket {
    slots: Mutex<Slots>,
    /// The entries have been carried over to the table's successor, which counts from then on. Set while the slots are
    /// locked, and believed only then. In the second line.
    moved: AtomicBool,
}

const _: () = assert!(size_of::<Bucket>() == 128 && offset_of!(Bucket, moved) >= 64);

/// What a bucket's lock guards.
#[derive(Default)]
pub(super) struct Slots {
    entries: [Entry; ENTRIES],
}

/// A key's cell. Free space once the cell has expired.
///
/// Packed, so that five of them, the lock and the mark fit.
#[repr(Rust, packed(4))]
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) tag: u64,
    pub(super) cell: Cell,
}

/// The tag of the *floor*, an entry that belongs to no key (`OnFull::Strict`). No key's, as is the
/// 0 of an entry that was never used.
///
/// It has used at least as much as every evicted key of this bucket had, and newcomers start from
/// it: who returns after its eviction finds no more than it had left. A copy of the victim's cell
/// alone would not do: when cells recover at different times, the victim may return to an entry
/// that has become free, or to one that has recovered further than its own would have.
pub(super) const FLOOR: u64 = u64::MAX;

/// Where a key's cell is, or would go; found before anything is decided, used after.
#[derive(Clone, Copy)]
pub(super) struct SlotChoice {
    /// What the key is decided on.
    pub(super) cell: Cell,
    /// Whose it was.
    pub(super) origin: Origin,
    target: Target,
}

/// Whose cell a key is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The key's own, or nobody's.
    Own,
    /// The floor's.
    Floor,
}

#[derive(Clone, Copy)]
enum Target {
    /// In this entry, which is the key's own, or free.
    Entry(usize),
    /// In this entry, whose cell is forgotten.
    Evict(usize),
    /// In this entry, whose cell becomes part of the floor, kept in the other.
    MergeIntoFloor {
        victim: usize,
        floor: usize,
        joined: Cell,
    },
    /// Nowhere: every entry refuses, and must not be forgotten.
    Unrecorded,
    /// Nowhere: there is no room for the ring that it would start with.
    NoMemory,
}

/// What taking a slot cost others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// Nothing.
    None,
    /// Entries that still counted were dropped, or merged into the floor.
    Entries(u64),
    /// The charge itself: it was not recorded.
    Unrecorded,
}

impl SlotChoice {
    /// Whether there is an entry for the charge.
    pub(super) const fn is_recorded(&self) -> bool {
        !matches!(self.target, Target::Unrecorded | Target::NoMemory)
    }

    /// Whether it cannot even be said what the key starts with.
    pub(super) const fn has_no_memory(&self) -> bool {
        matches!(self.target, Target::NoMemory)
    }

    /// Leaves the charge unrecorded.
    pub(super) fn leave_unrecorded(&mut self) {
        self.target = Target::Unrecorded;
    }

    /// Gives up the rings that were made for a newcomer that does not come.
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

    /// Reads of both lines without waiting for what is read.
    pub(super) fn prefetch(&self) {
        black_box((self.slots.is_locked(), self.has_moved()));
    }

    /// Whether the entries are the successor's now. To be asked while the bucket is locked.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    /// Marks the bucket, whose slots these are, as moved, and drops everything in it.
    pub(super) fn mark_moved(&self, slots: &mut Slots, rules: TableRules<'_>) {
        for index in 0..ENTRIES {
            slots.put(index, Entry::default(), rules);
        }
        self.moved.store(true, Ordering::Relaxed);
    }

    /// Locks the bucket, moved or not, unless somebody else has.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Slots>> {
        self.slots.try_lock()
    }
}

impl Slots {
    /// Finds the slot of `tag`, without changing anything.
    pub(super) fn choose_slot(
        &self,
        tag: u64,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> SlotChoice {
        if let Some(own) = self.position(tag) {
            let cell = rules.open(self.entries[own].cell, tag, now);
            return SlotChoice {
                cell,
                origin: Origin::Own,
                target: Target::Entry(own),
            };
        }
        self.choose_for_new_key(tag, rules, now)
    }

    /// The slot of a key that has no entry.
    fn choose_for_new_key(&self, tag: u64, rules: TableRules<'_>, now: Timestamp) -> SlotChoice {
        let floor = self.floor(now);
        let Some(free) = self.free(now) else {
            return self.choose_in_full(tag, floor, rules, now);
        };
        let place = Target::Entry(free);
        match floor {
            None => SlotChoice {
                cell: rules.open(Cell::EMPTY, tag, now),
                origin: Origin::Own,
                target: place,
            },
            Some(floor) => {
                let cell = self.entries[floor].cell;
                inherit(cell, place, rules, now).unwrap_or(no_memory(cell))
            }
        }
    }

    /// The slot of a newcomer when every entry counts.
    fn choose_in_full(
        &self,
        tag: u64,
        floor: Option<usize>,
        rules: TableRules<'_>,
        now: Timestamp,
    ) -> SlotChoice {
        let victim = self.least_used(rules, now, |_, entry| entry.tag != FLOOR);
        let refuses = || rules.refuses(self.entries[victim].cell, now);
        let place = match rules.on_full {
            OnFull::Strict => {
                let spare = || self.least_used(rules, now, |index, _| index != victim);
                let floor = floor.unwrap_or_else(spare);
                let (left, right) = (self.entries[floor].cell, self.entries[victim].cell);
                let Some(joined) = rules.join(left, right, now) else {
                    return no_memory(left);
                };
                let place = Target::MergeIntoFloor {
                    victim,
                    floor,
                    joined,
                };
                return inherit(joined, place, rules, now).unwrap_or_else(|| {
                    rules.release(joined);
                    no_memory(left)
                });
            }
            OnFull::Forget if refuses() => Target::Unrecorded,
            OnFull::Forget => Target::Evict(victim),
        };
        SlotChoice {
            cell: rules.open(Cell::EMPTY, tag, now),
            origin: Origin::Own,
            target: place,
        }
    }

    /// Writes `cell` where `slot` said; nothing may have changed since.
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

    /// Overwrites an entry, whose ring is given up unless it stays.
    fn put(&mut self, index: usize, entry: Entry, rules: TableRules<'_>) {
        let (old, new) = (self.entries[index].cell, entry.cell);
        if rules.rings.is_some() && old.a != new.a {
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

    /// The entry whose eviction would admit least: the smallest use, of equals the soonest to recover.
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

/// The slot of a newcomer that starts with what `cell` has used; `None` when there is no room for that.
fn inherit(cell: Cell, place: Target, rules: TableRules<'_>, now: Timestamp) -> Option<SlotChoice> {
    let cell = match rules.rings {
        None => cell,
        Some(_) => rules.join(cell, cell, now)?,
    };
    Some(SlotChoice {
        cell,
        origin: Origin::Floor,
        target: place,
    })
}

/// The slot of a newcomer when there is no room for what it would start with, `cell`.
const fn no_memory(cell: Cell) -> SlotChoice {
    SlotChoice {
        cell,
        origin: Origin::Own,
        target: Target::NoMemory,
    }
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
impl Slots {
    /// The roots of all rings, also of those that have expired.
    pub(super) fn roots(&self) -> Vec<u32> {
        let cells = self.entries.iter().map(|entry| entry.cell);
        cells.map(|cell| cell.a).filter(|root| *root != 0).collect()
    }
}

#[cfg(test)]
mod tests;
