//! The admin API: tokens and roles, state, changes, bad callers.

#[path = "../support/mod.rs"]
mod support;

mod api;
mod auth;
mod bad_requests;
mod changes;
mod explain;
mod explain_command;
mod healthcheck;
mod history;
mod hosts;
mod keys_command;
mod openapi;
mod other_listeners;
mod problems;
mod schemathesis;
mod status_command;
mod streams;
mod tls;
mod top;
mod top_command;
