//! The result of a check, and its form for machines.

use serde::Serialize;

use super::{Compiled, Report, ReportedProblem, Severity};
use crate::proxy::ruleset::RulesetSpec;
use crate::proxy::ruleset::build::memory_bytes;
use crate::proxy::ruleset::reload_diff::BucketChange;

/// The result of a check.
#[derive(Debug)]
pub struct Checked {
    /// All problems: errors, or else warnings.
    pub report: Report,
    /// The configuration, unless it has errors.
    pub compiled: Option<Compiled>,
}

/// The result of a check as machines read it: in `check --json`, and in answers of the admin API.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// The name of the file.
    pub file: String,
    /// The result in a word.
    pub verdict: CheckVerdict,
    /// The number of errors.
    pub errors: usize,
    /// The number of warnings.
    pub warnings: usize,
    /// The first 1000 problems, in the order of the file.
    pub findings: Vec<ReportedProblem>,
    /// The memory that buckets take at most; absent for an invalid file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The outcome for the buckets of another configuration; absent unless one was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<BucketChange>>,
}

/// The result of a check in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// No problems.
    Sound,
    /// Warnings only.
    Usable,
    /// Errors: the configuration cannot run.
    Invalid,
}

impl CheckReport {
    /// The result for the limits of a configuration, which are absent if it is invalid, with what
    /// becomes of the buckets of another one.
    pub fn new(
        report: &Report,
        rules: Option<&RulesetSpec>,
        buckets: Option<Vec<BucketChange>>,
    ) -> Self {
        CheckReport {
            file: report.source_name().to_owned(),
            verdict: match (rules, report.problems.is_empty()) {
                (None, _) => CheckVerdict::Invalid,
                (Some(_), false) => CheckVerdict::Usable,
                (Some(_), true) => CheckVerdict::Sound,
            },
            errors: report.count(Severity::Error),
            warnings: report.count(Severity::Warning),
            findings: report.reported(),
            memory_bytes: rules.map(memory_bytes),
            buckets,
        }
    }
}
