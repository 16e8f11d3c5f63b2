//! Each kind of synchronised policy, with the real binary: charges of one machine count on the
//! other.

use crate::support::client::{Response, get, get_with};
use crate::support::costs::{left, origin};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::synchronised::{after_rounds, config, wait_up};

/// Each admits 5 requests of the key `a`, on all machines together.
const KINDS: [&str; 11] = [
    "quota: 5/300d",
    "quota: 5/300d, algorithm: token_bucket",
    "capacity: 5, refill: 5 per 300d, algorithm: token_bucket",
    "quota: 5/300d, algorithm: fixed_window",
    "quota: 5/1y, algorithm: fixed_window, time_zone: Asia/Tokyo",
    "quota: 5/300d, algorithm: fixed_window, start: staggered",
    "quota: 5/300d, algorithm: sliding_window, oldest: whole",
    "quota: 5/300d, algorithm: sliding_window, precision: 10, oldest: whole",
    "quota: 50/300d, overrides: [{ value: a, quota: 5/200d }]",
    "quota: 5/300d, penalty: { strikes: 100, within: 1h, for: [1h] }",
    "quota: 5/300d, on_full: strict, percent: 100",
];

fn two(config: &str) -> [Gateway; 2] {
    let gateways = [(); 2].map(|()| Gateway::start(config));
    gateways.iter().for_each(wait_up);
    gateways
}

fn ask(gateway: &Gateway, path: &str, headers: &str) -> Response {
    get_with(gateway.address(), path, &format!("x-key: a\r\n{headers}"))
}

/// Waits until the second machine knows the first one's charges to buckets that it has charged
/// itself.
fn told([here, there]: &[Gateway; 2]) {
    after_rounds(here, 3);
    after_rounds(there, 3);
}

/// The number of the policy's requests with this decision.
fn decided(gateway: &Gateway, policy: &str, decision: &str) -> u64 {
    let metrics = get(gateway.admin, "/metrics").text();
    let series = format!("sluicegate_limit_decisions_total{{policy=\"{policy}\",");
    let ours = metrics.lines().filter(|line| line.starts_with(&series));
    let ours = ours.filter(|line| line.contains(&format!("decision=\"{decision}\"")));
    let numbers = ours.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    numbers.sum()
}

#[test]
fn charges_of_one_machine_count_on_the_other_whatever_the_algorithm() {
    let redis = RedisServer::start();
    let policies = KINDS.map(|kind| format!("sync: 50ms, {kind}"));
    let policies: Vec<_> = policies.iter().map(String::as_str).collect();
    let both = two(&config(redis.address, &policies));
    let path = |place| format!("/{place}");
    for (place, kind) in KINDS.iter().enumerate() {
        let statuses = [(); 4].map(|()| ask(&both[0], &path(place), "").status);
        assert_eq!(statuses, [200; 4], "{kind}");
        assert_eq!(ask(&both[1], &path(place), "").status, 200, "{kind}");
    }
    told(&both);
    for (place, kind) in KINDS.iter().enumerate() {
        for gateway in &both {
            assert_eq!(ask(gateway, &path(place), "").status, 429, "{kind}");
            let other = get_with(gateway.address(), &path(place), "x-key: b\r\n");
            assert_eq!(other.status, 200, "{kind}: another key");
        }
    }
}

#[test]
fn overflow_buckets_are_each_reported() {
    let redis = RedisServer::start();
    let policy = "sync: 50ms, quota: 2/300d, overflow: { quota: 3/300d }";
    let both = two(&config(redis.address, &[policy]));
    assert_eq!([(); 4].map(|()| ask(&both[0], "/0", "").status), [200; 4]);
    // The first request of each bucket is admitted before any report.
    for _ in 0..2 {
        assert_eq!(ask(&both[1], "/0", "").status, 200);
        told(&both);
    }
    // A machine without a charge of its own queries it less often.
    both.iter().for_each(|gateway| after_rounds(gateway, 8));
    for gateway in &both {
        assert_eq!(ask(gateway, "/0", "").status, 429);
        let lowered = decided(gateway, "p0", "overflowed");
        assert_eq!(lowered, if gateway.pid() == both[0].pid() { 2 } else { 1 });
    }
}

