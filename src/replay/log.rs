//! An access log, line by line: what each says of a request. Nothing is decided here.

mod combined;
mod instant;
mod json;
mod lines;
mod request;

use std::net::IpAddr;

use http::{HeaderValue, StatusCode};

use super::{DEFAULT_HOST, Options};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::message::Request;
pub(super) use lines::{Lines, RawLine};
pub(super) use request::MalformedRequest;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The combined log format of Apache and nginx, or its beginning, the common log format.
    Combined,
    /// A JSON object a line.
    Json,
}

impl Format {
    /// What a line looks like.
    fn of(line: &[u8]) -> Self {
        match line.trim_ascii_start().first() {
            Some(b'{') => Self::Json,
            _ => Self::Combined,
        }
    }
}

/// What a line says.
#[derive(Debug)]
pub(super) struct LogEntry {
    /// When the request came.
    pub time: Timestamp,
    /// Where it came from.
    pub peer: IpAddr,
    /// Whether the line says for which host it was.
    pub names_host: bool,
    /// Its head, or why HTTP would not have had it.
    pub head: Result<Request<()>, MalformedRequest>,
    /// What it was answered, where the line says that.
    pub response: Option<Response>,
}

/// What a line says of a response.
#[derive(Debug)]
pub(super) struct Response {
    pub status: StatusCode,
    pub headers: Headers,
    /// Of its body, where that is known.
    pub bytes: Option<u64>,
    /// Costs that it stated, by policy.
    pub costs: Vec<(String, u32)>,
}

impl Response {
    /// `None` where the status is none.
    fn new(status: u16, headers: Headers, bytes: Option<u64>) -> Option<Self> {
        Some(Response {
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
    #[error("{text} is no {what}")]
    Wrong {
        /// What should stand there.
        what: &'static str,
        /// What does, short and printable.
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
fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reads the lines of one log.
pub(super) struct LogReader {
    host: HeaderValue,
    format: Format,
    clock: instant::TimeReader,
}

impl LogReader {
    /// A reader for logs with this first line.
    pub(super) fn new(options: &Options, first: &[u8]) -> Self {
        let host = options.host.clone();
        LogReader {
            host: host.unwrap_or(HeaderValue::from_static(DEFAULT_HOST)),
            format: options.format.unwrap_or_else(|| Format::of(first)),
            clock: instant::TimeReader::default(),
        }
    }

    /// What a line says.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<LogEntry, LineError> {
        match self.format {
            Format::Combined => combined::read(line, &mut self.clock, &self.host),
            Format::Json => json::read(line, &self.host),
        }
    }
}

#[cfg(test)]
mod tests;
