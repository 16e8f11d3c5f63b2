//! Warnings of `sluicegate replay` about logs that lack the inputs of limits.

use crate::support::replay::{Replay, line, stderr};
use serde_json::{Value, json};

/// A line of the combined format at this second.
fn combined(second: u32, target: &str) -> String {
    format!(
        "192.0.2.7 - - [21/Nov/2026:04:41:{second:02} +0000] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
    )
}

fn warnings(report: &Value) -> Vec<(String, String)> {
    let list = report["warnings"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list.iter()
        .map(|one| (text(&one["policy"]), text(&one["message"])))
        .collect()
}

#[test]
fn costs_that_the_log_does_not_state_are_warned_of() {
    let config = "policies:
  stated: { cost: { response_json: /usage/total_tokens, reserve: 5, max: 9 }, quota: 100/1h }
  guesses: { count: [401], quota: 100/1h }
  asked: { cost: { response_header: x-used, max: 9, reserve: { header: x-estimate, default: 4 } }, quota: 100/1h }
routes: [{ upstream: echo, limits: [stated, guesses, asked] }]
";
    let log: String = (0..3).map(|second| combined(second, "/")).collect();
    let told = warnings(&Replay::new(config, &log).report(&[]));
    let told: Vec<_> = told
        .iter()
        .map(|(policy, message)| (policy.as_str(), message.as_str()))
        .collect();
    let unstated = "what responses cost was missing in 3 of 3 requests; each counted as its estimate (the log \
                    needs `costs`, `response_headers`, `status` or `bytes`)";
    assert_eq!(
        told,
        [
            (
                "asked",
                "header:x-estimate, which says the cost, was missing in 3 of 3 requests; each counted as 4 units"
            ),
            ("asked", unstated),
            ("stated", unstated),
        ]
    );
    let log = r#"{"time":0,"client_ip":"192.0.2.7","method":"GET","path":"/","status":200,"costs":{"stated":7,"asked":2}}"#;
    let report = Replay::new(config, format!("{log}\n{log}\n")).report(&[]);
    let told = warnings(&report);
    assert!(
        told.iter()
            .all(|(_, message)| !message.contains("what responses cost")),
        "{told:?}"
    );
}

#[test]
fn fields_that_the_log_lacks_are_warned_of_with_the_fallback() {
    let config = "policies:
  by_key: { key: 'header:x-api-key', quota: 2/1h }
  chosen: { key: [path, 'cookie:id'], on_missing_key: skip, quota: 2/1h }
  paying: { when: { header: { x-tier: paying } }, quota: 2/1h }
  dear: { cost: { header: x-cost, max: 9 }, quota: 100/1h }
  agents: { key: 'header:user-agent', quota: 100/1h }
routes: [{ upstream: echo, limits: [by_key, chosen, paying, dear, agents] }]
";
    let log: String = (0..12).map(|second| combined(second, "/")).collect();
    let replay = Replay::new(config, &log);
    let report = replay.report(&[]);
    let told = warnings(&report);
    let told: Vec<_> = told
        .iter()
        .map(|(policy, message)| (policy.as_str(), message.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                "by_key",
                "header:x-api-key was missing in 12 of 12 requests; counted by client_ip"
            ),
            (
                "chosen",
                "cookie:id was missing in 12 of 12 requests; not limited"
            ),
            (
                "dear",
                "header:x-cost, which says the cost, was missing in 12 of 12 requests; each counted as one unit"
            ),
            (
                "paying",
                "header:x-tier, which `when` asks for, was missing in 12 of 12 requests"
            ),
        ]
    );
    assert_eq!(report["limited"], 10);
    let line = "  policy by_key: header:x-api-key was missing in 12 of 12 requests; counted by client_ip; \
                sluicegate logs it with `access_log.headers: [x-api-key]`\n";
    assert!(replay.text().contains(line), "{}", replay.text());
    assert!(stderr(&replay.run(&["--decisions"])).contains(line));
}

