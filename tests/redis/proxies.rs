//! Policies in Redis as clients see them: several real proxies, and a redis-server of the test's
//! own that may be slow, gone, or of another kind.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, Response, get, get_with};
use crate::support::fault_proxy::{FaultProxy, Weather};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::redis::command;
use crate::support::shared::{retry_after, store, wait_up};
use crate::support::{now, wait_for};

/// Far above the deadline of a call, even on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// A policy `shared` in Redis on all paths, and the echo.
fn shared(address: std::net::SocketAddr, policy: &str) -> String {
    format!(
        "{}policies: {{ shared: {{ store: redis, key: \"header:x-key\", {policy} }} }}
routes: [{{ upstream: echo, limits: [shared] }}]
",
        store(address)
    )
}

fn ask(gateway: &Gateway, key: &str) -> Response {
    get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"))
}

fn calls(gateway: &Gateway) -> f64 {
    let series = "sluicegate_store_requests_total{op=\"call\",result=\"ok\"}";
    gateway.metric(series).unwrap_or_default()
}

#[test]
fn several_proxies_admit_exactly_the_quota_together() {
    let redis = RedisServer::start();
    for algorithm in [
        "gcra",
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "token_bucket",
    ] {
        let config = shared(
            redis.address,
            &format!("quota: 100/300d, algorithm: {algorithm}"),
        );
        let config = config.replace("shared", algorithm);
        let gateways = [(); 3].map(|()| Gateway::start(&config));
        gateways.iter().for_each(|gateway| {
            ask(gateway, "other");
            wait_up(gateway);
        });
        let start = Barrier::new(12);
        let admitted: usize = thread::scope(|scope| {
            let clients: Vec<_> = (0..12)
                .map(|client| {
                    let (gateway, start) = (&gateways[client % 3], &start);
                    scope.spawn(move || {
                        let mut connection = Connection::open(gateway.address());
                        let request = "GET / HTTP/1.1\r\nHost: a\r\nx-key: one\r\n\r\n";
                        start.wait();
                        let answers = (0..25).map(|_| connection.exchange(request).status);
                        answers.filter(|status| *status == 200).count()
                    })
                })
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().expect("no panic"))
                .sum()
        });
        assert_eq!(admitted, 100, "{algorithm}");
    }
}

#[test]
fn a_policy_in_redis_answers_like_one_in_memory() {
    let redis = RedisServer::start();
    for policy in [
        "quota: 5/1h, algorithm: fixed_window, start: first_request",
        "quota: 5/1h, algorithm: gcra, burst: 3",
        "quota: 5/1h, algorithm: sliding_log",
        "quota: 5/1d, algorithm: fixed_window, time_zone: Asia/Tokyo",
    ] {
        let there = Gateway::start(&shared(redis.address, policy));
        let here = shared(redis.address, policy).replace("store: redis, ", "");
        let here = Gateway::start(&here[here.find("policies").expect("a policy")..]);
        ask(&there, "other");
        wait_up(&there);
        for _ in 0..7 {
            let answers = [&there, &here].map(|gateway| {
                let answer = ask(gateway, policy);
                let said = |name| answer.header(name).unwrap_or_default().to_owned();
                let numbers = said("ratelimit");
                // A second may pass between the two.
                let remaining = numbers.split(";t=").next().unwrap_or_default().to_owned();
                let retry_after: u64 = said("retry-after").parse().unwrap_or_default();
                (
                    answer.status,
                    said("ratelimit-policy"),
                    remaining,
                    retry_after,
                )
            });
            let [
                (status, quota, left, retry),
                (status2, quota2, left2, retry2),
            ] = answers;
            assert_eq!((status, quota, left), (status2, quota2, left2), "{policy}");
            assert!(retry.abs_diff(retry2) <= 2, "{policy}: {retry} {retry2}");
        }
    }
}

#[test]
fn a_cached_refusal_costs_no_call_until_it_is_too_old() {
    let redis = RedisServer::start();
    let config = shared(redis.address, "quota: 2/1h");
    let gateway = Gateway::start(&config.replace("characters", "characters, refusal_cache: 1m"));
    assert_eq!([(); 3].map(|()| ask(&gateway, "a").status), [200, 200, 429]);
    let before = calls(&gateway);
    for _ in 0..50 {
        let refused = ask(&gateway, "a");
        assert_eq!(refused.status, 429);
        assert!(
            refused
                .expect_header("retry-after")
                .parse::<u64>()
                .expect("seconds")
                > 1_000
        );
    }
    assert_eq!(calls(&gateway), before);
    assert_eq!(ask(&gateway, "b").status, 200, "others are asked");

    // A grant elsewhere takes effect after the documented time.
    let gateway = Gateway::start(&config.replace("characters", "characters, refusal_cache: 100ms"));
    assert_eq!(ask(&gateway, "a").status, 429);
    command(&redis, &["FLUSHALL"]);
    wait_for("the grant", || {
        (ask(&gateway, "a").status == 200).then_some(())
    });
}

