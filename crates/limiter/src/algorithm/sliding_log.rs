//! The instants of all admitted units: exactly the limit in any window, in memory that grows with
//! the units.

use std::num::NonZero;

use super::rings::RingPlan;
use super::settle::Refund;
use super::{BucketView, History};
use crate::ring::{BucketState, Ring, RingMemory, RingShape};
use crate::{Cell, Decision, Outcome, Quota, QuotaError, Timestamp};

/// The parameters of a log.
///
/// A ring keeps instants in ticks, modulo 2^32. In windows of up to 71 minutes a tick is a
/// microsecond. In longer ones it is long enough for all ticks of a window to differ; units then
/// leave up to two ticks late, never early.
///
/// Cell: `expires` is the instant at which the newest unit leaves, `b` the number of units in the
/// ring, including some that have left. The ring has a slot for each unit, oldest first, from its
/// head on. It may have more units than the limit, of which the newest count: those of a higher
/// limit, which may come back.
#[derive(Clone, Copy, Debug)]
pub struct SlidingLog {
    pub(super) quota: Quota,
    tick: u64,
    /// The number of ticks for which a unit counts.
    span: u64,
    /// Room for the units of this limit, and of those before it.
    pub(super) shape: RingShape,
}

/// Room makes no difference to decisions.
impl PartialEq for SlidingLog {
    fn eq(&self, other: &Self) -> bool {
        self.quota == other.quota
    }
}

impl Eq for SlidingLog {}

/// A ring at one instant.
#[derive(Clone, Copy)]
struct View<'a> {
    ring: Option<Ring<'a>>,
    /// The current tick, at least that of the newest unit.
    now: u64,
    newest: u64,
    /// Units in the ring that have left.
    left: u32,
    /// Units that count.
    units: u32,
}

impl SlidingLog {
    /// The largest number of units in a log.
    pub const MOST: u32 = 100_000;

    /// The quota's units in any window.
    ///
    /// # Errors
    /// The limit exceeds [`SlidingLog::MOST`].
    pub fn new(quota: Quota) -> Result<Self, QuotaError> {
        if quota.limit() > Self::MOST {
            return Err(QuotaError::LogTooLong);
        }
        let window = quota.window_micros();
        let tick = window.div_ceil(u64::from(u32::MAX));
        let rounding = u64::from(tick > 1);
        Ok(Self {
            quota,
            tick,
            span: window.div_ceil(tick) + rounding,
            shape: RingShape::new(quota.limit()),
        })
    }

    /// The log with room for the units of `before`, if it has the same ticks.
    pub(super) fn with_room_of(self, before: &Self) -> Self {
        if self.has_same_ring_format(before) && before.shape.slots > self.shape.slots {
            Self {
                shape: before.shape,
                ..self
            }
        } else {
            self
        }
    }

    /// The log with room for its limit only.
    pub(super) const fn without_room(self) -> Self {
        Self {
            shape: RingShape::new(self.quota.limit()),
            ..self
        }
    }

    /// The length of a tick in microseconds, and the number of ticks for which a unit counts.
    pub const fn ticks(&self) -> (u64, u64) {
        (self.tick, self.span)
    }

    pub(super) fn decide(&self, state: BucketState<'_>, now: Timestamp, cost: u32) -> Decision {
        let (limit, cell) = (self.quota.limit(), state.cell);
        let view = self.view(state, now);
        let decide = |outcome, cell, units, cost| Decision {
            more_at: self.first_leaves(&view, cost),
            ..Decision::new(outcome, cell, now, limit.saturating_sub(units), limit)
        };
        if limit == 0 || cost > limit {
            return decide(Outcome::Refuse { retry_at: None }, cell, view.units, 0);
        }
        if view.units + cost > limit {
            let last = view.left + view.units + cost - limit - 1;
            let retry_at = Some(self.leaves(self.tick_of(&view, last)));
            let retry_at = retry_at.map(Timestamp::from_micros);
            return decide(Outcome::Refuse { retry_at }, cell, view.units, 0);
        }
        let units = view.units + cost;
        let after = Cell {
            expires: self.leaves(view.now),
            b: units,
            ..cell
        };
        let cell = if cost == 0 { cell } else { after };
        decide(Outcome::Admit, cell, units, cost)
    }

    /// The bucket in debt: the newest units, at most the limit.
    pub(super) fn owe(&self, state: BucketState<'_>, now: Timestamp, cost: u32) -> (Cell, u32) {
        let (limit, view) = (self.quota.limit(), self.view(state, now));
        let cost = cost.min(limit);
        let after = Cell {
            expires: self.leaves(view.now),
            b: (view.units + cost).min(limit),
            ..state.cell
        };
        (after, cost)
    }

    pub(super) fn used(&self, state: BucketState<'_>, now: Timestamp) -> u128 {
        u128::from(self.view(state, now).units)
    }

