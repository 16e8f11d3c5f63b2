//! Exceptions of a policy: exemptions, overrides, and a candidate in shadow.

mod check;
mod compile;
mod schema;

pub(crate) use check::{check, check_top_level};
pub(crate) use compile::{ExceptionCache, global_exemptions};
pub use schema::{Candidate, Override, Selection};
