//! A policy in Redis beside one of each kind in memory: a refusal by Redis costs the memory policy
//! nothing, unless that charges refusals.

use std::time::Duration;

use crate::support::client::{Connection, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::wait_for;

/// Each admits 5 requests of a key in memory.
const KINDS: [&str; 12] = [
    "quota: 5/300d",
    "quota: 5/300d, algorithm: token_bucket",
    "capacity: 5, refill: 5 per 300d, algorithm: token_bucket",
    "quota: 5/300d, algorithm: fixed_window",
    "quota: 5/300d, algorithm: fixed_window, start: first_request",
    "quota: 5/300d, algorithm: fixed_window, start: staggered",
    "quota: 5/1y, algorithm: fixed_window, time_zone: Asia/Tokyo",
    "quota: 5/300d, algorithm: sliding_window, oldest: whole",
    "quota: 5/300d, algorithm: sliding_window, precision: 10, oldest: whole",
    "quota: 5/300d, algorithm: sliding_log",
    "quota: 5/300d, overrides: [{ value: b, quota: 9/300d }]",
    "quota: 5/300d, penalty: { strikes: 100, within: 1h, for: [1h] }",
];

/// Routes `/both` and `/here` with the policy `here`; `/both` also has a policy of 2 in Redis.
fn gateway(redis: &RedisServer, here: &str, there: &str) -> Gateway {
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters, prefix: \"{}:\" }} }}
policies:
  here: {{ key: \"header:x-key\", {here} }}
  there: {{ key: \"header:x-key\", quota: 2/300d, store: redis, {there} }}
routes:
  - {{ match: {{ path: /both }}, upstream: echo, limits: [here, there] }}
  - {{ match: {{ path: \"/**\" }}, upstream: echo, limits: [here] }}
",
        redis.url(),
        std::ptr::from_ref(here).addr(),
    ));
    get_with(gateway.address(), "/both", "x-key: other\r\n");
    wait_for("the store to be up", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    gateway
}

fn statuses(gateway: &Gateway, path: &str, count: usize) -> Vec<u16> {
    let ask = |_| get_with(gateway.address(), path, "x-key: a\r\n").status;
    (0..count).map(ask).collect()
}

#[test]
fn memory_charges_are_given_back_when_redis_refuses_whatever_the_algorithm() {
    let redis = RedisServer::start();
    for kind in KINDS {
        let gateway = gateway(&redis, kind, "");
        assert_eq!(
            statuses(&gateway, "/both", 4),
            [200, 200, 429, 429],
            "{kind}"
        );
        assert_eq!(statuses(&gateway, "/", 4), [200, 200, 200, 429], "{kind}");
    }
}

/// While Redis decides, memory holds the units of requests that it is going to refuse. Others are
/// not refused for long because of them.
#[test]
fn units_that_wait_for_redis_announce_no_long_wait() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters, refusal_cache: 0s }} }}
policies:
  all: {{ key: constant, quota: 40/300d, penalty: {{ strikes: 1, within: 1h, for: [1h] }} }}
  each: {{ key: \"header:x-key\", quota: 1/300d, store: redis, on_store_error: refuse }}
routes:
  - {{ match: {{ path: /both }}, upstream: echo, limits: [all, each] }}
  - {{ match: {{ path: /each }}, upstream: echo, limits: [each] }}
  - {{ match: {{ path: /all }}, upstream: echo, limits: [all] }}
",
        redis.url(),
    ));
    wait_for("the store to be up", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    let spent: Vec<_> = (0..60).map(|key| format!("x-key: {key}\r\n")).collect();
    for key in &spent {
        assert_eq!(get_with(gateway.address(), "/each", key).status, 200);
    }
    redis.stop();
    let mut waiting: Vec<_> = spent
        .iter()
        .map(|key| {
            let mut connection = Connection::open(gateway.address());
            connection.send(format!("GET /both HTTP/1.1\r\nHost: a\r\n{key}\r\n"));
            connection
        })
        .collect();
    let mut admitted = 0;
    let refused = wait_for("a refusal while all units are held", || {
        let response = get(gateway.address(), "/all");
        admitted += usize::from(response.status == 200);
        (response.status == 429).then_some(response)
    });
    let wait: u64 = refused.expect_header("retry-after").parse().unwrap();
    assert!(wait <= 1, "as long as Redis may take: {refused:?}");
    redis.go_on();
    for connection in &mut waiting {
        // 503 if the test took longer than the timeout.
        assert!([429, 503].contains(&connection.receive().status));
    }
    // Neither is the refusal a strike: the key is not banned.
    admitted += (0..100)
        .take_while(|_| get(gateway.address(), "/all").status == 200)
        .count();
    assert_eq!(admitted, 40);
    let refused = get(gateway.address(), "/all");
    let wait: u64 = refused.expect_header("retry-after").parse().unwrap();
    assert!(wait > 3_600, "now all is used up: {refused:?}");
}

/// A request that finds all units held waits a moment for the decisions on them.
#[test]
fn a_request_passes_that_waits_for_units_to_come_back() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters, refusal_cache: 0s }} }}
policies:
  all: {{ key: constant, quota: 8/300d }}
  each: {{ key: \"header:x-key\", quota: 1/300d, store: redis, on_store_error: refuse }}
routes:
  - {{ match: {{ path: /both }}, upstream: echo, limits: [all, each] }}
  - {{ match: {{ path: /each }}, upstream: echo, limits: [each] }}
",
        redis.url(),
    ));
    wait_for("the store to be up", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    let keys: Vec<_> = (0..100).map(|key| format!("x-key: {key}\r\n")).collect();
    for key in &keys {
        assert_eq!(get_with(gateway.address(), "/each", key).status, 200);
    }
    for new in 0..7 {
        let mut burst: Vec<_> = keys
            .iter()
            .map(|_| Connection::open(gateway.address()))
            .collect();
        for (connection, key) in burst.iter_mut().zip(&keys) {
            connection.send(format!("GET /both HTTP/1.1\r\nHost: a\r\n{key}\r\n"));
        }
        wait_for("a request to pass", || {
            let key = format!("x-key: new-{new}\r\n");
            let response = get_with(gateway.address(), "/both", &key);
            // A machine that takes more than a second for all these requests may refuse it.
            let wait = response.header("retry-after");
            assert!(wait.is_none_or(|wait| wait == "1"), "{response:?}");
            (response.status == 200).then_some(())
        });
        for connection in &mut burst {
            assert_eq!(connection.receive().status, 429);
        }
    }
}

