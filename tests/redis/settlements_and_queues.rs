//! Follow-ups of requests that Redis decided: settled costs, and abandoned queue places. Several
//! real proxies settle and queue as one does in memory.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get, get_with};
use crate::support::costs::origin;
use crate::support::fault_proxy::{FaultProxy, Weather};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, ok};
use crate::support::redis::RedisServer;
use crate::support::shared::{proxies, said, store, wait_up};
use crate::support::{now, wait_for};

/// A policy `p` before the origin, in Redis and in memory.
fn config(origin: &Origin, policy: &str) -> [String; 2] {
    ["store: redis, ", ""].map(|store| {
        format!(
            "policies: {{ p: {{ {store}key: constant, {policy} }} }}
routes: [{{ name: a, upstream: '{}', limits: [p] }}]
",
            origin.url()
        )
    })
}

fn metric(gateway: &Gateway, series: &str) -> u64 {
    gateway.metric(series).unwrap_or_default() as u64
}

/// The number of batches of what follows requests that Redis has received.
fn told(gateway: &Gateway) -> u64 {
    metric(
        gateway,
        "sluicegate_store_requests_total{op=\"follow_up\",result=\"ok\"}",
    )
}

/// The number of ended requests.
fn ended(gateway: &Gateway) -> u64 {
    metric(
        gateway,
        "sluicegate_http_request_duration_seconds_count{route=\"a\"}",
    )
}

fn lost(gateway: &Gateway, what: &str) -> u64 {
    metric(
        gateway,
        &format!("sluicegate_store_lost_total{{what=\"{what}\"}}"),
    )
}

#[test]
fn costs_from_responses_are_settled_as_in_memory() {
    let origin = origin();
    let used = "cost: { response_header: x-tokens-used, reserve: 100, max: 500 }";
    let counts = "count: [401, 502], count_own: true";
    let bytes = "cost: { response_bytes: 1KiB, reserve: 10, max: 200 }";
    for algorithm in [
        "quota: 1000/300d",
        "algorithm: token_bucket, capacity: 1000, refill: 1000 per 300d",
        "algorithm: fixed_window, quota: 1000/300d, start: first_request",
        "algorithm: fixed_window, quota: 1000/1y",
        "algorithm: sliding_window, quota: 1000/300d, oldest: whole",
    ] {
        for (settles, paths) in [
            (
                used,
                [
                    "/used/30",
                    "/used/0",
                    "/used/400",
                    "/used/9999",
                    "/",
                    "/used/1",
                ],
            ),
            (
                counts,
                [
                    "/status/200",
                    "/status/401",
                    "/reset",
                    "/status/200",
                    "/status/500",
                    "/",
                ],
            ),
            (
                bytes,
                [
                    "/bytes/3000",
                    "/bytes/0",
                    "/bytes/102401",
                    "/bytes/1",
                    "/bytes/40000",
                    "/",
                ],
            ),
        ] {
            let redis = RedisServer::start();
            let [there, here] = config(&origin, &format!("{algorithm}, {settles}"));
            let shared: [Gateway; 2] = proxies(&redis, &there);
            let alone = Gateway::start(&here);
            for (turn, path) in paths.into_iter().chain(paths).enumerate() {
                let gateway = &shared[turn % 2];
                let before = (told(gateway), ended(&alone));
                let answers = [gateway, &alone].map(|gateway| said(&get(gateway.address(), path)));
                assert_eq!(
                    answers[0], answers[1],
                    "{turn}: {path}: {algorithm} {settles}"
                );
                if answers[0].0 != 429 {
                    wait_for("the settlement", || {
                        (told(gateway) > before.0).then_some(())
                    });
                    // In memory a request is settled just before it counts as ended.
                    wait_for("the end", || (ended(&alone) > before.1).then_some(()));
                }
            }
            assert!(
                shared
                    .iter()
                    .all(|gateway| lost(gateway, "settlement") == 0)
            );
        }
    }
}