    pub(super) fn bucket_view(&self, state: BucketState<'_>, now: Timestamp) -> BucketView {
        let view = self.view(state, now);
        let newest_first = (view.left..view.left + view.units).rev();
        let age = |unit| {
            let tick = Timestamp::from_micros(self.tick_of(&view, unit) * self.tick);
            now.since(tick)
        };
        BucketView::SlidingLog {
            limit: self.quota.limit().into(),
            window: self.quota.window(),
            used: view.units.into(),
            ages: newest_first.take(BucketView::MOST).map(age).collect(),
        }
    }

    /// Chunks that the ring of `before` lacks to become `after`.
    pub(super) fn missing_chunks(&self, before: BucketState<'_>, after: Cell) -> u32 {
        let length = before.ring().map_or(0, Ring::length);
        self.shape.chunks_for(after.b).saturating_sub(length)
    }

    /// Drops units that have left, and adds those that make the bucket `after`.
    pub(super) fn record(
        &self,
        before: BucketState<'_>,
        after: Cell,
        cost: u32,
        words: &RingMemory,
        chunks: &mut dyn Iterator<Item = u32>,
    ) -> Cell {
        let kept = after.b - cost;
        let ring = match before.cell.a {
            0 => words.start(chunks),
            root => words.ring(root),
        };
        if kept > 0 {
            let left = before.cell.b - kept;
            ring.set_head((ring.head() + left) % ring.capacity());
        }
        for chunk in chunks {
            ring.grow(kept, chunk);
        }
        let (head, capacity) = (ring.head(), ring.capacity());
        let tick = self.newest(after) as u32;
        for unit in kept..after.b {
            ring.set((head + unit) % capacity, tick);
        }
        Cell {
            a: ring.root(),
            ..after
        }
    }

    /// Removes units with the instant of the charge, as far as the log still has them.
    pub(super) fn give_back(&self, state: BucketState<'_>, refund: Refund<'_>) -> Cell {
        let (view, tick) = (
            self.live(state, refund.now),
            self.newest(refund.reserved.cell),
        );
        let first = self.first_of(&view, |other| other >= tick);
        let end = self.first_of(&view, |other| other > tick);
        let back = refund.units.min(end - first);
        let Some(ring) = view.ring.filter(|_| back > 0) else {
            return state.cell;
        };
        if back == view.units {
            return Cell::EMPTY;
        }
        let units = take_out(ring, [view.left, end - back, end, state.cell.b]);
        Cell {
            expires: self.leaves(self.tick_of(&view, units - 1)),
            b: units,
            ..state.cell
        }
    }

