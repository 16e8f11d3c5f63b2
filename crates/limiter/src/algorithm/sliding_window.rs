//! The sliding window counter with one part (`precision: 1`): the previous window, weighted by its
//! covered share, plus the current one. `sliding_counters` has more parts, whose cells need a ring.

use std::time::Duration;

use super::window_weight::{OldestPart, WindowWeight};
use super::{BucketView, History, ReservedCharge};
use crate::{Cell, Decision, Outcome, Quota, Timestamp};

/// The parameters of a sliding window. Parts are aligned to the Unix epoch.
///
/// Cell: last charged in the part that starts at `expires - OldestPart::lasting * part`. `a` counts
/// the part before that, `b` that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    quota: Quota,
    weighing: WindowWeight,
}

/// A cell at one instant.
struct View {
    /// The start of the current part, in microseconds since the epoch.
    start: u64,
    /// Microseconds since the start.
    elapsed: u64,
    oldest: u32,
    current: u32,
}

impl SlidingWindow {
    /// The quota's units in any window, to the precision of two counters.
    pub const fn new(quota: Quota, oldest: OldestPart) -> Self {
        let weighing = WindowWeight {
            limit: quota.limit(),
            part: quota.window_micros(),
            oldest,
        };
        Self { quota, weighing }
    }

    pub(super) const fn quota(&self) -> Quota {
        self.quota
    }

    /// The weight of the older counter.
    pub const fn oldest(&self) -> OldestPart {
        self.weighing.oldest
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let limit = self.quota.limit();
        let view = self.view(cell, now);
        let refuse = |retry_at| {
            let outcome = Outcome::Refuse { retry_at };
            Decision::new(outcome, cell, now, self.remaining(&view), limit)
        };
        if limit == 0 || cost > limit {
            return refuse(None);
        }
        // A cost of 0 is admitted even in debt.
        if cost > 0 && self.estimate(&view) + self.weighing.units(cost) > self.weighing.units(limit)
        {
            return refuse(Some(self.retry_at(&view, cost)));
        }
        let view = View {
            current: view.current + cost,
            ..view
        };
        let cell = if cost == 0 { cell } else { self.cell(&view) };
        Decision::new(Outcome::Admit, cell, now, self.remaining(&view), limit)
    }

    /// The bucket in debt: the running part counts at most the limit.
    pub(super) fn owe(&self, cell: Cell, now: Timestamp, cost: u32) -> Cell {
        let view = self.view(cell, now);
        let most = view.current.max(self.quota.limit());
        self.cell(&View {
            current: view.current.saturating_add(cost).min(most),
            ..view
        })
    }

    /// The units counted at `at` or earlier that still count at `now`.
    pub(super) fn covered(&self, units: u32, at: Timestamp, now: Timestamp) -> u32 {
        self.weighing.covered_of(units, at, now)
    }

    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        self.estimate(&self.view(cell, now))
    }

    pub(super) fn bucket_view(&self, cell: Cell, now: Timestamp) -> BucketView {
        let view = self.view(cell, now);
        BucketView::SlidingWindow {
            limit: self.quota.limit(),
            used: self.quota.limit() - self.remaining(&view),
            part: self.quota.window(),
            elapsed: Duration::from_micros(view.elapsed),
            oldest: self.weighing.oldest,
            counts: vec![view.oldest, view.current],
        }
    }

    /// Counts less in the part of the charge, as long as that part counts.
    pub(super) fn give_back(
        &self,
        cell: Cell,
        reserved: &ReservedCharge,
        units: u32,
        now: Timestamp,
    ) -> Cell {
        let mut view = self.view(cell, now);
        let counted = self.charged_part(reserved.cell).as_micros();
        if counted == view.start {
            view.current = view.current.saturating_sub(units);
        } else if counted + self.part() == view.start {
            view.oldest = view.oldest.saturating_sub(units);
        }
        self.cell(&view)
    }

    /// The larger count of each part.
    pub(super) fn join(&self, left: Cell, right: Cell, now: Timestamp) -> Cell {
        // At the later of their last charged parts, both have the same parts.
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

    /// Keeps the counters if parts and weights are the same, also beyond the limit. Otherwise counts
    /// the used units, rounded up, in the running part.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let view = from.view(cell, now);
        if (self.part(), self.weighing.oldest) == (from.part(), from.weighing.oldest) {
            return self.cell(&view);
        }
        let used = from.weighing.used(view.oldest, view.current, view.elapsed);
        self.cell(&View {
            current: u32::try_from(used).unwrap_or(u32::MAX),
            ..self.view(Cell::EMPTY, now)
        })
    }

    /// Units with their ages, newest first. The rest of the older counter is rounded up.
    pub(super) fn history(&self, cell: Cell, now: Timestamp) -> History {
        let view = self.view(cell, now);
        let used = self.weighing.used(view.oldest, view.current, view.elapsed);
        let oldest = (used - u64::from(view.current)) as u32;
        vec![(0, view.current), (self.part(), oldest)]
    }

    /// A cell with the history's units in the running part, up to the limit.
    pub(super) fn rebuild(&self, past: &History, now: Timestamp) -> Cell {
        let used: u64 = past.iter().map(|(_, units)| u64::from(*units)).sum();
        self.cell(&View {
            current: used.min(u64::from(self.quota.limit())) as u32,
            ..self.view(Cell::EMPTY, now)
        })
    }

    fn remaining(&self, view: &View) -> u32 {
        self.weighing
            .remaining(view.oldest, view.current, view.elapsed)
    }

    /// The first instant at which the counters leave room for `cost`, in this part or a later one.
    fn retry_at(&self, view: &View, cost: u32) -> Timestamp {
        let parts = [(view.oldest, view.current), (view.current, 0)];
        let mut start = view.start;
        for (oldest, current) in parts {
            let others = u64::from(current) + u64::from(cost);
            if let Some(elapsed) = self.weighing.first_room(oldest, others) {
                return Timestamp::from_micros(start + elapsed);
            }
            start += self.part();
        }
        Timestamp::from_micros(start)
    }

    /// The estimate times the length of a part.
    fn estimate(&self, view: &View) -> u128 {
        self.weighing
            .estimate(view.oldest, view.current, view.elapsed)
    }

    /// The cell at `now`, or at the start of its last charged part if that is later.
    fn view(&self, cell: Cell, now: Timestamp) -> View {
        let charged = self.charged_part(cell);
        let live = cell.is_live(now);
        let now = if live { now.max(charged) } else { now }.as_micros();
        let elapsed = now % self.part();
        let start = now - elapsed;
        let (oldest, current) = if !live {
            (0, 0)
        } else if start == charged.as_micros() {
            (cell.a, cell.b)
        } else {
            (cell.b, 0)
        };
        View {
            start,
            elapsed,
            oldest,
            current,
        }
    }

    fn cell(&self, view: &View) -> Cell {
        let (from, a, b) = match (view.oldest, view.current) {
            (0, 0) => return Cell::EMPTY,
            // Nothing in the current part: the cell was last charged in the part before.
            (oldest, 0) => (view.start.saturating_sub(self.part()), 0, oldest),
            (oldest, current) => (view.start, oldest, current),
        };
        Cell {
            expires: from + self.weighing.oldest.lasting(1) * self.part(),
            a,
            b,
        }
    }

    /// The start of the part of the cell's last charge.
    fn charged_part(&self, cell: Cell) -> Timestamp {
        Timestamp::from_micros(
            cell.expires
                .saturating_sub(self.weighing.oldest.lasting(1) * self.part()),
        )
    }

    const fn part(&self) -> u64 {
        self.quota.window_micros()
    }
}
