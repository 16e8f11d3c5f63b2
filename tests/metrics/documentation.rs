//! docs/metrics.md and a scrape of a proxy with everything configured say the same.

use std::collections::BTreeSet;

use crate::exposition::{documented, scraped, series};
use crate::full_configuration::Full;
use crate::support::wait_for;

#[test]
fn every_metric_and_every_label_value_is_documented_and_exists() {
    let full = Full::start();
    full.use_all_methods();
    // A request counts when its last byte is written, which its client may notice earlier.
    let found = wait_for("all methods to be counted", || {
        let found = scraped(&full.scrape());
        let methods = found["sluicegate_http_requests_total"].labels["method"].len();
        (methods == 10).then_some(found)
    });
    let known = documented();
    let names = |all: &std::collections::BTreeMap<String, _>| -> BTreeSet<String> {
        all.keys().cloned().collect()
    };
    assert_eq!(names(&found), names(&known));
    for (name, metric) in &found {
        let documented = &known[name];
        assert_eq!(metric.kind, documented.kind, "{name}");
        assert_eq!(metric.help, documented.help, "{name}");
        let labels = |labels: &std::collections::BTreeMap<String, _>| -> BTreeSet<String> {
            labels.keys().cloned().collect()
        };
        assert_eq!(labels(&metric.labels), labels(&documented.labels), "{name}");
        for (label, values) in &metric.labels {
            let closed = &documented.labels[label];
            assert!(
                closed.is_empty() || values == closed,
                "{name}: {label} is {values:?}"
            );
        }
    }
}

#[test]
fn counters_exist_with_0_before_the_first_request() {
    let full = Full::start();
    let text = full.scrape();
    for expected in [
        "sluicegate_route_requests_total{route=\"all\",class=\"5xx\"} 0",
        "sluicegate_http_request_duration_seconds_count{route=\"all\"} 0",
        "sluicegate_limit_decisions_total{policy=\"d\",route=\"all\",decision=\"limited\"} 0",
        "sluicegate_limit_operations_total{policy=\"a\",action=\"grant\"} 0",
        "sluicegate_limit_bans_total{policy=\"a\"} 0",
        "sluicegate_limit_banned_keys{policy=\"a\",by=\"penalty\"} 0",
        "sluicegate_limit_granted_keys{policy=\"a\"} 0",
        "sluicegate_store_requests_total{op=\"call\",result=\"timeout\"} 0",
        "sluicegate_store_lost_total{what=\"settlement\"} 0",
        "sluicegate_access_log_dropped_lines_total 0",
    ] {
        assert!(
            text.lines().any(|line| line == expected),
            "{expected} is not in\n{text}"
        );
    }
    let of_endpoint = "sluicegate_upstream_ejections_total{";
    let ejections: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with(of_endpoint))
        .collect();
    assert_eq!(ejections.len(), 5, "one for each reason: {ejections:?}");
    assert!(
        ejections.iter().all(|line| series(line).value == 0.0),
        "{ejections:?}"
    );
}