#[test]
fn staggered_windows_end_at_the_same_instant_everywhere() {
    let redis = RedisServer::start();
    let both = two(&config(
        redis.address,
        &["sync: 50ms, quota: 2/300d, algorithm: fixed_window, start: staggered"],
    ));
    for key in ["a", "b", "c", "d"] {
        let resets = both.each_ref().map(|gateway| {
            let answer = get_with(gateway.address(), "/0", &format!("x-key: {key}\r\n"));
            let state = answer.expect_header("ratelimit").to_owned();
            let (_, seconds) = state.split_once(";t=").expect("a reset");
            seconds.parse::<u64>().expect("seconds")
        });
        assert!(resets[0].abs_diff(resets[1]) <= 5, "{key}: {resets:?}");
    }
}

#[test]
fn shadowed_and_tagging_limits_are_reported_too() {
    let redis = RedisServer::start();
    let policies = [
        "sync: 50ms, quota: 1/300d, mode: shadow",
        "sync: 50ms, quota: 1/300d, on_limit: { action: tag }",
        "sync: 50ms, quota: 50/300d, candidate: { quota: 1/300d }",
    ];
    let both = two(&config(redis.address, &policies));
    for _ in 0..2 {
        for path in ["/0", "/1", "/2"] {
            for gateway in &both {
                assert_eq!(ask(gateway, path, "").status, 200);
            }
        }
        told(&both);
    }
    for gateway in &both {
        assert_eq!(decided(gateway, "p0", "shadowed"), 1);
        assert_eq!(decided(gateway, "p1", "tagged"), 1);
        assert_eq!(decided(gateway, "p2/candidate", "shadowed"), 1);
        assert_eq!(decided(gateway, "p2", "allowed"), 2);
    }
}

#[test]
fn charged_refusals_are_reported() {
    let redis = RedisServer::start();
    let policy = "sync: 50ms, quota: 10/300d, algorithm: fixed_window, \
                  cost: { header: x-cost, max: 10 }, charge_refused: ";
    for (flag, status) in [("true", 429), ("false", 200)] {
        let both = two(&config(redis.address, &[&format!("{policy}{flag}")]));
        assert_eq!(ask(&both[0], "/0", "x-cost: 8\r\n").status, 200);
        assert_eq!(ask(&both[0], "/0", "x-cost: 3\r\n").status, 429);
        assert_eq!(ask(&both[1], "/0", "x-cost: 1\r\n").status, 200);
        told(&both);
        // 9 of 10 were admitted.
        assert_eq!(
            ask(&both[1], "/0", "x-cost: 1\r\n").status,
            status,
            "{flag}"
        );
        // A process that ends reports what it has not reported yet.
        drop(both);
        crate::support::redis::command(&redis, &["FLUSHALL"]);
    }
}

#[test]
fn settled_costs_are_reported_at_their_final_value() {
    let redis = RedisServer::start();
    let origin = origin();
    for algorithm in ["gcra", "fixed_window", "sliding_window, oldest: whole"] {
        let policy = format!(
            "sync: 50ms, quota: 1000/300d, algorithm: {algorithm}, \
             cost: {{ response_header: x-tokens-used, reserve: 100, max: 500 }}"
        );
        let config = config(redis.address, &[&policy])
            .replace("upstream: echo", &format!("upstream: '{}'", origin.url()))
            .replace("/0 }", "\"/**\" }");
        let both = two(&config);
        let ask = |place: usize, path| ask(&both[place], path, "");
        ask(0, "/0/used/7");
        ask(0, "/0/used/0");
        ask(0, "/0/used/300");
        assert_eq!(ask(0, "/0/reset").status, 502, "it keeps what it reserved");
        ask(1, "/0/used/1");
        told(&both);
        // The last reservation is not reported yet, nor refilled.
        let left = left(&ask(1, "/0/used/0"));
        assert_eq!(left, 1000 - 7 - 300 - 100 - 1 - 100, "{algorithm}");
        // A process that ends reports what it has not reported yet.
        drop(both);
        crate::support::redis::command(&redis, &["FLUSHALL"]);
    }
}

#[test]
fn requests_that_redis_refuses_are_not_reported() {
    let redis = RedisServer::start();
    let policies = [
        "sync: 50ms, quota: 10/300d, algorithm: fixed_window",
        "quota: 2/300d",
    ];
    let config = config(redis.address, &policies).replace("limits: [p1]", "limits: [p0, p1]");
    let both = two(&config);
    let statuses = [(); 5].map(|()| ask(&both[0], "/1", "").status);
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    ask(&both[1], "/0", "");
    told(&both);
    assert_eq!(left(&ask(&both[1], "/0", "")), 10 - 2 - 2);
    assert_eq!(left(&ask(&both[0], "/0", "")), 10 - 2 - 1 - 1);
}
