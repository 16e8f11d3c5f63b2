//! `/v1/history`: what became of requests, in steps.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS};
use crate::support::client::{get, get_with};
use crate::support::gateway::Gateway;
use crate::support::wait_for;

const POLICIES: &str = "policies:
  keys: { key: \"header:x-key\", quota: 3/300d }
  watched: { key: \"header:x-key\", quota: 1/300d, mode: shadow }
  decoyed: { key: constant, quota: 1/300d, on_limit: { action: decoy } }
store: { redis: { url: \"redis://127.0.0.1:9\", startup_timeout: 0s } }
routes:
  - { match: { path: /keys }, upstream: echo, limits: [keys] }
  - { match: { path: /watched }, upstream: echo, limits: [watched] }
  - { name: decoyed, match: { path: /decoyed }, upstream: echo, limits: [decoyed] }
  - { match: { path: /shared }, upstream: echo, limits: [{ name: shared, quota: 9/1h, store: redis, on_store_error: admit }] }
  - { match: { path: /down }, upstream: \"http://127.0.0.1:9\" }
  - { match: { path: /free }, upstream: echo }
  - { match: { path: /closed }, upstream: echo, access: { deny: 127.0.0.0/8 } }
  - { match: { path: /fixed }, respond: { status: 404 } }
";

fn sums(history: &Value) -> [u64; 6] {
    let outcomes = [
        "passed",
        "beyond",
        "denied",
        "limited",
        "undecided",
        "failed",
    ];
    let steps = history["steps"].as_array().expect("a list");
    outcomes.map(|outcome| {
        let counts = steps.iter().map(|step| step["requests"][outcome].as_u64());
        counts.map(|count| count.expect("a count")).sum()
    })
}

#[test]
fn each_request_has_one_outcome_and_an_upgrade_keeps_them() {
    let mut gateway = Gateway::start(&format!("{TOKENS}{POLICIES}"));
    for (path, times) in [
        ("/keys", 5),
        ("/watched", 4),
        ("/decoyed", 3),
        ("/shared", 2),
        ("/down", 1),
        ("/free", 6),
        ("/nowhere", 1),
        ("/closed", 2),
        ("/fixed", 1),
    ] {
        for _ in 0..times {
            get_with(gateway.address(), path, "x-key: a\r\n");
        }
    }
    let expected = [3 + 1 + 1 + 6 + 1, 3, 1 + 2, 2 + 2, 2, 1];
    let client = AdminClient::new(&gateway, READER);
    let history = || client.read("/v1/history?policy=keys");
    let first = wait_for("a step", || {
        Some(history()).filter(|history| sums(history) == expected)
    });
    let steps = first["steps"].as_array().expect("a list");
    let limited = steps
        .iter()
        .filter_map(|step| step["decisions"]["limited"].as_u64());
    assert_eq!(limited.sum::<u64>(), 2, "{first}");
    let counted = get(gateway.admin, "/metrics").text();
    let limited = "sluicegate_route_outcomes_total{route=\"decoyed\",outcome=\"limited\"} 2";
    assert!(counted.contains(limited), "{counted}");
    let since = || {
        wait_for("the problem", || {
            let status = client.read("/v1/status");
            status["problem_details"][0]["since"]
                .as_str()
                .map(str::to_owned)
        })
    };
    let redis_since = since();
    let labels = &client.read("/v1/status")["problem_details"][1]["labels"];
    assert_eq!(*labels, json!({ "upstream": "http://127.0.0.1:9" }));
    let mode = json!({ "mode": "shadow", "reason": "ticket 42" });
    AdminClient::writer(&gateway).post("/v1/policies/keys/mode", &mode);
    get(gateway.address(), "/free");
    // A shorter step is left out.
    sleep(Duration::from_millis(1_100));
    gateway.upgrade();
    let client = AdminClient::new(&gateway, READER);
    let events = client.get("/v1/events?past=3600&seconds=1").text();
    assert!(events.contains("ticket 42"), "{events}");
    assert!(events.contains("event: upgrade"), "{events}");
    let begin = r#""is_over":false,"kind":"StoreDown","severity":"critical","since":""#;
    assert!(
        events.contains(&format!("{begin}{redis_since}")),
        "{events}"
    );
    assert_eq!(since(), redis_since, "the problem of the process before");
    let second = client.read("/v1/history?policy=keys");
    let all = second["steps"].as_array().expect("a list");
    assert_eq!(all[..steps.len()], steps[..]);
    assert_eq!(
        sums(&second).iter().sum::<u64>(),
        expected.iter().sum::<u64>() + 1
    );
    AdminClient::writer(&gateway).post("/v1/policies/keys/mode", &json!({ "mode": "enforce" }));
    get_with(gateway.address(), "/keys", "x-key: a\r\n");
    let top = client.read("/v1/top?policy=keys");
    let since = top["items"][0]["first_s"].as_f64();
    assert!(since >= Some(10.0), "before the first step: {top}");
}

#[test]
fn the_past_is_asked_for_in_seconds_and_by_policy() {
    let gateway = Gateway::start(&format!("{TOKENS}{POLICIES}"));
    let client = AdminClient::new(&gateway, READER);
    let history = client.read("/v1/history?seconds=60");
    assert_eq!(
        (&history["step_s"], &history["steps"]),
        (&json!(10), &json!([]))
    );
    for (query, status) in [
        ("seconds=9", 400),
        ("seconds=3601", 400),
        ("policy=none", 404),
        ("step=1", 400),
    ] {
        assert_eq!(
            client.get(&format!("/v1/history?{query}")).status,
            status,
            "{query}"
        );
    }
}
