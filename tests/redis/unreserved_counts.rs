//! Counts by status for which requests reserve nothing, on buckets in Redis.

use std::thread;
use std::time::Duration;

use crate::support::client::{get, get_with};
use crate::support::costs::origin;
use crate::support::gateway::Gateway;
use crate::support::parallel::{statuses, together};
use crate::support::redis::RedisServer;
use crate::support::shared::proxies;
use crate::support::wait_for;

#[test]
fn a_request_needs_units_and_takes_none_in_redis() {
    let redis = RedisServer::start();
    let algorithms = [
        "gcra, quota: 5/30d",
        "token_bucket, capacity: 5, refill: 1 per 1d",
        "fixed_window, quota: 5/30d",
        "sliding_window, quota: 5/30d",
    ];
    for (place, algorithm) in algorithms.into_iter().enumerate() {
        for sync in ["", "sync: 50ms, "] {
            let (origin, parallel) = (origin(), together(10));
            let gateway = Gateway::start(&format!(
                "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters, prefix: \"{place}{}:\" }} }}
policies:
  p: {{ key: [client_ip, route], algorithm: {algorithm}, store: redis, {sync}count: [401], count_reserve: false }}
routes:
  - {{ name: slow, match: {{ path: /slow/** }}, upstream: '{}', limits: [p] }}
  - {{ name: a, upstream: '{}', limits: [p] }}
",
                redis.url(),
                sync.len(),
                parallel.url(),
                origin.url()
            ));
            let address = gateway.address();
            let ask = |path: &str| get_with(address, path, "").status;
            wait_for("the store", || (ask("/status/200") == 200).then_some(()));
            assert_eq!(
                statuses(address, "/slow/200", 10),
                [200; 10],
                "{algorithm} {sync}"
            );
            assert_eq!(
                statuses(address, "/slow/401", 10),
                [401; 10],
                "{algorithm} {sync}"
            );
            wait_for("the settlements", || (ask("/slow/") == 429).then_some(()));
            for _ in 0..5 {
                assert_eq!(ask("/status/200"), 200, "{algorithm} {sync}");
            }
            let refused = || ask("/status/401") == 429;
            for _ in 0..5 {
                assert_eq!(ask("/status/401"), 401, "{algorithm} {sync}");
            }
            wait_for("a refusal", || refused().then_some(()));
        }
    }
}

/// A request that reserves nothing finds no window, and its failure opens one.
#[test]
fn failures_that_open_a_window_are_told_to_other_machines() {
    let redis = RedisServer::start();
    let origin = origin();
    for algorithm in ["gcra", "fixed_window", "sliding_window"] {
        let config = format!(
            "policies: {{ p: {{ key: constant, algorithm: {algorithm}, quota: 5/30d, store: redis, sync: 50ms, count: [401], count_reserve: false }} }}
routes: [{{ upstream: '{}', limits: [p] }}]
",
            origin.url()
        );
        let [one, other]: [Gateway; 2] = proxies(&redis, &config);
        for _ in 0..5 {
            assert_eq!(get(one.address(), "/status/401").status, 401, "{algorithm}");
        }
        assert_eq!(get(one.address(), "/status/401").status, 429, "{algorithm}");
        // It asks about a key that it has charged itself.
        let mut admitted = 0;
        while get(other.address(), "/status/401").status == 401 {
            admitted += 1;
            assert!(admitted <= 3, "{algorithm}: as many as without the others");
            thread::sleep(Duration::from_millis(500));
        }
    }
}
