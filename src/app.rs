//! Starts, runs, reloads and stops the process.

mod access_logs;
mod config_log;
mod file_shares;
mod periodic;
mod playground;
mod process;
mod process_series;
mod redis_connections;
mod reload;
mod run;
mod service_manager;
mod signals;
mod snapshot_owner;
mod snapshot_thread;
mod span_exporter;
mod startup_error;
mod sync_thread;
mod upgrade;
mod watch;

pub use playground::playground;
pub use run::run;
pub use startup_error::StartupError;

#[cfg(test)]
mod tests;
