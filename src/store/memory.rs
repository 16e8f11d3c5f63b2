//! Buckets in memory: a [`Table`] of cells for each policy, and [`charge_all`], which decides and charges a request.
//!
//! `permits` counts units that come back when requests end. `settle` changes or returns charges afterwards. `bans` has
//! strikes and bans, and [`snapshot`] keeps cells and bans in a file.

mod bans;
mod bucket;
mod charge;
mod permits;
mod rules;
mod settle;
mod share;
mod slab;
pub mod snapshot;
mod table;

pub use bans::Bans;
pub(super) use bans::Taken;
pub use charge::{Charge, charge_all, charge_to, charge_watched, leave, try_charge};
pub use permits::Permit;
pub use settle::{Reservation, Settled, charge_reserving};
pub use share::{FEWEST_KEYS, Share, Wish, divide};
pub use table::{OnFull, Refusals, Table};
