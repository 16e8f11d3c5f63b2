//! A problem that was found, and those that are known from one step of the history to the next.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::Rfc3339;

/// The problems at the end of the last step of the history, and those found since, each as it was found
/// first. With `true`, an event has told its begin.
pub(super) type KnownProblems = BTreeMap<String, (Problem, bool)>;

/// The subject of a problem, as the labels of its alert have it: a `policy`, an `upstream` with the
/// `endpoint` and its `address`, or a `file`.
pub type Labels = BTreeMap<Cow<'static, str>, String>;

/// The labels and the sentence of a problem.
pub(super) type Finding = (Labels, String);

/// A problem that there is now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Its kind: the name of its [alert](monitoring.md#alerts), if it has one.
    pub kind: Cow<'static, str>,
    /// How urgent it is.
    pub severity: Severity,
    /// The instant at which it was found first. It stays while numbers and reasons change.
    pub since: Rfc3339,
    /// The subject: a `policy`, an `upstream`, its `endpoint` and an `address` of that, or a `file`.
    #[serde(default)]
    pub labels: Labels,
    /// The problem in a sentence.
    pub text: String,
    /// Advice: how to end it.
    pub remedy: Cow<'static, str>,
}

/// A problem has begun, or is over.
#[derive(Serialize, JsonSchema)]
pub(super) struct ProblemEvent<'a> {
    pub(super) at: Rfc3339,
    pub(super) is_over: bool,
    /// As it was found first.
    #[serde(flatten)]
    pub(super) problem: &'a Problem,
}

/// The urgency of a problem.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::EnumString,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Clients suffer.
    Critical,
    /// It can wait for the morning.
    Warning,
}

/// The labels with these values.
pub(super) fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, text)| (name.into(), text.into())).into()
}

impl Problem {
    /// Its kind and labels, which stay while numbers and reasons in its text change.
    pub(super) fn id(&self) -> String {
        format!("{} {:?}", self.kind, self.labels)
    }
}
