//! Buckets in memory, which are `limiter`'s, and what the proxy has beside them: `memory_budget` sizes
//! tables, [`snapshot`] saves cells and bans in a file.

mod memory_budget;
pub mod snapshot;

pub use crate::limiter::{
    Ask, Charge, Claims, DecidingRungs, OnFull, Permit, Refusals, Reservation, Role,
    SettleableCharge, Table, UnsettledLocks, charge_into, leave_queue,
};
pub use memory_budget::{MemoryRequest, TableBudget, divide_memory};
#[cfg(test)]
pub use test_charges::*;

/// Charges of tests.
#[cfg(test)]
mod test_charges {
    use crate::clock::Timestamp;
    use crate::limiter::{
        DecidingRung, Refusals, Reservation, SettleableCharge, UnsettledLocks, Verdict,
    };
    pub use crate::limiter::{charge_all, charge_with_shadow};

    /// Calls `charge`, which decides and charges, and returns the reservations with the indices of
    /// their charges.
    pub fn charge_and_reserve(
        settled: &[SettleableCharge<'_>],
        now: Timestamp,
        charge: impl FnOnce() -> Verdict,
    ) -> (Verdict, Vec<(usize, Reservation)>) {
        let locks = UnsettledLocks::lock(settled);
        let verdict = charge();
        let is_admitted = verdict.is_admitted();
        let deciding = verdict
            .decisions
            .iter()
            .enumerate()
            .map(|(index, decision)| {
                let one = settled.iter().find(|one| one.index == index);
                let charged = one.filter(|one| {
                    decision.is_admitted()
                        && (is_admitted || one.table.refusals() == Refusals::Charged)
                });
                DecidingRung {
                    rung: 0,
                    decision: *decision,
                    charged: charged.map_or(0, |one| one.cost),
                }
            });
        let deciding = deciding.collect();
        let reserved = locks.reserve(&deciding, is_admitted, now, false, |_| true);
        (verdict, reserved)
    }
}
