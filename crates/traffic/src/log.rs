//! An access log, line by line: what each says of a request. Nothing is decided here.

mod combined;
mod instant;
mod json;
mod lines;
mod request;

use std::borrow::Cow;
use std::io::{self, Read};
use std::net::IpAddr;
use std::time::Duration;

use clap::ValueEnum;
use http::{HeaderValue, StatusCode};
use http1::headers::Headers;
use http1::message::Request;
use limiter::Timestamp;
use readable::visible;

use crate::reorder_buffer::ByTime;
use lines::LogLines;

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

/// A line of a log.
#[derive(Debug)]
pub struct LogLine {
    /// Its number, from 1.
    pub number: u64,
    /// Its contents, or why it has none that could be used.
    pub entry: Result<LogEntry, String>,
}

/// The contents of a line.
#[derive(Debug)]
pub struct LogEntry {
    /// When the request came.
    pub time: Timestamp,
    /// Where it came from.
    pub peer: IpAddr,
    /// Its head, or why HTTP would not have had it: it was answered 400 before a proxy saw it.
    pub head: Result<LoggedHead, &'static str>,
    /// The response, where the line has it.
    pub response: Option<LoggedResponse>,
    /// The policies whose granted units paid.
    pub granted: Vec<String>,
    /// The policy that banned the key, and for how much longer.
    pub banned: Option<(String, Duration)>,
}

/// The head of a request, as a line has it.
#[derive(Debug)]
pub struct LoggedHead {
    /// The head, with a `Host` unless the line says that there was none.
    pub request: Request<()>,
    /// True if the line names the host.
    pub names_host: bool,
}

/// The response of a request, as a line has it.
#[derive(Debug)]
pub struct LoggedResponse {
    /// The status.
    pub status: StatusCode,
    /// The header fields, as far as they are logged.
    pub headers: Headers,
    /// The bytes of the body, if known.
    pub bytes: Option<u64>,
    /// Costs that it stated, by policy.
    pub costs: Vec<(String, u32)>,
}

/// Why a log can't be read any further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is compressed.
    #[error("the log is compressed, as {tool} reads it")]
    Compressed {
        /// The command that decompresses the file to stdout.
        tool: &'static str,
    },
    /// The input fails.
    #[error("cannot read the log: {0}")]
    Input(#[from] io::Error),
}

/// Says that something else stands in place of `what`.
fn wrong(what: &str, text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    format!("{:?} isn't {what}", shortened(&text))
}

/// The beginning of a text that may be of any length.
fn shortened(text: &str) -> Cow<'_, str> {
    visible::cut(text, 80)
}

/// The lines of a log that aren't blank, as they stand there.
#[derive(Debug)]
pub struct LogReader<R> {
    lines: LogLines<R>,
    parser: Parser,
}

/// Parses the lines of one log.
#[derive(Debug)]
struct Parser {
    host: HeaderValue,
    /// `None` until the first line.
    format: Option<LogFormat>,
    clock: instant::TimeReader,
}

impl<R: Read> LogReader<R> {
    /// Reads from `input`, buffered.
    pub fn new(options: &Options, input: R) -> Self {
        Self {
            lines: LogLines::new(input),
            parser: Parser::new(options),
        }
    }

    /// The lines by their times, as far as a bounded buffer restores that order: servers write a line
    /// when its response ends. Lines that can't be read come at once.
    pub fn by_time(self) -> ByTime<R> {
        ByTime::new(self)
    }

    /// The next line, and its length in bytes.
    pub(crate) fn next_with_length(&mut self) -> Result<Option<(LogLine, usize)>, ReadError> {
        let Some((number, line)) = self.lines.next()? else {
            return Ok(None);
        };
        let too_long = || format!("longer than {} KiB", lines::MAX_LINE_BYTES >> 10);
        let entry = line.ok_or_else(too_long);
        let entry = entry.and_then(|line| self.parser.parse(line));
        let bytes = line.map_or(0, <[u8]>::len);
        Ok(Some((LogLine { number, entry }, bytes)))
    }
}

impl<R: Read> Iterator for LogReader<R> {
    type Item = Result<LogLine, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_with_length().transpose()?;
        Some(next.map(|(line, _)| line))
    }
}

impl Parser {
    fn new(options: &Options) -> Self {
        let host = options.host.clone();
        Self {
            host: host.unwrap_or(HeaderValue::from_static(DEFAULT_HOST)),
            format: options.format,
            clock: instant::TimeReader::default(),
        }
    }

    fn parse(&mut self, line: &[u8]) -> Result<LogEntry, String> {
        match self.format.get_or_insert_with(|| LogFormat::of(line)) {
            LogFormat::Combined => combined::read(line, &mut self.clock, &self.host),
            LogFormat::Json => json::read(line, &self.host),
        }
    }
}

#[cfg(test)]
mod tests;
