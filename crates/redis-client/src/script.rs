//! A Lua script and its SHA-1.

use std::sync::Arc;

use super::script_words::ScriptWords;

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