#[test]
fn parallel_requests_over_two_proxies_reserve_no_more_than_the_quota() {
    const CLIENTS: usize = 120;
    let origin = origin();
    let redis = RedisServer::start();
    let [config, _] = config(&origin, "quota: 20/1h, count: [401]");
    let gateways: [Gateway; 2] = proxies(&redis, &config);
    // All at the same instant, each on a connection of its own.
    let start = Barrier::new(CLIENTS);
    let hanging: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (gateway, start) = (&gateways[client % 2], &start);
                scope.spawn(move || {
                    let mut connection = Connection::open(gateway.address());
                    start.wait();
                    connection.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
                    connection
                })
            })
            .collect();
        let clients = clients.into_iter();
        clients
            .map(|client| client.join().expect("no panic"))
            .collect()
    });
    let decided = |decision: &str| -> u64 {
        let series = format!(
            "sluicegate_limit_decisions_total{{policy=\"p\",route=\"a\",decision=\"{decision}\"}}"
        );
        gateways
            .iter()
            .map(|gateway| metric(gateway, &series))
            .sum()
    };
    wait_for("every decision", || {
        (decided("allowed") + decided("limited") == CLIENTS as u64).then_some(())
    });
    assert_eq!(decided("allowed"), 20, "exactly the quota");
    drop(hanging);
    // Without a response, the reserved cost stays charged.
    assert_eq!(get(gateways[0].address(), "/status/200").status, 429);
    crate::support::redis::command(&redis, &["FLUSHALL"]);
    // A policy that counts by status alone is not limited by the costs.
    for turn in 0..60 {
        let gateway = &gateways[turn % 2];
        let before = told(gateway);
        assert_eq!(get(gateway.address(), "/status/200").status, 200, "{turn}");
        wait_for("the settlement", || (told(gateway) > before).then_some(()));
    }
}

#[test]
fn lost_settlements_are_counted_and_delay_no_request() {
    let origin = origin();
    let redis = RedisServer::start();
    let network = FaultProxy::before(redis.address);
    let [config, _] = config(&origin, "quota: 1000/300d, count: [401]");
    let gateway = Gateway::start(&format!("{}{config}", store(network.address)));
    wait_up(&gateway);
    let before = told(&gateway);
    assert_eq!(get(gateway.address(), "/status/200").status, 200);
    wait_for("the settlement", || (told(&gateway) > before).then_some(()));
    // Redis charges the request, and the network delays the settlement.
    let mut late = Connection::open(gateway.address());
    late.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    let allowed = "sluicegate_limit_decisions_total{policy=\"p\",route=\"a\",decision=\"allowed\"}";
    wait_for("the charge", || {
        (metric(&gateway, allowed) == 2).then_some(())
    });
    network.set(Weather::Silent);
    drop(late);
    wait_for("the loss", || {
        (lost(&gateway, "settlement") == 1).then_some(())
    });
    network.set(Weather::Fair);
    wait_up(&gateway);
    let answer = wait_for("Redis to decide", || {
        let answer = get(gateway.address(), "/status/401");
        answer
            .expect_header("ratelimit")
            .contains("r=998")
            .then_some(answer)
    });
    assert_eq!(answer.status, 401, "what was lost stays as it was charged");
}

#[test]
fn settlements_wait_for_redis_to_come_back() {
    let origin = origin();
    let redis = RedisServer::start();
    let network = FaultProxy::before(redis.address);
    let [config, _] = config(&origin, "quota: 1000/300d, count: [401]");
    let gateway = Gateway::start(&format!("{}{config}", store(network.address)));
    wait_up(&gateway);
    let mut late = Connection::open(gateway.address());
    late.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    let allowed = "sluicegate_limit_decisions_total{policy=\"p\",route=\"a\",decision=\"allowed\"}";
    wait_for("the charge", || {
        (metric(&gateway, allowed) == 1).then_some(())
    });
    network.set(Weather::Refuse);
    network.drop_connections();
    wait_for("Redis to be out of use", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: down").then_some(())
    });
    let ends = ended(&gateway);
    drop(late);
    wait_for("the end", || (ended(&gateway) > ends).then_some(()));
    let before = told(&gateway);
    network.set(Weather::Fair);
    wait_up(&gateway);
    wait_for("the settlement", || (told(&gateway) > before).then_some(()));
    assert_eq!(lost(&gateway, "settlement"), 0);
}

#[test]
fn a_request_across_a_reload_settles_in_the_store_of_its_charge() {
    let origin =
        Origin::start(|_| [vec![Step::Pause(Duration::from_secs(1))], ok("late")].concat());
    let redis = RedisServer::start();
    let [config, _] = config(&origin, "quota: 10/300d, count: [401]");
    let config = format!("{}{config}", store(redis.address));
    let gateway = Gateway::start(&config);
    wait_up(&gateway);
    let mut late = Connection::open(gateway.address());
    late.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    let keys = || crate::support::redis::command(&redis, &["KEYS", "*:gcra:300d"]);
    let none = redis::Value::Array(Vec::new());
    assert_ne!(keys(), none);
    gateway.reload(&config.replace("characters", "characters, prefix: \"other:\""));
    assert_eq!(late.receive().status, 200);
    // All units are given back: the bucket is full, and its key gone.
    wait_for("the settlement", || (keys() == none).then_some(()));
}

