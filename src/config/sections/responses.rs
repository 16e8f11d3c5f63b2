//! `responses`, and `on_limit` of policies.

mod check;
mod compile;
mod debug;
mod fields;
mod pages;
mod schema;

pub(in crate::config) use check::*;
pub(in crate::config) use compile::*;
pub use debug::DebugHeader;
pub(in crate::config) use fields::ResponseCompiler;
pub use fields::ResponseRules;
pub use pages::ErrorPage;
pub use schema::*;