#[test]
fn memory_and_redis_are_charged_together_or_not_at_all() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "{}policies:
  here: {{ key: \"header:x-key\", quota: 5/1h }}
  there: {{ key: \"header:x-key\", quota: 3/1h, store: redis }}
routes:
  - {{ match: {{ path: /both }}, upstream: echo, limits: [here, there] }}
  - {{ match: {{ path: /here }}, upstream: echo, limits: [here] }}
  - {{ match: {{ path: /there }}, upstream: echo, limits: [there] }}
",
        store(redis.address).replace("characters", "characters, refusal_cache: 0s")
    ));
    let ask = |path| get_with(gateway.address(), path, "x-key: a\r\n");
    ask("/there");
    wait_up(&gateway);
    command(&redis, &["FLUSHALL"]);
    let statuses = [(); 8].map(|()| ask("/both").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429, 429]);
    // Five refusals by Redis cost memory nothing, and the responses say so.
    let refused = ask("/both");
    assert_eq!(refused.headers_of("ratelimit").len(), 1);
    assert!(
        refused.expect_header("ratelimit").contains("\"here\";r=2"),
        "{refused:?}"
    );
    assert_eq!([(); 3].map(|()| ask("/here").status), [200, 200, 429]);
    // A refusal by memory costs Redis nothing.
    command(&redis, &["FLUSHALL"]);
    let before = calls(&gateway);
    assert_eq!([(); 5].map(|()| ask("/both").status), [429; 5]);
    assert_eq!(calls(&gateway), before);
    assert_eq!([(); 4].map(|()| ask("/there").status), [200, 200, 200, 429]);
}

#[test]
fn policies_with_different_keys_are_charged_together_or_not_at_all() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "{}policies:
  person: {{ key: \"header:x-key\", quota: 3/1h, store: redis }}
  all: {{ key: constant, quota: 5/1h, store: redis }}
routes:
  - {{ upstream: echo, limits: [person, all] }}
",
        store(redis.address).replace("characters", "characters, refusal_cache: 0s")
    ));
    assert_eq!(
        [(); 4].map(|()| ask(&gateway, "a").status),
        [200, 200, 200, 429]
    );
    let refused = ask(&gateway, "a");
    let said = refused.expect_header("ratelimit");
    assert!(
        said.contains("\"all\";r=2"),
        "what refuses charges no other: {said}"
    );
    assert_eq!([(); 3].map(|()| ask(&gateway, "b").status), [200, 200, 429]);
    // One call each.
    assert_eq!(calls(&gateway), 8.0);
}

