//! Configurations: what is accepted, what is refused with which message, what `check` warns of, and reloads.

#[path = "../support/mod.rs"]
mod support;

mod against;
mod files;
mod lints;
mod many_overrides;
mod reload;
mod special_files;
mod unreadable_files;
