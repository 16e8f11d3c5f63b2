//! `exempt`, `overrides` and `candidate`.

mod check;
mod compile;
mod schema;

pub(in crate::config) use check::*;
pub(in crate::config) use compile::*;
pub use schema::*;
