//! Buckets in memory, which are `limiter`'s, and what the proxy has beside them: `bans` has strikes and
//! bans, `memory_budget` sizes tables, [`snapshot`] saves cells and bans in a file.

mod bans;
mod memory_budget;
pub mod snapshot;

pub use crate::limiter::{
    Charge, OnFull, Permit, Refusals, Reservation, SettleableCharge, Table, UnsettledLocks,
    charge_into, charge_with_shadow, leave_queue,
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
    pub use crate::limiter::charge_all;
    use crate::limiter::{Reservation, SettleableCharge, UnsettledLocks, Verdict};

    /// Calls `charge`, which decides and charges, and returns the reservations with the indices of
    /// their charges.
    pub fn charge_and_reserve(
        settled: &[SettleableCharge<'_>],
        now: Timestamp,
        charge: impl FnOnce() -> Verdict,
    ) -> (Verdict, Vec<(usize, Reservation)>) {
        let locks = UnsettledLocks::lock(settled);
        let verdict = charge();
        let reserved = locks.reserve(&verdict, now, false, |_| true);
        (verdict, reserved)
    }
}
