//! A problem that was found, and those that are known from one step of the history to the next.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::Rfc3339;

/// The problems at the end of the last step of the history, and those found since, each as it was found
/// first. With `true`, an event has told its begin.
pub(super) type KnownProblems = BTreeMap<String, (Problem, bool)>;

/// A problem that there is now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Its kind: the name of its [alert](monitoring.md#alerts), if it has one.
    pub kind: Cow<'static, str>,
    /// How urgent it is.
    pub severity: Severity,
    /// The instant at which it was found first. It stays while numbers and reasons change.
    pub since: Rfc3339,
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

impl Problem {
    /// Its kind, and the upstream and address, the policy or the file that it is about.
    pub(super) fn id(&self) -> String {
        let words = match self.text.split(' ').next() {
            Some("policy") => 2,
            Some("upstream") => 3,
            Some("the") => 4,
            _ => 0,
        };
        let words = self.text.split(' ').take(words);
        let words = words.filter(|word| word.parse::<u64>().is_err());
        let id = words.fold(self.kind.to_string(), |id, word| id + " " + word);
        id.trim_end_matches(':').to_owned()
    }
}