const LINE: &str = "GET / HTTP/1.1\r\nHost: a\r\nx-key: a\r\n\r\n";

fn waiting(gateway: &Gateway) -> u64 {
    metric(gateway, "sluicegate_limit_waiting{policy=\"p\"}")
}

#[test]
fn two_proxies_share_one_queue_and_its_rate() {
    let redis = RedisServer::start();
    let config = "policies: { p: { store: redis, key: 'header:x-key', algorithm: leaky_bucket, quota: 20/1s, queue: 100, max_wait: 1m, delay_after: 3 } }
routes: [{ name: a, upstream: echo, limits: [p] }]
";
    // Without an answer of Redis in time, each proxy would have a queue of its own.
    let config = format!("{}{config}", store(redis.address));
    let gateways = [(); 2].map(|()| Gateway::start(&config));
    gateways.iter().for_each(wait_up);
    let started = now();
    let mut took: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..24)
            .map(|client| {
                let gateway = &gateways[client % 2];
                scope.spawn(move || {
                    let mut connection = Connection::open(gateway.address());
                    assert_eq!(connection.exchange(LINE).status, 200);
                    started.elapsed()
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("no panic"))
            .collect()
    });
    took.sort_unstable();
    // The first and three more go on at once, each of the others 50 ms after the one before: 20 x
    // 50 ms for the last. A delay counts from the request's arrival: a slow answer of Redis shortens
    // it. With a queue each, the last would leave after 9 x 50 ms.
    let slack = Duration::from_millis(300);
    for (place, took) in took.iter().enumerate().skip(4) {
        let turn = Duration::from_millis(50) * (place as u32 - 3);
        assert!(
            *took + slack >= turn,
            "{place} after {took:?}, not {turn:?}"
        );
    }
}

#[test]
fn a_queue_in_redis_is_as_long_as_in_memory_and_a_client_that_leaves_returns_its_place() {
    let redis = RedisServer::start();
    let config = "policies: { p: { store: redis, key: 'header:x-key', algorithm: leaky_bucket, quota: 1/30s, queue: 2, max_wait: 10m } }
routes: [{ name: a, upstream: echo, limits: [p] }]
";
    let gateways: [Gateway; 2] = proxies(&redis, config);
    let ask = |gateway: &Gateway| get_with(gateway.address(), "/", "x-key: a\r\n").status;
    let stand = |gateway: &Gateway| {
        let before = waiting(gateway);
        let mut connection = Connection::open(gateway.address());
        connection.send(LINE);
        wait_for("the line", || {
            (waiting(gateway) == before + 1).then_some(())
        });
        connection
    };
    assert_eq!(ask(&gateways[0]), 200);
    let _first = stand(&gateways[0]);
    let last = stand(&gateways[1]);
    // This proxy caches the refusal for a second.
    assert_eq!(ask(&gateways[0]), 429);
    let before = told(&gateways[1]);
    last.reset();
    wait_for("the place", || (told(&gateways[1]) > before).then_some(()));
    let _again = stand(&gateways[1]);
    assert_eq!(ask(&gateways[1]), 429);
    assert_eq!(waiting(&gateways[0]), 1);
}

#[test]
fn without_redis_each_proxy_has_a_queue_of_its_own() {
    let mut redis = RedisServer::start();
    let config = "policies: { p: { store: redis, key: 'header:x-key', algorithm: leaky_bucket, quota: 1/30s, queue: 1, max_wait: 10m } }
routes: [{ name: a, upstream: echo, limits: [p] }]
";
    let [gateway] = proxies(&redis, config);
    redis.kill();
    let ask = || get_with(gateway.address(), "/", "x-key: a\r\n").status;
    assert_eq!(ask(), 200);
    let stand = || {
        let mut connection = Connection::open(gateway.address());
        connection.send(LINE);
        wait_for("the line", || (waiting(&gateway) == 1).then_some(()));
        connection
    };
    let leaves = stand();
    assert_eq!(ask(), 429);
    leaves.reset();
    wait_for("the end", || (waiting(&gateway) == 0).then_some(()));
    let _again = stand();
    assert_eq!(lost(&gateway, "place"), 0, "Redis has no place of it");
}
