//! Concurrency: a bound on the units in use. A request returns its units when it ends.
//!
//! A cell has the units in use in `a` and the waiting requests in `b`, and does not expire. Nobody
//! knows when a unit returns, so `Retry-After` is the configured guess. The store queues requests;
//! this file admits nobody ahead of the queue.

use std::time::Duration;

use super::BucketView;
use crate::{Cell, Decision, Outcome, Timestamp};

/// A bound on the units in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// The largest number of units in use; 0 refuses always.
    pub max: u32,
    /// The retry that refused clients get.
    pub retry_after: Duration,
    /// The largest number of requests of a key that wait for units.
    pub queue: u32,
    /// The longest wait for units.
    pub max_wait: Duration,
}

impl Concurrency {
    /// At most `max` units at once, for which no request waits.
    pub const fn new(max: u32, retry_after: Duration) -> Self {
        Self {
            max,
            retry_after,
            queue: 0,
            max_wait: Duration::ZERO,
        }
    }

    /// The cell of a bucket with this number of units in use and of waiting requests.
    pub const fn cell(units: u32, waiting: u32) -> Cell {
        match (units, waiting) {
            (0, 0) => Cell::EMPTY,
            _ => Cell {
                expires: u64::MAX,
                a: units,
                b: waiting,
            },
        }
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let (used, waiting) = (cell.a, cell.b);
        // After a reload has lowered the bound, more units may be in use than it allows.
        let free = match waiting {
            0 => self.max.saturating_sub(used),
            _ => 0,
        };
        let guess = now.saturating_add(self.retry_after);
        let (outcome, taken) = if cost <= free {
            (Outcome::Admit, cost)
        } else {
            let retry_at = (cost <= self.max).then_some(guess);
            (Outcome::Refuse { retry_at }, 0)
        };
        let used = used + taken;
        let cell = Self::cell(used, waiting);
        Decision {
            reset: if used == 0 { now } else { guess },
            ..Decision::new(outcome, cell, now, free - taken, self.max)
        }
    }

    pub(super) const fn bucket_view(&self, cell: Cell) -> BucketView {
        BucketView::Concurrency {
            in_use: cell.a,
            max: self.max,
            waiting: cell.b,
            queue: self.queue,
        }
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
    fn a_refusal_announces_a_guess_and_none_for_a_cost_beyond_the_bound() {
        let refused = |used, cost| {
            at_most(5)
                .decide(Concurrency::cell(used, 0), NOW, cost)
                .outcome
        };
        let retry_at = Some(Timestamp::from_micros(1_000_007));
        assert_eq!(refused(5, 1), Outcome::Refuse { retry_at });
        assert_eq!(refused(1, 5), Outcome::Refuse { retry_at });
        assert_eq!(refused(0, 6), Outcome::Refuse { retry_at: None });
        assert_eq!(refused(0, 5), Outcome::Admit);
    }

    #[test]
    fn an_idle_bucket_is_whole_and_a_bound_of_zero_refuses() {
        let idle = at_most(3).decide(Cell::EMPTY, NOW, 0);
        assert_eq!((idle.remaining, idle.reset), (3, NOW));
        let none = at_most(0).decide(Cell::EMPTY, NOW, 1);
        assert_eq!(none.outcome, Outcome::Refuse { retry_at: None });
    }

    proptest! {
        #[test]
        fn units_in_use_never_exceed_the_bound(max: u32, used: u32, cost: u32) {
            let before = Concurrency::cell(used, 0);
            let decision = at_most(max).decide(before, NOW, cost);
            let fits = u64::from(used) + u64::from(cost) <= u64::from(max);
            prop_assert_eq!(decision.is_admitted(), fits || cost == 0);
            let after = if fits { used + cost } else { used };
            prop_assert_eq!(decision.cell, Concurrency::cell(after, 0));
            prop_assert_eq!(decision.remaining, u64::from(max.saturating_sub(after)));
        }

        #[test]
        fn no_request_overtakes_waiters(max: u32, used: u32, cost in 1_u32.., waiting in 1_u32..) {
            let before = Concurrency::cell(used, waiting);
            let decision = at_most(max).decide(before, NOW, cost);
            prop_assert!(!decision.is_admitted());
            prop_assert_eq!((decision.remaining, decision.cell), (0, before));
        }
    }
}
