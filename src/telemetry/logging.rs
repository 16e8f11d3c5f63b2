//! The process's own log, on stderr. The access log is another thing: see
//! [`access_log`](super::access_log).

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::{EnvFilter, filter::ParseError, util::SubscriberInitExt};

/// Variables that set the filter, the first that is set and not empty wins.
const VARIABLES: [&str; 2] = ["SLUICEGATE_LOG", "RUST_LOG"];

/// What is logged unless a variable says otherwise. Libraries warn of what clients send, a line a frame: whoever
/// likes could fill a disk.
const DEFAULT: &str = "error,sluicegate=info";

/// Starts logging to stderr: our own `info` and above, and errors of libraries, unless `SLUICEGATE_LOG` or `RUST_LOG` says otherwise.
///
/// # Errors
///
/// A filter that cannot be parsed, or a second call in one process.
pub fn init() -> Result<(), LoggingError> {
    let wanted = VARIABLES.iter().find_map(|name| {
        let value = std::env::var(name).ok()?;
        (!value.is_empty()).then_some((*name, value))
    });
    let filter = match wanted {
        Some((variable, value)) => {
            EnvFilter::try_new(value).map_err(|source| LoggingError::Filter { variable, source })?
        }
        None => EnvFilter::new(DEFAULT),
    };
    tracing_subscriber::fmt()
        .compact()
        .with_env_filter(filter)
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal())
        // Whoever read the log may have gone away, which is no reason to end: to say so on stderr would be a panic.
        .log_internal_errors(false)
        .finish()
        .try_init()
        .map_err(|_| LoggingError::Twice)
}

/// The process's stderr. A line that it does not take at once, because whoever reads it has stopped, is lost: workers
/// log, and do not wait.
#[derive(Clone, Copy, Debug)]
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Nobody else of this process writes between the question and the answer.
        let mut stderr = io::stderr().lock();
        if takes_now(&stderr) {
            stderr.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether writing does not wait: a pipe has room for a page then, and lines are shorter.
fn takes_now(file: &impl AsFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut asked = [PollFd::new(file, PollFlags::OUT)];
    poll(&mut asked, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// A variable holds something that is no filter.
    #[error("{variable} is not a log filter such as `info` or `sluicegate=debug`: {source}")]
    Filter {
        /// The variable's name.
        variable: &'static str,
        /// What the parser says.
        source: ParseError,
    },
    /// Something in this process logs already.
    #[error("logging was set up twice")]
    Twice,
}
