//! Log lines about a configuration: why it does not take effect, or its warnings, and the buckets
//! that it changes.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::StartupError;
use crate::clock::Timestamp;
use crate::config::{Code, Loaded, Problem, Report, Severity, lint};
use crate::proxy::ruleset::reload_diff::BucketChange;

/// At most this many lines of a kind are logged; the others are counted.
pub(super) const MAX_LINES: usize = 20;

/// Logs the warnings of each configuration that the one before, whose warnings it holds, didn't have.
#[derive(Debug, Default)]
pub(super) struct WarningLog {
    last: Arc<Mutex<HashSet<String>>>,
    /// The clients that there are files for, if they are too few.
    few_clients: Mutex<Option<usize>>,
}

impl WarningLog {
    /// Finds the warnings of a configuration at the instant `now`, and logs the new ones. Returns at
    /// once: nothing waits for warnings.
    pub(super) fn log(&self, loaded: Loaded, now: Timestamp) {
        let last = Arc::clone(&self.last);
        tokio::task::spawn_blocking(move || {
            let report = lint(loaded, now);
            let warnings = report.reported().iter().map(identity).collect();
            let known = mem::replace(&mut *last.lock(), warnings);
            log_report(&report, &known);
        });
    }

    /// Notes how many clients there are files for, if they are too few. Returns true if that is news.
    pub(super) fn note_shortage(&self, few_clients: Option<usize>) -> bool {
        let before = mem::replace(&mut *self.few_clients.lock(), few_clients);
        before != few_clients && few_clients.is_some()
    }
}

/// Tells a warning from others, wherever its line has moved to.
fn identity(problem: &Problem) -> String {
    let (code, path) = (problem.code.as_str(), &problem.path);
    format!("{code} {path} {}", problem.message)
}

/// Logs why a configuration is not reloaded, each reason in a line of its own.
pub(super) fn log_failure(why: &StartupError) {
    match why {
        StartupError::Config(report) => {
            log_report(report, &HashSet::new());
            tracing::error!("the configuration is not reloaded; the old one stays in force");
        }
        why => {
            tracing::error!("the configuration is not reloaded; the old one stays in force: {why}")
        }
    }
}

fn log_report(report: &Report, known: &HashSet<String>) {
    // The TLS settings of listeners log these when they read certificates.
    let is_known = |problem: &Problem| {
        problem.code == Code::CertificateExpiry && problem.path.starts_with("listeners")
    };
    let mut new = report
        .reported()
        .iter()
        .filter(|problem| !is_known(problem) && !known.contains(&identity(problem)));
    for problem in new.by_ref().take(MAX_LINES) {
        let (code, key) = (problem.code.as_str(), &problem.path);
        let (message, help) = (&problem.message, &problem.help);
        let place = problem.place.as_ref();
        let line = place.map(|place| place.line);
        let file = place.and_then(|place| place.file.as_deref());
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

/// Logs the buckets that end, and those that are reset or rescaled.
pub(super) fn log_changes(changes: &[BucketChange]) {
    let mut notable = changes.iter().filter(|change| change.is_notable());
    for change in notable.by_ref().take(MAX_LINES) {
        let (policy, key) = (&change.policy, &change.key);
        let outcome: &str = (&change.outcome).into();
        let reason = change.reason.as_deref().unwrap_or_default();
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
