//! The key that a command names: as arguments, in a file, on stdin, or as JSON.

use std::path::PathBuf;

use clap::Args;

use crate::admin::keys::key_input::Key;
use crate::cli::text_file;
use crate::rules::PartText;

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
    #[allow(rustdoc::broken_intra_doc_links, reason = "it is a help text")]
    /// The key as the admin API takes it, such as '[null]' for clients without the part
    #[arg(long, value_name = "JSON", conflicts_with = "key_file")]
    key_json: Option<String>,
}

impl KeyTextArgs {
    /// True if stdin has the key.
    pub(super) fn is_from_stdin(&self) -> bool {
        self.key_file.as_deref().is_some_and(text_file::is_stdin)
    }

    /// The key as the API takes it.
    ///
    /// # Errors
    /// A sentence for people. It never has the key.
    pub(super) fn read(&self) -> Result<Key, String> {
        if let Some(json) = &self.key_json {
            let wrong =
                |_| "--key-json isn't a key; write a text in double quotes, or a list of texts";
            return serde_json::from_str(json).map_err(|error| wrong(error).to_owned());
        }
        let Some(path) = &self.key_file else {
            return Ok(parts(self.key.iter().map(String::as_str)));
        };
        let text = text_file::read(path, MAX_KEY, "key")?;
        match parts(text.lines()) {
            Key::None => Err(format!(
                "{} has no key: write a line for each part",
                path.display()
            )),
            key => Ok(key),
        }
    }
}

/// A text for a key of one part, a list for one of several.
fn parts<'a>(texts: impl Iterator<Item = &'a str>) -> Key {
    let texts: Vec<_> = texts.collect();
    match texts[..] {
        [] => Key::None,
        [text] => Key::One(text.to_owned()),
        _ => Key::Parts(
            texts
                .into_iter()
                .map(|text| PartText::Value(text.into()))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_part() {
        let read = |text: &str| parts(text.lines());
        let one = |text: &str| Key::One(text.to_owned());
        assert_eq!(read(""), Key::None);
        assert_eq!(read("alice"), one("alice"));
        assert_eq!(read("alice\n"), one("alice"));
        let pair = [" a b", "c"].map(|text| PartText::Value(text.into()));
        assert_eq!(read(" a b\r\nc\n"), Key::Parts(pair.into()));
    }
}
