//! Routes and their limits.

mod answer;
mod check;
mod compile;
mod decide;
mod limits;
mod matches;
mod rewrite;
mod schema;
mod status;
mod upgrades;

pub(in crate::config) use check::*;
pub(in crate::config) use compile::*;
pub(in crate::config) use limits::*;
pub(in crate::config) use matches::{matches, unreachable};
pub(in crate::config) use rewrite::ambiguous_paths;
pub use schema::*;
