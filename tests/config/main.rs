//! The configuration: accepted and refused files, messages, warnings, and reloads.

#[path = "../support/mod.rs"]
mod support;

mod against;
mod files;
mod include;
mod lints;
mod listeners;
mod reload;
mod secrets;
mod special_files;
mod unreadable_files;
