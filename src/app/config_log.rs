//! Log lines about a configuration: why it does not take effect, or its warnings, and the buckets
//! that it changes.

use super::StartupError;
use crate::clock::Timestamp;
use crate::config::{Code, Loaded, Problem, Report, Severity, lint};
use crate::proxy::ruleset::reload_diff::BucketChange;

/// At most this many lines of a kind are logged; the others are counted.
const MAX_LINES: usize = 20;

/// Finds the warnings of a configuration at the instant `now`, and logs them. Returns at once:
/// nothing waits for warnings.
pub(super) fn log_warnings(loaded: Loaded, now: Timestamp) {
    tokio::task::spawn_blocking(move || log_report(&lint(loaded, now)));
}

/// Logs why a configuration is not reloaded, each reason in a line of its own.
pub(super) fn log_failure(why: &StartupError) {
    match why {
        StartupError::Config(report) => {
            log_report(report);
            tracing::error!("the configuration is not reloaded; the old one stays in force");
        }
        why => {
            tracing::error!("the configuration is not reloaded; the old one stays in force: {why}")
        }
    }
}

fn log_report(report: &Report) {
    // The TLS settings of listeners log these when they read certificates.
    let is_known = |problem: &Problem| {
        problem.code == Code::CertificateExpiry && problem.path.starts_with("listeners")
    };
    let mut new = report
        .reported()
        .iter()
        .filter(|problem| !is_known(problem));
    for problem in new.by_ref().take(MAX_LINES) {
        let Problem {
            path: key,
            message,
            help,
            ..
        } = problem;
        let code = problem.code.as_str();
        let line = problem.place.as_ref().map(|place| place.line);
        let file = problem
            .place
            .as_ref()
            .and_then(|place| place.file.as_deref());
        match problem.severity {
            Severity::Error => tracing::error!(code, key, file, line, help, "{message}"),
            Severity::Warning => tracing::warn!(code, key, file, line, "{message}"),
        }
    }
    let omitted = new.count();
    if omitted > 0 {
        tracing::warn!(omitted, "further problems: `sluicegate check` shows them");
    }
}

/// Logs the buckets that are reset or rescaled.
pub(super) fn log_changes(changes: &[BucketChange]) {
    let mut notable = changes.iter().filter(|change| change.is_notable());
    for change in notable.by_ref().take(MAX_LINES) {
        let BucketChange {
            policy,
            key,
            outcome,
            reason,
        } = change;
        let outcome: &str = outcome.into();
        let reason = reason.as_deref().unwrap_or_default();
        tracing::info!(policy, key, outcome, reason, "the reload changes buckets");
    }
    let omitted = notable.count();
    if omitted > 0 {
        tracing::info!(
            omitted,
            "the reload changes the buckets of further policies"
        );
    }
}
