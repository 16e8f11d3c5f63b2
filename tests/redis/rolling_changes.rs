//! Proxies with different configurations of one policy, as during a rolling change of its quota.

use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::costs::origin;
use crate::support::gateway::Gateway;
use crate::support::now;
use crate::support::redis::RedisServer;
use crate::support::shared::{retry_after, store, wait_up};
use crate::support::synchronised::after_rounds;

/// A policy of this name on everything.
fn config(redis: &RedisServer, name: &str, policy: &str) -> String {
    format!(
        "{}policies: {{ {name}: {{ store: redis, key: constant, {policy} }} }}
routes: [{{ upstream: echo, limits: [{name}] }}]
",
        store(redis.address).replace("characters", "characters, refusal_cache: 0s")
    )
}

fn start(config: &str) -> Gateway {
    let gateway = Gateway::start(config);
    wait_up(&gateway);
    gateway
}

/// The number admitted of 100 requests at each of two proxies, with quotas of 40 and 60.
fn admitted(redis: &RedisServer, name: &str, policy: &str) -> usize {
    let quotas = [40, 60].map(|quota| format!("quota: {quota}/300d, {policy}"));
    let gateways = quotas.map(|policy| start(&config(redis, name, &policy)));
    let ask = |gateway: &Gateway| {
        let mut connection = Connection::open(gateway.address());
        let answers = (0..50).map(|_| connection.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        answers.filter(|answer| answer.status == 200).count()
    };
    thread::scope(|scope| {
        let twice = gateways.iter().chain(&gateways);
        let clients: Vec<_> = twice
            .map(|gateway| scope.spawn(move || ask(gateway)))
            .collect();
        let clients = clients.into_iter();
        clients.map(|client| client.join().expect("no panic")).sum()
    })
}

#[test]
fn proxies_with_different_quotas_admit_the_larger_quota() {
    let redis = RedisServer::start();
    for algorithm in ["gcra", "fixed_window", "sliding_window", "sliding_log"] {
        let policy = format!("algorithm: {algorithm}");
        assert_eq!(admitted(&redis, algorithm, &policy), 60, "{algorithm}");
        // Further requests add debt, so that it may be less.
        let policy = format!("algorithm: {algorithm}, charge_refused: true");
        let admitted = admitted(&redis, &format!("owing-{algorithm}"), &policy);
        assert!((40..=60).contains(&admitted), "{algorithm}: {admitted}");
    }
}

/// Costs settled by responses: the bucket has the other proxy's quota as often as not when a response
/// says what it used.
#[test]
fn proxies_with_different_quotas_settle_every_cost() {
    const CLIENTS: usize = 4;
    let origin = origin();
    for algorithm in [
        "algorithm: gcra, quota: QUOTA/300d",
        "algorithm: token_bucket, capacity: QUOTA, refill: 1 per 1d",
        "algorithm: fixed_window, quota: QUOTA/1y",
        "algorithm: sliding_window, quota: QUOTA/300d",
    ] {
        // More than was reserved is charged, and less given back.
        for (reserve, used) in [(10, 100), (100, 10)] {
            let redis = RedisServer::start();
            let gateways = [1_000, 2_000].map(|quota| {
                let cost = format!(
                    "cost: {{ response_header: x-tokens-used, reserve: {reserve}, max: 500 }}"
                );
                let policy = format!("{}, {cost}", algorithm.replace("QUOTA", &quota.to_string()));
                start(&config(&redis, "p", &policy).replace("echo", &origin.url()))
            });
            let ask = |gateway: &Gateway| {
                let mut connection = Connection::open(gateway.address());
                let line = format!("GET /used/{used} HTTP/1.1\r\nHost: a\r\n\r\n");
                let answers = (0..200).map(|_| connection.exchange(&line).status);
                answers.filter(|status| *status == 200).count()
            };
            let admitted: usize = thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|client| &gateways[client % 2])
                    .map(|gateway| scope.spawn(move || ask(gateway)))
                    .collect();
                let clients = clients.into_iter();
                clients.map(|client| client.join().expect("no panic")).sum()
            });
            let lost = |gateway: &Gateway| {
                gateway.metric("sluicegate_store_lost_total{what=\"settlement\"}")
            };
            let lost = gateways.each_ref().map(lost);
            assert!(
                lost.iter().all(|lost| lost.unwrap_or(0.0) == 0.0),
                "{lost:?}"
            );
            let most = 2_000 + CLIENTS * used;
            let units = admitted * used;
            assert!(
                (1_900..=most).contains(&units),
                "{units}: {algorithm} {reserve}"
            );
        }
    }
}

