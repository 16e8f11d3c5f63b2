//! `cost` of a policy: the units of a request, constant or stated by the request or its response,
//! and their settlement.

mod check;
mod compile;
mod schema;

pub(crate) use check::{body_node, check, settlement_node};
pub(crate) use compile::{cost, pricing, settlement};
pub use schema::{Cost, Pointers, Reserve, StatedCost, StatedReserve};
