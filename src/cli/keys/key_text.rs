//! The key that a command names: as arguments, in a file, on stdin, or as JSON.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::files;

/// The most bytes of a key in a file. The API takes no larger body.
const MAX_KEY: u64 = 64 * 1024;

/// A key in one of its forms.
#[derive(Args, Debug)]
pub(super) struct KeyTextArgs {
    /// The key: a text for each part of the policy's key, in its order; none for the key `constant`
    #[arg(conflicts_with_all = ["key_file", "key_json"])]
    key: Vec<String>,
    /// Read the key from this file, a line for each part; `-` is stdin
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The key as the admin API takes it, such as '[null]' for clients without the part
    #[arg(long, value_name = "JSON", conflicts_with = "key_file")]
    key_json: Option<String>,
}

impl KeyTextArgs {
    /// The key as the API takes it; `None` for a key without parts.
    ///
    /// # Errors
    /// A sentence for people. It never has the key.
    pub(super) fn read(&self) -> Result<Option<Value>, String> {
        if let Some(json) = &self.key_json {
            let wrong = |_| "--key-json is no JSON; write a text in double quotes, or a list";
            let key = serde_json::from_str(json).map_err(wrong)?;
            return Ok(Some(key));
        }
        let Some(path) = &self.key_file else {
            return Ok(parts(self.key.iter().map(String::as_str)));
        };
        let text = read_file(path)?;
        match parts(text.lines()) {
            None => Err(format!(
                "{} has no key: write a line for each part",
                path.display()
            )),
            key => Ok(key),
        }
    }
}

/// A text for a key of one part, a list for one of several.
fn parts<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Value> {
    let mut texts: Vec<Value> = texts.map(Value::from).collect();
    match texts.len() {
        0 => None,
        1 => texts.pop(),
        _ => Some(Value::Array(texts)),
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let bytes = match path.as_os_str() == "-" {
        true => read_stdin(),
        false => files::read(path, MAX_KEY),
    };
    let wrong = |why: &str| format!("cannot read the key from {}: {why}", path.display());
    let bytes = bytes.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => wrong("it has more than 64 KiB"),
        _ => wrong(&error.to_string()),
    })?;
    String::from_utf8(bytes).map_err(|_| wrong("it is no UTF-8"))
}

fn read_stdin() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let stdin = io::stdin().lock();
    stdin.take(MAX_KEY + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_KEY {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_a_part() {
        let read = |text: &str| parts(text.lines());
        assert_eq!(read(""), None);
        assert_eq!(read("alice"), Some(json!("alice")));
        assert_eq!(read("alice\n"), Some(json!("alice")));
        assert_eq!(read(" a b\r\nc\n"), Some(json!([" a b", "c"])));
    }
}
