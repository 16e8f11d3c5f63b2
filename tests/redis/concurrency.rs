//! Concurrency limits over several real proxies, by leases in Redis: never more than `max`. Every
//! lease returns, whatever becomes of requests, proxies and Redis.

use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get, get_with};
use crate::support::fault_proxy::{FaultProxy, Weather};
use crate::support::gateway::Gateway;
use crate::support::origin::refusing_address;
use crate::support::redis::RedisServer;
use crate::support::redis::command;
use crate::support::shared::{proxies, store, wait_up};
use crate::support::slow::{ALL, Slow};
use crate::support::{now, wait_for};
use redis::Value;
use rustix::process::Signal;

/// Far below the time to live of a lease.
const SOON: Duration = Duration::from_secs(5);

/// The limit `slots` before the origin.
fn config(slow: &Slow, policy: &str) -> String {
    format!(
        "policies: {{ slots: {{ store: redis, key: constant, algorithm: concurrency, {policy} }} }}
routes: [{{ name: a, upstream: '{}', limits: [slots] }}]
",
        slow.origin.url()
    )
}

/// The requests in flight: their responses have begun, and not ended.
fn begin<const N: usize>(gateway: &Gateway) -> [Connection; N] {
    [(); N].map(|()| {
        let mut connection = Connection::open(gateway.address());
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(connection.receive_head().status, 200);
        connection
    })
}

fn status(gateway: &Gateway) -> u16 {
    let mut connection = Connection::open(gateway.address());
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.receive_head().status
}

fn metric(gateway: &Gateway, series: &str) -> u64 {
    gateway.metric(series).unwrap_or_default() as u64
}

fn in_use(gateway: &Gateway) -> u64 {
    metric(gateway, "sluicegate_limit_in_use{policy=\"slots\"}")
}

/// The units under leases, in all.
fn lent(redis: &RedisServer) -> i64 {
    let Value::Array(keys) = command(redis, &["KEYS", "*:leases"]) else {
        return 0;
    };
    let units = keys.into_iter().map(|key| {
        let key: String = redis::from_redis_value(key).expect("a name");
        let score = command(redis, &["ZSCORE", &key, "units"]);
        redis::from_redis_value::<Option<f64>>(score).expect("a score")
    });
    -units.flatten().sum::<f64>() as i64
}

#[track_caller]
fn wait_until_lent(redis: &RedisServer, units: i64) {
    let what = format!("{units} lent");
    wait_for(&what, || (lent(redis) == units).then_some(()));
}

#[test]
fn two_proxies_serve_exactly_max_requests_at_once() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let gateways: [Gateway; 2] = proxies(&redis, &config(&slow, "max: 20"));
    for _ in 0..3 {
        let before: u64 = gateways.iter().map(limited).sum();
        let addresses = [&gateways[0], &gateways[1]].map(Gateway::address);
        let clients: Vec<_> = (0..60)
            .map(|client| thread::spawn(move || get(addresses[client % 2], "/").status))
            .collect();
        wait_for("every decision", || {
            let all: u64 = gateways.iter().map(limited).sum();
            (all - before == 40).then_some(())
        });
        assert_eq!(gateways.iter().map(in_use).sum::<u64>(), 20);
        assert_eq!(lent(&redis), 20);
        slow.gate.let_pass(20);
        let statuses = clients
            .into_iter()
            .map(|client| client.join().expect("a status"));
        assert_eq!(statuses.filter(|status| *status == 200).count(), 20);
        wait_until_lent(&redis, 0);
    }
    assert_eq!(slow.gate.most(), 20, "never more at once");
    assert_eq!(gateways.iter().map(in_use).sum::<u64>(), 0);
}

fn limited(gateway: &Gateway) -> u64 {
    let series =
        "sluicegate_limit_decisions_total{policy=\"slots\",route=\"a\",decision=\"limited\"}";
    metric(gateway, series)
}

#[test]
fn a_request_returns_its_lease_however_it_ends() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let [gateway] = proxies(&redis, &config(&slow, "max: 3"));
    let [leaves, breaks, ends] = begin(&gateway);
    assert_eq!((lent(&redis), status(&gateway)), (3, 429));
    leaves.reset();
    wait_until_lent(&redis, 2);
    drop(breaks);
    wait_until_lent(&redis, 1);
    slow.gate.let_pass(ALL);
    drop(ends);
    wait_until_lent(&redis, 0);
    // An upstream that is not there.
    let dead = config(&slow, "max: 3").replace(
        &slow.origin.url(),
        &format!("http://{}", refusing_address()),
    );
    let [gateway] = proxies(&redis, &dead);
    assert_eq!([(); 6].map(|()| status(&gateway)), [502; 6]);
    wait_until_lent(&redis, 0);
}

