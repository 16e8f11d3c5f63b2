//! Assembles the parts that a configuration asks for, runs them, and exchanges them on a reload.

mod access_logs;
mod connections;
mod descriptors;
mod keeper;
mod reload;
mod run;
mod signals;
mod synchronising;
mod watch;

pub use run::{Failure, run};