#[test]
fn policies_that_charge_refusals_keep_their_charges() {
    let redis = RedisServer::start();
    let gateway = gateway(&redis, "quota: 5/300d, charge_refused: true", "");
    assert_eq!(statuses(&gateway, "/both", 4), [200, 200, 429, 429]);
    let left = get_with(gateway.address(), "/", "x-key: a\r\n");
    assert!(left.expect_header("ratelimit").contains("r=0"), "{left:?}");
}

#[test]
fn permits_return_when_redis_refuses() {
    let redis = RedisServer::start();
    for kind in [
        "algorithm: concurrency, max: 1",
        "algorithm: concurrency, max: 1, queue: 5, max_wait: 10s",
    ] {
        let gateway = gateway(&redis, kind, "");
        // A response may arrive a moment before its permit returns.
        let ask = |path| {
            wait_for("the permit", || {
                let in_use = gateway.metric("sluicegate_limit_in_use{policy=\"here\"}");
                (in_use == Some(0.0)).then_some(())
            });
            get_with(gateway.address(), path, "x-key: a\r\n").status
        };
        let both = [(); 4].map(|()| ask("/both"));
        assert_eq!(both, [200, 200, 429, 429], "{kind}");
        assert_eq!([(); 3].map(|()| ask("/")), [200; 3], "{kind}");
    }
}

#[test]
fn redis_decides_before_a_request_waits_in_a_queue() {
    let redis = RedisServer::start();
    let queue = "quota: 10/1s, algorithm: leaky_bucket, queue: 100, max_wait: 1m";
    let gateway = gateway(&redis, queue, "");
    let started = crate::support::now();
    let all = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = Connection::open(gateway.address());
                    let request = "GET /both HTTP/1.1\r\nHost: a\r\nx-key: a\r\n\r\n";
                    connection.exchange(request).status
                })
            })
            .collect();
        let statuses = clients
            .into_iter()
            .map(|client| client.join().expect("no panic"));
        statuses.filter(|status| *status == 200).count()
    });
    assert_eq!(all, 2);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_shadowed_policy_in_redis_refuses_no_request() {
    let redis = RedisServer::start();
    let gateway = gateway(&redis, "quota: 5/300d", "mode: shadow");
    assert_eq!(
        statuses(&gateway, "/both", 6),
        [200, 200, 200, 200, 200, 429]
    );
    let shadowed =
        "sluicegate_limit_decisions_total{policy=\"there\",route=\"both\",decision=\"shadowed\"}";
    assert_eq!(gateway.metric(shadowed), Some(3.0));
}

#[test]
fn memory_costs_are_settled_beside_a_policy_in_redis() {
    let redis = RedisServer::start();
    let costs = "quota: 100/300d, cost: { response_header: x-used, reserve: 10, max: 60 }";
    let gateway = gateway(&redis, costs, "");
    // The echo has no such field: the reserved cost stays charged, except for requests that Redis
    // refused.
    assert_eq!(statuses(&gateway, "/both", 5), [200, 200, 429, 429, 429]);
    let left = get_with(gateway.address(), "/", "x-key: a\r\n");
    assert!(left.expect_header("ratelimit").contains("r=70"), "{left:?}");
}
