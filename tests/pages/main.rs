//! The pages of the binary in a real browser: the dashboard and the playground.

mod accessibility;
mod acts;
mod banner;
mod bans;
mod client;
mod dashboard;
mod exact_keys;
mod figures;
mod operations;
mod playground;
mod report;
#[path = "../support/mod.rs"]
mod support;
