//! The sliding window counter with one part (`precision: 1`): the previous window weighted by what
//! is still covered of it, plus the current one.
//!
//! The arithmetic is that of N parts with N = 1: a part, what has elapsed of it, the oldest
//! counter, and the others. More parts need cells that point to a ring, which are not here.

use super::{Refused, div_ceil, div_floor, refuse};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Outcome, Quota};

/// The parameters of a sliding window. Its parts are aligned to the Unix epoch.
///
/// Cell: last charged in the part that starts at `expires - Oldest::parts * part`; `a` is the count
/// of the part before it, `b` its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    quota: Quota,
    oldest: Oldest,
}

/// How the oldest counter, whose part the window covers only partly, counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oldest {
    /// In proportion to what is covered.
    #[default]
    Weighted,
    /// Fully: never more than the limit in any window, but refusing up to one part early.
    Whole,
    /// Not at all.
    Ignored,
}

impl Oldest {
    /// For how many parts a unit counts, the one in which it was charged included.
    const fn parts(self) -> u64 {
        match self {
            Self::Weighted | Self::Whole => 2,
            Self::Ignored => 1,
        }
    }
}

/// A cell as it is seen at one instant.
struct View {
    /// Where the current part starts, in microseconds since the epoch.
    start: u64,
    /// Microseconds since then.
    elapsed: u64,
    oldest: u32,
    current: u32,
}

impl SlidingWindow {
    /// The quota's units in each span of a window, as well as two counters can tell.
    pub const fn new(quota: Quota, oldest: Oldest) -> Self {
        Self { quota, oldest }
    }

    pub(super) const fn quota(&self) -> Quota {
        self.quota
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let limit = self.quota.limit();
        let view = self.view(cell, now);
        if limit == 0 || cost > limit {
            return self.refuse(cell, now, &view, None);
        }
        if self.estimate(&view) + self.units(cost) > self.units(limit) {
            return self.refuse(cell, now, &view, Some(self.retry_at(&view, cost)));
        }
        let view = View {
            current: view.current + cost,
            ..view
        };
        let cell = if cost == 0 { cell } else { self.cell(&view) };
        Decision {
            outcome: Outcome::Admit,
            remaining: self.remaining(&view),
            capacity: limit,
            reset: cell.whole_at(now),
            cell,
        }
    }

    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        self.estimate(&self.view(cell, now))
    }

    /// The larger counts of each part.
    pub(super) fn join(&self, left: Cell, right: Cell, now: Timestamp) -> Cell {
        // Seen at the later of the parts in which they were charged, both have the same parts.
        let now = now
            .max(self.charged_part(left))
            .max(self.charged_part(right));
        let (left, right) = (self.view(left, now), self.view(right, now));
        let joined = View {
            oldest: left.oldest.max(right.oldest),
            current: left.current.max(right.current),
            ..left
        };
        self.cell(&joined)
    }

    /// Keeps the counters where they mean the same; else counts what was used, rounded up, in the
    /// part that runs.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let view = from.view(cell, now);
        if (self.part(), self.oldest) != (from.part(), from.oldest) {
            let used = div_ceil(from.estimate(&view), from.part());
            let current = used.min(u64::from(self.quota.limit())) as u32;
            return self.cell(&View {
                current,
                ..self.view(Cell::EMPTY, now)
            });
        }
        let current = view.current.min(self.quota.limit());
        let oldest = match self.covered(view.elapsed) {
            0 => view.oldest,
            covered => {
                let room = self.units(self.quota.limit() - current);
                (room / u128::from(covered)).min(u128::from(view.oldest)) as u32
            }
        };
        self.cell(&View {
            oldest,
            current,
            ..view
        })
    }

    fn refuse(
        &self,
        cell: Cell,
        now: Timestamp,
        view: &View,
        retry_at: Option<Timestamp>,
    ) -> Decision {
        let (remaining, capacity) = (self.remaining(view), self.quota.limit());
        refuse(
            cell,
            now,
            Refused {
                retry_at,
                remaining,
                capacity,
            },
        )
    }

    fn remaining(&self, view: &View) -> u32 {
        let left = self
            .units(self.quota.limit())
            .saturating_sub(self.estimate(view));
        div_floor(left, self.part()) as u32
    }

    /// The first instant from which the counters leave room for `cost`, in this part or a later
    /// one.
    fn retry_at(&self, view: &View, cost: u32) -> Timestamp {
        let parts = [(view.oldest, view.current), (view.current, 0)];
        let mut start = view.start;
        for (oldest, current) in parts {
            if let Some(elapsed) = self.first_room(oldest, u64::from(current) + u64::from(cost)) {
                return Timestamp::from_micros(start + elapsed);
            }
            start += self.part();
        }
        Timestamp::from_micros(start)
    }

    /// How far into a part the oldest counter, shrinking, leaves room for `others`; `None` when it
    /// does not within the part.
    fn first_room(&self, oldest: u32, others: u64) -> Option<u64> {
        let room = u64::from(self.quota.limit()).checked_sub(others)?;
        if oldest == 0 {
            return Some(0);
        }
        match self.oldest {
            Oldest::Ignored => Some(0),
            Oldest::Whole => (u64::from(oldest) <= room).then_some(0),
            Oldest::Weighted => {
                let room = u128::from(room) * u128::from(self.part());
                let covered = (room / u128::from(oldest)).min(u128::from(self.part())) as u64;
                (covered > 0).then_some(self.part() - covered)
            }
        }
    }

    /// The estimate times the length of a part.
    fn estimate(&self, view: &View) -> u128 {
        let oldest = u128::from(view.oldest) * u128::from(self.covered(view.elapsed));
        oldest + self.units(view.current)
    }

    /// How much of the oldest part counts.
    fn covered(&self, elapsed: u64) -> u64 {
        match self.oldest {
            Oldest::Weighted => self.part() - elapsed,
            Oldest::Whole => self.part(),
            Oldest::Ignored => 0,
        }
    }

    /// The cell at `now`, or at the start of the part in which it was last charged if that is
    /// later.
    fn view(&self, cell: Cell, now: Timestamp) -> View {
        let charged = self.charged_part(cell);
        let live = cell.is_live(now);
        let now = if live { now.max(charged) } else { now }.as_micros();
        let elapsed = now % self.part();
        let start = now - elapsed;
        let (oldest, current) = match live {
            true if start == charged.as_micros() => (cell.a, cell.b),
            true => (cell.b, 0),
            false => (0, 0),
        };
        View {
            start,
            elapsed,
            oldest,
            current,
        }
    }

    /// The cell that looks like `view`.
    fn cell(&self, view: &View) -> Cell {
        let (from, a, b) = match (view.oldest, view.current) {
            (0, 0) => return Cell::EMPTY,
            // Nothing in the current part: a cell that was last charged in the one before it.
            (oldest, 0) => (view.start.saturating_sub(self.part()), 0, oldest),
            (oldest, current) => (view.start, oldest, current),
        };
        Cell {
            expires: from + self.oldest.parts() * self.part(),
            a,
            b,
        }
    }

    /// The start of the part in which the cell was last charged.
    fn charged_part(&self, cell: Cell) -> Timestamp {
        Timestamp::from_micros(
            cell.expires
                .saturating_sub(self.oldest.parts() * self.part()),
        )
    }

    /// `count` units times the length of a part.
    fn units(&self, count: u32) -> u128 {
        u128::from(count) * u128::from(self.part())
    }

    const fn part(&self) -> u64 {
        self.quota.window_micros()
    }
}
