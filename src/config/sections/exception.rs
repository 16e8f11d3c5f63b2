//! Exceptions of a policy: exemptions, overrides, and a candidate in shadow.

mod check;
mod compile;
mod schema;

pub(in crate::config) use check::{check, check_top_level};
pub(in crate::config) use compile::{ExceptionCache, global_exemptions};
pub use schema::{Candidate, Override, Selection};
