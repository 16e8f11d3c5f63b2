//! At most so many units in use at once: what a request takes, it gives back when it ends.
//!
//! A cell has the units in use in `a`, and does not expire by itself. Nobody can know when one comes free, so
//! that what the refused are told is a guess out of the configuration.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Outcome};

/// A bound on the units in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    max: u32,
    retry_after: Duration,
}

impl Concurrency {
    /// At most `max` units at once; 0 refuses always. Who is refused is told to come back after `retry_after`.
    pub const fn new(max: u32, retry_after: Duration) -> Self {
        Self { max, retry_after }
    }

    /// The most units that are in use at once.
    pub const fn max(&self) -> u32 {
        self.max
    }

    /// The cell of a bucket with so many units in use.
    pub const fn cell(units: u32) -> Cell {
        match units {
            0 => Cell::EMPTY,
            _ => Cell {
                expires: u64::MAX,
                a: units,
                b: 0,
            },
        }
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let used = cell.a;
        let guess = now.saturating_add(self.retry_after);
        let (outcome, used) = match used.checked_add(cost) {
            Some(sum) if sum <= self.max || cost == 0 => (Outcome::Admit, sum),
            _ => {
                let retry_at = (cost <= self.max).then_some(guess);
                (Outcome::Refuse { retry_at }, used)
            }
        };
        Decision {
            outcome,
            // More are in use than there are where a reload has lowered the bound.
            remaining: self.max.saturating_sub(used),
            capacity: self.max,
            reset: if used == 0 { now } else { guess },
            more_at: None,
            cell: Self::cell(used),
        }
    }

    pub(super) fn used(&self, cell: Cell) -> u128 {
        u128::from(cell.a)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(7);

    fn at_most(max: u32) -> Concurrency {
        Concurrency::new(max, Duration::from_secs(1))
    }

    #[test]
    fn who_is_refused_is_told_a_guess_and_who_asks_too_much_is_told_none() {
        let refused = |used, cost| {
            at_most(5)
                .decide(Concurrency::cell(used), NOW, cost)
                .outcome
        };
        let retry_at = Some(Timestamp::from_micros(1_000_007));
        assert_eq!(refused(5, 1), Outcome::Refuse { retry_at });
        assert_eq!(refused(1, 5), Outcome::Refuse { retry_at });
        assert_eq!(refused(0, 6), Outcome::Refuse { retry_at: None });
        assert_eq!(refused(0, 5), Outcome::Admit);
    }

    #[test]
    fn nothing_in_use_is_whole_at_once_and_nothing_passes_where_there_is_nothing() {
        let idle = at_most(3).decide(Cell::EMPTY, NOW, 0);
        assert_eq!((idle.remaining, idle.reset), (3, NOW));
        let none = at_most(0).decide(Cell::EMPTY, NOW, 1);
        assert_eq!(none.outcome, Outcome::Refuse { retry_at: None });
    }

    proptest! {
        #[test]
        fn in_use_is_never_more_than_the_bound_that_decides(max: u32, used: u32, cost: u32) {
            let before = Concurrency::cell(used);
            let decision = at_most(max).decide(before, NOW, cost);
            let fits = u64::from(used) + u64::from(cost) <= u64::from(max);
            prop_assert_eq!(decision.is_admitted(), fits || cost == 0);
            let after = if fits { used + cost } else { used };
            prop_assert_eq!(decision.cell, Concurrency::cell(after));
            prop_assert_eq!(decision.remaining, max.saturating_sub(after));
        }
    }
}
