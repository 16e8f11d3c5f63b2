//! The weight of counters in a sliding window: arithmetic for any number of parts.

use super::{div_ceil, div_floor};
use crate::Timestamp;

/// The weight of the oldest counter, whose part the window covers only partly. Snapshots have its
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::FromRepr, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OldestPart {
    /// Proportional to the covered share.
    #[default]
    Weighted = 0,
    /// The whole counter: never more than the limit in any window, but refusals up to one part
    /// early.
    Whole = 1,
    /// None.
    Ignored = 2,
}

/// The limit, and the weight of the counters compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowWeight {
    pub(super) limit: u32,
    /// The length of a part, in microseconds.
    pub(super) part: u64,
    pub(super) oldest: OldestPart,
}

/// The counters of a window at one instant.
#[derive(Clone, Copy)]
pub(super) struct WindowCounts {
    /// That of the oldest part.
    pub(super) oldest: u32,
    /// The sum of all others.
    pub(super) others: u32,
    /// Microseconds since the start of the running part.
    pub(super) elapsed: u64,
}

impl OldestPart {
    /// The number of parts for which a unit counts in a window of `parts`, including its own part.
    pub const fn lasting(self, parts: u64) -> u64 {
        match self {
            Self::Weighted | Self::Whole => parts + 1,
            Self::Ignored => parts,
        }
    }
}

impl WindowWeight {
    /// The weighted sum of the counters, times the length of a part.
    pub(super) fn estimate(&self, counts: WindowCounts) -> u128 {
        let covered = u128::from(self.covered(counts.elapsed));
        u128::from(counts.oldest) * covered + self.units(counts.others)
    }

    /// True if `cost` more units fit. A cost of 0 does even in debt.
    pub(super) fn has_room(&self, counts: WindowCounts, cost: u32) -> bool {
        cost == 0 || self.estimate(counts) + self.units(cost) <= self.units(self.limit)
    }

    /// The weighted sum of the counters in units, rounded up.
    pub(super) fn used(&self, counts: WindowCounts) -> u64 {
        div_ceil(self.estimate(counts), self.part)
    }

    /// Units that still fit, rounded down.
    pub(super) fn remaining(&self, counts: WindowCounts) -> u32 {
        let all = self.units(self.limit);
        div_floor(all.saturating_sub(self.estimate(counts)), self.part) as u32
    }

    /// The time into a part at which the shrinking oldest counter leaves room for `others`; `None`
    /// if it does not within the part.
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

    /// The largest value of the oldest counter that fits beside `others`, at most `oldest`.
    pub(super) fn fitting(&self, oldest: u32, others: u32, elapsed: u64) -> u32 {
        match self.covered(elapsed) {
            0 => oldest,
            covered => {
                let room = self.units(self.limit.saturating_sub(others));
                (room / u128::from(covered)).min(u128::from(oldest)) as u32
            }
        }
    }

    /// The units of `units`, counted at `at` or earlier, that still count at `now`, rounded up.
    /// They weigh fully at first, and then less for one part, as the oldest counter does.
    pub(super) fn covered_of(&self, units: u32, at: Timestamp, now: Timestamp) -> u32 {
        match now.as_micros().saturating_sub(at.as_micros()) {
            0 => units,
            elapsed if elapsed < self.part => {
                let counts = WindowCounts {
                    oldest: units,
                    others: 0,
                    elapsed,
                };
                self.used(counts) as u32
            }
            _ => 0,
        }
    }

    /// `count` units times the length of a part.
    pub(super) fn units(&self, count: u32) -> u128 {
        u128::from(count) * u128::from(self.part)
    }

    /// The weight of the oldest part, in microseconds.
    fn covered(&self, elapsed: u64) -> u64 {
        match self.oldest {
            OldestPart::Weighted => self.part - elapsed,
            OldestPart::Whole => self.part,
            OldestPart::Ignored => 0,
        }
    }
}
