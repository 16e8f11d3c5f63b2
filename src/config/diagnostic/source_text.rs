//! The text of a configuration, included files at its end, with what is needed to find and show
//! places in it quickly.

use std::ops::Range;
use std::sync::Arc;

use super::Place;
use super::shown::{Audience, ShownText, Stretch};

/// The bytes of a block whose characters are counted at once.
const BLOCK: usize = 4096;

/// The text of a configuration and its display name. `Debug` omits the text, which may hold
/// passwords.
#[derive(derive_more::Debug)]
#[debug("SourceText({name})")]
pub struct SourceText {
    /// The path as the user gave it; reports print it before the line number.
    pub name: String,
    /// The whole text, without a byte order mark. Included files follow, each at the start of a line.
    pub text: String,
    /// The start of each file in the text, and the path of included ones.
    files: Vec<(usize, Option<Arc<str>>)>,
    /// The offsets of its lines, so that each place is found without reading all of it.
    line_starts: Vec<usize>,
    /// The characters before each [`BLOCK`] of bytes, so that a place in a long line is found as soon.
    chars_before_blocks: Box<[usize]>,
    /// The places of keys and values, in order. Nothing else is shown but punctuation.
    pub(in crate::config) stretches: Vec<Stretch>,
}

impl SourceText {
    /// A text of which nothing may be shown yet.
    pub(in crate::config) fn new(name: &str, text: String) -> Self {
        let newlines = memchr::memchr_iter(b'\n', text.as_bytes());
        let line_starts = std::iter::once(0).chain(newlines.map(|at| at + 1));
        let blocks = text.as_bytes().chunks(BLOCK).scan(0, |chars, block| {
            *chars += count_chars(block);
            Some(*chars)
        });
        Self {
            name: name.to_owned(),
            line_starts: line_starts.collect(),
            chars_before_blocks: std::iter::once(0).chain(blocks).collect(),
            text,
            files: vec![(0, None)],
            stretches: Vec::new(),
        }
    }

    /// Appends files, each a path and its text.
    pub(in crate::config) fn include(&mut self, files: Vec<(String, String)>) {
        let (mut text, mut starts) = (std::mem::take(&mut self.text), vec![(0, None)]);
        for (path, file) in files {
            // Also behind a line break: the end of a file is a place of its own.
            text.push('\n');
            starts.push((text.len(), Some(path.into())));
            text.push_str(&file);
        }
        *self = Self::new(&self.name, text);
        self.files = starts;
    }

    /// The range of each file, the main one's first, and the path of included ones.
    pub(in crate::config) fn files(&self) -> impl Iterator<Item = (Range<usize>, Option<&str>)> {
        let ends = self.files.iter().skip(1).map(|(start, _)| start - 1);
        let files = self.files.iter().zip(ends.chain([self.text.len()]));
        files.map(|((start, path), end)| (*start..end, path.as_deref()))
    }

    /// The start of the file around an offset, and its path if it is included.
    fn file(&self, offset: usize) -> &(usize, Option<Arc<str>>) {
        let next = self.files.partition_point(|(start, _)| *start <= offset);
        &self.files[next - 1]
    }

    /// The text without secrets, unknown values and comments. Lines keep their numbers. A line with
    /// its path is before each included file.
    pub(in crate::config) fn masked_text(&self) -> String {
        let mut masked = String::new();
        for (range, path) in self.files() {
            masked.extend(path.map(|path| format!("\n# {path}\n")));
            masked.push_str(&self.shown(range, Audience::Owner).text);
        }
        masked
    }

    pub(super) fn shown(&self, range: Range<usize>, audience: Audience) -> ShownText {
        ShownText::new(&self.text, &self.stretches, range, audience)
    }

    /// The place of a byte range.
    pub(in crate::config) fn place(&self, span: Range<usize>) -> Place {
        let (line, column) = self.position(span.start);
        let (end_line, end_column) = self.position(span.end);
        Place {
            start: span.start,
            end: span.end,
            file: self.file(span.start).1.clone(),
            line,
            column,
            end_line,
            end_column,
        }
    }

    /// Line and column in the file around an offset.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let lines = |offset| self.line_starts.partition_point(|start| *start <= offset);
        let (line, first) = (lines(offset), lines(self.file(offset).0));
        let start = self.line_starts[line - 1];
        (
            line - first + 1,
            self.chars_before(offset) - self.chars_before(start) + 1,
        )
    }

    /// The number of characters before a byte.
    fn chars_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        self.chars_before_blocks[block] + count_chars(&self.text.as_bytes()[block * BLOCK..offset])
    }
}

/// Counts the characters that begin in these bytes of UTF-8.
fn count_chars(bytes: &[u8]) -> usize {
    let begins = |byte: &&u8| !matches!(byte, 0x80..=0xbf);
    bytes.iter().filter(begins).count()
}
