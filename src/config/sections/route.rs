//! Routes and their limits.

mod check;
mod compile;
mod limits;
mod schema;
mod status;

pub(in crate::config) use check::*;
pub(in crate::config) use compile::*;
pub(in crate::config) use limits::*;
pub use schema::*;
