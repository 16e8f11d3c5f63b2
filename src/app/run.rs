//! The entry of `sluicegate run`: starts the process, and serves until it is told to end.

use std::io;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::process::Process;
use super::signals::Signals;
use super::watch::FileWatcher;
use crate::config::{Report, Source};
use crate::net::listener::BindError;
use crate::server::StartError;
use crate::telemetry::logging::ProcessLog;
use crate::telemetry::panics;

/// How long tasks that nobody waits for may go on at the end.
const LAST_TASKS: Duration = Duration::from_secs(1);

/// Why the process does not start.
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

impl From<BindError> for StartupError {
    fn from(error: BindError) -> Self {
        StartupError::Start(error.into())
    }
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

/// Serves what `source` says until the process is told to end, and shows how many lines `log` has lost.
///
/// # Errors
/// When it cannot start; then nothing has been served.
pub fn run(source: Source, log: &ProcessLog) -> Result<(), StartupError> {
    // Before the file is read: what changes from now on is noticed.
    let watch = FileWatcher::new(source.file().into_iter().map(Into::into).collect());
    panics::install_hook();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartupError::system("the main runtime"))?;
    let mut signals = runtime
        .block_on(async { Signals::new() })
        .map_err(StartupError::system("signals"))?;
    let log = log.clone();
    let started = runtime.block_on(async {
        let start = spawn_blocking(move || Process::start(source, &log));
        tokio::select! {
            started = start => Some(started),
            _ = signals.end() => None,
        }
    });
    let ended = match started {
        Some(Ok(started)) => started.map(|process| process.serve(&runtime, signals, watch)),
        Some(Err(panicked)) => Err(StartupError::system("the start")(panicked.into())),
        None => {
            tracing::info!("told to end before it served");
            Ok(())
        }
    };
    // A file that cannot be read in time keeps nobody waiting.
    runtime.shutdown_timeout(LAST_TASKS);
    ended
}
