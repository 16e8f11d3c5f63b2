//! The sliding window counter with one part (`precision: 1`): the previous window, weighted by its
//! covered share, plus the current one. `sliding_counters` has more parts, whose cells need a ring.

use std::time::Duration;

use super::settle::Refund;
use super::window_weight::{OldestPart, WindowCounts, WindowWeight};
use super::{BucketView, History};
use crate::{Cell, Decision, Outcome, Quota, Timestamp};

/// The parameters of a sliding window. Parts are aligned to the Unix epoch.
///
/// Cell: last charged in the part that starts at `expires - OldestPart::lasting * part`. `a` counts
/// the part before that, `b` that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    pub(super) quota: Quota,
    pub(super) weighing: WindowWeight,
}

/// A cell at one instant.
#[derive(Clone, Copy)]
struct View {
    /// The start of the current part, in microseconds since the epoch.
    start: u64,
    counts: WindowCounts,
}

impl View {
    fn with_current(mut self, units: u32) -> Self {
        self.counts.others = units;
        self
    }
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

    /// The weight of the older counter.
    pub const fn oldest(&self) -> OldestPart {
        self.weighing.oldest
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let limit = self.quota.limit();
        let view = self.view(cell, now);
        let decide = |outcome, cell, counts| {
            let remaining = self.weighing.remaining(counts);
            Decision::new(outcome, cell, now, remaining, limit)
        };
        if limit == 0 || cost > limit {
            return decide(Outcome::Refuse { retry_at: None }, cell, view.counts);
        }
        if !self.weighing.has_room(view.counts, cost) {
            let retry_at = Some(self.retry_at(&view, cost));
            return decide(Outcome::Refuse { retry_at }, cell, view.counts);
        }
        let view = view.with_current(view.counts.others + cost);
        let cell = if cost == 0 { cell } else { self.cell(&view) };
        decide(Outcome::Admit, cell, view.counts)
    }

    /// The bucket in debt: the running part counts at most the limit.
    pub(super) fn owe(&self, cell: Cell, now: Timestamp, cost: u32) -> Cell {
        let view = self.view(cell, now);
        let current = view.counts.others;
        let most = current.max(self.quota.limit());
        self.cell(&view.with_current(current.saturating_add(cost).min(most)))
    }

    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        self.weighing.estimate(self.view(cell, now).counts)
    }

    pub(super) fn bucket_view(&self, cell: Cell, now: Timestamp) -> BucketView {
        let counts = self.view(cell, now).counts;
        BucketView::SlidingWindow {
            limit: self.quota.limit().into(),
            used: (self.quota.limit() - self.weighing.remaining(counts)).into(),
            part: self.quota.window(),
            elapsed: Duration::from_micros(counts.elapsed),
            oldest: self.weighing.oldest,
            counts: vec![counts.oldest, counts.others],
        }
    }

    /// Counts less in the part of the charge, as long as that part counts.
    pub(super) fn give_back(&self, cell: Cell, refund: Refund<'_>) -> Cell {
        let (mut view, units) = (self.view(cell, refund.now), refund.units);
        let counted = self.charged_part(refund.reserved.cell).as_micros();
        let counts = &mut view.counts;
        if counted == view.start {
            counts.others = counts.others.saturating_sub(units);
        } else if counted + self.weighing.part == view.start {
            counts.oldest = counts.oldest.saturating_sub(units);
        }
        self.cell(&view)
    }

    /// The larger count of each part.
    pub(super) fn join(&self, left: Cell, right: Cell, now: Timestamp) -> Cell {
        // At the later of their last charged parts, both have the same parts.
        let now = now
            .max(self.charged_part(left))
            .max(self.charged_part(right));
        let (mut joined, right) = (self.view(left, now), self.view(right, now).counts);
        joined.counts.oldest = joined.counts.oldest.max(right.oldest);
        joined.counts.others = joined.counts.others.max(right.others);
        self.cell(&joined)
    }

    /// Keeps the counters if parts and weights are the same, also beyond the limit. Otherwise counts
    /// the used units, rounded up, in the running part.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let view = from.view(cell, now);
        let (own, other) = (&self.weighing, &from.weighing);
        if (own.part, own.oldest) == (other.part, other.oldest) {
            return self.cell(&view);
        }
        let used = u32::try_from(other.used(view.counts)).unwrap_or(u32::MAX);
        self.cell(&self.view(Cell::EMPTY, now).with_current(used))
    }

    /// Units with their ages, newest first. The rest of the older counter is rounded up.
    pub(super) fn history(&self, cell: Cell, now: Timestamp) -> History {
        let counts = self.view(cell, now).counts;
        let oldest = (self.weighing.used(counts) - u64::from(counts.others)) as u32;
        vec![(0, counts.others), (self.weighing.part, oldest)]
    }

    /// A cell with the history's units in the running part, up to the limit.
    pub(super) fn rebuild(&self, past: &History, now: Timestamp) -> Cell {
        let used: u64 = past.iter().map(|(_, units)| u64::from(*units)).sum();
        let used = used.min(u64::from(self.quota.limit())) as u32;
        self.cell(&self.view(Cell::EMPTY, now).with_current(used))
    }

    /// The first instant at which the counters leave room for `cost`, in this part or a later one.
    fn retry_at(&self, view: &View, cost: u32) -> Timestamp {
        let WindowCounts { oldest, others, .. } = view.counts;
        let parts = [(oldest, others), (others, 0)];
        let mut start = view.start;
        for (oldest, current) in parts {
            let others = u64::from(current) + u64::from(cost);
            if let Some(elapsed) = self.weighing.first_room(oldest, others) {
                return Timestamp::from_micros(start + elapsed);
            }
            start += self.weighing.part;
        }
        Timestamp::from_micros(start)
    }

    /// The cell at `now`, or at the start of its last charged part if that is later.
    fn view(&self, cell: Cell, now: Timestamp) -> View {
        let charged = self.charged_part(cell);
        let live = cell.is_live(now);
        let now = if live { now.max(charged) } else { now }.as_micros();
        let elapsed = now % self.weighing.part;
        let start = now - elapsed;
        let (oldest, others) = if !live {
            (0, 0)
        } else if start == charged.as_micros() {
            (cell.a, cell.b)
        } else {
            (cell.b, 0)
        };
        let counts = WindowCounts {
            oldest,
            others,
            elapsed,
        };
        View { start, counts }
    }

    fn cell(&self, view: &View) -> Cell {
        let (from, a, b) = match (view.counts.oldest, view.counts.others) {
            (0, 0) => return Cell::EMPTY,
            // Nothing in the current part: the cell was last charged in the part before.
            (oldest, 0) => (view.start.saturating_sub(self.weighing.part), 0, oldest),
            (oldest, current) => (view.start, oldest, current),
        };
        Cell {
            expires: from + self.lasting(),
            a,
            b,
        }
    }

    /// The start of the part of the cell's last charge.
    fn charged_part(&self, cell: Cell) -> Timestamp {
        Timestamp::from_micros(cell.expires.saturating_sub(self.lasting()))
    }

    /// The time for which a unit counts, from the start of its part.
    const fn lasting(&self) -> u64 {
        self.weighing.oldest.lasting(1) * self.weighing.part
    }
}
