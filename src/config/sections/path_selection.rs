//! Paths that routes and conditions ask for: a pattern, or a regular expression.

use crate::config::sections::prelude::*;
use crate::config::sections::value_match::not_an_expression;
use crate::rules::{self, CaseSensitivity, PathCondition, PathEquivalence};

by_form! {
    /// A pattern of paths, or a regular expression.
    pub enum PathSelection("PathSelection", "a path, as in `/v1/users/{id}`, or an expression: `{ regex: \"^/v[0-9]+/\" }`") {
        /// Paths of this pattern.
        Pattern(PathPattern) = "scalar",
        /// Paths that this expression describes.
        Regex(PathRegex) = "mapping",
    }
}

/// An expression for paths.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct PathRegex {
    /// Paths in which this regular expression finds something: `^` and `$` anchor it. Paths are
    /// matched in their normal form. It has no back references and no look-around, so that it takes
    /// time in proportion to the path.
    pub regex: Located<Text>,
}

impl PathSelection {
    /// The pattern, if it isn't an expression.
    pub(in crate::config) fn pattern(&self) -> Option<&PathPattern> {
        match self {
            Self::Pattern(pattern) => Some(pattern),
            Self::Regex(_) => None,
        }
    }

    /// Compiles a checked path for a route on which `equivalence` makes paths equal.
    pub(in crate::config) fn condition(&self, equivalence: PathEquivalence) -> rules::Condition {
        match self {
            Self::Pattern(pattern) => {
                rules::Condition::Path(PathCondition::new(pattern.comparable(), equivalence))
            }
            // A check has reported an expression that isn't one.
            Self::Regex(path) => PathCondition::regex(path.regex.as_str(), equivalence)
                .map_or(rules::Condition::Unknown, rules::Condition::Path),
        }
    }

    /// Checks that an expression is one, also for a route that ignores the case of letters.
    pub(in crate::config) fn check(&self, findings: &Findings<'_>) {
        let Self::Regex(path) = self else { return };
        let equivalence = PathEquivalence {
            case: CaseSensitivity::Insensitive,
            ..PathEquivalence::default()
        };
        if let Err(message) = PathCondition::regex(path.regex.as_str(), equivalence) {
            findings.add(not_an_expression(path.regex.node, &message));
        }
    }
}
