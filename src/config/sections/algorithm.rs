//! `algorithm` of a policy and its options: checks and compilation.

mod applicability;
mod check;
mod compile;

pub(crate) use applicability::*;
pub(crate) use check::*;
pub(crate) use compile::*;