#[test]
fn a_lease_granted_after_the_client_left_is_returned() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let network = FaultProxy::before(redis.address);
    let refuses = config(&slow, "max: 2, on_store_error: refuse");
    let gateway = Gateway::start(&format!("{}{refuses}", store(network.address)));
    wait_up(&gateway);
    // Each return is answered before the network slows down; otherwise the store would be out of
    // use by then.
    let series = "sluicegate_store_requests_total{op=\"follow_up\",result=\"ok\"}";
    let wait_until_heard = |batches| {
        wait_for("an answer", || {
            (metric(&gateway, series) >= batches).then_some(())
        });
    };
    drop(begin::<1>(&gateway));
    wait_until_lent(&redis, 0);
    wait_until_heard(1);
    // The client leaves during the call of Redis.
    network.set(Weather::Slow(Duration::from_millis(100)));
    let mut leaves = Connection::open(gateway.address());
    leaves.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the charge", || (lent(&redis) == 1).then_some(()));
    leaves.reset();
    let started = now();
    wait_until_lent(&redis, 0);
    wait_until_heard(2);
    // Redis grants the lease, and its answer comes too late.
    network.set(Weather::Slow(Duration::from_millis(700)));
    assert_eq!(status(&gateway), 503);
    network.set(Weather::Fair);
    wait_for("the charge that was late", || {
        let calls = "sluicegate_store_requests_total{op=\"call\",result=\"timeout\"}";
        (metric(&gateway, calls) > 0).then_some(())
    });
    wait_until_lent(&redis, 0);
    // A round on the slow network may have been the third time-out.
    wait_up(&gateway);
    let _all: [_; 2] = begin(&gateway);
    assert!(started.elapsed() < SOON, "given back, not expired");
}

/// Charges, renewals and returns are on their way when Redis stands still. Some run once it goes on.
#[test]
fn no_lease_stays_after_redis_stood_still() {
    for on_store_error in ["refuse", "local"] {
        let (redis, slow) = (RedisServer::start(), Slow::halfway());
        let policy = format!("max: 5, on_store_error: {on_store_error}");
        let store = store(redis.address).replace("1s", "100ms");
        let gateway = Gateway::start(&format!("{store}{}", config(&slow, &policy)));
        wait_up(&gateway);
        let held: [_; 2] = begin(&gateway);
        redis.stop();
        let mut late = [(); 20].map(|()| Connection::open(gateway.address()));
        wait_for("Redis to be out of use", || {
            for connection in &mut late {
                connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            }
            for connection in &mut late {
                let head = connection.receive_head();
                if head.status != 200 {
                    let length = head.expect_header("content-length").parse();
                    connection.read_exactly(length.expect("a length"));
                    continue;
                }
                slow.gate.let_pass(ALL);
                connection.read_exactly(2);
            }
            let ready = get(gateway.admin, "/readyz").text();
            ready.contains("redis: down").then_some(())
        });
        slow.gate.let_pass(ALL);
        drop((held, late));
        redis.go_on();
        let started = now();
        wait_up(&gateway);
        wait_until_lent(&redis, 0);
        let all: [_; 5] = begin(&gateway);
        assert!(started.elapsed() < SOON, "returned, not expired");
        drop(all);
        wait_until_lent(&redis, 0);
        let lost = "sluicegate_store_lost_total{what=\"permit\"}";
        assert_eq!(metric(&gateway, lost), 0, "{on_store_error}");
    }
}

#[test]
fn leases_of_a_killed_proxy_expire_and_those_of_others_stay() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let [dies, stays]: [Gateway; 2] = proxies(&redis, &config(&slow, "max: 3"));
    let _lost: [_; 2] = begin(&dies);
    let _kept: [_; 1] = begin(&stays);
    assert_eq!(status(&stays), 429);
    dies.signal(Signal::KILL);
    assert_eq!(status(&stays), 429, "nobody knows yet");
    let mut others = Vec::new();
    wait_for("the leases to expire", || {
        let mut connection = Connection::open(stays.address());
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        if connection.receive_head().status == 200 {
            others.push(connection);
        }
        (others.len() == 2).then_some(())
    });
    // Longer than a lease lives: the lease in flight was renewed, and still counts.
    assert_eq!((status(&stays), in_use(&stays)), (429, 3));
    assert_eq!(
        metric(&stays, "sluicegate_store_lost_total{what=\"renewal\"}"),
        0
    );
}

#[test]
fn a_draining_proxy_returns_the_lease_of_its_last_request() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let network = FaultProxy::before(redis.address);
    let config = config(&slow, "max: 2");
    let [stays] = proxies(&redis, &config);
    let mut ends = Gateway::start(&format!(
        "shutdown: {{ delay: 0s }}\n{}{config}",
        store(network.address)
    ));
    wait_up(&ends);
    let [mut first, mut second] = begin(&ends);
    // It waits for the answer: a lost connection loses all that is under way.
    network.set(Weather::Slow(Duration::from_millis(300)));
    ends.signal(Signal::TERM);
    slow.gate.let_pass(2);
    assert_eq!(first.read_exactly(2), b"ab");
    assert_eq!(second.read_exactly(2), b"ab");
    assert!(ends.wait().success());
    assert_eq!(lent(&redis), 0, "it was told before the process ended");
    let _all: [_; 2] = begin(&stays);
}