    /// The first counting unit whose tick satisfies `is_it`, as all later ones do; the end if there
    /// is none.
    fn first_of(&self, view: &View<'_>, is_it: impl Fn(u64) -> bool) -> u32 {
        let (mut low, mut high) = (view.left, view.left + view.units);
        while low < high {
            let middle = low.midpoint(high);
            if is_it(self.tick_of(view, middle)) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        low
    }

    /// The later of the newest units, of the second newest, and so on.
    pub(super) fn join<'a>(
        &'a self,
        left: BucketState<'a>,
        right: BucketState<'a>,
        now: Timestamp,
    ) -> RingPlan<'a> {
        let (left, right) = (self.view(left, now), self.view(right, now));
        let (longer, shorter) = if left.units >= right.units {
            (left, right)
        } else {
            (right, left)
        };
        let ahead = longer.units - shorter.units;
        let ticks = (0..longer.units).map(move |unit| {
            let own = self.tick_of(&longer, longer.left + unit);
            match unit.checked_sub(ahead) {
                Some(other) => own.max(self.tick_of(&shorter, shorter.left + other)),
                None => own,
            }
        });
        let newest = longer.newest.max(shorter.newest);
        self.plan(ticks, longer.units, newest)
    }

    /// Units with their ages, newest first.
    pub(super) fn history(&self, state: BucketState<'_>, now: Timestamp) -> History {
        let view = self.view(state, now);
        let units = (view.left..view.left + view.units).rev();
        let age = |unit| (view.now - self.tick_of(&view, unit)) * self.tick;
        units.map(|unit| (age(unit), 1)).collect()
    }

    /// True if both use the same ticks.
    pub(super) const fn has_same_ring_format(&self, other: &Self) -> bool {
        self.tick == other.tick && self.span == other.span
    }

    /// The newest instants, as far as there is room.
    pub(super) fn copy<'a>(&'a self, state: BucketState<'a>, now: Timestamp) -> RingPlan<'a> {
        let view = self.live(state, now);
        let (units, all) = (view.units.min(self.shape.slots), view.left + view.units);
        let ticks = (all - units..all).map(move |unit| self.tick_of(&view, unit));
        self.plan(ticks, units, view.newest)
    }

    /// A ring of the newest units of this history, up to the limit.
    pub(super) fn rebuild(&self, past: History, now: Timestamp) -> RingPlan<'_> {
        if past.is_empty() {
            return RingPlan::Cell(Cell::EMPTY);
        }
        let now = now.as_micros() / self.tick;
        let tick = |age: u64| now.saturating_sub((age / self.tick).min(self.span - 1));
        let each = past
            .iter()
            .flat_map(|(age, units)| (0..*units).map(|_| tick(*age)));
        let total: u64 = past.iter().map(|(_, units)| u64::from(*units)).sum();
        let total = total.min(u64::from(self.quota.limit())) as u32;
        let mut ticks: Vec<_> = each.take(total as usize).collect();
        ticks.reverse();
        let newest = ticks.last().copied().unwrap_or(now);
        self.plan(ticks.into_iter(), total, newest)
    }

    /// A new ring of these ticks, oldest first.
    fn plan<'a>(
        &'a self,
        ticks: impl Iterator<Item = u64> + 'a,
        units: u32,
        newest: u64,
    ) -> RingPlan<'a> {
        RingPlan::new(self.shape.chunks_for(units), move |words, chunks| {
            let ring = words.start(chunks);
            for chunk in chunks {
                ring.grow(0, chunk);
            }
            for (slot, tick) in (0..).zip(ticks) {
                ring.set(slot, tick as u32);
            }
            Cell {
                expires: self.leaves(newest),
                a: ring.root(),
                b: units,
            }
        })
    }
    /// The instant at which the first unit leaves, after `cost` more were taken.
    fn first_leaves(&self, view: &View<'_>, cost: u32) -> Option<NonZero<u64>> {
        let first = match (view.units, cost) {
            (0, 0) => return None,
            (0, _) => view.now,
            _ => self.tick_of(view, view.left),
        };
        NonZero::new(self.leaves(first))
    }

    /// The newest units, up to the limit.
    fn view<'a>(&self, state: BucketState<'a>, now: Timestamp) -> View<'a> {
        let live = self.live(state, now);
        let beyond = live.units.saturating_sub(self.quota.limit());
        View {
            left: live.left + beyond,
            units: live.units - beyond,
            ..live
        }
    }

    /// All units that have not left.
    fn live<'a>(&self, state: BucketState<'a>, now: Timestamp) -> View<'a> {
        let tick = now.as_micros() / self.tick;
        if !state.cell.is_live(now) || state.cell.a == 0 {
            return View {
                ring: None,
                now: tick,
                newest: tick,
                left: 0,
                units: 0,
            };
        }
        let newest = self.newest(state.cell);
        let mut view = View {
            ring: state.ring(),
            now: tick.max(newest),
            newest,
            left: 0,
            units: state.cell.b,
        };
        view.left = self.count_left(&view);
        view.units -= view.left;
        view
    }

    /// The units in a ring that have left. The search starts at the oldest, since usually few have.
    fn count_left(&self, view: &View<'_>) -> u32 {
        let has_left = |unit| self.tick_of(view, unit) + self.span <= view.now;
        let (mut left, mut step) = (0, 1);
        while left + step <= view.units && has_left(left + step - 1) {
            left += step;
            step *= 2;
        }
        while step > 0 {
            if left + step <= view.units && has_left(left + step - 1) {
                left += step;
            }
            step /= 2;
        }
        left
    }

    /// The tick of a unit in the ring, counted from the oldest.
    fn tick_of(&self, view: &View<'_>, unit: u32) -> u64 {
        let slot = view.ring.map_or(0, |ring| {
            let (place, capacity) = (ring.head() + unit, ring.capacity());
            ring.get(if place < capacity {
                place
            } else {
                place - capacity
            })
        });
        let before = (view.newest as u32).wrapping_sub(slot);
        view.newest.saturating_sub(u64::from(before))
    }

    fn newest(&self, cell: Cell) -> u64 {
        (cell.expires / self.tick).saturating_sub(self.span)
    }

    /// The instant at which a unit of this tick leaves, in microseconds.
    fn leaves(&self, tick: u64) -> u64 {
        tick.saturating_add(self.span).saturating_mul(self.tick)
    }
}

/// Removes the units `first..end` from the counting units `left..all` of a ring, and returns the
/// ring's new number of units. Moves the smaller of the two sides.
fn take_out(ring: Ring<'_>, [left, first, end, all]: [u32; 4]) -> u32 {
    let (head, capacity, gap) = (ring.head(), ring.capacity(), end - first);
    let place = |unit: u32| (head + unit) % capacity;
    if all - end <= first - left {
        (end..all).for_each(|unit| ring.set(place(unit - gap), ring.get(place(unit))));
        return all - gap;
    }
    let before = (left..first).rev();
    before.for_each(|unit| ring.set(place(unit + gap), ring.get(place(unit))));
    ring.set_head(place(left + gap));
    all - left - gap
}
