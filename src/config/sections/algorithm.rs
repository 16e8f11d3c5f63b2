//! `algorithm` of a policy and its options: checks and compilation.

mod applicability;
mod check;
mod compile;

pub(in crate::config) use applicability::*;
pub(in crate::config) use check::*;
pub(in crate::config) use compile::*;
