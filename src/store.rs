//! Stores of buckets, and the step that decides and charges a request.
//!
//! `memory` keeps buckets in tables of this process, [`redis`] keeps them in Redis, with the same
//! decisions. `bounded_map` holds keys beside buckets for both. `limiter` interprets the buckets.

mod bounded_map;
mod memory;
pub mod redis;

pub use bounded_map::TrackingBudget;
pub use memory::{
    Bans, Charge, MIN_KEYS, MemoryRequest, OnFull, Permit, Refusals, Reservation, SettleableCharge,
    Table, TableBudget, charge_all, charge_and_reserve, charge_into, charge_with_shadow,
    divide_memory, leave_queue, snapshot, try_charge,
};
