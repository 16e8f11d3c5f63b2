//! Rows of CSV files (RFC 4180) with a header, in which lines that begin with `#` are comments.

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Terminator, Trim, WriterBuilder};

/// Why a file can't be used. The message has no value: it may be a key.
#[derive(Debug)]
pub(super) struct CsvError {
    /// The byte at which the row begins.
    pub(super) at: u64,
    pub(super) message: String,
}

/// A file whose header is read.
pub(super) struct CsvFile<'a> {
    content: &'a [u8],
    reader: Reader<&'a [u8]>,
    pub(super) columns: StringRecord,
}

impl<'a> CsvFile<'a> {
    /// Reads the header.
    pub(super) fn new(content: &'a [u8]) -> Result<Self, CsvError> {
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        let mut builder = ReaderBuilder::new();
        let builder = builder.comment(Some(b'#')).trim(Trim::All);
        let mut reader = builder.from_reader(content);
        let columns = reader.headers().map_err(|error| described(&error))?.clone();
        Ok(Self {
            content,
            reader,
            columns,
        })
    }

    /// Reads the next row, and returns the byte at which it begins; `None` at the end.
    pub(super) fn read(&mut self, row: &mut StringRecord) -> Result<Option<u64>, CsvError> {
        let found = self.reader.read_record(row);
        let is_there = found.map_err(|error| described(&error))?;
        Ok(is_there.then(|| row.position().map_or(0, |position| position.byte())))
    }

    /// The line of the row that begins at this byte, or after blank lines and comments there.
    pub(super) fn line(&self, at: u64) -> usize {
        let mut rest = self.content.get(at as usize..).unwrap_or_default();
        loop {
            rest = match rest {
                [b'\r' | b'\n', rest @ ..] => rest,
                [b'#', ..] => {
                    let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                    &rest[end..]
                }
                _ => break,
            };
        }
        let before = &self.content[..self.content.len() - rest.len()];
        1 + memchr::memchr_iter(b'\n', before).count()
    }
}

fn described(error: &csv::Error) -> CsvError {
    let message = match error.kind() {
        ErrorKind::Utf8 { .. } => "this isn't text in UTF-8".to_owned(),
        ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("expected {expected_len} fields, as in the first line, found {len}"),
        _ => "this isn't a row of CSV".to_owned(),
    };
    CsvError {
        at: error.position().map_or(0, |position| position.byte()),
        message,
    }
}

/// Writes a row, which ends with a line feed, or with a carriage return before it.
pub(super) fn write_row(values: &[&str], has_returns: bool) -> Vec<u8> {
    let terminator = if has_returns {
        Terminator::CRLF
    } else {
        Terminator::Any(b'\n')
    };
    let mut builder = WriterBuilder::new();
    let builder = builder.comment(Some(b'#')).terminator(terminator);
    let mut writer = builder.from_writer(Vec::new());
    writer.write_record(values).expect("memory takes a row");
    writer.into_inner().expect("memory takes a row")
}
