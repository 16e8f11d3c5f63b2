//! Routes and their limits.

mod answer;
mod check;
mod compile;
mod limits;
mod matches;
mod schema;
mod status;

pub(in crate::config) use check::*;
pub(in crate::config) use compile::*;
pub(in crate::config) use limits::*;
pub(in crate::config) use matches::unreachable;
pub use schema::*;