/// A process that starts reloads nothing: values of other machines are carried over as they are at
/// that moment, not as of the start.
#[test]
fn a_machine_that_has_just_started_carries_values_of_others_over_exactly() {
    let redis = RedisServer::start();
    for algorithm in ["gcra", "token_bucket"] {
        let config = |quota| {
            let policy = format!("quota: {quota}/300d, algorithm: {algorithm}");
            config(&redis, algorithm, &policy)
        };
        let small = start(&config(40));
        thread::sleep(Duration::from_secs(2));
        let large = start(&config(60));
        let admitted = admitted_in_turn(&[&large, &small], 2) + admitted_in_turn(&[&large], 60);
        assert_eq!(admitted, 60, "{algorithm}");
    }
}

/// A window that is filled again to the same count has its old value.
#[test]
fn alternating_between_different_quotas_gains_nothing() {
    let redis = RedisServer::start();
    for algorithm in ["fixed_window", "sliding_window", "sliding_log", "gcra"] {
        let policies = [3, 2].map(|quota| format!("quota: {quota}/300d, algorithm: {algorithm}"));
        let gateways = policies.map(|policy| start(&config(&redis, algorithm, &policy)));
        let started = now();
        let mut admitted = 0;
        while started.elapsed() < Duration::from_secs(2) {
            for gateway in gateways.iter().rev() {
                admitted += usize::from(get(gateway.address(), "/").status == 200);
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(admitted, 3, "{algorithm}");
    }
}

#[test]
fn machines_reloaded_together_announce_the_same_retry_instant() {
    let redis = RedisServer::start();
    let quota = |quota: &str| config(&redis, "p", &format!("quota: {quota}"));
    let gateways = [(); 3].map(|()| start(&quota("20/6s")));
    for _ in 0..20 {
        assert_eq!(get(gateways[0].address(), "/").status, 200);
    }
    for gateway in &gateways {
        gateway.reload(&quota("15/6s"));
    }
    let refused = gateways.each_ref().map(|one| get(one.address(), "/"));
    let waits = refused.map(|refused| {
        assert_eq!(refused.status, 429);
        retry_after(&refused)
    });
    assert!(waits.iter().all(|wait| (1..=3).contains(wait)), "{waits:?}");
    thread::sleep(Duration::from_secs(waits[0]));
    assert_eq!(get(gateways[1].address(), "/").status, 200);
}

/// Each window, and each precision, has buckets of its own. They start full once.
#[test]
fn proxies_with_different_windows_admit_both_quotas_once() {
    let redis = RedisServer::start();
    let kinds = [
        ("10/300d", "10/200d", "algorithm: gcra"),
        (
            "10/300d",
            "10/200d",
            "algorithm: fixed_window, start: first_request",
        ),
        ("10/300d", "10/200d", "algorithm: sliding_log"),
        (
            "10/300d",
            "10/300d, precision: 10",
            "algorithm: sliding_window",
        ),
    ];
    for (place, (first, second, kind)) in kinds.into_iter().enumerate() {
        let of = |quota| {
            config(
                &redis,
                &format!("p{place}"),
                &format!("{kind}, quota: {quota}"),
            )
        };
        let gateways = [first, second].map(|quota| start(&of(quota)));
        let [one, two] = &gateways;
        assert_eq!(admitted_in_turn(&[one, two], 60), 20, "{kind}");
        if place == 0 {
            one.wait_for_log(
                "nodes differ: policy `p0` has the algorithm gcra:300d here and gcra:200d on",
            );
        }
        two.reload(&of(first));
        one.reload(&of(second));
        assert_eq!(admitted_in_turn(&[one, two], 20), 0, "{kind}");
    }
}

/// The number admitted of `count` requests that go to these proxies in turn.
fn admitted_in_turn(gateways: &[&Gateway], count: usize) -> usize {
    let turns = gateways.iter().cycle().take(count);
    turns
        .filter(|gateway| get(gateway.address(), "/").status == 200)
        .count()
}

const DIFFERENT: [&str; 2] = ["algorithm: gcra", "algorithm: fixed_window"];

/// Otherwise each proxy would take the other's values for new buckets, and nobody would ever be
/// refused.
#[test]
fn proxies_with_different_algorithms_admit_both_quotas_and_log_the_difference() {
    let redis = RedisServer::start();
    let policies =
        DIFFERENT.map(|policy| config(&redis, "p", &format!("quota: 10/300d, {policy}")));
    let gateways = policies.map(|config| start(&config));
    let [gcra, fixed] = &gateways;
    assert_eq!(admitted_in_turn(&[gcra, fixed], 100), 20);
    gcra.wait_for_log("nodes differ: policy `p` has the algorithm gcra here and fixed_window on");
    fixed.wait_for_log("nodes differ: policy `p` has the algorithm fixed_window here and gcra on");
    // The rolling deploy goes on.
    gcra.reload(&config(
        &redis,
        "p",
        "quota: 10/300d, algorithm: fixed_window",
    ));
    assert_eq!(admitted_in_turn(&[gcra, fixed], 20), 0);
    fixed.wait_for_log("nodes agree again: policy `p` has the algorithm fixed_window");
}

#[test]
fn a_reload_that_changes_the_algorithm_starts_new_buckets_once() {
    let redis = RedisServer::start();
    let [gcra, fixed] =
        DIFFERENT.map(|policy| config(&redis, "p", &format!("quota: 10/300d, {policy}")));
    let gateway = start(&gcra);
    assert_eq!(admitted_in_turn(&[&gateway], 15), 10);
    gateway.reload(&fixed);
    assert_eq!(admitted_in_turn(&[&gateway], 15), 10);
    // The charges of the first are still there.
    for config in [&gcra, &fixed] {
        gateway.reload(config);
        assert_eq!(admitted_in_turn(&[&gateway], 5), 0);
    }
    let log = gateway.log();
    assert!(!log.contains("nodes differ"), "it is one node: {log}");
}

#[test]
fn synchronised_proxies_with_different_algorithms_admit_both_quotas() {
    let redis = RedisServer::start();
    let gateways = ["gcra", "sliding_window"].map(|algorithm| {
        let policy = format!("quota: 10/1h, sync: 20ms, algorithm: {algorithm}");
        start(&config(&redis, "p", &policy))
    });
    let [gcra, sliding] = &gateways;
    let mut admitted = 0;
    for _ in 0..4 {
        admitted += admitted_in_turn(&[gcra, sliding], 12);
        gateways.iter().for_each(|gateway| after_rounds(gateway, 2));
    }
    assert_eq!(admitted, 20);
    gcra.wait_for_log("nodes differ: policy `p` has the algorithm gcra here and sliding_window on");
    // The reload starts new buckets here, and joins the proxies with the same algorithm.
    gcra.reload(&config(
        &redis,
        "p",
        "quota: 10/1h, sync: 20ms, algorithm: sliding_window",
    ));
    assert_eq!(admitted_in_turn(&[gcra], 1), 1, "nothing was heard yet");
    after_rounds(gcra, 2);
    assert_eq!(admitted_in_turn(&[gcra], 5), 0);
}
