//! How a sliding window weighs its counters: the arithmetic that is the same for any number of parts.

use super::{div_ceil, div_floor};
use crate::clock::Timestamp;

/// How the oldest counter, whose part the window covers only partly, counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldestPart {
    /// In proportion to what is covered.
    #[default]
    Weighted,
    /// Fully: never more than the limit in any window, but refusing up to one part early.
    Whole,
    /// Not at all.
    Ignored,
}

/// What counters are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowWeight {
    pub(super) limit: u32,
    /// The length of a part, in microseconds.
    pub(super) part: u64,
    pub(super) oldest: OldestPart,
}

impl OldestPart {
    /// For how many parts a unit counts when the window has `parts`, the one in which it was charged
    /// included.
    pub const fn lasting(self, parts: u64) -> u64 {
        match self {
            Self::Weighted | Self::Whole => parts + 1,
            Self::Ignored => parts,
        }
    }
}

impl WindowWeight {
    /// What the counters come to, times the length of a part.
    pub(super) fn estimate(&self, oldest: u32, others: u32, elapsed: u64) -> u128 {
        u128::from(oldest) * u128::from(self.covered(elapsed)) + self.units(others)
    }

    /// The same in units, rounded up.
    pub(super) fn used(&self, oldest: u32, others: u32, elapsed: u64) -> u64 {
        div_ceil(self.estimate(oldest, others, elapsed), self.part)
    }

    /// Units that still fit, rounded down.
    pub(super) fn remaining(&self, oldest: u32, others: u32, elapsed: u64) -> u32 {
        let left = self
            .units(self.limit)
            .saturating_sub(self.estimate(oldest, others, elapsed));
        div_floor(left, self.part) as u32
    }

    /// How far into a part the oldest counter, shrinking, leaves room for `others`; `None` when it
    /// does not within the part.
    pub(super) fn first_room(&self, oldest: u32, others: u64) -> Option<u64> {
        let room = u64::from(self.limit).checked_sub(others)?;
        if oldest == 0 {
            return Some(0);
        }
        match self.oldest {
            OldestPart::Ignored => Some(0),
            OldestPart::Whole => (u64::from(oldest) <= room).then_some(0),
            OldestPart::Weighted => {
                let room = u128::from(room) * u128::from(self.part);
                let covered = (room / u128::from(oldest)).min(u128::from(self.part)) as u64;
                (covered > 0).then_some(self.part - covered)
            }
        }
    }

    /// The most that the oldest counter can be beside `others`, but not more than it is.
    pub(super) fn fitting(&self, oldest: u32, others: u32, elapsed: u64) -> u32 {
        match self.covered(elapsed) {
            0 => oldest,
            covered => {
                let room = self.units(self.limit.saturating_sub(others));
                (room / u128::from(covered)).min(u128::from(oldest)) as u32
            }
        }
    }

    /// What of so many units counts at `now`, rounded up, that were counted at `at` or earlier: all of them just then, and
    /// less and less as the oldest counter for as long as a part.
    pub(super) fn covered_of(&self, units: u32, at: Timestamp, now: Timestamp) -> u32 {
        match now.as_micros().saturating_sub(at.as_micros()) {
            0 => units,
            age if age < self.part => self.used(units, 0, age) as u32,
            _ => 0,
        }
    }

    /// `count` units times the length of a part.
    pub(super) fn units(&self, count: u32) -> u128 {
        u128::from(count) * u128::from(self.part)
    }

    /// How much of the oldest part counts.
    fn covered(&self, elapsed: u64) -> u64 {
        match self.oldest {
            OldestPart::Weighted => self.part - elapsed,
            OldestPart::Whole => self.part,
            OldestPart::Ignored => 0,
        }
    }
}
