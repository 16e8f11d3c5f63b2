//! Buckets in memory, which are `limiter`'s, and what the proxy has beside them: `bans` has strikes and
//! bans, `memory_budget` sizes tables, [`snapshot`] saves cells and bans in a file.

mod bans;
mod memory_budget;
pub mod snapshot;

pub use crate::limiter::{
    Ask, Charge, Claims, DecidingRungs, OnFull, Permit, Refusals, Reservation, Role,
    SettleableCharge, Table, UnsettledLocks, charge_into, leave_queue,
};
pub(super) use bans::BanBatch;
pub use bans::Bans;
pub use memory_budget::{MemoryRequest, TableBudget, divide_memory};
#[cfg(test)]
pub use test_charges::*;

/// Charges of tests.
#[cfg(test)]
mod test_charges {
    use crate::clock::Timestamp;
    use crate::limiter::{DecidingRung, Reservation, SettleableCharge, UnsettledLocks, Verdict};
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
        let decisions = verdict.decisions.iter();
        let deciding = decisions.map(|&decision| DecidingRung { rung: 0, decision });
        let (deciding, is_admitted) = (deciding.collect(), verdict.is_admitted());
        let reserved = locks.reserve(&deciding, is_admitted, now, false, |_| true);
        (verdict, reserved)
    }
}
