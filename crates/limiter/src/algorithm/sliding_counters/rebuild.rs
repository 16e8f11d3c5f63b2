//! Writing whole rings: joined, copied, or converted to other parameters.

use super::{SlidingCounters, View};
use crate::algorithm::History;
use crate::algorithm::rings::RingPlan;
use crate::ring::{BucketState, Ring};
use crate::{Cell, Timestamp};

/// The counters that may not exceed the limit.
#[derive(Clone, Copy)]
enum Cap {
    /// None: units of a higher limit may come back.
    Nothing,
    /// The counters of wholly covered parts.
    Others,
    /// All counters, the oldest by its weight so many microseconds into the newest part.
    Estimate(u64),
}

impl SlidingCounters {
    /// The larger count of each part.
    pub(in crate::algorithm) fn join<'a>(
        &'a self,
        left: BucketState<'a>,
        right: BucketState<'a>,
        now: Timestamp,
    ) -> RingPlan<'a> {
        let (left, right) = (self.view(left, now), self.view(right, now));
        let part = left.part.max(right.part);
        let count = move |back: u32| {
            let counted = |view: &View<'_>| self.count(view, part.checked_sub(u64::from(back)));
            counted(&left).max(counted(&right))
        };
        // Counts beyond the limit make no difference: they leave before those that refuse.
        let newer = |sum: u64, back| sum.saturating_add(u64::from(count(back)));
        let others = (0..self.parts)
            .fold(0, newer)
            .min(self.quota.limit().into());
        if others + u64::from(count(self.parts)) <= u64::from(u32::MAX) {
            return self.plan(part, count, Cap::Others);
        }
        // The sum exceeds a cell's counter: count the limit once, at the last charge.
        let back = (part - left.last.max(right.last)) as u32;
        let count = move |at: u32| if at == back { self.quota.limit() } else { 0 };
        self.plan(part, count, Cap::Others)
    }

    /// The counts, up to the largest of a slot.
    pub(in crate::algorithm) fn copy<'a>(
        &'a self,
        state: BucketState<'a>,
        now: Timestamp,
    ) -> RingPlan<'a> {
        let view = self.view(state, now);
        let count = move |back: u32| self.count(&view, view.part.checked_sub(u64::from(back)));
        self.plan(view.part, count, Cap::Nothing)
    }

    /// Units with their ages, newest first. The rest of the oldest counter is rounded up.
    pub(in crate::algorithm) fn history(&self, state: BucketState<'_>, now: Timestamp) -> History {
        let view = self.view(state, now);
        let used = self.weighing.used(view.counts).min(u64::from(u32::MAX)) as u32;
        let newer = (0..self.parts).map(|back| {
            let count = self.count(&view, view.part.checked_sub(u64::from(back)));
            (u64::from(back) * self.weighing.part, count)
        });
        let oldest = (
            u64::from(self.parts) * self.weighing.part,
            used.saturating_sub(view.counts.others),
        );
        newer
            .chain([oldest])
            .filter(|(_, units)| *units > 0)
            .collect()
    }

    /// A ring of the newest units of this history, up to the limit. The oldest part stays empty, so
    /// that all of it counts.
    pub(in crate::algorithm) fn rebuild(&self, past: History, now: Timestamp) -> RingPlan<'_> {
        if past.is_empty() {
            return RingPlan::Cell(Cell::EMPTY);
        }
        let part = now.as_micros() / self.weighing.part;
        let count = move |back: u32| {
            let within = |age: u64| {
                (age / self.weighing.part).min(u64::from(self.parts) - 1) == u64::from(back)
            };
            let units = past.iter().filter(|(age, _)| within(*age));
            units.fold(0_u32, |sum, (_, units)| sum.saturating_add(*units))
        };
        let elapsed = now.as_micros() % self.weighing.part;
        self.plan(part, count, Cap::Estimate(elapsed))
    }

    /// True if both have the same parts and weights.
    pub(in crate::algorithm) fn has_same_ring_format(&self, other: &Self) -> bool {
        (self.parts, self.weighing.part, self.weighing.oldest)
            == (other.parts, other.weighing.part, other.weighing.oldest)
    }

    /// A new ring with the counts of parts `back` parts ago, newest first, up to the cap.
    fn plan<'a>(&'a self, part: u64, count: impl Fn(u32) -> u32 + 'a, cap: Cap) -> RingPlan<'a> {
        RingPlan::new(self.shape.max_chunks(), move |words, chunks| {
            let ring = words.start(chunks);
            for (place, chunk) in (1..).zip(chunks) {
                ring.set_chunk(place, chunk);
            }
            self.fill(ring, part, count, cap)
        })
    }

    fn fill(&self, ring: Ring<'_>, part: u64, count: impl Fn(u32) -> u32, cap: Cap) -> Cell {
        let (mut others, mut newest) = (0_u32, None);
        let count = |back: u32| count(back).min(self.shape.max_value());
        let back_to = |back: u32| part.checked_sub(u64::from(back));
        for back in 0..self.parts {
            let fits = match cap {
                Cap::Nothing => count(back),
                Cap::Others | Cap::Estimate(_) => count(back).min(self.quota.limit() - others),
            };
            if let Some(part) = back_to(back).filter(|_| fits > 0) {
                newest = newest.or(Some(part));
                others = others.saturating_add(fits);
                ring.set(self.slot(part), fits);
            }
        }
        let oldest = match (cap, count(self.parts)) {
            (Cap::Others, _) if others == self.quota.limit() => 0,
            (Cap::Others | Cap::Nothing, oldest) => oldest,
            (Cap::Estimate(elapsed), oldest) => self.weighing.fitting(oldest, others, elapsed),
        };
        if let Some(part) = back_to(self.parts).filter(|_| oldest > 0) {
            ring.set(self.slot(part), oldest);
            newest = newest.or(Some(part));
        }
        let newest = newest.unwrap_or(part);
        Cell {
            expires: (newest + self.lasting()) * self.weighing.part,
            a: ring.root(),
            // Seen from the newest part, the oldest is one of the others.
            b: if newest < part {
                others.saturating_add(oldest)
            } else {
                others
            },
        }
    }
}
