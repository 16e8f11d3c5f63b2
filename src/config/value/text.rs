//! Free texts, file paths, and addresses of web pages.

use std::path::{Path, PathBuf};

use derive_more::{Deref, Display};

use super::{ParseFailure, TextValue, failure, text_value};
use crate::telemetry::access_log::LogTarget;

/// Any text; numbers and booleans keep their spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Deref)]
pub struct Text(String);

text_value!(Text);

impl TextValue for Text {
    const NAME: &'static str = "Text";
    const EXPECTED: &'static str = "a text";
    const PATTERN: &'static str = "";
    const TYPES: &'static [&'static str] = &["string", "number", "boolean"];

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        Ok(Self(text.to_owned()))
    }
}

/// A file path as written. A relative path starts at the directory of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display)]
#[display("{}", _0.display())]
pub struct FilePath(PathBuf);

impl FilePath {
    /// The path as written.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

text_value!(FilePath);

impl TextValue for FilePath {
    const NAME: &'static str = "FilePath";
    const EXPECTED: &'static str =
        "the path of a file; relative ones start at the directory of the configuration";
    const PATTERN: &'static str = ".+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text.is_empty() || text.contains('\0') {
            true => Err(failure("an empty path", "name a file")),
            false => Ok(Self(PathBuf::from(text))),
        }
    }
}

text_value!(LogTarget);

impl TextValue for LogTarget {
    const NAME: &'static str = "LogPath";
    const EXPECTED: &'static str = "`stdout`, or the path of a file";
    const PATTERN: &'static str = ".+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text {
            "stdout" => Ok(Self::Stdout),
            text => FilePath::parse(text).map(|path| Self::File(path.0)),
        }
    }
}

/// The `http:` or `https:` address of a page; safe inside a `Link` field, HTML and JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct WebUrl(String);

text_value!(WebUrl);

impl TextValue for WebUrl {
    const NAME: &'static str = "WebUrl";
    const EXPECTED: &'static str =
        "the address of a page, as in `https://api.example.com/docs/limits`";
    const PATTERN: &'static str = "https?://[!#$%&()*+,./0-9:;=?@A-Z\\[\\]_a-z~-]+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        let printable = |c: char| {
            c.is_ascii_graphic()
                && !matches!(
                    c,
                    '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '|' | '}' | '\''
                )
        };
        match rest {
            None => Err(failure(
                format!("`{text}` is no address of a page"),
                "start with `https://` or `http://`",
            )),
            Some("") => Err(failure(
                format!("`{text}` names no host"),
                "as in `https://api.example.com/docs/limits`",
            )),
            Some(rest) if !rest.chars().all(printable) => Err(failure(
                format!("`{text}` has a character that no URL may have"),
                "percent-encode it",
            )),
            Some(_) => Ok(Self(text.to_owned())),
        }
    }
}
