//! Codes of warnings.

use derive_more::Display;

use super::{ParseFailure, TextValue, text_value};
use crate::config::Code;
use crate::nearest::nearest;

/// The code of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("{}", _0.as_str())]
pub struct LintCode(Code);

impl LintCode {
    /// The code.
    pub const fn get(self) -> Code {
        self.0
    }

    fn all() -> Vec<&'static str> {
        Code::lints().map(Code::as_str).collect()
    }
}

/// A stand-in for an unreadable code.
impl Default for LintCode {
    fn default() -> Self {
        Self(Code::UnreachableRoute)
    }
}

text_value!(LintCode);

impl TextValue for LintCode {
    const NAME: &'static str = "LintCode";
    const EXPECTED: &'static str = "the code of a warning, as in `small-quota`";
    const PATTERN: &'static str = "[a-z-]+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let code = Code::find(text).filter(|code| code.is_lint());
        code.map(Self).ok_or_else(|| {
            let help = match nearest(text, &Self::all()) {
                Some(code) => format!("did you mean `{code}`?"),
                None => "`sluicegate check` prints the code of each warning".to_owned(),
            };
            (format!("`{text}` isn't the code of a warning"), Some(help))
        })
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "enum": Self::all() })
    }
}
