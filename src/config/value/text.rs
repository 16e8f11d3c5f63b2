//! Free texts, file paths, and addresses of web pages.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use super::{ParseFailure, TextValue, failure, text_value};

/// Any text; numbers and booleans keep their spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(String);

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(Text);

impl TextValue for Text {
    const PATTERN: &'static str = "";

    fn name() -> Cow<'static, str> {
        "Text".into()
    }

    fn expected() -> Cow<'static, str> {
        "a text".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        Ok(Self(text.to_owned()))
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": ["string", "number", "boolean"] })
    }
}

/// A file path as written. A relative path starts at the directory of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// The path as written.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

text_value!(FilePath);

impl TextValue for FilePath {
    const PATTERN: &'static str = ".+";

    fn name() -> Cow<'static, str> {
        "FilePath".into()
    }

    fn expected() -> Cow<'static, str> {
        "the path of a file; relative ones start at the directory of the configuration".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text.is_empty() || text.contains('\0') {
            true => Err(failure("an empty path", "name a file")),
            false => Ok(Self(PathBuf::from(text))),
        }
    }
}

/// The target of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    #[default]
    Stdout,
    /// A file that lines are appended to.
    File(FilePath),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.fmt(f),
        }
    }
}

text_value!(LogTarget);

impl TextValue for LogTarget {
    const PATTERN: &'static str = ".+";

    fn name() -> Cow<'static, str> {
        "LogPath".into()
    }

    fn expected() -> Cow<'static, str> {
        "`stdout`, or the path of a file".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text {
            "stdout" => Ok(Self::Stdout),
            text => FilePath::parse(text).map(Self::File),
        }
    }
}

/// The `http:` or `https:` address of a page; safe inside a `Link` field, HTML and JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebUrl(String);

impl WebUrl {
    /// The address as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(WebUrl);

impl TextValue for WebUrl {
    const PATTERN: &'static str = "https?://[!#$%&()*+,./0-9:;=?@A-Z\\[\\]_a-z~-]+";

    fn name() -> Cow<'static, str> {
        "WebUrl".into()
    }

    fn expected() -> Cow<'static, str> {
        "the address of a page, as in `https://api.example.com/docs/limits`".into()
    }

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
