use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use http::{Method, StatusCode};
use strum::VariantArray;

use super::*;

fn lines(registry: &Registry) -> Vec<String> {
    registry
        .render()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn requests_count_by_code_and_known_method() {
    let registry = Registry::default();
    let metrics = RequestMetrics::new(&registry);
    let brew = Method::from_bytes(b"BREW").expect("a token");
    metrics.record(&Method::GET, StatusCode::OK);
    metrics.record(&Method::GET, StatusCode::OK);
    metrics.record(&brew, StatusCode::IM_A_TEAPOT);
    metrics.record(
        &Method::PATCH,
        StatusCode::from_u16(999).expect("three digits"),
    );
    assert_eq!(
        lines(&registry),
        [
            "sluicegate_http_request_panics_total 0",
            "sluicegate_http_requests_total{code=\"200\",method=\"GET\"} 2",
            "sluicegate_http_requests_total{code=\"418\",method=\"OTHER\"} 1",
            "sluicegate_http_requests_total{code=\"other\",method=\"PATCH\"} 1",
        ]
    );
}

#[test]
fn a_route_and_its_limits_have_series_from_the_start() {
    let registry = Registry::default();
    let route = RouteMetrics::new(&registry, "search");
    let limit = LimitMetrics::new(&registry, "per-key", "search");
    let classes = "sluicegate_route_requests_total{route=\"search\",class=";
    let decisions = "sluicegate_limit_decisions_total{policy=\"per-key\",route=\"search\",";
    let at_zero = |series: &str| {
        let lines = lines(&registry);
        let ours = lines.iter().filter(|line| line.starts_with(series));
        ours.filter(|line| line.ends_with(" 0")).count()
    };
    assert_eq!(at_zero(classes), 5);
    assert_eq!(at_zero(decisions), LimitDecision::VARIANTS.len());
    route.record(
        StatusCode::NOT_FOUND,
        RequestOutcome::Passed,
        Duration::from_millis(3),
    );
    limit.record(LimitDecision::Limited);
    let lines = lines(&registry);
    let counted = |line: &str| lines.iter().any(|l| l == line);
    assert!(counted(
        "sluicegate_route_requests_total{route=\"search\",class=\"4xx\"} 1"
    ));
    assert!(counted(
        "sluicegate_http_request_duration_seconds_count{route=\"search\"} 1"
    ));
    assert!(counted(
        "sluicegate_limit_decisions_total{policy=\"per-key\",route=\"search\",decision=\"limited\"} 1"
    ));
}

#[test]
fn a_failed_reload_leaves_the_running_configuration_named() {
    let registry = Registry::default();
    let config = ConfigMetrics::new(&registry, "aaaa", 100);
    config.reloaded("bbbb", 200);
    config.failed();
    assert_eq!(
        lines(&registry),
        [
            "sluicegate_config_info{hash=\"bbbb\"} 1",
            "sluicegate_config_last_reload_success_timestamp_seconds 200",
            "sluicegate_config_last_reload_successful 0",
            "sluicegate_config_reloads_total{result=\"failure\"} 1",
            "sluicegate_config_reloads_total{result=\"success\"} 1",
        ]
    );
}

#[test]
fn a_table_is_read_at_the_scrape() {
    let registry = Registry::default();
    let policy = PolicyMetrics::new(&registry, "per-key", false);
    let _table = [
        buckets(&registry, "per-key", Box::new(|| 7)),
        evictions(&registry, "per-key", Box::new(|| 2)),
        unrecorded(&registry, "per-key", Box::new(|| 1)),
    ];
    policy.near.increment();
    assert_eq!(
        lines(&registry),
        [
            "sluicegate_limit_buckets{policy=\"per-key\"} 7",
            "sluicegate_limit_evictions_total{policy=\"per-key\"} 2",
            "sluicegate_limit_near_total{policy=\"per-key\"} 1",
            "sluicegate_limit_unrecorded_total{policy=\"per-key\"} 1",
        ]
    );
}

#[test]
fn promtool_finds_nothing_wrong() {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    let registry = Registry::default();
    let requests = RequestMetrics::new(&registry);
    requests.record(&Method::GET, StatusCode::OK);
    let route = RouteMetrics::new(&registry, "a \"quoted\\ route\n");
    route.record(
        StatusCode::OK,
        RequestOutcome::Passed,
        Duration::from_millis(1),
    );
    let upstream = UpstreamMetrics::new(&registry, "api");
    upstream.record(StatusCode::OK, Duration::from_millis(1));
    let limit = LimitMetrics::new(&registry, "per-key", "search");
    for &decision in LimitDecision::VARIANTS {
        limit.record(decision);
    }
    let _policy = PolicyMetrics::new(&registry, "per-key", false);
    let _table = [
        buckets(&registry, "per-key", Box::new(|| 0)),
        evictions(&registry, "per-key", Box::new(|| 0)),
        unrecorded(&registry, "per-key", Box::new(|| 0)),
    ];
    let _config = ConfigMetrics::new(&registry, "aaaa", 100);
    let _listener = ListenerMetrics::new(&registry, "0.0.0.0:8080");
    let _dropped = access_log_dropped(&registry);
    let _build = build_info(&registry, "0.1.0", "unknown");
    let _process = crate::telemetry::process::register(&registry);

    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool is needed: `apt-get install prometheus`");
    let mut input = promtool.stdin.take().expect("piped");
    input
        .write_all(registry.render().as_bytes())
        .expect("promtool reads");
    drop(input);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

#[test]
fn every_family_that_is_documented_has_handles() {
    let page = include_str!("../../../docs/metrics.md");
    let is_row =
        |line: &&str| line.starts_with("| `sluicegate_") || line.starts_with("| `process_");
    let rows = page.lines().filter(is_row);
    let names: BTreeSet<_> = families::FAMILIES.keys().copied().collect();
    assert_eq!(names.len(), rows.count(), "each row has a kind");
    let telemetry = concat!(env!("CARGO_MANIFEST_DIR"), "/src/telemetry");
    let process = format!("{telemetry}/process.rs");
    let beside = fs::read_dir(format!("{telemetry}/metrics")).expect("it is there");
    let beside = beside.map(|entry| entry.expect("it is readable").path());
    let others =
        beside.filter(|path| !path.ends_with("families.rs") && !path.ends_with("tests.rs"));
    let sources: String = others
        .chain([process.into(), format!("{telemetry}/metrics.rs").into()])
        .map(|path: PathBuf| fs::read_to_string(path).expect("a source"))
        .collect();
    let is_name = |text: &&str| text.starts_with("sluicegate_") || text.starts_with("process_");
    let literals = sources.split('"').skip(1).step_by(2);
    assert_eq!(literals.filter(is_name).collect::<BTreeSet<_>>(), names);
    for decision in LimitDecision::VARIANTS {
        let item = format!("\n- `{}`: ", decision.as_str());
        assert!(page.contains(&item), "{decision:?} is not listed");
    }
}

/// What a reload does: the handles are made anew, and the old ones go.
#[test]
fn series_go_on_where_a_route_and_a_policy_stay() {
    let registry = Registry::default();
    let made = || {
        let route = RouteMetrics::new(&registry, "search");
        (route, LimitMetrics::new(&registry, "per-key", "search"))
    };
    let count = |(route, limit): &(RouteMetrics, LimitMetrics)| {
        route.record(
            StatusCode::OK,
            RequestOutcome::Passed,
            Duration::from_millis(3),
        );
        limit.record(LimitDecision::Allowed);
    };
    let before = made();
    count(&before);
    let after = made();
    drop(before);
    count(&after);
    let lines = lines(&registry);
    let counted = [
        "sluicegate_route_requests_total{route=\"search\",class=\"2xx\"} 2",
        "sluicegate_limit_decisions_total{policy=\"per-key\",route=\"search\",decision=\"allowed\"} 2",
        "sluicegate_http_request_duration_seconds_count{route=\"search\"} 2",
    ];
    for line in counted {
        assert!(
            lines.iter().any(|other| other == line),
            "{line}\n{lines:#?}"
        );
    }
    drop(after);
    assert_eq!(registry.render(), "");
}

/// A request that began before a reload is the first of its series to end.
#[test]
fn counts_outlive_handles_that_first_count_after_newer_ones_are_made() {
    let registry = Registry::default();
    let made = || {
        let route = RouteMetrics::new(&registry, "search");
        let limit = LimitMetrics::new(&registry, "per-key", "search");
        let endpoint = EndpointMetrics::new(&registry, "api", "10.0.0.1:80");
        (route, limit, endpoint)
    };
    let (before, _after) = (made(), made());
    before.0.record(
        StatusCode::OK,
        RequestOutcome::Passed,
        Duration::from_millis(3),
    );
    before.1.record(LimitDecision::Delayed);
    before.2.failures.record(EndpointFailure::Closed);
    drop(before);
    let lines = lines(&registry);
    for line in [
        "sluicegate_route_requests_total{route=\"search\",class=\"2xx\"} 1",
        "sluicegate_http_request_duration_seconds_count{route=\"search\"} 1",
        "sluicegate_limit_decisions_total{policy=\"per-key\",route=\"search\",decision=\"delayed\"} 1",
        "sluicegate_upstream_failures_total{upstream=\"api\",endpoint=\"10.0.0.1:80\",reason=\"closed\"} 1",
    ] {
        assert!(
            lines.iter().any(|other| other == line),
            "{line}\n{lines:#?}"
        );
    }
}
