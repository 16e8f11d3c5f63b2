//! The words of a script's call.

use std::ops::Range;

/// KEYS and ARGV of a script, stored one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptWords {
    bytes: Vec<u8>,
    /// The end of each word.
    ends: Vec<usize>,
    /// The number of keys.
    keys: usize,
}

/// Enough for most calls: one or two buckets.
impl Default for ScriptWords {
    fn default() -> Self {
        Self {
            bytes: Vec::with_capacity(256),
            ends: Vec::with_capacity(32),
            keys: 0,
        }
    }
}

impl ScriptWords {
    /// KEYS.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.words(0..self.keys)
    }

    /// ARGV.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.words(self.keys..self.ends.len())
    }

    fn words(&self, places: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = match places.start {
            0 => 0,
            first => self.ends[first - 1],
        };
        self.ends[places].iter().map(move |&end| {
            let from = std::mem::replace(&mut start, end);
            &self.bytes[from..end]
        })
    }

    /// Adds a key. Keys come before all arguments.
    pub fn key(&mut self, name: &[u8]) {
        debug_assert_eq!(self.keys, self.ends.len(), "an argument came before");
        self.bytes(name);
        self.keys = self.ends.len();
    }

    /// The beginning of the next word.
    pub fn next_word(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Adds a word, or the end of one that has begun.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    /// Adds a word.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds a number.
    pub fn number(&mut self, number: impl Into<u64>) {
        self.text(itoa::Buffer::new().format(number.into()));
    }
}
