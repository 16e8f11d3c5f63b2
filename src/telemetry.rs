//! Metrics, the access log, and the process's own log.
//!
//! Other layers record into the handles defined here; nothing here knows what a policy or a route
//! is.

pub mod access_log;
pub mod log_throttle;
pub mod logging;
pub mod metrics;
pub mod panics;
pub mod process;
pub mod registry;
pub mod spans;
pub mod terminal;
