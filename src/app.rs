//! Assembles the parts that a configuration asks for, runs them, and exchanges them on a reload.

mod access_logs;
mod config_log;
mod connections;
mod descriptors;
mod periodic;
mod playground;
mod process;
mod reload;
mod run;
mod signals;
mod snapshot_owner;
mod snapshot_thread;
mod span_exporter;
mod startup_error;
mod sync_thread;
mod watch;

pub use playground::playground;
pub use run::run;
pub use startup_error::StartupError;

#[cfg(test)]
mod tests;
