//! The commands and the process: command line, admin listener, logs, descriptors, memory, shutdown, and `replay`.

#[path = "../support/mod.rs"]
mod support;

mod access_log;
mod admin;
mod clients;
mod command_line;
mod deploy;
mod descriptors;
mod generated;
mod idle_memory;
mod in_ci;
mod log_reader;
mod recorded;
mod release;
mod replay;
mod replay_gaps;
mod replay_html;
mod replay_models;
mod shutdown;
mod suggest;
