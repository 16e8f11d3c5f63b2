//! The process's own log, on stderr, written by a thread of its own. The access log is another
//! thing: see [`access_log`](super::access_log).

mod queue;

use std::io::{self, Write};

use rustix::event::{PollFd, PollFlags, poll};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::SubscriberInitExt;

pub use self::queue::ProcessLog;
use super::terminal::has_colours;

/// Variables that set the filter, the first that is set and not empty wins.
const VARIABLES: [&str; 2] = ["SLUICEGATE_LOG", "RUST_LOG"];

/// The default filter. Libraries warn of each wrong frame that clients send, which could fill a
/// disk.
const DEFAULT: &str = "error,sluicegate=info";

/// The target of audit lines, which every filter lets through unless it names the target.
const AUDIT: &str = "audit";

/// Starts logging to stderr: our own `info` and above, and errors of libraries, unless
/// `SLUICEGATE_LOG` or `RUST_LOG` says otherwise.
///
/// # Errors
///
/// A filter that cannot be parsed, a second call in one process, or a thread that cannot be
/// started.
pub fn init() -> Result<ProcessLog, LoggingError> {
    let wanted = VARIABLES.iter().find_map(|name| {
        let value = std::env::var(name).ok()?;
        (!value.is_empty()).then_some((*name, value))
    });
    let filter = match wanted {
        Some((variable, value)) => EnvFilter::try_new(with_audit(&value))
            .map_err(|source| LoggingError::Filter { variable, source })?,
        None => EnvFilter::new(with_audit(DEFAULT)),
    };
    let log = ProcessLog::start(Stderr).map_err(LoggingError::Thread)?;
    let lines = log.clone();
    tracing_subscriber::fmt()
        .compact()
        .with_env_filter(filter)
        .with_writer(move || lines.clone())
        .with_ansi(has_colours(&io::stderr()))
        .log_internal_errors(false)
        .finish()
        .try_init()
        .map_err(|_| LoggingError::Twice)?;
    Ok(log)
}

/// A filter that also lets audit lines through, unless it says something of them.
fn with_audit(filter: &str) -> String {
    if filter.contains(AUDIT) {
        filter.to_owned()
    } else {
        format!("{filter},{AUDIT}=info")
    }
}

/// The process's stderr, of which somebody else may have made a file that does not block.
#[derive(Debug)]
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        loop {
            match stderr.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut room = [PollFd::new(&stderr, PollFlags::OUT)];
                    poll(&mut room, None)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// A variable holds something that is no filter.
    #[error("{variable} is not a log filter such as `info` or `sluicegate=debug`: {source}")]
    Filter {
        /// The variable's name.
        variable: &'static str,
        /// The error of the parser.
        source: ParseError,
    },
    /// Something in this process logs already.
    #[error("logging was set up twice")]
    Twice,
    /// The log's writer cannot be started.
    #[error("the log has no thread: {0}")]
    Thread(io::Error),
}
