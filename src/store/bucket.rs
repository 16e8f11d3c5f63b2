//! A bucket of a table: five entries behind a one-byte lock, in 128 bytes, and which of them a key
//! is charged in when there is no room.
//!
//! Not here: which bucket a key belongs to.

use parking_lot::{Mutex, MutexGuard};

use super::table::OnFull;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, Fingerprint};

/// Entries in a bucket.
pub(super) const ENTRIES: usize = 5;

/// Two cache lines, aligned.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Bucket(Mutex<Slots>);

const _: () = assert!(size_of::<Bucket>() == 128);

/// What a bucket's lock guards.
#[derive(Default)]
pub(super) struct Slots {
    entries: [Entry; ENTRIES],
    /// The entries have been carried over to the table's successor, which counts from then on.
    moved: bool,
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

/// The rules by which a table fills its buckets.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) algorithm: &'a Algorithm,
    pub(super) on_full: OnFull,
}

impl Rules<'_> {
    /// What `tag` is decided on whose cell is `cell`.
    pub(super) fn opened(&self, cell: Cell, tag: u64, now: Timestamp) -> Cell {
        self.algorithm
            .opened(cell, Fingerprint::from_bits(tag), now)
    }
}

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
    Sink { victim: usize, floor: usize },
    /// Nowhere: every entry refuses, and must not be forgotten.
    Nowhere,
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

impl Bucket {
    /// Locks the bucket; `None` if it has moved.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, Slots>> {
        Some(self.0.lock()).filter(|slots| !slots.moved)
    }

    /// Locks the bucket, moved or not, unless somebody else has.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Slots>> {
        self.0.try_lock()
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
        let floor = self.floor(now);
        let Some(free) = self.free(now) else {
            return self.seat_in_full(tag, floor, rules, now);
        };
        let (cell, origin) = match floor {
            None => (rules.opened(Cell::EMPTY, tag, now), Origin::Own),
            Some(floor) => (self.entries[floor].cell, Origin::Inherited),
        };
        Seat {
            cell,
            origin,
            place: Place::At(free),
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
        let refuses = || rules.algorithm.refuses(self.entries[victim].cell, now);
        let place = match rules.on_full {
            OnFull::Strict => {
                let spare = || self.least_used(rules, now, |index, _| index != victim);
                let floor = floor.unwrap_or_else(spare);
                let (left, right) = (self.entries[floor].cell, self.entries[victim].cell);
                let cell = rules.algorithm.join(left, right, now);
                let place = Place::Sink { victim, floor };
                return Seat {
                    cell,
                    origin: Origin::Inherited,
                    place,
                };
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
    pub(super) fn take(&mut self, seat: Seat, tag: u64, cell: Cell) -> Loss {
        match seat.place {
            Place::At(index) => {
                self.entries[index] = Entry { tag, cell };
                Loss::None
            }
            Place::Evict(victim) => {
                self.entries[victim] = Entry { tag, cell };
                Loss::Evicted(1)
            }
            Place::Sink { victim, floor } => {
                let new = self.entries[floor].tag != FLOOR;
                self.entries[floor] = Entry {
                    tag: FLOOR,
                    cell: seat.cell,
                };
                self.entries[victim] = Entry { tag, cell };
                Loss::Evicted(1 + u64::from(new))
            }
            Place::Nowhere => Loss::Unrecorded,
        }
    }

    /// Takes over an entry of a table that this one succeeds.
    pub(super) fn adopt(&mut self, entry: Entry, rules: Rules<'_>, now: Timestamp) -> Loss {
        if !entry.is_live(now) {
            return Loss::None;
        }
        if entry.tag == FLOOR {
            return self.adopt_floor(entry.cell, rules, now);
        }
        let seat = self.seat(entry.tag, rules, now);
        if let Place::Evict(victim) = seat.place {
            let used = |entry: Entry| rules.algorithm.used(entry.cell, now);
            if used(entry) < used(self.entries[victim]) {
                return Loss::Evicted(1);
            }
        }
        self.take(seat, entry.tag, entry.cell)
    }

    fn adopt_floor(&mut self, cell: Cell, rules: Rules<'_>, now: Timestamp) -> Loss {
        if rules.on_full == OnFull::Forget {
            return Loss::None;
        }
        let (index, loss) = match self.position(FLOOR).or_else(|| self.free(now)) {
            Some(index) => (index, Loss::None),
            None => (self.least_used(rules, now, |_, _| true), Loss::Evicted(1)),
        };
        let cell = rules.algorithm.join(cell, self.entries[index].cell, now);
        self.entries[index] = Entry { tag: FLOOR, cell };
        loss
    }

    /// The entries that still count.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = Entry> {
        self.entries
            .iter()
            .copied()
            .filter(move |entry| entry.is_live(now))
    }

    /// Whether the entries are the successor's now.
    pub(super) fn has_moved(&self) -> bool {
        self.moved
    }

    /// Marks the bucket as moved, and drops everything in it.
    pub(super) fn leave(&mut self) {
        *self = Self {
            moved: true,
            ..Self::default()
        };
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
            .min_by_key(|(_, entry)| (rules.algorithm.used(entry.cell, now), entry.expires()))
            .map(|(index, _)| index)
            .expect("a bucket has more than one entry, and at most one is the floor")
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
mod tests;
