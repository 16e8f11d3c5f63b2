//! The sliding window counter with many parts: a counter for each part, the oldest weighted by its
//! covered share. `sliding_window` has windows of one part, whose cells need no ring.

mod rebuild;

use std::num::NonZero;
use std::time::Duration;

use super::BucketView;
use super::settle::Refund;
use super::window_weight::{OldestPart, WindowCounts, WindowWeight};
use crate::ring::{BucketState, Ring, RingMemory, RingShape};
use crate::{Cell, Decision, Outcome, Quota, QuotaError, Timestamp};

/// The parameters of a sliding window whose parts have counters. Parts are aligned to the Unix
/// epoch.
///
/// Cell: last charged in the part that starts at `expires - OldestPart::lasting * part`. `b` is the
/// sum of the newest `parts` counters then. The ring has `parts + 1` slots; a part's slot is its
/// number modulo that.
#[derive(Clone, Copy, Debug)]
pub struct SlidingCounters {
    pub(super) quota: Quota,
    parts: u32,
    weighing: WindowWeight,
    /// Room for counts of this limit, and of those before it.
    pub(super) shape: RingShape,
}

/// Room makes no difference to decisions.
impl PartialEq for SlidingCounters {
    fn eq(&self, other: &Self) -> bool {
        (self.quota, self.parts, self.weighing) == (other.quota, other.parts, other.weighing)
    }
}

impl Eq for SlidingCounters {}

/// A ring at one instant.
#[derive(Clone, Copy)]
struct View<'a> {
    ring: Option<Ring<'a>>,
    /// The number of the current part, at least that of the last charge.
    part: u64,
    /// The number of the part of the last charge.
    last: u64,
    counts: WindowCounts,
}

impl SlidingCounters {
    /// The largest number of parts in a window.
    pub const MOST: u32 = 3600;

    /// The quota's units in any window, to the precision of `parts` counters.
    ///
    /// # Errors
    /// The window cannot be cut into that many equal parts of whole microseconds, or there are more
    /// than [`SlidingCounters::MOST`].
    pub fn new(quota: Quota, parts: u32, oldest: OldestPart) -> Result<Self, QuotaError> {
        let window = quota.window_micros();
        if parts == 0 || parts > Self::MOST || !window.is_multiple_of(u64::from(parts)) {
            return Err(QuotaError::Parts);
        }
        let weighing = WindowWeight {
            limit: quota.limit(),
            part: window / u64::from(parts),
            oldest,
        };
        // No part counts more than the limit, except of a higher one.
        let shape = RingShape::of_counters(parts + 1, quota.limit());
        Ok(Self {
            quota,
            parts,
            weighing,
            shape,
        })
    }

    /// The window with room for the counts of `before`, if it has the same parts.
    pub(super) fn with_room_of(self, before: &Self) -> Self {
        let is_wider = before.shape.max_value() > self.shape.max_value();
        if self.has_same_ring_format(before) && is_wider {
            self.with_wide_counters()
        } else {
            self
        }
    }

    /// The window with four-byte counters, as in snapshots.
    #[must_use]
    pub(super) const fn with_wide_counters(self) -> Self {
        Self {
            shape: RingShape::new(self.parts + 1),
            ..self
        }
    }

    /// The number of parts, and the weight of the oldest.
    pub const fn parts(&self) -> (u32, OldestPart) {
        (self.parts, self.weighing.oldest)
    }

