//! The families: each is a row in a table of docs/metrics.md, and has handles in a file beside this.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::telemetry::registry::Family;

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Families that may have several series for each route or endpoint.
const LARGE: [&str; 15] = [
    "sluicegate_http_request_duration_seconds",
    "sluicegate_route_requests_total",
    "sluicegate_route_outcomes_total",
    "sluicegate_upstream_pending_seconds",
    "sluicegate_upstream_pending_refused_total",
    "sluicegate_upstream_refused_total",
    "sluicegate_upstream_failures_total",
    "sluicegate_upstream_ejections_total",
    "sluicegate_upstream_health_checks_total",
    "sluicegate_upstream_retries_total",
    "sluicegate_upstream_retries_denied_total",
    "sluicegate_upstream_lookup_failures_total",
    "sluicegate_limit_decisions_total",
    "sluicegate_limit_operations_total",
    "sluicegate_limit_granted_total",
];

pub(super) static FAMILIES: LazyLock<BTreeMap<&str, Family>> = LazyLock::new(|| {
    let families = PAGE.lines().filter_map(documented);
    families.map(|family| (family.name, family)).collect()
});

/// The family with a name, which docs/metrics.md must have.
impl From<&'static str> for &'static Family {
    fn from(name: &'static str) -> Self {
        let family = FAMILIES.get(name);
        family.unwrap_or_else(|| panic!("docs/metrics.md has no `{name}`"))
    }
}

/// The family in a row of a table: name, kind, labels and help. Other rows name no kind.
fn documented(line: &'static str) -> Option<Family> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<_> = row.splitn(4, " | ").collect();
    let [name, kind, labels, help] = cells.try_into().ok()?;
    let name = name.trim_matches('`');
    let labels = labels.split(", ").map(|label| label.trim_matches('`'));
    let labels: Vec<_> = labels.filter(|label| !label.is_empty()).collect();
    Some(Family {
        name,
        help,
        kind: kind.parse().ok()?,
        labels: labels.leak(),
        is_large: LARGE.contains(&name),
    })
}
