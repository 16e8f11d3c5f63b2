//! `POST /v1/explain` with buckets in Redis.

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{proxies, store, wait_up};
use crate::support::steering::lookup;
use crate::support::wait_for;

const CONFIG: &str = "policies:
  p0: { key: \"header:x-key\", store: redis, quota: 3/300d }
  p1: { key: \"header:x-key\", store: redis, quota: 4/300d, algorithm: sliding_log, cost: { header: x-cost, max: 9 } }
  p2: { key: \"header:x-key\", store: redis, algorithm: concurrency, max: 5 }
  p3: { key: \"header:x-key\", store: redis, quota: 3/300d, on_store_error: admit }
  p4: { key: \"header:x-key\", store: redis, quota: 3/300d, on_store_error: refuse }
routes:
  - { name: all, match: { path: /all }, upstream: echo, limits: [p0, p1, p2] }
  - { name: open, match: { path: /open }, upstream: echo, limits: [p3] }
  - { name: shut, match: { path: /shut }, upstream: echo, limits: [p4] }
";

fn explain(gateway: &Gateway, path: &str, cost: u32) -> Value {
    let request = json!({
        "method": "GET", "url": format!("http://example.com{path}"), "from": "203.0.113.7",
        "headers": [["x-key", "a"], ["x-cost", cost.to_string()]],
    });
    answer(&AdminClient::new(gateway, READER).post("/v1/explain", &request))
}

#[test]
fn each_machine_explains_by_the_shared_buckets() {
    let redis = RedisServer::start();
    let gateways: [Gateway; 2] = proxies(&redis, &format!("{TOKENS}{CONFIG}"));
    for _ in 0..2 {
        let headers = "x-key: a\r\nx-cost: 1\r\n";
        assert_eq!(get_with(gateways[0].address(), "/all", headers).status, 200);
    }
    // A client may have its response before the proxy has returned the lease.
    wait_for("the leases to be returned", || {
        let slots = lookup(&gateways[0], "p2", "a");
        (slots["in_flight"] == 0).then_some(())
    });
    // With one secret, a key has one id in the logs of all machines.
    let id = |gateway| lookup(gateway, "p0", "a")["key_id"].take();
    assert_eq!(id(&gateways[0]), id(&gateways[1]));
    for gateway in gateways.iter().chain(&gateways) {
        let explained = explain(gateway, "/all", 2);
        let used = explained["limits"].as_array().expect("a list").iter();
        let used: Vec<_> = used.map(|limit| &limit["state"]["used"]).collect();
        assert_eq!(used, [2, 2, 0]);
        assert_eq!(explained["limits"][1]["cost"], 2);
        assert_eq!(explained["limits"][1]["remaining"], 0);
        assert_eq!(explained["limits"][0]["state"]["store"], "redis");
        assert_eq!(explained["answer"]["decision"], "allowed");
        let beyond = explain(gateway, "/all", 3);
        assert_eq!(beyond["answer"]["decision"], "limited");
        assert_eq!(beyond["answer"]["policy"], "p1");
        let never = explain(gateway, "/all", 5);
        assert_eq!(never["answer"]["retry_after_ms"], Value::Null);
    }
}

#[test]
fn without_redis_the_explanation_says_so_and_follows_the_policy() {
    let mut redis = RedisServer::start();
    let gateway = Gateway::start(&format!("{}{TOKENS}{CONFIG}", store(redis.address)));
    wait_up(&gateway);
    redis.kill();
    let local = explain(&gateway, "/all", 1);
    assert_eq!(local["answer"]["decision"], "allowed");
    let error = local["limits"][0]["store_error"].as_str();
    assert!(
        error.is_some_and(|error| error.contains("Redis")),
        "{local}"
    );
    assert_eq!(local["limits"][0]["remaining"], 2, "a local bucket decides");
    let open = explain(&gateway, "/open", 1);
    assert_eq!(open["answer"]["decision"], "allowed");
    assert_eq!(open["limits"][0]["reason"], "store");
    let shut = explain(&gateway, "/shut", 1);
    assert_eq!(shut["answer"]["decision"], "answered");
    assert_eq!(shut["answer"]["status"], 503);
    assert_eq!(shut["limits"][0]["decision"], "error");
}
