//! The announced wait where bans, grants and charged refusals meet: the same in every store, for
//! clients, in the keys API, in the status route and in explanations.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{proxies, retry_after};
use crate::support::steering::{UNTIL, ask, lookup, steer};
use crate::support::{now, wait_for};

const STORES: [&str; 3] = ["", "store: redis, ", "store: redis, sync: 50ms, "];

/// The slack of a busy machine, in seconds.
const SLACK: u64 = 100;

/// A policy for each store with these options, on the paths `/0`, `/1` and `/2`.
fn start(redis: &RedisServer, options: &str) -> Gateway {
    let of = |(place, store)| {
        (
            format!("  p{place}: {{ key: \"header:x-key\", {store}{options} }}\n"),
            format!("  - {{ match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n"),
        )
    };
    let (policies, routes): (String, String) = STORES.iter().enumerate().map(of).unzip();
    let status = "  - { match: { path: /rate_limit }, upstream: status }\n";
    let [gateway] = proxies(
        redis,
        &format!("{TOKENS}policies:\n{policies}routes:\n{routes}{status}"),
    );
    gateway
}

/// The waits that a refused client, the keys API and the status route announce for the key `a`.
fn waits(gateway: &Gateway, place: usize) -> [u64; 3] {
    let (path, policy) = (format!("/{place}"), format!("p{place}"));
    let refused = ask(gateway, &path, "a");
    assert_eq!(refused.status, 429, "{refused:?}");
    let status = get_with(gateway.address(), "/rate_limit", "x-key: a\r\n");
    let status: Value = serde_json::from_str(&status.text()).expect("JSON");
    let seconds = |value: &Value| value.as_f64().unwrap_or_default().ceil() as u64;
    [
        retry_after(&refused),
        seconds(&lookup(gateway, &policy, "a")["retry_after_s"]),
        seconds(&status["resources"][&policy]["retry_after"]),
    ]
}

/// Asserts that all of them announce between `seconds - SLACK` and `seconds`.
#[track_caller]
fn assert_waits(gateway: &Gateway, seconds: u64) {
    for place in 0..STORES.len() {
        let waits = waits(gateway, place);
        let right = |wait: &u64| (seconds.saturating_sub(SLACK)..=seconds).contains(wait);
        assert!(
            waits.iter().all(right),
            "store {place}: {waits:?} of {seconds}"
        );
    }
}

#[test]
fn a_ban_shorter_than_the_wait_of_the_quota_announces_the_quota() {
    let redis = RedisServer::start();
    let penalty = "penalty: { strikes: 2, within: 1h, for: [300s] }";
    let gateway = start(&redis, &format!("quota: 1/1000s, {penalty}"));
    for path in ["/0", "/1", "/2"] {
        let statuses = [(); 3].map(|()| ask(&gateway, path, "a").status);
        assert_eq!(statuses, [200, 429, 429]);
    }
    for place in 0..STORES.len() {
        let ban = &lookup(&gateway, &format!("p{place}"), "a")["ban"];
        assert!(ban.is_object(), "{ban}");
    }
    assert_waits(&gateway, 1_000);
    // A reset fills the bucket and ends no ban; it is felt although the key's state is remembered.
    for place in 0..STORES.len() {
        steer(&gateway, "reset", &format!("p{place}"), json!({}));
    }
    assert_waits(&gateway, 300);
    let call = "sluicegate_store_requests_total{op=\"call\",result=\"ok\"}";
    let (calls, began) = (gateway.metric(call).unwrap_or_default(), now());
    for _ in 0..200 {
        assert_eq!(ask(&gateway, "/1", "a").status, 429);
    }
    let calls = gateway.metric(call).unwrap_or_default() - calls;
    let seconds = began.elapsed().as_secs_f64();
    assert!(calls <= seconds + 2.0, "{calls} calls in {seconds} s");
    for place in 0..STORES.len() {
        steer(&gateway, "unban", &format!("p{place}"), json!({}));
        let status = ask(&gateway, &format!("/{place}"), "a").status;
        assert_eq!(status, 200, "store {place}: an unban is felt at once");
    }
}

#[test]
fn granted_units_pay_when_a_ban_ends_unless_they_end_before() {
    let redis = RedisServer::start();
    let gateway = start(&redis, "quota: 1/1000s, charge_refused: true");
    for place in 0..STORES.len() {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        assert_eq!(ask(&gateway, &path, "a").status, 200);
        steer(&gateway, "ban", &policy, json!({ "for": "300s" }));
        steer(
            &gateway,
            "grant",
            &policy,
            json!({ "units": 3, "until": *UNTIL }),
        );
    }
    assert_waits(&gateway, 300);
    for place in 0..STORES.len() {
        let grant = json!({ "units": 3, "for": "200s" });
        steer(&gateway, "grant", &format!("p{place}"), grant);
    }
    assert_waits(&gateway, 1_000);
}

#[test]
fn an_explanation_foresees_the_ban_that_the_refusal_causes() {
    let redis = RedisServer::start();
    let penalty = "penalty: { strikes: 2, within: 1h, for: [1d] }";
    let gateway = start(&redis, &format!("quota: 1/1000s, {penalty}"));
    let explain = |place: usize| {
        let url = format!("http://example.com/{place}");
        let headers = [["x-key", "a"]];
        let request =
            json!({ "method": "GET", "url": url, "from": "203.0.113.7", "headers": headers });
        let explained = answer(&AdminClient::new(&gateway, READER).post("/v1/explain", &request));
        explained["answer"]["retry_after_ms"]
            .as_f64()
            .unwrap_or_default()
            / 1_000.0
    };
    let day = Duration::from_secs(24 * 3_600).as_secs_f64();
    for place in 0..STORES.len() {
        let path = format!("/{place}");
        assert_eq!(ask(&gateway, &path, "a").status, 200);
        let first = explain(place);
        assert!((900.0..=1_000.0).contains(&first), "store {place}: {first}");
        assert_eq!(ask(&gateway, &path, "a").status, 429);
        for _ in 0..2 {
            let second = explain(place);
            assert_eq!(
                second, day,
                "store {place}: and an explanation is no strike"
            );
        }
        let refused = ask(&gateway, &path, "a");
        assert_eq!(retry_after(&refused) as f64, day);
        let during = wait_for("the ban", || {
            let wait = explain(place);
            (wait < day).then_some(wait)
        });
        assert!(during > day - 100.0, "store {place}: {during}");
    }
}
