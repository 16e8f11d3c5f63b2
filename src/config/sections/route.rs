//! Routes and their limits.

mod answer;
pub(crate) mod body;
mod check;
mod compile;
mod decide;
mod limits;
mod matches;
mod rewrite;
mod schema;
mod status;
mod upgrades;

pub(crate) use check::*;
pub(crate) use compile::*;
pub(crate) use limits::*;
pub(crate) use matches::{matches, unreachable};
pub(crate) use rewrite::ambiguous_paths;
pub use schema::*;
