//! The log that a command reads, and what is said of one that can't be read.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use http::HeaderValue;
use traffic::{LogFormat, Options, ReadError};

use super::progress::Progress;
use super::{Failure, WRONG, tell};
use crate::telemetry::terminal::has_cursor;

#[derive(Args, Debug)]
pub(super) struct LogArgs {
    /// The access log; `-` is stdin
    log: PathBuf,
    /// How lines are written [default: what the first one looks like]
    #[arg(long, value_name = "FORMAT")]
    format: Option<LogFormat>,
    /// The host of requests whose line names none [default: localhost]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// Returns true if both paths lead to one file.
pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(Path::canonicalize);
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

/// A log, and a bar that shows how far it is read.
type OpenLog = Progress<Box<dyn Read>>;

impl LogArgs {
    /// The name of the log, as the user gave it.
    pub(super) fn name(&self) -> String {
        self.log.display().to_string()
    }

    /// True if the log is the file at `path`.
    pub(super) fn is_file(&self, path: &Path) -> bool {
        is_same_file(&self.log, path)
    }

    /// How the log is read, and the log.
    pub(super) fn ready(&self, is_written: bool) -> Result<(Options, OpenLog), String> {
        Ok((self.reading()?, self.open(is_written)?))
    }

    fn reading(&self) -> Result<Options, String> {
        let host = self.host.as_ref().map(|host| {
            HeaderValue::from_str(host)
                .map_err(|_| format!("{host:?} isn't a host; write it as in api.example.com"))
        });
        let host = host.transpose()?;
        Ok(Options {
            host,
            format: self.format,
        })
    }

    /// The log, with a bar where somebody can see it. `is_written` says that the command writes to
    /// stdout while it reads.
    fn open(&self, is_written: bool) -> Result<OpenLog, String> {
        let (input, size) = if self.log.as_os_str() == "-" {
            (Box::new(io::stdin()) as Box<dyn Read>, None)
        } else {
            open(&self.log)?
        };
        let is_written_over = is_written && io::stdout().is_terminal();
        Ok(if has_cursor(&io::stderr()) && !is_written_over {
            Progress::shown(input, size)
        } else {
            Progress::hidden(input, size)
        })
    }

    /// The failure of a log that could not be read to its end.
    pub(super) fn failure(&self, error: &ReadError) -> Failure {
        let log = self.log.display();
        match error {
            ReadError::Compressed { tool } => Failure::wrong_usage(format!(
                "{log}: the log is compressed; pipe it: {tool} LOG | sluicegate replay -"
            )),
            ReadError::Input(_) => format!("{log}: {error}").into(),
        }
    }

    /// Reports a log without a readable line, which isn't one or has another format, and an empty one.
    pub(super) fn judge(&self, requests: u64, unparsable: u64) -> ExitCode {
        let log = self.log.display();
        if requests == 0 && unparsable == 0 {
            tell(format_args!("no request in {log}"));
        }
        if requests > 0 || unparsable == 0 {
            return ExitCode::SUCCESS;
        }
        tell(format_args!(
            "{log}: none of its {unparsable} lines could be read; --format says how they are written, combined or json"
        ));
        ExitCode::from(WRONG)
    }
}

/// A file, and how many bytes it has, if it is an ordinary one.
fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), String> {
    let fail = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        let path = path.display();
        return Err(format!("{path} is a directory; name a log within it"));
    }
    let size = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(file), size))
}
