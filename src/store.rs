//! Where buckets live, and the one step in which a request is decided and charged.
//!
//! `memory` is the store: [`Table`]s of cells, one a policy, and [`charge_all`]. `snapshot` keeps them in a
//! file. What a limit says of a cell is the business of `limiter`.

mod bucket;
mod memory;
mod rules;
mod share;
mod slab;
pub mod snapshot;
mod table;

pub use memory::{Charge, charge_all, charge_watched, give_back};
pub use share::{FEWEST_KEYS, Share, Wish, divide};
pub use table::{OnFull, Table};