#[test]
fn a_field_that_some_requests_lack_is_warned_of_where_a_key_needs_it() {
    let config = "policies:
  by_key: { key: 'header:x-api-key', on_missing_key: refuse, quota: 2/1h }
  paying: { key: 'query:q', when: { header: { x-tier: paying } }, quota: 2/1h }
routes:
  - { match: { path: /a }, upstream: echo, limits: [by_key, paying] }
  - { upstream: echo }
";
    let fields = r#","headers":{"x-api-key":"k","x-tier":"free"}"#;
    let log = line("1", "/a", fields) + &line("2.5", "/a", "") + &line("3", "/b", "");
    let told = warnings(&Replay::new(config, log).report(&[]));
    let message = "header:x-api-key was missing in 1 of 2 requests; refused";
    assert_eq!(told, [("by_key".to_owned(), message.to_owned())]);
    let log = line("1", "/a", fields) + &line("3", "/b", "");
    assert_eq!(warnings(&Replay::new(config, log).report(&[])), []);
}

#[test]
fn requests_with_a_replaced_key_are_warned_of_with_the_value() {
    let config = "policies:
  by_key: { key: 'header:x-api-key', on_missing_key: { value: free }, quota: 2/1h }
routes: [{ upstream: echo, limits: [by_key] }]
";
    let fields = r#","headers":{"x-api-key":"free"}"#;
    let log = line("1", "/a", fields) + &line("2.5", "/a", "") + &line("3", "/b", "");
    let report = Replay::new(config, log).report(&[]);
    let message = "header:x-api-key was missing in 2 of 3 requests; counted as free";
    assert_eq!(
        warnings(&report),
        [("by_key".to_owned(), message.to_owned())]
    );
    assert_eq!(report["limited"], 1);
}

