//! Free texts, names, file paths, addresses of web pages, and codes of warnings.

use std::path::PathBuf;

use derive_more::{Deref, Display};

use super::quota::Quota;
use super::{Failure, TextValue, failure, sentence, text_value};
use crate::config::Code;
use crate::config::located::Located;
use crate::nearest::nearest;
use crate::telemetry::access_log::LogTarget;

/// Any text; numbers and booleans keep their spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Deref)]
pub struct Text(String);

text_value!(Text);

impl TextValue for Text {
    const EXPECTED: &'static str = "a text";
    const PATTERN: &'static str = "";
    const TYPES: &'static [&'static str] = &["string", "number", "boolean"];

    fn read(text: &str) -> Result<Self, Failure> {
        Ok(Self(text.to_owned()))
    }
}

/// Lets plain names look up located keys.
impl std::borrow::Borrow<str> for Located<Name> {
    fn borrow(&self) -> &str {
        self.value.as_str()
    }
}

/// A file path as written. A relative path starts at the directory of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
#[display("{}", _0.display())]
pub struct FilePath(PathBuf);

text_value!(FilePath);

impl TextValue for FilePath {
    const EXPECTED: &'static str =
        "the path of a file; relative ones start at the directory of the configuration";
    const PATTERN: &'static str = ".+";

    fn read(text: &str) -> Result<Self, Failure> {
        if text.is_empty() || text.contains('\0') {
            Err(sentence("an empty path", "name a file"))
        } else {
            Ok(Self(PathBuf::from(text)))
        }
    }
}

text_value!(LogTarget);

impl TextValue for LogTarget {
    const NAME: &'static str = "LogPath";
    const EXPECTED: &'static str = "`stdout`, or the path of a file";
    const PATTERN: &'static str = ".+";

    fn read(text: &str) -> Result<Self, Failure> {
        match text {
            "stdout" => Ok(Self::Stdout),
            text => FilePath::read(text).map(|path| Self::File(path.0)),
        }
    }
}

/// The `http:` or `https:` address of a page; safe inside a `Link` field, HTML and JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct WebUrl(String);

text_value!(WebUrl);

impl TextValue for WebUrl {
    const EXPECTED: &'static str =
        "the address of a page, as in `https://api.example.com/docs/limits`";
    const PATTERN: &'static str = "https?://[!#$%&()*+,./0-9:;=?@A-Z\\[\\]_a-z~-]+";

    fn read(text: &str) -> Result<Self, Failure> {
        let is_allowed = |c: char| c.is_ascii_graphic() && !"<>\"\\^`{|}'".contains(c);
        match text.split_once("://") {
            Some(("http" | "https", "")) => {
                let help = "as in `https://api.example.com/docs/limits`";
                Err(failure("names no host", help))
            }
            Some(("http" | "https", rest)) if rest.chars().all(is_allowed) => {
                Ok(Self(text.to_owned()))
            }
            Some(("http" | "https", _)) => {
                let problem = "has a character that no URL may have";
                Err(failure(problem, "percent-encode it"))
            }
            _ => Err("start with `https://` or `http://`".into()),
        }
    }
}

/// The longest name, in bytes.
const MAX_LENGTH: usize = 64;

/// Reads a name of up to 64 letters, digits and `signs`. `help` is for other characters.
pub(super) fn read_name(
    text: &str,
    signs: &str,
    help: impl FnOnce() -> String,
) -> Result<String, Failure> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    Err(match text.len() {
        0 => "it needs one character at least".into(),
        1..=MAX_LENGTH if text.chars().all(is_allowed) => return Ok(text.to_owned()),
        1..=MAX_LENGTH => help().into(),
        length => format!("it has {length} bytes; {MAX_LENGTH} are allowed").into(),
    })
}

/// A name of up to 64 characters `A-Z a-z 0-9 . _ -`: safe in header fields, metric labels and log
/// lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Deref)]
pub struct Name(String);

text_value!(Name);

impl TextValue for Name {
    const EXPECTED: &'static str = "a name: up to 64 letters, digits, `.`, `_` and `-`";
    const PATTERN: &'static str = "[A-Za-z0-9._-]{1,64}";

    fn read(text: &str) -> Result<Self, Failure> {
        let safe =
            "use letters, digits, `.`, `_` and `-` only: names appear in header fields and metrics";
        let help = || match Quota::parse(text) {
            Ok(_) => format!("write `{{ quota: {text} }}`"),
            Err(_) => safe.to_owned(),
        };
        read_name(text, "._-", help).map(Self)
    }
}

/// The code of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("{}", _0.as_str())]
pub struct LintCode(Code);

impl LintCode {
    fn all() -> Vec<&'static str> {
        Code::lints().map(Code::as_str).collect()
    }
}

text_value!(LintCode: Code = "unreachable-route");

impl TextValue for LintCode {
    const EXPECTED: &'static str = "the code of a warning, as in `small-quota`";
    const PATTERN: &'static str = "[a-z-]+";

    fn read(text: &str) -> Result<Self, Failure> {
        let code = Code::find(text).filter(|code| code.is_lint());
        code.map(Self)
            .ok_or_else(|| match nearest(text, &Self::all()) {
                Some(code) => format!("did you mean `{code}`?").into(),
                None => "`sluicegate check` prints the code of each warning".into(),
            })
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "enum": Self::all() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_characters_that_are_safe_in_fields_and_labels() {
        for name in ["login", "per-key", "v1.2_x", "404"] {
            assert!(Name::parse(name).is_ok(), "{name}");
        }
        for name in ["", "two words", "a/b", "ü", &"x".repeat(65)] {
            assert!(Name::parse(name).is_err(), "{name}");
        }
    }
}
