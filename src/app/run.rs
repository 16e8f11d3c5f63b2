//! The entry of `sluicegate run`: starts the process, and serves until it is told to end.

use std::time::Duration;

use tokio::task::spawn_blocking;

use super::StartupError;
use super::process::{Origin, Process};
use super::signals::Signals;
use super::startup_error::runtime;
use super::upgrade::{Channel, Predecessor, Program};
use super::watch::FileWatcher;
use crate::admin::reload_history::first_line;
use crate::config::Source;
use crate::net::listener::passed::PassedSockets;
use crate::telemetry::logging::ProcessLog;
use crate::telemetry::panics;

/// How long tasks that nobody waits for may go on at the end.
const LAST_TASKS: Duration = Duration::from_secs(1);

/// Serves what `source` says, also on `passed` sockets, until the process is told to end, and shows how many
/// lines `log` has lost.
///
/// # Errors
/// When it cannot start; then nothing has been served.
pub fn run(source: Source, log: &ProcessLog, passed: PassedSockets) -> Result<(), StartupError> {
    let channel = Predecessor::channel().map_err(StartupError::system("standard input"))?;
    let ended = serve(source, log, passed, channel.as_ref());
    if let (Err(error), Some(channel)) = (&ended, channel) {
        channel.fail(&first_line(&error.to_string()));
    }
    ended
}

fn serve(
    source: Source,
    log: &ProcessLog,
    mut passed: PassedSockets,
    channel: Option<&Channel>,
) -> Result<(), StartupError> {
    let predecessor = channel.map(|channel| Predecessor::find(channel, &mut passed));
    let origin = Origin {
        // Before its file can be replaced.
        program: Program::of_this_process(),
        predecessor: predecessor.transpose()?,
        passed,
    };
    // Before the file is read: what changes from now on is noticed.
    let watch = FileWatcher::new(source.file().into_iter().map(Into::into).collect());
    panics::install_hook();
    let runtime = runtime("the main runtime")?;
    let mut signals = runtime
        .block_on(async { Signals::new() })
        .map_err(StartupError::system("signals"))?;
    let log = log.clone();
    let started = runtime.block_on(async {
        let start = spawn_blocking(move || Process::start(source, &log, origin));
        tokio::select! {
            started = start => Some(started),
            _ = signals.end() => None,
        }
    });
    let ended = match started {
        Some(Ok(started)) => started.and_then(|process| process.serve(&runtime, signals, watch)),
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
