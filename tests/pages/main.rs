//! The pages of the binary in a real browser: the dashboard and the playground.

mod accessibility;
mod banner;
mod client;
mod dashboard;
mod playground;
#[path = "../support/mod.rs"]
mod support;