#[test]
fn leases_are_renewed_in_a_redis_that_lost_its_data() {
    let mut redis = RedisServer::start();
    let slow = Slow::halfway();
    let refuses = config(&slow, "max: 2, on_store_error: refuse");
    let [first, second]: [Gateway; 2] = proxies(&redis, &refuses);
    let _held: [_; 2] = begin(&first);
    redis.kill();
    assert_eq!([status(&first), status(&second)], [503, 503]);
    redis.start_again();
    wait_until_lent(&redis, 2);
    wait_up(&second);
    assert_eq!(status(&second), 429);
    slow.gate.let_pass(2);
    wait_until_lent(&redis, 0);
}

#[test]
fn without_redis_each_proxy_counts_locally_and_reports_leases_afterwards() {
    let mut redis = RedisServer::start();
    let slow = Slow::halfway();
    let [first, second]: [Gateway; 2] = proxies(&redis, &config(&slow, "max: 3"));
    let _before: [_; 3] = begin(&first);
    redis.kill();
    let _alone: [_; 3] = begin(&first);
    assert_eq!(status(&first), 429, "no more than it has alone");
    let _other: [_; 3] = begin(&second);
    assert_eq!(status(&second), 429);
    assert_eq!((in_use(&first), in_use(&second)), (6, 3));
    redis.start_again();
    wait_until_lent(&redis, 9);
    wait_up(&second);
    assert_eq!((status(&first), status(&second)), (429, 429));
    slow.gate.let_pass(7);
    wait_until_lent(&redis, 2);
    let _free: [_; 1] = begin(&second);
    assert_eq!(status(&first), 429);
    assert_eq!(slow.gate.most(), 9);
}

#[test]
fn a_reload_to_another_store_returns_leases_to_the_first() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let config = format!(
        "store: {{ redis: {{ url: \"redis://{}\", timeout: 500ms, secret: sixteen-characters }} }}\n{}",
        redis.address,
        config(&slow, "max: 2")
    );
    let gateway = Gateway::start(&config);
    wait_up(&gateway);
    let held: [_; 2] = begin(&gateway);
    gateway.reload(&config.replace("characters", "characters, prefix: \"other:\""));
    wait_up(&gateway);
    let _new: [_; 2] = begin(&gateway);
    assert_eq!((status(&gateway), lent(&redis)), (429, 4));
    drop(held);
    let started = now();
    wait_for("the old ones", || {
        let old = command(&redis, &["KEYS", "sluicegate:*:leases"]);
        (old == Value::Array(Vec::new())).then_some(())
    });
    assert!(started.elapsed() < SOON, "given back, not expired");
    assert_eq!(status(&gateway), 429, "the new ones are where they were");
    slow.gate.let_pass(ALL);
    wait_until_lent(&redis, 0);
}

#[test]
fn leases_and_memory_charges_are_taken_together_or_not_at_all() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let [gateway] = proxies(
        &redis,
        &format!(
            "policies:
  slots: {{ store: redis, key: constant, algorithm: concurrency, max: 1 }}
  here: {{ key: constant, quota: 3/1h }}
  watch: {{ store: redis, key: constant, algorithm: concurrency, max: 1, mode: shadow }}
  soft: {{ store: redis, key: constant, algorithm: concurrency, max: 1, on_limit: {{ action: tag }} }}
routes: [{{ name: a, upstream: '{}', limits: [here, slots, watch, soft] }}]
",
            slow.origin.url()
        ),
    );
    for _ in 0..3 {
        let [held] = begin(&gateway);
        assert_eq!(lent(&redis), 3);
        assert_eq!([(); 5].map(|()| status(&gateway)), [429; 5]);
        slow.gate.let_pass(1);
        wait_until_lent(&redis, 0);
        drop(held);
    }
    assert_eq!(status(&gateway), 429, "memory has given three");
    assert_eq!(lent(&redis), 0);
}

/// A request for more than `max` permits never gets them, so that it takes no place of those who will.
#[test]
fn a_cost_above_max_does_not_wait_beside_a_policy_in_redis() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "{}policies:
  slots: {{ key: constant, algorithm: concurrency, max: 2, queue: 2, max_wait: 1h, cost: {{ header: x-cost, max: 9 }} }}
  shared: {{ key: constant, store: redis, quota: 9/300d }}
routes: [{{ upstream: echo, limits: [slots, shared] }}]
",
        store(redis.address)
    ));
    wait_up(&gateway);
    for _ in 0..3 {
        assert_eq!(
            get_with(gateway.address(), "/", "x-cost: 3\r\n").status,
            429
        );
    }
    assert_eq!(
        get_with(gateway.address(), "/", "x-cost: 2\r\n").status,
        200
    );
}
