//! Stores of buckets, and the one step that decides and charges a request.
//!
//! [`memory`] keeps buckets in tables of this process, [`redis`] in Redis, with the same decisions. `bounded_map` is a map that
//! both use for keys beside buckets. How a limit reads a bucket is in `limiter`.

mod bounded_map;
mod memory;
pub mod redis;

pub use bounded_map::TrackingRoom;
pub use memory::{
    Bans, Charge, FEWEST_KEYS, OnFull, Permit, Refusals, Reservation, Settled, Share, Table, Wish,
    charge_all, charge_reserving, charge_to, charge_watched, divide, leave, snapshot, try_charge,
};
