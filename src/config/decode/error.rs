//! Decoding errors in words for users. A reader adds the place.

use std::fmt;

use serde::de::{Expected, Unexpected};

use super::Reader;
use crate::config::diagnostic::Code;
use crate::config::document::{Origin, Value};
use crate::config::finding::{Finding, Part};
use crate::config::nearest;
use crate::config::value::ValueError;

/// The error of one value.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The problem and the expected form, without a place.
    Unplaced {
        code: Code,
        message: String,
        expected: String,
        help: Option<String>,
    },
    /// A finding with its place.
    Placed(Box<Finding>),
}

impl DecodeError {
    pub(super) fn mismatch(found: &str, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let message = format!("expected {expected}, found {found}");
        Self::Unplaced {
            code: Code::WrongType,
            message,
            expected,
            help: None,
        }
    }

    pub(super) fn with_help(self, advice: String) -> Self {
        match self {
            Self::Unplaced {
                code,
                message,
                expected,
                help: None,
            } => Self::Unplaced {
                code,
                message,
                expected,
                help: Some(advice),
            },
            other => other,
        }
    }

    /// Replaces the help.
    pub(super) fn with_better_help(self, advice: &str) -> Self {
        match self {
            Self::Unplaced {
                code,
                message,
                expected,
                ..
            } => Self::Unplaced {
                code,
                message,
                expected,
                help: Some(advice.to_owned()),
            },
            other => other,
        }
    }

    /// Converts to a finding, at `reader` unless the place is known.
    pub(super) fn into_finding(self, reader: Reader<'_>) -> Finding {
        let (code, message, expected, help) = match self {
            Self::Placed(finding) => return *finding,
            Self::Unplaced {
                code,
                message,
                expected,
                help,
            } => (code, message, expected, help),
        };
        if reader.part == Part::Key {
            return Finding {
                help,
                ..Finding::error(reader.node, code, message)
            }
            .at_key();
        }
        match reader.value() {
            Value::Scalar {
                origin: Origin::Environment,
                ..
            } => {
                let message = format!("expected {expected}; the environment holds something else");
                Finding::error(reader.node, code, message)
                    .help("what it holds is not shown: it may be a secret")
            }
            _ => Finding {
                help,
                ..Finding::error(reader.node, code, message)
            },
        }
    }
}

impl serde::de::Error for DecodeError {
    /// Parses the text of a [`ValueError`].
    fn custom<T: fmt::Display>(error: T) -> Self {
        let ValueError {
            message,
            expected,
            help,
        } = ValueError::from_display(&error.to_string());
        Self::Unplaced {
            code: Code::InvalidValue,
            message,
            expected,
            help,
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::mismatch(&describe(found), expected)
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Self::Unplaced {
            code: Code::UnknownValue,
            message: format!("unknown value `{found}`"),
            expected: format!("one of {}", nearest::list(known)),
            help: Some(nearest::advice(found, known, "it can be")),
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Unplaced {
            code: Code::MissingKey,
            message: format!("the key `{field}` is missing"),
            expected: format!("the key `{field}`"),
            help: None,
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

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unplaced { message, .. } => f.write_str(message),
            Self::Placed(finding) => f.write_str(&finding.message),
        }
    }
}

impl std::error::Error for DecodeError {}
