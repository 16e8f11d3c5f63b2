//! `overflow` of a policy.

mod check;
mod schema;

pub(in crate::config) use check::*;
pub use schema::*;
