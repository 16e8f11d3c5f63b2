//! Where buckets live, and the one step in which a request is decided and charged.
//!
//! `memory` is the store: [`Table`]s of cells, one a policy, and [`charge_all`]; `permits` has what comes back
//! when requests end. `snapshot` keeps the cells in a file. What a limit says of a cell is the business of `limiter`.

mod bans;
mod bounded_map;
mod bucket;
mod line;
mod memory;
mod permits;
pub mod redis;
mod rules;
mod settle;
mod share;
mod slab;
pub mod snapshot;
mod table;

pub use bans::Bans;
pub use bounded_map::TrackingRoom;
pub use memory::{Charge, charge_all, charge_to, charge_watched, leave, try_charge};
pub use permits::Permit;
pub use settle::{Reservation, Settled, charge_reserving};
pub use share::{FEWEST_KEYS, Share, Wish, divide};
pub use table::{OnFull, Refusals, Table};
