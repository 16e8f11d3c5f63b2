//! `check`: the warnings that are meant to be there.

use crate::config::sections::prelude::*;
use crate::config::{Loaded, Problem, Report, Severity};

/// `check`: rules for `sluicegate check`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Check")]
pub struct CheckRules {
    /// Warnings that neither `check` nor `run` reports, because what they warn of is meant.
    pub allow: List<AllowedWarning>,
}

/// An item of `check.allow`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct AllowedWarning {
    /// The code of the warning, as `check` prints it.
    pub warning: Located<LintCode>,
    /// The key that the warning names, or one above it, as in `policies.login`; every key unless given.
    pub at: Option<Located<Text>>,
    /// Why it's meant, for the next reader.
    pub reason: Located<Text>,
}

impl AllowedWarning {
    fn covers(&self, problem: &Problem) -> bool {
        let is_below = |key: &str| {
            let rest = problem.path.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        problem.severity == Severity::Warning
            && problem.code == *self.warning.get()
            && self.at.as_ref().is_none_or(|at| is_below(at.as_str()))
    }
}

/// The warnings of a configuration without the allowed ones. `found` is all that there is to find if
/// `is_complete`: then an item of `allow` without a warning is reported.
pub(crate) fn without_allowed(loaded: Loaded, found: Report, is_complete: bool) -> Report {
    let allowed = &loaded.config.check.allow;
    let mut is_used = vec![false; allowed.len()];
    let mut report = loaded.warnings.with(found.problems);
    report.problems.retain(|problem| {
        let rule = allowed.iter().position(|rule| rule.covers(problem));
        if let Some(rule) = rule {
            is_used[rule] = true;
        }
        rule.is_none()
    });
    let unused = allowed.iter().zip(is_used).filter(|(_, is_used)| !is_used);
    let unused = unused.map(|(rule, _)| {
        let message = format!("there is no warning `{}` to allow here", rule.warning);
        warn_no_effect(rule.node, message).help("remove this item")
    });
    if is_complete {
        let unused = unused.collect();
        report = report.with(loaded.document.report(unused).problems);
    }
    report
}
