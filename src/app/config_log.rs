//! Log lines about a configuration that takes effect: its warnings, and the buckets that it changes.

use crate::clock::Timestamp;
use crate::config::{Code, Loaded, Report, lint};
use crate::proxy::ruleset::reload_diff::BucketChange;

/// At most this many lines of a kind are logged; the others are counted.
const MAX_LINES: usize = 20;

/// Finds the warnings of a configuration at the instant `now`, and logs them. Returns at once:
/// nothing waits for warnings.
pub(super) fn log_warnings(loaded: Loaded, now: Timestamp) {
    tokio::task::spawn_blocking(move || log_report(&lint(loaded, now)));
}

fn log_report(report: &Report) {
    // The TLS settings of listeners log these when they read certificates.
    let known = |code: &str, path: &str| {
        code == Code::CertificateExpiry.as_str() && path.starts_with("listeners")
    };
    let warnings = report.reported();
    let mut new = warnings
        .iter()
        .filter(|warning| !known(warning.code, &warning.path));
    for warning in new.by_ref().take(MAX_LINES) {
        let line = warning.place.map(|place| place.line);
        tracing::warn!(
            code = warning.code,
            key = warning.path,
            line,
            "{}",
            warning.message
        );
    }
    let omitted = new.count();
    if omitted > 0 {
        tracing::warn!(omitted, "further warnings: `sluicegate check` shows them");
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
