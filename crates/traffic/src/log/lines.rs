//! Lines of bounded length, whatever the file is.

use std::io::{BufRead, BufReader, Read};

use super::ReadError;

/// The longest line that is looked at, in bytes: a head of the largest `client.max_head`.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// How much is read at once, in bytes.
const CHUNK: usize = 64 << 10;

/// A file that begins so is compressed, and written to stdout by this program.
const COMPRESSED: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "zcat"),
    (b"BZh", "bzcat"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xzcat"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstdcat"),
];

/// The lines of a log, one at a time.
#[derive(Debug)]
pub(super) struct LogLines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

/// The number of a line, from 1, and the line without its end, unless that is too long.
type NumberedLine<'a> = (u64, Option<&'a [u8]>);

impl<R: Read> LogLines<R> {
    pub(super) fn new(input: R) -> Self {
        LogLines {
            input: BufReader::with_capacity(CHUNK, input),
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line that is not blank; one of more than [`MAX_LINE_BYTES`] is too long. Ends are LF or
    /// CR LF, and the last one may be missing; a byte order mark before the first line is none of it.
    ///
    /// # Errors
    /// When the input cannot be read, or is compressed.
    pub(super) fn next(&mut self) -> Result<Option<NumberedLine<'_>>, ReadError> {
        loop {
            let whole = self.read_line()?;
            if self.line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if self.number == 1 {
                self.check_beginning()?;
            }
            if !whole {
                return Ok(Some((self.number, None)));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some((self.number, Some(line))))
    }

    /// Reads a line with its end; answers whether it is whole. An empty one is the end of the file.
    fn read_line(&mut self) -> std::io::Result<bool> {
        self.line.clear();
        let most = MAX_LINE_BYTES as u64 + 2;
        let mut bounded = self.input.by_ref().take(most);
        bounded.read_until(b'\n', &mut self.line)?;
        let whole = self.line.len() as u64 != most || self.line.ends_with(b"\n");
        if !whole {
            self.input.skip_until(b'\n')?;
        }
        Ok(whole)
    }

    fn check_beginning(&mut self) -> Result<(), ReadError> {
        let known = COMPRESSED.iter();
        let mut known = known.filter(|(magic, _)| self.line.starts_with(magic));
        if let Some(&(_, tool)) = known.next() {
            return Err(ReadError::Compressed { tool });
        }
        if self.line.starts_with("\u{feff}".as_bytes()) {
            self.line.drain(..'\u{feff}'.len_utf8());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: impl AsRef<[u8]>) -> Vec<(u64, Option<String>)> {
        let mut lines = LogLines::new(text.as_ref());
        let mut found = Vec::new();
        while let Some((number, raw)) = lines.next().expect("readable") {
            let text = raw.map(|line| String::from_utf8_lossy(line).into_owned());
            found.push((number, text));
        }
        found
    }

    #[test]
    fn lines_end_in_lf_or_cr_lf_and_the_last_one_in_nothing() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(lines(""), []);
        assert_eq!(lines("\n\r\n \n"), []);
        assert_eq!(lines("a"), [(1, some("a"))]);
        assert_eq!(
            lines("\u{feff}a\r\n\nb\n c"),
            [(1, some("a")), (3, some("b")), (4, some(" c"))]
        );
        assert_eq!(lines("\u{feff}"), []);
    }

    #[test]
    fn a_line_beyond_the_longest_is_skipped_whole() {
        let longest = "x".repeat(MAX_LINE_BYTES);
        for end in ["\n", "\r\n", ""] {
            assert_eq!(
                lines(format!("{longest}{end}")),
                [(1, Some(longest.clone()))]
            );
        }
        let long = "x".repeat(10 << 20);
        let after = (2, Some("a".to_owned()));
        assert_eq!(lines(format!("{long}\na")), [(1, None), after]);
        assert_eq!(lines(format!("a\n{long}"))[1], (2, None));
    }

    #[test]
    fn a_compressed_log_is_named_with_what_decompresses_it() {
        let failure = LogLines::new(&b"\x1f\x8b\x08\x00"[..]).next().err();
        let failure = failure.expect("a failure").to_string();
        assert!(failure.contains("zcat"), "{failure}");
    }
}
