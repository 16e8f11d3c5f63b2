//! Decoding errors in words for users. A reader adds the place.

use std::fmt;

use derive_more::Display;
use serde::de::{Expected, Unexpected};

use super::Reader;
use crate::config::diagnostic::{Code, Content};
use crate::config::document::{NodeValue, Part, TextOrigin};
use crate::config::finding::Finding;
use crate::config::value::ValueError;
use crate::nearest;
use crate::text_table;

/// Examples of values for keys that have to be there.
const EXAMPLES: &str = include_str!("../tables/missing_keys.txt");

/// The error of one value.
#[derive(Debug, Display)]
pub(super) enum DecodeError {
    /// The problem and the expected form, without a place.
    #[display("{}", _1.message)]
    Unplaced(Code, ValueError),
    /// A finding with its place.
    #[display("{}", _0.message)]
    Placed(Box<Finding>),
}

impl DecodeError {
    pub(super) fn mismatch(found: &str, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let message = format!("expected {expected}, found {found}");
        Self::unplaced(Code::WrongType, message, expected)
    }

    fn unplaced(code: Code, message: String, expected: String) -> Self {
        let help = None;
        let error = ValueError {
            message,
            expected,
            help,
        };
        Self::Unplaced(code, error)
    }

    /// Sets or replaces the help of an error without a place.
    pub(super) fn with_help(mut self, advice: impl Into<String>) -> Self {
        if let Self::Unplaced(_, error) = &mut self {
            error.help = Some(advice.into());
        }
        self
    }

    /// Names the other forms of a value beside its words, if the error is an unknown word.
    pub(super) fn of_form(mut self, expected: &str) -> Self {
        if let Self::Placed(finding) = &mut self
            && finding.code == Code::UnknownValue
        {
            finding.help = Some(format!("it can be: {expected}"));
        }
        self
    }

    /// Converts to a finding, at `reader` unless the place is known.
    pub(super) fn into_finding(self, reader: Reader<'_>) -> Finding {
        let (code, error) = match self {
            Self::Placed(finding) => return *finding,
            Self::Unplaced(code, error) => (code, error),
        };
        if let Some(holder) = hidden_value(reader) {
            let expected = error.expected;
            let message = format!("expected {expected}; {holder} something else");
            return Finding::error(reader.node, code, message)
                .help("what it holds is not shown: it may be a secret");
        }
        Finding {
            part: reader.part,
            help: error.help,
            ..Finding::error(reader.node, code, error.message)
        }
    }
}

/// The beginning of a message about the value that `reader` is at, if that may not be shown.
fn hidden_value(reader: Reader<'_>) -> Option<&'static str> {
    let findings = reader.findings;
    match (reader.part, reader.value()) {
        (Part::Key, _) => (!findings.knows_key(reader.node)).then_some("the key is"),
        (Part::Whole, NodeValue::Scalar { origin, .. }) => match origin {
            TextOrigin::Environment => Some("the environment holds"),
            TextOrigin::File => {
                let is_secret = findings.content(reader.node) == Content::Secret;
                is_secret.then_some("the file holds")
            }
        },
        (Part::Whole, _) => None,
    }
}

impl serde::de::Error for DecodeError {
    /// Parses the text of a [`ValueError`].
    fn custom<T: fmt::Display>(error: T) -> Self {
        let error = ValueError::from_display(&error.to_string());
        Self::Unplaced(Code::InvalidValue, error)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::mismatch(&describe(found), expected)
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let expected = format!("one of {}", nearest::list(known));
        let message = format!("unknown value `{found}`");
        let error = Self::unplaced(Code::UnknownValue, message, expected);
        error.with_help(nearest::values(found, known))
    }

    fn missing_field(field: &'static str) -> Self {
        let message = format!("the key `{field}` is missing");
        let error = Self::unplaced(Code::MissingKey, message, format!("the key `{field}`"));
        match text_table::rows(EXAMPLES).find(|[key, _]| *key == field) {
            Some([_, value]) => error.with_help(format!("add it, as in `{field}: {value}`")),
            None => error,
        }
    }
}

fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("`{text}`"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

impl std::error::Error for DecodeError {}
