//! A bucket of a table: five entries behind a one-byte lock, in 128 bytes, and which of them a key
//! is charged in when there is no room.
//!
//! Not here: which bucket a key belongs to.

mod adopt;
mod giving;

use std::hint::black_box;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::rules::Rules;
use super::table::OnFull;
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
pub(super) struct Seat {
    /// What the key is decided on.
    pub(super) cell: Cell,
    /// Whose it was.
    pub(super) origin: Origin,
    place: Place,
}

/// Whose cell a key is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The key's own, or nobody's.
    Own,
    /// The floor's.
    Inherited,
}

#[derive(Clone, Copy)]
enum Place {
    /// In this entry, which is the key's own, or free.
    At(usize),
    /// In this entry, whose cell is forgotten.
    Evict(usize),
    /// In this entry, whose cell becomes part of the floor, kept in the other.
    Sink {
        victim: usize,
        floor: usize,
        joined: Cell,
    },
    /// Nowhere: every entry refuses, and must not be forgotten.
    Nowhere,
    /// Nowhere: there is no room for the ring that it would start with.
    NoRoom,
}

/// What taking a seat cost others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nothing.
    None,
    /// Entries that still counted were dropped, or merged into the floor.
    Evicted(u64),
    /// The charge itself: it was not recorded.
    Unrecorded,
}

impl Seat {
    /// Whether there is an entry for the charge.
    pub(super) const fn is_recorded(&self) -> bool {
        !matches!(self.place, Place::Nowhere | Place::NoRoom)
    }

    /// Whether it cannot even be said what the key starts with.
    pub(super) const fn has_no_room(&self) -> bool {
        matches!(self.place, Place::NoRoom)
    }

    /// Leaves the charge unrecorded.
    pub(super) fn give_up(&mut self) {
        self.place = Place::Nowhere;
    }

    /// Gives up the rings that were made for a newcomer that does not come.
    pub(super) fn release(self, rules: Rules<'_>) {
        if self.origin == Origin::Inherited {
            rules.release(self.cell);
        }
        if let Place::Sink { joined, .. } = self.place {
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
    pub(super) fn touch(&self) {
        black_box((self.slots.is_locked(), self.has_moved()));
    }

    /// Whether the entries are the successor's now. To be asked while the bucket is locked.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    /// Marks the bucket, whose slots these are, as moved, and drops everything in it.
    pub(super) fn leave(&self, slots: &mut Slots, rules: Rules<'_>) {
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
    /// Finds the seat of `tag`, without changing anything.
    pub(super) fn seat(&self, tag: u64, rules: Rules<'_>, now: Timestamp) -> Seat {
        if let Some(own) = self.position(tag) {
            let cell = rules.opened(self.entries[own].cell, tag, now);
            return Seat {
                cell,
                origin: Origin::Own,
                place: Place::At(own),
            };
        }
        self.seat_of_newcomer(tag, rules, now)
    }

    /// The seat of a key that has no entry.
    fn seat_of_newcomer(&self, tag: u64, rules: Rules<'_>, now: Timestamp) -> Seat {
        let floor = self.floor(now);
        let Some(free) = self.free(now) else {
            return self.seat_in_full(tag, floor, rules, now);
        };
        let place = Place::At(free);
        match floor {
            None => Seat {
                cell: rules.opened(Cell::EMPTY, tag, now),
                origin: Origin::Own,
                place,
            },
            Some(floor) => {
                let cell = self.entries[floor].cell;
                inherit(cell, place, rules, now).unwrap_or(no_room(cell))
            }
        }
    }

    /// The seat of a newcomer when every entry counts.
    fn seat_in_full(
        &self,
        tag: u64,
        floor: Option<usize>,
        rules: Rules<'_>,
        now: Timestamp,
    ) -> Seat {
        let victim = self.least_used(rules, now, |_, entry| entry.tag != FLOOR);
        let refuses = || rules.refuses(self.entries[victim].cell, now);
        let place = match rules.on_full {
            OnFull::Strict => {
                let spare = || self.least_used(rules, now, |index, _| index != victim);
                let floor = floor.unwrap_or_else(spare);
                let (left, right) = (self.entries[floor].cell, self.entries[victim].cell);
                let Some(joined) = rules.join(left, right, now) else {
                    return no_room(left);
                };
                let place = Place::Sink {
                    victim,
                    floor,
                    joined,
                };
                return inherit(joined, place, rules, now).unwrap_or_else(|| {
                    rules.release(joined);
                    no_room(left)
                });
            }
            OnFull::Forget if refuses() => Place::Nowhere,
            OnFull::Forget => Place::Evict(victim),
        };
        Seat {
            cell: rules.opened(Cell::EMPTY, tag, now),
            origin: Origin::Own,
            place,
        }
    }

    /// Writes `cell` where `seat` said; nothing may have changed since.
    pub(super) fn take(&mut self, seat: Seat, tag: u64, cell: Cell, rules: Rules<'_>) -> Loss {
        let entry = Entry { tag, cell };
        match seat.place {
            Place::At(index) => {
                self.put(index, entry, rules);
                Loss::None
            }
            Place::Evict(victim) => {
                self.put(victim, entry, rules);
                Loss::Evicted(1)
            }
            Place::Sink {
                victim,
                floor,
                joined,
            } => {
                let new = self.entries[floor].tag != FLOOR;
                self.put_floor(floor, joined, rules);
                self.put(victim, entry, rules);
                Loss::Evicted(1 + u64::from(new))
            }
            Place::Nowhere | Place::NoRoom => Loss::Unrecorded,
        }
    }

    /// Changes the cell of `tag`, if it has one.
    pub(super) fn change(&mut self, tag: u64, rules: Rules<'_>, change: impl FnOnce(Cell) -> Cell) {
        if let Some(index) = self.position(tag) {
            let cell = change(self.entries[index].cell);
            self.put(index, Entry { tag, cell }, rules);
        }
    }

    /// Overwrites an entry, whose ring is given up unless it stays.
    fn put(&mut self, index: usize, entry: Entry, rules: Rules<'_>) {
        let (old, new) = (self.entries[index].cell, entry.cell);
        if rules.rings.is_some() && old.a != new.a {
            rules.release(old);
        }
        self.entries[index] = entry;
    }

    fn put_floor(&mut self, index: usize, cell: Cell, rules: Rules<'_>) {
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

    /// The entry whose loss would admit least: the smallest use, of equals the soonest to recover.
    fn least_used(
        &self,
        rules: Rules<'_>,
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

/// The seat of a newcomer that starts with what `cell` has used; `None` when there is no room for that.
fn inherit(cell: Cell, place: Place, rules: Rules<'_>, now: Timestamp) -> Option<Seat> {
    let cell = match rules.rings {
        None => cell,
        Some(_) => rules.join(cell, cell, now)?,
    };
    Some(Seat {
        cell,
        origin: Origin::Inherited,
        place,
    })
}

/// The seat of a newcomer when there is no room for what it would start with, `cell`.
const fn no_room(cell: Cell) -> Seat {
    Seat {
        cell,
        origin: Origin::Own,
        place: Place::NoRoom,
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
