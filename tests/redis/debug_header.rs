//! The debug header of requests that Redis decides.

use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::proxies;

const CONFIG: &str = "responses: { debug: { token: 0123456789abcdef } }
policies:
  shared: { key: header:x-key, store: redis, quota: 1/1h }
  synced: { key: header:x-key, store: redis, sync: 100ms, quota: 9/1h }
  strict: { key: header:x-other, on_missing_key: skip, store: redis, quota: 9/1h, on_store_error: refuse }
  local: { key: header:x-key, quota: 9/1h }
routes: [{ upstream: echo, limits: [shared, synced, strict, local] }]
";

fn ask(gateway: &Gateway, headers: &str) -> (u16, String) {
    let headers = format!("x-sluicegate-debug: 0123456789abcdef\r\n{headers}");
    let response = get_with(gateway.address(), "/", &headers);
    let trail = response.expect_header("x-sluicegate-debug").to_owned();
    (response.status, trail)
}

/// The item about this policy.
fn item<'t>(trail: &'t str, policy: &str) -> &'t str {
    let name = format!("limit;policy=\"{policy}\";");
    let mut items = trail.split(", ");
    let found = items.find(|item| item.starts_with(&name));
    found.unwrap_or_else(|| panic!("{policy}: {trail}"))
}

#[test]
fn the_trail_names_the_store_of_each_limit() {
    let mut redis = RedisServer::start();
    let [gateway] = proxies(&redis, CONFIG);
    let (status, trail) = ask(&gateway, "x-key: a\r\n");
    assert_eq!(status, 200);
    for (policy, store) in [
        ("shared", "redis"),
        ("synced", "synchronised"),
        ("local", "memory"),
    ] {
        let item = item(&trail, policy);
        assert!(item.ends_with(&format!(";store={store}")), "{item}");
        assert!(item.contains(";decision=allowed;"), "{item}");
    }
    let (status, trail) = ask(&gateway, "x-key: a\r\n");
    assert_eq!(status, 429);
    let shared = item(&trail, "shared");
    let limited = ";decision=limited;limit=1;remaining=0;retry-after=";
    assert!(shared.contains(limited), "{shared}");

    redis.kill();
    let (status, trail) = ask(&gateway, "x-key: b\r\nx-other: b\r\n");
    assert_eq!(status, 503);
    assert!(trail.contains(";error=\"store\""), "{trail}");
}

#[test]
fn a_limit_in_shadow_keeps_the_place_of_a_request_that_another_delays() {
    let redis = RedisServer::start();
    let [gateway] = proxies(
        &redis,
        "responses: { debug: { token: 0123456789abcdef } }
policies:
  slow: { key: header:x-key, algorithm: leaky_bucket, quota: 2/1s, queue: 9 }
  watched: { key: header:x-key, store: redis, algorithm: leaky_bucket, quota: 1/30s, queue: 9, max_wait: 10m, mode: shadow }
routes: [{ upstream: echo, limits: [slow, watched] }]
",
    );
    let mut last = String::new();
    for _ in 0..3 {
        let (status, trail) = ask(&gateway, "x-key: a\r\n");
        assert_eq!(status, 200);
        last = item(&trail, "watched").to_owned();
    }
    let delay = last.split("delay=").nth(1).expect("a delay");
    let delay: u64 = delay
        .split(';')
        .next()
        .and_then(|number| number.parse().ok())
        .expect(&last);
    assert!(delay > 45, "two requests are before it: {last}");
    assert!(last.contains(";decision=shadowed;"), "{last}");
}
