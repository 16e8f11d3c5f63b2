//! Policies.

mod check;
mod compile;
mod schema;

pub(crate) use check::*;
pub(crate) use compile::*;
pub use schema::*;
