//! `responses`, and `on_limit` of policies.

mod check;
mod compile;
mod debug;
mod fields;
mod pages;
mod schema;

pub(crate) use check::*;
pub(crate) use compile::*;
pub use debug::DebugHeader;
pub(crate) use fields::ResponseCompiler;
pub use fields::ResponseRules;
pub use pages::ErrorPage;
pub use schema::*;
