//! A Lua script with its SHA-1, and the words of its calls.

use std::ops::Range;
use std::sync::Arc;

/// A script. Clones share its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    code: Arc<str>,
    /// SHA-1 of the text in lower-case hexadecimal, as EVALSHA takes it.
    sha: Arc<str>,
}

impl Script {
    /// The script with this text.
    pub fn new(code: &str) -> Self {
        Self {
            code: code.into(),
            sha: redis::Script::new(code).get_hash().into(),
        }
    }

    /// EVALSHA, without the text.
    pub(super) fn by_sha(&self, words: &ScriptWords) -> redis::Cmd {
        command("EVALSHA", &self.sha, words)
    }

    /// SCRIPT LOAD.
    pub(super) fn load(&self) -> redis::Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&*self.code);
        command
    }

    /// EVAL, after which the server has the script.
    pub(super) fn by_text(&self, words: &ScriptWords) -> redis::Cmd {
        command("EVAL", &self.code, words)
    }
}

/// Enough for most calls: one or two buckets.
const ARGUMENTS: usize = 48;
const BYTES: usize = 512;

fn command(name: &str, script: &str, words: &ScriptWords) -> redis::Cmd {
    let mut command = redis::Cmd::with_capacity(ARGUMENTS, BYTES);
    command.arg(name).arg(script).arg(words.keys().len());
    for word in words.keys().chain(words.args()) {
        command.arg(word);
    }
    command
}

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
