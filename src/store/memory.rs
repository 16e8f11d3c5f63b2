//! Buckets in memory: a [`Table`] of cells for each policy, and `charge_all`, which decides and
//! charges a request.
//!
//! `permits` counts units that requests return when they end. `reservation` settles or gives back
//! charges. `bans` has strikes and bans. [`snapshot`] saves cells and bans in a file.

mod bans;
mod bucket;
mod charge;
mod permits;
mod table_rules;
mod reservation;
mod memory_budget;
mod slab;
pub mod snapshot;
mod table;

pub(super) use bans::BanBatch;
pub use bans::Bans;
#[cfg(test)]
pub use charge::tests::{charge_all, charge_with_shadow};
pub use charge::{Ask, Charge, Claims, DecidingRungs, Role, charge_into, leave_queue};
pub use memory_budget::{MemoryRequest, TableBudget, divide_memory};
pub use permits::Permit;
pub use reservation::SettleableCharge;
#[cfg(test)]
pub use reservation::tests::charge_and_reserve;
pub(super) use reservation::{Reservation, UnsettledLocks};
pub use table::{OnFull, Refusals, Table};
