//! Buckets in memory: a [`Table`] of cells, and [`charge_into`], which decides several charges and makes
//! all of them or none. `permits` counts units that requests return when they end. `reservation` settles
//! charges, or gives them back.

mod bucket;
mod charge;
mod permits;
mod reservation;
mod slab;
mod table;
mod table_rules;

pub use charge::{Charge, charge_all, charge_into, charge_with_shadow, leave_queue};
pub use permits::Permit;
pub use reservation::{Reservation, SettleableCharge, SettlementReport, UnsettledLocks};
pub use table::{EntryKeys, ExportedBucket, ExportedEntry, OnFull, Refusals, Table, TableCensus};
