//! `listeners`, and the other settings of the server.

mod check;
mod compile;
mod schema;

pub(in crate::config) use check::*;
pub use schema::*;
