//! Limits in Redis that route, or have requests wait for units.

use std::thread;
use std::time::Duration;

use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ok};
use crate::support::redis::RedisServer;
use crate::support::shared::{ask, proxies};
use crate::support::{now, wait_for};

#[test]
fn requests_beyond_the_quota_go_elsewhere() {
    let mut redis = RedisServer::start();
    let [big, small] = ["big", "small"].map(|name| Origin::start(move |_| ok(name)));
    let config = format!(
        "upstreams:
  big: {{ endpoints: ['{}'] }}
  small: {{ endpoints: ['{}'] }}
policies:
  best: {{ store: redis, key: 'header:x-key', quota: 2/300d, on_store_error: refuse, on_limit: {{ action: route, upstream: small }} }}
  all: {{ store: redis, key: 'header:x-key', quota: 4/300d, on_store_error: admit }}
routes: [{{ name: a, upstream: big, limits: [best, all] }}]
",
        big.url(),
        small.url()
    );
    let gateways: [Gateway; 2] = proxies(&redis, &config);
    let served = |place: usize| {
        let answer = ask(&gateways[place], "/");
        match answer.status {
            200 => answer.text(),
            status => status.to_string(),
        }
    };
    assert_eq!(
        [0, 1, 0, 1, 0].map(served),
        ["big", "big", "small", "small", "429"]
    );
    redis.kill();
    let other = get_with(gateways[0].address(), "/", "x-key: b\r\n");
    assert_eq!(other.text(), "small", "it can't decide");
}

#[test]
fn machines_share_exactly_one_quota_while_requests_wait() {
    let redis = RedisServer::start();
    let gateways: [Gateway; 2] = proxies(
        &redis,
        "policies:
  calls: { store: redis, key: 'header:x-key', quota: 10/1s, burst: 4, on_limit: { action: wait, max_wait: 20s, queue: 15 } }
routes: [{ name: a, upstream: echo, limits: [calls] }]
",
    );
    let begun = now();
    let clients = (0..30).map(|place| {
        let address = gateways[place % 2].address();
        thread::spawn(move || {
            let status = get_with(address, "/", "x-key: a\r\n").status;
            (begun.elapsed(), status)
        })
    });
    let clients: Vec<_> = clients.collect();
    let ended = clients
        .into_iter()
        .map(|client| client.join().expect("a status"));
    let mut ended: Vec<_> = ended.collect();
    ended.sort_unstable();
    for ((took, status), number) in ended.iter().zip(1_u32..) {
        assert_eq!(*status, 200, "{ended:?}");
        let earliest = Duration::from_millis(100) * number.saturating_sub(4);
        assert!(
            *took + Duration::from_millis(2) >= earliest,
            "the {number}th: {ended:?}"
        );
        assert!(
            *took <= earliest + Duration::from_secs(3),
            "the {number}th: {ended:?}"
        );
    }
    let waiting = "sluicegate_limit_waiting{policy=\"calls\"}";
    for gateway in &gateways {
        let series =
            "sluicegate_limit_decisions_total{policy=\"calls\",route=\"a\",decision=\"limited\"}";
        assert_eq!(gateway.metric(series), Some(0.0));
        wait_for("nobody to wait", || {
            (gateway.metric(waiting) == Some(0.0)).then_some(())
        });
    }
}

/// Newcomers come after those that wait, also while the bucket has units again.
#[test]
fn a_full_queue_refuses_without_asking_redis() {
    let redis = RedisServer::start();
    let [gateway] = proxies(
        &redis,
        "policies:
  calls: { store: redis, key: 'header:x-key', quota: 30/1m, burst: 1, on_limit: { action: wait, queue: 1 } }
  none: { store: redis, key: 'header:x-key', quota: 0/1m, when: { path: /none } }
routes: [{ name: a, upstream: echo, limits: [calls, none] }]
",
    );
    assert_eq!(ask(&gateway, "/").status, 200);
    let address = gateway.address();
    let waits = thread::spawn(move || get_with(address, "/", "x-key: a\r\n").status);
    let waiting = "sluicegate_limit_waiting{policy=\"calls\"}";
    wait_for("one to wait", || {
        (gateway.metric(waiting) == Some(1.0)).then_some(())
    });
    let mut refused = 0;
    while !waits.is_finished() {
        let answer = ask(&gateway, "/");
        if !waits.is_finished() {
            assert_eq!(answer.status, 429);
            assert!(answer.header("retry-after").is_some());
            refused += 1;
        }
    }
    assert!(refused > 3, "{refused}");
    assert_eq!(waits.join().expect("a status"), 200);
}
