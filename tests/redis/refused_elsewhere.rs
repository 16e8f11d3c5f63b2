//! Requests that a limit in one store refuses: what they are charged in the other, and what is told.

use serde_json::json;

use crate::support::admin::{AdminClient, TOKENS, json as answer};
use crate::support::client::get_with;
use crate::support::costs::{left, origin};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{store, wait_up};
use crate::support::steering::{UNTIL, lookup};

/// Routes `/STORE` with `one` beside a limit of that store that refuses all but the first request.
fn gateway(redis: &RedisServer, one: &str, upstream: &str) -> Gateway {
    let gateway = Gateway::start(&format!(
        "{}{TOKENS}policies:
  one: {{ key: \"header:x-key\", {one} }}
  memory: {{ key: \"header:x-key\", quota: 1/300d }}
  redis: {{ key: \"header:x-key\", quota: 1/300d, store: redis }}
routes:
  - {{ name: memory, match: {{ path: /memory/** }}, upstream: '{upstream}', limits: [one, memory] }}
  - {{ name: redis, match: {{ path: /redis/** }}, upstream: '{upstream}', limits: [one, redis] }}
  - {{ name: alone, match: {{ path: /alone/** }}, upstream: '{upstream}', limits: [one] }}
",
        store(redis.address)
    ));
    wait_up(&gateway);
    gateway
}

/// The statuses of so many requests with this key.
fn ask(gateway: &Gateway, path: &str, key: &str, requests: usize) -> Vec<u16> {
    let field = format!("x-key: {key}\r\n");
    let asked = (0..requests).map(|_| get_with(gateway.address(), path, &field).status);
    asked.collect()
}

fn grant(gateway: &Gateway, key: &str, units: u32) {
    let body = json!({ "policy": "one", "key": key, "units": units, "until": *UNTIL });
    answer(&AdminClient::writer(gateway).post("/v1/keys/grant", &body));
}

/// Counts without a reserve have no units that could stay charged.
#[test]
fn refusals_are_charged_wherever_they_come_from() {
    let (redis, origin) = (RedisServer::start(), origin());
    for home in ["", "store: redis, "] {
        let one = format!(
            "{home}quota: 9/300d, count: [401], count_reserve: false, charge_refused: true"
        );
        let gateway = gateway(&redis, &one, &origin.url());
        for refuses in ["memory", "redis"] {
            let key = format!("{}{refuses}", home.len());
            let statuses = ask(&gateway, &format!("/{refuses}/status/200"), &key, 4);
            assert_eq!(statuses, [200, 429, 429, 429], "{one} {refuses}");
            assert_eq!(lookup(&gateway, "one", &key)["used"], 3, "{one} {refuses}");
        }
    }
}

#[test]
fn refused_requests_spend_no_granted_units() {
    let (redis, origin) = (RedisServer::start(), origin());
    for home in ["", "store: redis, "] {
        for option in ["", ", charge_refused: true"] {
            let one = format!("{home}quota: 1/300d{option}");
            let gateway = gateway(&redis, &one, &origin.url());
            for refuses in ["memory", "redis"] {
                let key = format!("{}{}{refuses}", home.len(), option.len());
                let path = format!("/{refuses}/status/200");
                assert_eq!(ask(&gateway, &path, &key, 1), [200]);
                grant(&gateway, &key, 3);
                assert_eq!(ask(&gateway, &path, &key, 2), [429, 429]);
                let state = lookup(&gateway, "one", &key);
                assert_eq!(state["granted"]["units"], 3, "{one} {refuses}: {state}");
                let told = get_with(gateway.address(), &path, &format!("x-key: {key}\r\n"));
                let limit = told.header("ratelimit").unwrap_or_default();
                assert!(!limit.contains("r=6"), "units are told once: {limit}");
            }
        }
    }
}

/// A look at a banned key's bucket once was remembered as if it had been charged.
#[test]
fn a_ban_is_announced_alike_each_time() {
    let (redis, origin) = (RedisServer::start(), origin());
    let gateway = gateway(&redis, "store: redis, quota: 2/300d", &origin.url());
    assert_eq!(ask(&gateway, "/alone/status/200", "a", 1), [200]);
    let body = json!({ "policy": "one", "key": "a", "for": "1h" });
    answer(&AdminClient::writer(&gateway).post("/v1/keys/ban", &body));
    let url = "http://example.com/alone/status/200";
    let body = json!({ "method": "GET", "url": url, "headers": [["x-key", "a"]] });
    answer(&AdminClient::writer(&gateway).post("/v1/explain", &body));
    for _ in 0..3 {
        let refused = get_with(gateway.address(), "/alone/status/200", "x-key: a\r\n");
        let wait = refused.header("retry-after").expect("it is refused");
        let wait: u64 = wait.parse().expect("seconds");
        assert!((3_590..=3_600).contains(&wait), "{wait}");
    }
}

/// Without Redis the local bucket is charged as the shared one would be.
#[test]
fn refusals_are_charged_to_local_buckets_while_redis_is_gone() {
    let (mut redis, origin) = (RedisServer::start(), origin());
    let one =
        "store: redis, quota: 9/300d, count: [401], count_reserve: false, charge_refused: true";
    let gateway = gateway(&redis, one, &origin.url());
    redis.kill();
    let statuses = ask(&gateway, "/memory/status/200", "a", 4);
    assert_eq!(statuses, [200, 429, 429, 429]);
    let told = get_with(gateway.address(), "/alone/status/200", "x-key: a\r\n");
    assert_eq!((told.status, left(&told)), (200, 6));
}
