//! A Lua script and its SHA-1.

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
    pub(super) fn by_sha<K: AsRef<[u8]>, A: redis::ToRedisArgs>(
        &self,
        keys: &[K],
        args: &[A],
    ) -> redis::Cmd {
        command("EVALSHA", &self.sha, keys, args)
    }

    /// SCRIPT LOAD.
    pub(super) fn load(&self) -> redis::Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&*self.code);
        command
    }

    /// EVAL, after which the server has the script.
    pub(super) fn by_text<K: AsRef<[u8]>, A: redis::ToRedisArgs>(
        &self,
        keys: &[K],
        args: &[A],
    ) -> redis::Cmd {
        command("EVAL", &self.code, keys, args)
    }
}

/// Enough for most calls: one or two buckets.
const ARGUMENTS: usize = 48;
const BYTES: usize = 512;

fn command<K: AsRef<[u8]>, A: redis::ToRedisArgs>(
    name: &str,
    script: &str,
    keys: &[K],
    args: &[A],
) -> redis::Cmd {
    let mut command = redis::Cmd::with_capacity(ARGUMENTS, BYTES);
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_ref());
    }
    for arg in args {
        command.arg(arg);
    }
    command
}
