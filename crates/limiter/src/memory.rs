//! Buckets in memory: a [`Table`](crate::Table) of cells, and [`charge_into`](crate::claims::charge_into), which decides several charges and makes
//! all of them or none. `permits` counts units that requests return when they end. `reservation` settles
//! charges, or gives them back.

mod bucket;
pub(crate) mod charge;
pub(crate) mod permits;
pub(crate) mod reservation;
mod slab;
pub(crate) mod table;
mod table_rules;