    pub(super) fn decide(&self, state: BucketState<'_>, now: Timestamp, cost: u32) -> Decision {
        let (limit, cell) = (self.quota.limit(), state.cell);
        let mut view = self.view(state, now);
        let decide = |outcome, cell, view: &View<'_>| Decision {
            more_at: self.more_at(view),
            ..Decision::new(
                outcome,
                cell,
                now,
                self.weighing.remaining(view.counts),
                limit,
            )
        };
        if limit == 0 || cost > limit {
            return decide(Outcome::Refuse { retry_at: None }, cell, &view);
        }
        if !self.weighing.has_room(view.counts, cost) {
            let retry_at = Some(self.first_room(&view, cost));
            return decide(Outcome::Refuse { retry_at }, cell, &view);
        }
        view.counts.others += cost;
        let after = Cell {
            expires: (view.part + self.lasting()) * self.weighing.part,
            b: view.counts.others,
            ..cell
        };
        decide(Outcome::Admit, if cost == 0 { cell } else { after }, &view)
    }

    /// The bucket in debt: the running part counts at most the limit.
    pub(super) fn owe(&self, state: BucketState<'_>, now: Timestamp, cost: u32) -> (Cell, u32) {
        let view = self.view(state, now);
        let counted = self.count(&view, Some(view.part));
        let room = self.quota.limit().saturating_sub(counted);
        let cost = cost.min(room);
        let after = Cell {
            expires: (view.part + self.lasting()) * self.weighing.part,
            b: view.counts.others.saturating_add(cost),
            ..state.cell
        };
        match cost {
            0 => (state.cell, 0),
            _ => (after, cost),
        }
    }

    /// The units counted at `at` or earlier that still count at `now`, if they came evenly.
    pub(super) fn covered(&self, units: u32, at: Timestamp, now: Timestamp) -> u32 {
        let oldest = match self.weighing.oldest {
            OldestPart::Whole => OldestPart::Whole,
            // All parts but the oldest count fully.
            OldestPart::Weighted | OldestPart::Ignored => OldestPart::Weighted,
        };
        let weighing = WindowWeight {
            part: self.quota.window_micros(),
            oldest,
            ..self.weighing
        };
        weighing.covered_of(units, at, now)
    }

    pub(super) fn used(&self, state: BucketState<'_>, now: Timestamp) -> u128 {
        self.weighing.estimate(self.view(state, now).counts)
    }

    /// Parts are counted together if there are more than [`BucketView::MOST`].
    pub(super) fn bucket_view(&self, state: BucketState<'_>, now: Timestamp) -> BucketView {
        let view = self.view(state, now);
        let parts = 0..=u64::from(self.parts);
        let counts: Vec<_> = parts
            .map(|back| self.count(&view, view.part.checked_sub(back)))
            .collect();
        let together = counts.len().div_ceil(BucketView::MOST);
        let sum = |counts: &[u32]| counts.iter().copied().fold(0, u32::saturating_add);
        let earlier = self.weighing.part * (together as u64 - 1);
        BucketView::SlidingWindow {
            limit: self.quota.limit().into(),
            used: (self.quota.limit() - self.weighing.remaining(view.counts)).into(),
            part: Duration::from_micros(self.weighing.part * together as u64),
            elapsed: Duration::from_micros(earlier + view.counts.elapsed),
            oldest: self.weighing.oldest,
            counts: counts.chunks(together).map(sum).rev().collect(),
        }
    }

    /// Chunks that the ring of `before` lacks to become `after`: the root, and the chunk of the
    /// part's slot.
    pub(super) fn missing_chunks(&self, before: BucketState<'_>, after: Cell) -> u32 {
        let slot = self.slot(self.last(after));
        match before.ring().filter(|ring| ring.root() != 0) {
            Some(ring) => u32::from(!ring.has(slot)),
            None => 1 + u32::from(self.shape.chunks_for(slot + 1) > 1),
        }
    }

    /// Zeroes the slots of passed parts, and adds the units that make the bucket `after`.
    pub(super) fn record(
        &self,
        before: BucketState<'_>,
        after: Cell,
        cost: u32,
        words: &RingMemory,
        chunks: &mut dyn Iterator<Item = u32>,
    ) -> Cell {
        let part = self.last(after);
        let slot = self.slot(part);
        let ring = match before.cell.a {
            0 => words.start(chunks),
            root => {
                let ring = words.ring(root);
                let passed = self.last(before.cell) + 1..part + 1;
                let first = passed.start.max(part.saturating_sub(u64::from(self.parts)));
                (first..passed.end).for_each(|part| ring.set(self.slot(part), 0));
                ring
            }
        };
        if let Some(chunk) = chunks.next() {
            ring.supply(slot, chunk);
        }
        ring.set(slot, ring.get(slot) + cost);
        Cell {
            a: ring.root(),
            ..after
        }
    }

    /// Counts less in the part of the charge, as long as that part counts.
    pub(super) fn give_back(&self, state: BucketState<'_>, refund: Refund<'_>) -> Cell {
        let (view, part) = (
            self.view(state, refund.now),
            self.last(refund.reserved.cell),
        );
        let counts = part + u64::from(self.parts) >= view.part;
        let count = self.count(&view, Some(part).filter(|_| counts));
        let back = refund.units.min(count);
        let Some(ring) = view.ring.filter(|_| back > 0) else {
            return state.cell;
        };
        ring.set(self.slot(part), count - back);
        self.counted(state.cell, &view)
    }

    /// The cell of a ring whose counters have shrunk: last charged in the newest part with a count.
    fn counted(&self, cell: Cell, view: &View<'_>) -> Cell {
        let parts = u64::from(self.parts);
        let back_from = |part: u64| (part.saturating_sub(parts)..=part).rev();
        let count = |part: u64| self.count(view, Some(part));
        let Some(newest) = back_from(view.last).find(|part| count(*part) > 0) else {
            return Cell::EMPTY;
        };
        let others = back_from(newest).take(self.parts as usize).map(count);
        Cell {
            expires: (newest + self.lasting()) * self.weighing.part,
            b: others.fold(0, u32::saturating_add),
            ..cell
        }
    }

    /// The instant at which `remaining` grows.
    fn more_at(&self, view: &View<'_>) -> Option<NonZero<u64>> {
        let more = self.weighing.remaining(view.counts).checked_add(1)?;
        let more_at = (more <= self.quota.limit()).then(|| self.first_room(view, more))?;
        NonZero::new(more_at.as_micros())
    }

    /// The first instant at which the counters leave room for `cost`, in this part or a later one.
    fn first_room(&self, view: &View<'_>, cost: u32) -> Timestamp {
        let WindowCounts {
            mut oldest,
            mut others,
            ..
        } = view.counts;
        let mut part = view.part;
        for later in 1..=u64::from(self.parts) {
            let wanted = u64::from(others) + u64::from(cost);
            if let Some(elapsed) = self.weighing.first_room(oldest, wanted) {
                return Timestamp::from_micros(part * self.weighing.part + elapsed);
            }
            part = view.part + later;
            oldest = if later == u64::from(self.parts) {
                // The part that runs now is the oldest by then, with this charge.
                others
            } else {
                self.count(view, part.checked_sub(u64::from(self.parts)))
            };
            // With debt, the counters may exceed their saturated sum.
            others = others.saturating_sub(oldest);
        }
        let elapsed = self
            .weighing
            .first_room(oldest, u64::from(cost))
            .unwrap_or(self.weighing.part);
        Timestamp::from_micros(part * self.weighing.part + elapsed)
    }

    /// The cell at `now`, or at the start of its last charged part if that is later.
    fn view<'a>(&self, state: BucketState<'a>, now: Timestamp) -> View<'a> {
        let present = now.as_micros() / self.weighing.part;
        if !state.cell.is_live(now) || state.cell.a == 0 {
            return View {
                ring: None,
                part: present,
                last: present,
                counts: WindowCounts {
                    oldest: 0,
                    others: 0,
                    elapsed: now.as_micros() % self.weighing.part,
                },
            };
        }
        let last = self.last(state.cell);
        let part = present.max(last);
        let mut view = View {
            ring: state.ring(),
            part,
            last,
            counts: WindowCounts {
                oldest: 0,
                others: 0,
                elapsed: now.as_micros().saturating_sub(part * self.weighing.part),
            },
        };
        let parts = u64::from(self.parts);
        view.counts.oldest = self.count(&view, part.checked_sub(parts));
        view.counts.others = match part - last {
            passed if passed < parts => {
                let gone = (last + 1..=part).map(|part| self.count(&view, part.checked_sub(parts)));
                gone.fold(state.cell.b, u32::saturating_sub)
            }
            _ => 0,
        };
        view
    }

    /// The count of a part. 0 before the epoch, after the last charge, and a window before it.
    fn count(&self, view: &View<'_>, part: Option<u64>) -> u32 {
        let known = |part: &u64| *part <= view.last && part + u64::from(self.parts) >= view.last;
        match (view.ring, part.filter(known)) {
            (Some(ring), Some(part)) => ring.get(self.slot(part)),
            _ => 0,
        }
    }

    fn slot(&self, part: u64) -> u32 {
        (part % (u64::from(self.parts) + 1)) as u32
    }

    /// The number of the part of the cell's last charge.
    fn last(&self, cell: Cell) -> u64 {
        (cell.expires / self.weighing.part).saturating_sub(self.lasting())
    }

    const fn lasting(&self) -> u64 {
        self.weighing.oldest.lasting(self.parts as u64)
    }
}
