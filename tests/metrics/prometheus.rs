//! A real Prometheus server scrapes a proxy.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::full_configuration::Full;
use crate::monitoring::{dashboard_queries, folder};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::prometheus::Prometheus;
use crate::support::wait_for;

#[test]
fn a_server_scrapes_the_counts_and_evaluates_the_alert_rules() {
    let gateway = Gateway::start(
        "policies: { per-key: { key: \"header:x-key\", quota: 6/300d } }
routes: [{ name: search, upstream: echo, limits: [per-key] }]
",
    );
    let server = Prometheus::start(gateway.admin, &folder().join("alerts.yaml"));
    wait_for("the first scrape", || {
        (server.value("up") == Some(1.0)).then_some(())
    });
    let decisions = |decision: &str| {
        let labels = format!("policy=\"per-key\",route=\"search\",decision=\"{decision}\"");
        server.value(&format!("sluicegate_limit_decisions_total{{{labels}}}"))
    };
    wait_for("a series from the start", || {
        (decisions("limited") == Some(0.0)).then_some(())
    });
    for _ in 0..8 {
        get_with(gateway.address(), "/", "x-key: a\r\n");
    }
    wait_for("a scrape of all decisions", || {
        (decisions("allowed") == Some(6.0) && decisions("limited") == Some(2.0)).then_some(())
    });
    // The first refusals count, since the series began with 0.
    let increase = "increase(sluicegate_limit_decisions_total{decision=\"limited\"}[1m]) > 0";
    wait_for("an increase", || {
        (server.query(increase).len() == 1).then_some(())
    });
    let quota = wait_for("the policy", || {
        Some(server.query("sluicegate_policy_info")).filter(|found| !found.is_empty())
    });
    assert_eq!(quota[0]["metric"]["quota"], "6/300d", "{quota:?}");

    let rules = wait_for("the rules to be evaluated", || {
        let data = server.data("/api/v1/rules");
        let groups = data["groups"].as_array().expect("groups").iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
        let rules: Vec<Value> = rules.cloned().collect();
        rules
            .iter()
            .all(|rule| rule["health"] != "unknown")
            .then_some(rules)
    });
    assert!(rules.len() > 10, "{rules:?}");
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert!(rule["state"] != "firing", "{rule}");
    }
}

/// Panels of what this proxy has: all but those of rare events.
#[test]
fn the_queries_of_the_dashboard_find_series() {
    let full = Full::start();
    full.use_all_methods();
    get_with(full.gateway.address(), "/", "");
    let server = Prometheus::start(full.gateway.admin, &folder().join("alerts.yaml"));
    let mut empty: BTreeSet<_> = dashboard_queries().into_iter().collect();
    // These show only what has happened, or need a Prometheus that knows the series before.
    let is_rare = |query: &String| query.contains("> 0");
    wait_for("data for each panel", || {
        empty.retain(|query| server.query(query).is_empty());
        empty.iter().all(is_rare).then_some(())
    });
}