#[test]
fn a_missing_host_is_warned_of_where_it_matters() {
    let by_host = "routes:
  - { match: { hosts: [api.example.com] }, upstream: echo, limits: [{ quota: 1/1h }] }
  - { upstream: echo }
";
    let log = combined(0, "/") + &combined(1, "http://api.example.com/");
    let replay = Replay::new(by_host, &log);
    let message =
        "the host was missing in 1 of 2 requests; taken to be localhost, which --host changes";
    assert_eq!(
        warnings(&replay.report(&[])),
        [(String::new(), message.to_owned())]
    );
    assert_eq!(warnings(&replay.report(&["--host", "api.example.com"])), []);
    let anywhere = "routes: [{ upstream: echo, limits: [{ quota: 1/1h }] }]\n";
    assert_eq!(warnings(&Replay::new(anywhere, &log).report(&[])), []);
    let named = line("0", "/", r#","host":"api.example.com""#)
        + &line("1", "/", r#","headers":{"Host":"api.example.com"}"#);
    assert_eq!(warnings(&Replay::new(by_host, named).report(&[])), []);
}

#[test]
fn times_in_whole_seconds_are_warned_of_where_an_algorithm_is_finer() {
    let policies =
        |limits: &str| format!("routes: [{{ name: a, upstream: echo, limits: [{limits}] }}]\n");
    let burst = [0, 0, 0, 1, 1].map(|second| combined(second, "/")).concat();
    let told = |limits: &str, log: &str| {
        let told = warnings(&Replay::new(&policies(limits), log).report(&[]));
        let policies: Vec<_> = told.iter().map(|(policy, _)| policy.clone()).collect();
        (policies, told.first().map(|(_, message)| message.clone()))
    };
    for finer in [
        "{ quota: 10/1s, burst: 1 }",
        "{ quota: 10/1s, algorithm: token_bucket }",
        "{ quota: 10/1s, algorithm: leaky_bucket, queue: 3 }",
        "{ algorithm: token_bucket, capacity: 3, refill: 1 per 100ms }",
        "{ quota: 1/500ms, algorithm: sliding_log }",
        "{ quota: 1/1h, overflow: { quota: 10/1s } }",
    ] {
        let (policies, message) = told(finer, &burst);
        assert_eq!(policies, ["a#0"], "{finer}");
        let message = message.expect("a warning");
        assert!(message.contains("times in whole seconds"), "{message}");
    }
    for coarser in [
        "{ quota: 5/15m }",
        "{ quota: 1/1s }",
        "{ quota: 10/1s, algorithm: fixed_window }",
        "{ quota: 10/1m, algorithm: sliding_window }",
        "{ algorithm: concurrency, max: 3 }",
    ] {
        assert_eq!(told(coarser, &burst).0, [""; 0], "{coarser}");
    }
    // Where requests are seconds apart, or the log has fractions, the times say all.
    let finer = "{ quota: 10/1s, burst: 1 }";
    let apart = [0, 1, 5].map(|second| combined(second, "/")).concat();
    assert_eq!(told(finer, &apart).0, [""; 0]);
    let fine = line("1000", "/", "") + &line("1000", "/", "") + &line("1001.5", "/", "");
    assert_eq!(told(finer, &fine).0, [""; 0]);
}

#[test]
fn a_log_without_a_readable_line_is_a_failure() {
    let config = "routes: [{ upstream: echo, limits: [{ quota: 1/1h }] }]\n";
    let replay = Replay::new(config, "not a log\nat all\n");
    for options in [&[][..], &["--json"], &["--decisions"]] {
        let output = replay.run(options);
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        let told = stderr(&output);
        assert!(
            told.contains("none of its 2 lines could be read; --format says"),
            "{told}"
        );
    }
    let one = Replay::new(config, "not a log\n".to_owned() + &combined(0, "/"));
    assert_eq!(one.report(&[])["unparsable"]["count"], 1);
    assert_eq!(Replay::new(config, "").report(&[])["requests"], 0);
}

#[test]
fn requests_that_meet_only_shadowed_limits_are_allowed_and_not_unlimited() {
    let config = "policies:
  shadow: { quota: 1/1h, mode: shadow }
  keyless: { key: 'query:q', on_missing_key: refuse, quota: 1/1h, mode: shadow }
  tagging: { quota: 1/1h, on_limit: { action: tag } }
routes:
  - { match: { path: /shadow }, upstream: echo, limits: [shadow] }
  - { match: { path: /keyless }, upstream: echo, limits: [keyless] }
  - { match: { path: /tag }, upstream: echo, limits: [tagging] }
  - { upstream: echo }
";
    let paths = ["/shadow", "/shadow", "/keyless", "/tag", "/tag", "/free"];
    let log: String = paths.iter().map(|path| line("1", path, "")).collect();
    let replay = Replay::new(config, log);
    let report = replay.report(&[]);
    assert_eq!(
        (&report["allowed"], &report["limited"], &report["unlimited"]),
        (&json!(5), &json!(0), &json!(1))
    );
    let decided = replay.decisions(&[]);
    assert_eq!(
        decided[1],
        json!({ "line": 2, "decision": "allowed", "shadowed_by": ["shadow"] })
    );
    assert_eq!(decided[5], json!({ "line": 6, "decision": "unlimited" }));
}

#[test]
fn a_request_that_lacks_a_field_is_counted_once() {
    let config = "access: { deny: [{ header: { user-agent: { contains: bot } } }, { header: { x-evil: \"1\" } }] }
policies: { p: { quota: 9/1h, when: { any: [{ header: { x-a: \"1\" } }, { header: { x-b: \"1\" } }, { header: { x-a: \"2\" } }] } } }
routes:
  - { match: { headers: { x-tier: gold } }, upstream: echo, limits: [p] }
  - { match: { headers: { x-other: a } }, upstream: echo, limits: [p] }
  - { match: { headers: { x-tier: tin } }, upstream: echo, limits: [p] }
  - { upstream: echo, limits: [p] }
";
    let log: String = (0..3)
        .map(|second| line(&(second * 1_000).to_string(), "/", ""))
        .collect();
    let told = warnings(&Replay::new(config, &log).report(&[]));
    assert!(told.len() >= 4, "{told:?}");
    for (_, message) in told {
        let counted = message.split(" was missing in ").nth(1);
        assert!(
            counted.is_none_or(|rest| rest.starts_with("3 of 3 requests")),
            "{message}"
        );
    }
}

#[test]
fn bodies_which_no_log_has_are_warned_of() {
    let config = "policies:
  model: { key: body:/model, quota: 100/1h, cost: { body: /n, max: 9 }, when: { form: { step: '1' } } }
routes: [{ upstream: echo, request: { read_body: 1KiB }, limits: [model] }]
";
    let told = warnings(&Replay::new(config, combined(1, "/")).report(&[]));
    let told: Vec<_> = told.iter().map(|(_, message)| message.as_str()).collect();
    assert_eq!(
        told,
        ["form:step, which `when` asks for, was missing in 1 of 1 requests"]
    );
    let config = config.replace(", when: { form: { step: '1' } }", "");
    let told = warnings(&Replay::new(&config, combined(1, "/")).report(&[]));
    let told: Vec<_> = told.iter().map(|(_, message)| message.as_str()).collect();
    assert_eq!(
        told,
        [
            "body:/model was missing in 1 of 1 requests; counted by client_ip",
            "body:/n, which says the cost, was missing in 1 of 1 requests; each counted as one unit",
        ]
    );
}