#[test]
fn without_redis_each_policy_follows_its_on_store_error() {
    let mut redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "{}policies:
  local: {{ key: \"header:x-key\", quota: 3/1h, store: redis }}
  admit: {{ key: \"header:x-key\", quota: 3/1h, store: redis, on_store_error: admit }}
  refuse: {{ key: \"header:x-key\", quota: 3/1h, store: redis, on_store_error: refuse }}
  here: {{ key: \"header:x-key\", quota: 100/1h }}
routes:
  - {{ match: {{ path: /local }}, upstream: echo, limits: [local] }}
  - {{ match: {{ path: /admit }}, upstream: echo, limits: [admit] }}
  - {{ match: {{ path: /refuse }}, upstream: echo, limits: [here, refuse] }}
",
        store(redis.address)
    ));
    let ask = |path: &str| {
        let started = now();
        let answer = get_with(gateway.address(), path, "x-key: a\r\n");
        assert!(
            started.elapsed() < SOON,
            "{path} took {:?}",
            started.elapsed()
        );
        answer
    };
    assert_eq!(ask("/local").status, 200);
    wait_up(&gateway);
    redis.kill();
    for round in 0..6 {
        let expected = if round < 3 { 200 } else { 429 };
        assert_eq!(
            ask("/local").status,
            expected,
            "this process decides: {round}"
        );
        assert_eq!(ask("/admit").status, 200);
        let refused = ask("/refuse");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.expect_header("retry-after"), "1");
        assert!(
            refused.text().contains("cannot be checked"),
            "{}",
            refused.text()
        );
    }
    let limited =
        "sluicegate_limit_decisions_total{policy=\"refuse\",route=\"refuse\",decision=\"error\"}";
    assert_eq!(gateway.metric(limited), Some(6.0));
    assert_eq!(gateway.metric("sluicegate_store_up"), Some(0.0));
    let ready = get(gateway.admin, "/readyz");
    assert_eq!(ready.status, 503);
    let why = "not ready: policy refuse cannot reach Redis";
    assert!(ready.text().starts_with(why), "{}", ready.text());
    assert!(ready.text().contains("redis: down: "), "{}", ready.text());
    gateway.wait_for_log("out of use");
    // The refused charges were given back to memory.
    redis.start_again();
    wait_up(&gateway);
    let answer = ask("/refuse");
    assert_eq!(answer.status, 200);
    assert!(
        answer.expect_header("ratelimit").contains("\"here\";r=99"),
        "{answer:?}"
    );
    assert_eq!(
        ask("/local").status,
        200,
        "Redis decides, which knows nothing"
    );
    let said = gateway.log().matches("out of use").count();
    assert_eq!(said, 1, "one line, not a flood: {}", gateway.log());
}

#[test]
fn no_network_failure_fails_a_request_or_delays_it_beyond_the_deadline() {
    let redis = RedisServer::start();
    let network = FaultProxy::before(redis.address);
    let config =
        shared(network.address, "quota: 1000000/1h").replace("timeout: 1s", "timeout: 50ms");
    let gateway = Gateway::start(&config);
    ask(&gateway, "a");
    wait_up(&gateway);
    for weather in [
        Weather::Silent,
        Weather::Deaf,
        Weather::Slow(Duration::from_millis(300)),
        Weather::Garbage,
        Weather::Cut(10),
        Weather::Refuse,
    ] {
        network.set(weather);
        if matches!(weather, Weather::Refuse) {
            network.drop_connections();
        }
        for _ in 0..20 {
            let started = now();
            assert_eq!(ask(&gateway, "a").status, 200, "{weather:?}");
            assert!(
                started.elapsed() < SOON,
                "{weather:?} took {:?}",
                started.elapsed()
            );
        }
        network.set(Weather::Fair);
        wait_up(&gateway);
        let before = calls(&gateway);
        wait_for("Redis to decide again", || {
            ask(&gateway, "a");
            (calls(&gateway) > before).then_some(())
        });
    }
    redis.stop();
    for _ in 0..20 {
        let started = now();
        assert_eq!(ask(&gateway, "a").status, 200);
        assert!(started.elapsed() < SOON);
    }
    redis.go_on();
    wait_up(&gateway);
}

#[test]
fn a_key_of_another_program_is_left_alone_and_named_in_the_log() {
    let redis = RedisServer::start();
    let config = shared(redis.address, "quota: 2/1h")
        .replace("secret: sixteen-characters", "readable_keys: true");
    command(&redis, &["RPUSH", "sluicegate:probe", "theirs"]);
    let gateway = Gateway::start(&config);
    assert_eq!(ask(&gateway, "a").status, 200);
    wait_up(&gateway);
    let probe = command(&redis, &["LRANGE", "sluicegate:probe", "0", "-1"]);
    assert!(format!("{probe:?}").contains("theirs"), "{probe:?}");
    let keys = command(&redis, &["KEYS", "*{a}*"]);
    assert!(
        format!("{keys:?}").contains("sluicegate:{a}shared:gcra:1h"),
        "{keys:?}"
    );
    command(&redis, &["DEL", "sluicegate:{b}shared:gcra:1h"]);
    command(&redis, &["RPUSH", "sluicegate:{b}shared:gcra:1h", "mine"]);
    assert_eq!(
        [(); 3].map(|()| ask(&gateway, "b").status),
        [200, 200, 429],
        "decided here"
    );
    let kept = command(
        &redis,
        &["LRANGE", "sluicegate:{b}shared:gcra:1h", "0", "-1"],
    );
    assert!(format!("{kept:?}").contains("mine"), "{kept:?}");
    command(
        &redis,
        &["SET", "sluicegate:{sk_live}shared:gcra:1h", "mine"],
    );
    assert_eq!(ask(&gateway, "sk_live").status, 200);
    gateway.wait_for_log("sluicegate:{..}shared:gcra:1h");
    assert!(!gateway.log().contains("sk_live"));
    assert_eq!(ask(&gateway, "a").status, 200, "others go on");
    let failed = "sluicegate_store_requests_total{op=\"call\",result=\"script\"}";
    assert!(gateway.metric(failed) >= Some(3.0));
}

#[test]
fn a_reload_keeps_the_buckets_and_applies_a_changed_quota_at_once() {
    let redis = RedisServer::start();
    let config = shared(redis.address, "quota: 3/1h, algorithm: fixed_window");
    // One worker: another would connect with its first request, at any time.
    let config = format!("workers: 1\n{config}");
    let gateway = Gateway::start(&config.replace("characters", "characters, refusal_cache: 1m"));
    ask(&gateway, "other");
    wait_up(&gateway);
    assert_eq!(
        [(); 4].map(|()| ask(&gateway, "a").status),
        [200, 200, 200, 429]
    );
    gateway.reload(&config.replace("3/1h", "5/1h"));
    assert_eq!([(); 3].map(|()| ask(&gateway, "a").status), [200, 200, 429]);
    // The connections are the same.
    let connects = "sluicegate_store_requests_total{op=\"call\",result=\"unsent\"}";
    let unsent = gateway.metric(connects).unwrap_or_default();
    gateway.reload(&config.replace("3/1h", "6/1h"));
    assert_eq!([(); 2].map(|()| ask(&gateway, "a").status), [200, 429]);
    assert_eq!(gateway.metric(connects).unwrap_or_default(), unsent);
}

/// The earlier quota has left more use than the new one has room for, and would keep it for an
/// hour.
#[test]
fn after_a_reload_a_refused_client_gets_the_new_quota_and_the_announced_retry() {
    let redis = RedisServer::start();
    for algorithm in [
        "gcra",
        "token_bucket",
        "fixed_window",
        "sliding_window",
        "sliding_log",
    ] {
        let config = |quota: &str| {
            format!(
                "{}policies: {{ {algorithm}: {{ store: redis, key: header:x-key, quota: {quota}, algorithm: {algorithm} }} }}
routes: [{{ upstream: echo, limits: [{algorithm}] }}]
",
                store(redis.address)
            )
        };
        let gateway = Gateway::start(&config("20/1h"));
        wait_up(&gateway);
        assert_eq!([(); 20].map(|()| ask(&gateway, "a").status), [200; 20]);
        gateway.reload(&config("4/1s"));
        let mut waits = Vec::new();
        for _ in 0..6 {
            let answer = ask(&gateway, "a");
            if answer.status == 429 {
                waits.push(retry_after(&answer));
                thread::sleep(Duration::from_secs(retry_after(&answer)));
            }
        }
        // In a sliding window the part before this one counts, too.
        assert!(waits.len() <= 2, "{algorithm}: {waits:?}");
        assert!(
            waits.iter().all(|wait| *wait <= 2),
            "{algorithm}: {waits:?}"
        );
    }
}

#[test]
fn a_proxy_is_not_ready_while_a_policy_refuses_for_want_of_redis() {
    let redis = RedisServer::with_options(&["--requirepass", "right"]);
    let network = FaultProxy::before(redis.address);
    let config = |password: &str, policy: &str| {
        let config = shared(network.address, &format!("quota: 100/1h, {policy}"));
        let store = format!("startup_timeout: 0s, password: {password}, timeout:");
        config.replace("timeout:", &store)
    };
    let mut gateway = Gateway::start_unready(&config("wrong", "on_store_error: refuse"));
    let address = gateway.listeners(1)[0];
    let admin = gateway.admin;
    let readiness = || get(admin, "/readyz");
    let wait_unready = |reason: &str| {
        let unready = wait_for("it not to be ready", || {
            let answer = readiness();
            (answer.status == 503 && answer.text().contains(reason)).then_some(answer)
        });
        let text = unready.text();
        let why = "not ready: policy shared cannot reach Redis, and on_store_error is refuse\nredis: down: ";
        assert!(text.starts_with(why), "{text}");
        assert_eq!(unready.expect_header("retry-after"), "1");
    };
    let wait_ready = || {
        wait_for("it to be ready", || {
            (readiness().status == 200).then_some(())
        });
    };
    wait_unready("does not take the user and password");
    let refused = get(address, "/");
    assert_eq!(
        (refused.status, refused.expect_header("retry-after")),
        (503, "1")
    );

    gateway.reload(&config("right", "on_store_error: refuse"));
    wait_ready();
    assert_eq!(get_with(address, "/", "x-key: a\r\n").status, 200);

    network.set(Weather::Refuse);
    network.drop_connections();
    wait_unready("refuses connections");
    network.set(Weather::Fair);
    wait_ready();

    // Shadowed policies, and those that decide without Redis, refuse no request.
    network.set(Weather::Refuse);
    network.drop_connections();
    wait_unready("refuses connections");
    for policy in [
        "on_store_error: local",
        "on_store_error: refuse, mode: shadow",
    ] {
        gateway.reload(&config("right", policy));
        let ready = readiness();
        assert_eq!(ready.status, 200, "{policy}: {}", ready.text());
        assert!(ready.text().contains("redis: down: "), "{}", ready.text());
        assert_eq!(get_with(address, "/", "x-key: a\r\n").status, 200);
    }
}
