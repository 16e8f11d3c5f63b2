//! Units that an operator grants to a key: a number of them, until an instant. They never come
//! back, except those that are given back.

use super::settle::Refund;
use crate::{Cell, Decision, Outcome, Timestamp};

/// The rule of granted units, which has no parameters: each grant is a cell.
///
/// Cell: `expires` is the end of the grant, `a` the units that are left, and `b` the granted ones.
/// Without a live cell, nothing is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant;

impl Grant {
    /// The cell of `units` units until `until`.
    pub const fn cell(units: u32, until: Timestamp) -> Cell {
        Cell {
            expires: until.as_micros(),
            a: units,
            b: units,
        }
    }

    pub(super) fn decide(cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let cell = if cell.is_live(now) { cell } else { Cell::EMPTY };
        match cell.a.checked_sub(cost) {
            Some(left) => {
                let after = Cell { a: left, ..cell };
                Decision::new(Outcome::Admit, after, now, left, cell.b)
            }
            None => {
                let never = Outcome::Refuse { retry_at: None };
                Decision::new(never, cell, now, cell.a, cell.b)
            }
        }
    }

    pub(super) fn used(cell: Cell, now: Timestamp) -> u128 {
        if cell.is_live(now) {
            u128::from(cell.b.saturating_sub(cell.a))
        } else {
            0
        }
    }

    /// Takes units, at most those that are left.
    pub(super) fn force_charge(cell: Cell, now: Timestamp, units: u32) -> Cell {
        if cell.is_live(now) {
            Cell {
                a: cell.a.saturating_sub(units),
                ..cell
            }
        } else {
            cell
        }
    }

    /// Gives units back to the same grant.
    pub(super) fn give_back(cell: Cell, refund: Refund<'_>) -> Cell {
        let charged = refund.reserved.cell;
        let is_same = (cell.expires, cell.b) == (charged.expires, charged.b);
        if is_same {
            Cell {
                a: cell.a.saturating_add(refund.units).min(cell.b),
                ..cell
            }
        } else {
            cell
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bucket::ReservedCharge;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000);
    const UNTIL: Timestamp = Timestamp::from_micros(2_000_000);

    fn give_back(cell: Cell, reserved: &ReservedCharge, units: u32) -> Cell {
        let now = NOW;
        let refund = Refund {
            reserved,
            units,
            now,
        };
        Grant::give_back(cell, refund)
    }

    #[test]
    fn units_are_spent_once_and_only_until_the_end() {
        let granted = Grant::cell(3, UNTIL);
        let two = Grant::decide(granted, NOW, 2);
        assert_eq!((two.outcome, two.remaining), (Outcome::Admit, 1));
        let refused = Grant::decide(two.cell, NOW, 2);
        assert_eq!(refused.outcome, Outcome::Refuse { retry_at: None });
        assert_eq!((refused.remaining, refused.cell), (1, two.cell));
        assert!(Grant::decide(two.cell, NOW, 1).is_admitted());
        assert!(
            !Grant::decide(granted, UNTIL, 1).is_admitted(),
            "it is over"
        );
        assert!(!Grant::decide(Cell::EMPTY, NOW, 1).is_admitted());
        assert!(
            Grant::decide(Cell::EMPTY, NOW, 0).is_admitted(),
            "nothing is asked"
        );
    }

    #[test]
    fn another_grant_gets_nothing_back() {
        let cell = Grant::decide(Grant::cell(3, UNTIL), NOW, 2).cell;
        let reserved = ReservedCharge {
            cell,
            at: NOW,
            units: 2,
            unsettled: 0,
        };
        assert_eq!(give_back(cell, &reserved, 2), Grant::cell(3, UNTIL));
        for other in [Grant::cell(4, UNTIL), Grant::cell(3, NOW)] {
            assert_eq!(give_back(other, &reserved, 2), other);
        }
    }

    proptest! {
        #[test]
        fn no_more_than_the_grant_is_ever_out(units: u32, costs: [u32; 8], backs: [u32; 8]) {
            let mut cell = Grant::cell(units, UNTIL);
            let mut out = 0_u64;
            for (cost, back) in costs.into_iter().zip(backs) {
                let cost = cost % units.max(1).saturating_add(1);
                let decision = Grant::decide(cell, NOW, cost);
                prop_assert_eq!(decision.is_admitted(), out + u64::from(cost) <= u64::from(units));
                if !decision.is_admitted() {
                    continue;
                }
                cell = decision.cell;
                let reserved = ReservedCharge { cell, at: NOW, units: cost, unsettled: 0 };
                let back = back % cost.saturating_add(1).max(1);
                cell = give_back(cell, &reserved, back);
                out += u64::from(cost - back);
                prop_assert_eq!(u64::from(cell.a) + out, u64::from(units));
            }
        }
    }
}
