//! The errors of a start, and of a reload.

use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::config::Report;
use crate::server::StartError;

/// The reason why the process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The configuration is not sound.
    #[error("{0}")]
    Config(Box<Report>),
    /// An address or a thread cannot be had.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file or another thing of the system's cannot be had.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl From<Report> for StartupError {
    fn from(report: Report) -> Self {
        StartupError::Config(Box::new(report))
    }
}

impl StartupError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| StartupError::System { what, source }
    }
}

/// A runtime of one thread, which errors call `what`.
pub(super) fn runtime(what: &str) -> Result<Runtime, StartupError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(StartupError::system(what))
}
