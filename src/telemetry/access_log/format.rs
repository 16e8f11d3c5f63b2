//! The text of lines: [`json`], or the [`combined`] log format.

mod combined;
mod escape;
mod json;
mod values;

use super::{AccessLogSpec, LineFormat, LogField, Record};
use crate::clock::Timestamp;

/// Writes lines of one format; keeps the last second as text, as most lines share it.
#[derive(Debug)]
pub(super) struct Formatter {
    format: LineFormat,
    /// The fields of JSON lines.
    fields: Box<[LogField]>,
    second: Option<i64>,
    second_text: String,
}

impl Formatter {
    pub(super) fn new(spec: &AccessLogSpec) -> Self {
        Self {
            format: spec.format,
            fields: spec.fields.clone().into(),
            second: None,
            second_text: String::new(),
        }
    }

    /// Appends one line with its newline.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        match self.format {
            LineFormat::Json => self.json(out, record),
            LineFormat::Combined => self.combined(out, record),
        }
    }

    /// Returns the whole second in UTC, written as `strftime` says.
    fn second(&mut self, time: Timestamp, strftime: &str) -> &str {
        let second = i64::try_from(time.as_micros() / 1_000_000).unwrap_or(i64::MAX);
        if self.second != Some(second) {
            let time = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX);
            self.second = Some(second);
            self.second_text = time.strftime(strftime).to_string();
        }
        &self.second_text
    }
}

#[cfg(test)]
mod tests;
