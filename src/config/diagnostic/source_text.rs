//! The text of a configuration, with what is needed to find and show places in it quickly.

use std::ops::Range;

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
    /// The whole text, without a byte order mark.
    pub text: String,
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
            stretches: Vec::new(),
        }
    }

    /// The text without secrets, unknown values and comments. Lines keep their numbers.
    pub(in crate::config) fn masked_text(&self) -> String {
        self.shown(0..self.text.len(), Audience::Owner).text
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
            line,
            column,
            end_line,
            end_column,
        }
    }

    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts[line - 1];
        (
            line,
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
