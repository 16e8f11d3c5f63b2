//! `upstream: status` with buckets in Redis: one call reads all of them, and its failure is
//! reported for each policy.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{proxies, retry_after};
use crate::support::steering;
use crate::support::{now, wait_for};

/// A policy of each algorithm in Redis, one in memory, and one that is synchronised.
const CONFIG: &str = "policies:
  gcra: { key: header:x-key, store: redis, quota: 9/1h }
  bucket: { key: header:x-key, store: redis, algorithm: token_bucket, quota: 9/1h, burst: 20 }
  refill: { key: header:x-key, store: redis, algorithm: token_bucket, capacity: 9, refill: 1 per 1h }
  window: { key: header:x-key, store: redis, algorithm: fixed_window, quota: 9/1d }
  month: { key: header:x-key, store: redis, algorithm: fixed_window, quota: 9/1mo }
  sliding: { key: header:x-key, store: redis, algorithm: sliding_window, quota: 9/300d }
  parts: { key: header:x-key, store: redis, algorithm: sliding_window, quota: 9/300d, precision: 10 }
  log: { key: header:x-key, store: redis, algorithm: sliding_log, quota: 9/300d }
  line: { key: header:x-key, store: redis, algorithm: leaky_bucket, quota: 1000/1s, queue: 8 }
  flight: { key: header:x-key, store: redis, algorithm: concurrency, max: 9 }
  local: { key: header:x-key, quota: 9/1h }
  synced: { key: header:x-key, store: redis, sync: 50ms, algorithm: fixed_window, quota: 9/1d }
routes:
  - { upstream: echo, limits: [gcra, bucket, refill, window, month, sliding, parts, log, line, flight, local, synced] }
  - { match: { path: /rate_limit }, upstream: status }
";

fn report(gateway: &Gateway, key: &str) -> Value {
    let response = get_with(
        gateway.address(),
        "/rate_limit",
        &format!("x-key: {key}\r\n"),
    );
    assert_eq!(response.status, 200, "{response:?}");
    let mut body: Value = serde_json::from_str(&response.text()).expect("JSON");
    body["resources"].take()
}

fn calls(gateway: &Gateway) -> f64 {
    let series = "sluicegate_store_requests_total{op=\"call\",result=\"ok\"}";
    gateway.metric(series).unwrap_or_default()
}

#[test]
fn all_machines_report_the_same_buckets_and_charge_nothing() {
    let redis = RedisServer::start();
    let gateways: [Gateway; 2] = proxies(&redis, CONFIG);
    for _ in 0..4 {
        let response = get_with(gateways[0].address(), "/", "x-key: a\r\n");
        assert_eq!(response.status, 200, "{response:?}");
    }
    // A client may have its response before the proxy has returned the lease.
    wait_for("the lease to be returned", || {
        (report(&gateways[0], "a")["flight"]["used"] == 0).then_some(())
    });
    let before = calls(&gateways[1]);
    for times in 1..=3 {
        let own = report(&gateways[1], "a");
        for policy in [
            "gcra", "bucket", "refill", "window", "month", "sliding", "parts", "log",
        ] {
            assert_eq!(own[policy]["used"], 4, "{policy}: {own}");
        }
        for policy in ["flight", "local"] {
            assert_eq!(own[policy]["used"], 0, "{policy}: {own}");
        }
        assert_eq!(own["line"]["limit"], 9);
        assert_eq!(
            calls(&gateways[1]),
            before + f64::from(times),
            "one call a report"
        );
    }
    // A machine learns of charges elsewhere to keys that it has itself charged.
    let response = get_with(gateways[1].address(), "/", "x-key: a\r\n");
    assert_eq!(response.status, 200, "{response:?}");
    wait_for("the charges of the other machine", || {
        (report(&gateways[1], "a")["synced"]["used"] == 5).then_some(())
    });
    let other = report(&gateways[1], "b");
    let used = |policy: &Value| policy["used"].as_u64().expect("a number");
    let used: u64 = other
        .as_object()
        .expect("an object")
        .values()
        .map(used)
        .sum();
    assert_eq!(used, 0, "another client's: {other}");
}

#[test]
fn a_failure_of_redis_is_reported_for_each_policy_in_time() {
    let mut redis = RedisServer::start();
    let [gateway] = proxies(&redis, CONFIG);
    assert_eq!(report(&gateway, "a")["gcra"]["remaining"], 9);
    let check = |own: &Value| {
        for (policy, state) in own.as_object().expect("an object") {
            let is_in_memory = policy == "local" || policy == "synced";
            let error = (!is_in_memory).then(|| json!("unavailable"));
            assert_eq!(state.get("error"), error.as_ref(), "{policy}: {own}");
            assert_eq!(state.get("remaining").is_some(), is_in_memory, "{policy}");
        }
        assert_eq!(
            own["gcra"],
            json!({ "limit": 9, "error": "unavailable", "quota": "9/1h" })
        );
    };
    redis.stop();
    let asked = now();
    let own = report(&gateway, "a");
    // The deadline of a call is a second.
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    check(&own);
    redis.go_on();
    redis.kill();
    check(&report(&gateway, "a"));
    redis.start_again();
    wait_for("the report", || {
        (report(&gateway, "a")["gcra"]["remaining"] == 9).then_some(())
    });
}

#[test]
fn a_ban_of_another_machine_is_reported() {
    let redis = RedisServer::start();
    let config = "policies:
  keys: { key: header:x-key, quota: 1/1h, store: redis, penalty: { strikes: 1, within: 1h, for: [2h] } }
routes:
  - { upstream: echo, limits: [keys] }
  - { match: { path: /rate_limit }, upstream: status }
";
    let gateways: [Gateway; 2] = proxies(&redis, config);
    let ask = || get_with(gateways[0].address(), "/", "x-key: a\r\n");
    assert_eq!(ask().status, 200);
    let banned = ask();
    assert!(retry_after(&banned) > 7_000, "{banned:?}");
    let until = wait_for("the ban", || {
        report(&gateways[1], "a")["keys"]["banned_until"].as_u64()
    });
    assert!(until > 1_700_000_000, "{until}");
}

/// One call reads granted units, too.
#[test]
fn granted_units_and_bans_in_redis_are_reported() {
    let redis = RedisServer::start();
    let config =
        steering::shared_config(&["quota: 3/300d", "algorithm: sliding_log, quota: 3/300d"]);
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters }} }}
{config}  - {{ match: {{ path: /rate_limit }}, upstream: status }}
",
        redis.url()
    ));
    wait_for("the store to be up", || {
        let ready = crate::support::client::get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    for (path, policy) in [("/0", "p0"), ("/1", "p1")] {
        assert_eq!(steering::admitted(&gateway, path, "a"), 3);
        assert_eq!(report(&gateway, "a")[policy]["remaining"], 0);
        steering::grant(&gateway, policy, 10);
        let own = &report(&gateway, "a")[policy];
        assert_eq!(own["remaining"], 3, "{own}");
        let next = steering::ask(&gateway, path, "a");
        assert!(next.expect_header("ratelimit").contains("r=3"), "{next:?}");
        steering::steer(&gateway, "ban", policy, json!({ "for": "1h" }));
        let own = &report(&gateway, "a")[policy];
        assert_eq!(own["remaining"], 0, "{own}");
        assert!(own["banned_until"].is_u64(), "{own}");
    }
}
