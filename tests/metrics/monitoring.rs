//! The dashboard and the alert rules of docs/monitoring: their metrics exist, and promtool finds
//! nothing wrong.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::exposition::{documented, repository_file};
use crate::support::client::run;

/// The folder of the files for operators.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring")
}

fn dashboard() -> Value {
    serde_json::from_str(&repository_file("docs/monitoring/dashboard.json")).expect("JSON")
}

/// The alert rules, without recording rules.
fn alerts() -> Vec<Value> {
    let text = repository_file("docs/monitoring/alerts.yaml");
    let rules: Value = serde_yaml::from_str(&text).expect("YAML");
    let groups = rules["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"));
    rules
        .filter(|rule| rule["alert"].is_string())
        .cloned()
        .collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name}: {value}"))
}

/// The panels with data.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().expect("panels");
    panels.iter().filter(|panel| panel["type"] != "row")
}

/// All queries of the dashboard, with `.*` for each variable.
pub(crate) fn dashboard_queries() -> Vec<String> {
    let dashboard = dashboard();
    let targets =
        panels(&dashboard).flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let annotations = dashboard["annotations"]["list"]
        .as_array()
        .expect("annotations");
    let queries = targets
        .chain(annotations)
        .map(|one| text(one, "expr").to_owned());
    queries
        .map(|query| {
            let names = ["job", "instance", "policy", "route"];
            let query = query.replace("$__rate_interval", "1m");
            names.iter().fold(query, |query, name| {
                query.replace(&format!("${name}"), ".*")
            })
        })
        .collect()
}

/// Words of a query that are metrics of the proxy.
fn metrics_in(query: &str) -> BTreeSet<&str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    // Names with a colon are those of recording rules.
    let is_ours = |word: &&str| {
        let is_metric = word.starts_with("sluicegate_") || word.starts_with("process_");
        is_metric && !word.contains(':')
    };
    words.filter(is_ours).collect()
}

/// Asserts that the metrics of these queries exist.
#[track_caller]
fn expect_metrics(queries: impl IntoIterator<Item = String>) {
    let known = documented();
    for query in queries {
        for name in metrics_in(&query) {
            let base = ["_bucket", "_sum", "_count"];
            let base = base.iter().find_map(|suffix| name.strip_suffix(suffix));
            let histogram = base.and_then(|base| known.get(base));
            let is_histogram = histogram.is_some_and(|metric| metric.kind == "histogram");
            assert!(
                known.contains_key(name) || is_histogram,
                "{name} does not exist: {query}"
            );
        }
    }
}

#[track_caller]
fn promtool(arguments: &[&str]) {
    let output = run("promtool", arguments);
    assert_eq!(output.code, Some(0), "promtool {arguments:?}: {output}");
}

#[test]
fn each_panel_has_a_unit_a_place_and_the_chosen_data_source() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39));
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let source = variables.iter().find(|one| one["name"] == "datasource");
    let source = source.expect("a variable for the data source");
    assert_eq!(source["type"], "datasource");
    assert_eq!(source["query"], "prometheus");
    let all = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut titles, mut cells) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in all {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: the id is taken");
        assert!(titles.insert(title), "{title}: the title is taken");
        let side = |name| panel["gridPos"][name].as_u64().expect("a number");
        let (x, y) = (side("x"), side("y"));
        assert!(x + side("w") <= 24, "{title} is too wide");
        for cell in (x..x + side("w")).flat_map(|x| (y..y + side("h")).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} covers another panel");
        }
    }
    for panel in panels(&dashboard) {
        let title = text(panel, "title");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
        assert!(
            unit.is_some_and(|unit| !unit.is_empty()),
            "{title} has no unit"
        );
        assert!(!text(panel, "description").is_empty(), "{title}");
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title} has no query");
        for one in targets.iter().chain([panel]) {
            assert_eq!(one["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

#[test]
fn queries_of_the_dashboard_are_valid_and_their_metrics_exist() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let definitions = variables
        .iter()
        .filter_map(|one| one["definition"].as_str());
    let definitions: Vec<_> = definitions.map(str::to_owned).collect();
    expect_metrics(dashboard_queries().into_iter().chain(definitions));
    // promtool checks rules: each query becomes one.
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, query) in dashboard_queries().iter().enumerate() {
        let query = serde_json::to_string(query).expect("a text");
        writeln!(rules, "      - {{ record: \"q:{number}\", expr: {query} }}").expect("a text");
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("rules.yaml");
    std::fs::write(&path, rules).expect("the directory is writable");
    promtool(&["check", "rules", &path.display().to_string()]);
}

#[test]
fn the_alert_rules_pass_their_tests() {
    let path = |name: &str| folder().join(name).display().to_string();
    promtool(&["check", "rules", &path("alerts.yaml")]);
    promtool(&["test", "rules", &path("alerts-test.yaml")]);
}

#[test]
fn each_alert_is_explained_documented_and_tested() {
    let tests = repository_file("docs/monitoring/alerts-test.yaml");
    let page = repository_file("docs/monitoring.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `Sluicegate"));
    let mut undone: BTreeSet<_> = rows
        .filter_map(|row| row.split_once('`'))
        .map(|row| row.0)
        .collect();
    for alert in alerts() {
        let name = text(&alert, "alert");
        for annotation in ["summary", "description"] {
            assert!(
                !text(&alert["annotations"], annotation).is_empty(),
                "{name}"
            );
        }
        let severity = text(&alert["labels"], "severity");
        assert!(
            ["warning", "critical"].contains(&severity),
            "{name}: {severity}"
        );
        // A test where it fires: one with labels follows the name.
        let fires = format!("alertname: {name}\n");
        assert!(tests.contains(&fires), "no test has {name} fire");
        let name = name.strip_prefix("Sluicegate").expect("a common beginning");
        assert!(undone.remove(name), "docs/monitoring.md has no {name}");
    }
    assert!(undone.is_empty(), "documented, and no rule: {undone:?}");
    let queries = alerts()
        .iter()
        .map(|alert| text(alert, "expr").to_owned())
        .collect::<Vec<_>>();
    expect_metrics(queries);
}
