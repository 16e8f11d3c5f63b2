//! The pages of the binary in a real browser: the playground.

mod accessibility;
mod playground;
#[path = "../support/mod.rs"]
mod support;
