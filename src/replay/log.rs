//! An access log, line by line: what each says of a request. Nothing is decided here.

mod combined;
mod instant;
mod json;
mod lines;
mod request;

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use clap::ValueEnum;
use http::{HeaderValue, StatusCode};

use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::visible;
pub(super) use lines::{LogLines, RawLine};
pub(super) use request::MalformedRequest;

/// The host of requests whose line names none, unless the user says another.
pub const DEFAULT_HOST: &str = "localhost";

/// How a log is read.
#[derive(Debug)]
pub struct Options {
    /// The format of the lines; `None` detects it from the first line.
    pub format: Option<LogFormat>,
    /// The host of requests whose line names none; [`DEFAULT_HOST`] where `None`.
    pub host: Option<HeaderValue>,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// The combined or the common log format of nginx and Apache
    Combined,
    /// A JSON object a line, as the proxy's own access log has them
    Json,
}

impl LogFormat {
    /// Detects the format of a line.
    fn of(line: &[u8]) -> Self {
        match line.trim_ascii_start().first() {
            Some(b'{') => Self::Json,
            _ => Self::Combined,
        }
    }
}

/// The contents of a line.
#[derive(Debug)]
pub(super) struct LogEntry {
    /// When the request came.
    pub time: Timestamp,
    /// Where it came from.
    pub peer: IpAddr,
    /// True if the line names the host of the request.
    pub names_host: bool,
    /// Its head, or why HTTP would not have had it.
    pub head: Result<Request<()>, MalformedRequest>,
    /// The response, where the line has it.
    pub response: Option<LoggedResponse>,
    /// The effect of operators on it.
    pub steering: LoggedSteering,
}

/// The effect of grants and bans on a request, as a line has it.
#[derive(Debug, Default)]
pub(super) struct LoggedSteering {
    /// The policies whose granted units paid.
    pub granted: Vec<String>,
    /// The policy that banned the key, and for how much longer.
    pub banned: Option<(String, Duration)>,
}

/// The response of a request, as a line has it.
#[derive(Debug)]
pub(super) struct LoggedResponse {
    pub status: StatusCode,
    pub headers: Headers,
    /// The bytes of the body, if known.
    pub bytes: Option<u64>,
    /// Costs that it stated, by policy.
    pub costs: Vec<(String, u32)>,
}

impl LoggedResponse {
    /// `None` where the status is none.
    fn new(status: u16, headers: Headers, bytes: Option<u64>) -> Option<Self> {
        Some(LoggedResponse {
            status: StatusCode::from_u16(status).ok()?,
            headers,
            bytes,
            costs: Vec::new(),
        })
    }
}

/// Why a line says nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    /// It is longer than any line that is kept.
    #[error("longer than {} KiB", lines::MAX_LINE_BYTES >> 10)]
    TooLong,
    /// It has no place for this, or the wrong thing there.
    #[error("no {0}")]
    Missing(&'static str),
    /// It has something else in place of this.
    #[error("{text} isn't {what}")]
    Wrong {
        /// The expected form.
        what: &'static str,
        /// The found text, short and printable.
        text: String,
    },
    /// It is not the JSON that is expected.
    #[error("{0}")]
    Json(String),
}

impl LineError {
    fn wrong(what: &'static str, text: &[u8]) -> Self {
        Self::Wrong {
            what,
            text: format!("{:?}", shortened(&String::from_utf8_lossy(text))),
        }
    }
}

/// The beginning of a text that may be of any length.
fn shortened(text: &str) -> Cow<'_, str> {
    visible::cut(text, 80)
}

/// Reads the lines of one log.
pub(super) struct LogReader {
    host: HeaderValue,
    format: LogFormat,
    clock: instant::TimeReader,
}

impl LogReader {
    /// A reader for logs with this first line.
    pub(super) fn new(options: &Options, first: &[u8]) -> Self {
        let host = options.host.clone();
        LogReader {
            host: host.unwrap_or(HeaderValue::from_static(DEFAULT_HOST)),
            format: options.format.unwrap_or_else(|| LogFormat::of(first)),
            clock: instant::TimeReader::default(),
        }
    }

    /// Parses a line.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<LogEntry, LineError> {
        match self.format {
            LogFormat::Combined => combined::read(line, &mut self.clock, &self.host),
            LogFormat::Json => json::read(line, &self.host),
        }
    }
}

#[cfg(test)]
mod tests;
