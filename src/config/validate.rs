//! Checks.
use super::finding::Findings;
use super::schema::Config;
pub(super) fn validate(_config: &Config, _findings: &Findings<'_>) {}
