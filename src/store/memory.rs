//! Buckets in memory, which are `limiter`'s, and what the proxy has beside them: `memory_budget`
//! sizes tables, [`snapshot`] saves cells and bans in a file.

mod memory_budget;
pub mod snapshot;

pub use crate::limiter::claims::{Claims, DecidingRungs};
pub use crate::limiter::claims::{charge_into, leave_queue};
pub use crate::limiter::{Ask, Charge, OnFull, Permit, Refusals, Reservation, Role, Table};
pub use memory_budget::{MemoryRequest, TableBudget, divide_memory};
