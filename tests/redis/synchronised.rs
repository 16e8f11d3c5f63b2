//! Synchronised policies as clients see them: several real proxies that share a redis-server, which
//! may be slow, gone, or empty. `tests/redis/synchronised_kinds.rs` has each kind of policy.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::costs::left;
use crate::support::fault_proxy::{FaultProxy, Weather};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::redis::{SLACK, command};
use crate::support::synchronised::{
    after_rounds, config, longest_round, most_within, rounds, wait_up,
};
use crate::support::{now, wait_for};
use rustix::process::Signal;

/// More than any test charges, in windows that do not end meanwhile.
const MOST: usize = 1_000_000;
const COUNTS: &str = "quota: 1000000/300d, algorithm: fixed_window";

fn ask(gateway: &Gateway) {
    assert_eq!(get(gateway.address(), "/").status, 200);
}

/// Sends requests to each proxy until it knows all charges, with `charged` before. A proxy that
/// counts a charge twice never has as much left; one that misses a charge never has as little.
fn all_know(gateways: &[&Gateway], charged: &mut usize) {
    for gateway in gateways {
        wait_for("it to know what all have charged", || {
            thread::sleep(Duration::from_millis(20));
            *charged += 1;
            let left = left(&get(gateway.address(), "/"));
            assert!(left + *charged >= MOST, "{left} left after {charged}");
            (left + *charged == MOST).then_some(())
        });
    }
}

#[test]
fn under_load_machines_admit_a_quota_and_the_units_not_yet_reported() {
    const NODES: usize = 4;
    const LIMIT: usize = 400;
    const PACE: Duration = Duration::from_millis(5);
    const INTERVAL: Duration = Duration::from_millis(50);
    let redis = RedisServer::start();
    for algorithm in ["gcra", "fixed_window"] {
        let policy = format!("sync: 50ms, quota: {LIMIT}/300d, algorithm: {algorithm}");
        let config = config(redis.address, &[&policy]);
        command(&redis, &["FLUSHALL"]);
        let gateways = [(); NODES].map(|()| Gateway::start(&config));
        gateways.iter().for_each(wait_up);
        let started = now();
        // At this pace each proxy alone would admit its quota in two thirds of the time.
        let admitted: Vec<Vec<Duration>> = thread::scope(|scope| {
            let drive = |gateway: &Gateway| {
                let mut connection = Connection::open(gateway.address());
                let mut admitted = Vec::new();
                while started.elapsed() < PACE * LIMIT as u32 * 3 / 2 {
                    let answer = connection.exchange("GET /0 HTTP/1.1\r\nHost: a\r\n\r\n");
                    if answer.status == 200 {
                        admitted.push(started.elapsed());
                    }
                    thread::sleep(PACE);
                }
                admitted
            };
            let drivers: Vec<_> = gateways
                .iter()
                .map(|gateway| scope.spawn(move || drive(gateway)))
                .collect();
            let ended = drivers.into_iter().map(|driver| driver.join());
            ended.map(|one| one.expect("no driver panics")).collect()
        });
        // docs/redis.md: a quota, and the units that all but one admit within an interval and a
        // round. A busy machine adds the time between an admission and its answer.
        let longest = gateways.iter().map(longest_round).max();
        let round = longest.expect("there are some").max(INTERVAL);
        let unheard = |instants: &Vec<_>| most_within(instants, INTERVAL + round + SLACK);
        let mut unheard: Vec<_> = admitted.iter().map(unheard).collect();
        unheard.sort_unstable();
        let beyond: usize = unheard[1..].iter().sum();
        let total: usize = admitted.iter().map(Vec::len).sum();
        assert!(total >= LIMIT, "{algorithm}: {total} admitted");
        assert!(
            total <= LIMIT + beyond,
            "{algorithm}: {total}, {beyond} beyond"
        );
        assert!(
            total < 2 * LIMIT,
            "{algorithm}: {total}: nobody heard of the others"
        );
        for gateway in &gateways {
            let requests = |op, result| {
                let series =
                    format!("sluicegate_store_requests_total{{op=\"{op}\",result=\"{result}\"}}");
                gateway.metric(&series).unwrap_or_default()
            };
            // No request has called Redis: there was not even a connection for it.
            for result in ["ok", "unsent", "timeout", "connecting"] {
                assert_eq!(requests("call", result), 0.0);
            }
            assert!(requests("background", "ok") > 0.0 && rounds(gateway, "ok") > 0);
            assert_eq!(
                gateway.metric("sluicegate_sync_keys{policy=\"p0\"}"),
                Some(1.0)
            );
            assert_eq!(
                gateway.metric("sluicegate_sync_untracked_total{policy=\"p0\"}"),
                Some(0.0)
            );
        }
    }
}

#[test]
fn a_machine_without_redis_decides_locally_and_catches_up_afterwards() {
    let mut redis = RedisServer::start();
    let between = FaultProxy::before(redis.address);
    let here = |address| config_of(address, "sync: 50ms");
    let lonely = Gateway::start(&here(between.address));
    let others = [(); 2].map(|()| Gateway::start(&here(redis.address)));
    let all = [&lonely, &others[0], &others[1]];
    all.iter().for_each(|gateway| wait_up(gateway));
    let mut charged = 0;
    all_know(&all, &mut charged);

    between.set(Weather::Silent);
    let failed = rounds(&lonely, "failed");
    for _ in 0..40 {
        all.iter().for_each(|gateway| ask_quickly(gateway));
    }
    charged += 120;
    wait_for("a round to fail", || {
        (rounds(&lonely, "failed") > failed).then_some(())
    });
    wait_for("the store to be down", || {
        let ready = get(lonely.admin, "/readyz");
        assert_eq!(ready.status, 200);
        ready.text().contains("redis: down").then_some(())
    });
    all.iter().for_each(|gateway| ask_quickly(gateway));
    charged += 3;
    between.set(Weather::Fair);
    all_know(&all, &mut charged);

    // The server comes back empty, and gets all reports again.
    redis.kill();
    for _ in 0..10 {
        all.iter().for_each(|gateway| ask_quickly(gateway));
    }
    charged += 30;
    redis.start_again();
    all_know(&all, &mut charged);
    all.iter().for_each(|gateway| after_rounds(gateway, 40));
    all_know(&all, &mut charged);
}

fn config_of(address: SocketAddr, sync: &str) -> String {
    let config = config(address, &[&format!("{sync}, {COUNTS}")]);
    config.replace("match: { path: /0 }, ", "")
}

/// The deadline of a call is a second.
fn ask_quickly(gateway: &Gateway) {
    let started = now();
    ask(gateway);
    assert!(started.elapsed() < Duration::from_secs(1), "it waited");
}

#[test]
fn reloads_under_load_lose_nothing_and_count_nothing_twice() {
    let redis = RedisServer::start();
    let between = FaultProxy::before(redis.address);
    let gateways = [(); 2].map(|()| Gateway::start(&config_of(redis.address, "sync: 50ms")));
    gateways.iter().for_each(wait_up);
    let reloads = [
        config_of(redis.address, "sync: 1s"),
        config_of(redis.address, "sync: 10ms").replace("1000000", "999999"),
        // Another address of the same server is another client.
        config_of(between.address, "sync: 50ms"),
        config_of(between.address, "max_keys: 5000, sync: 50ms"),
        config_of(redis.address, "sync: 50ms"),
    ];
    let is_over = &AtomicBool::new(false);
    let mut charged: usize = thread::scope(|scope| {
        let drive = |gateway: &Gateway| {
            let mut connection = Connection::open(gateway.address());
            let mut charged = 0;
            while !is_over.load(SeqCst) {
                let answer = connection.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(answer.status, 200);
                charged += 1;
                thread::sleep(Duration::from_millis(1));
            }
            charged
        };
        let drivers: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || drive(gateway)))
            .collect();
        for config in &reloads {
            after_rounds(&gateways[1], 4);
            gateways[0].reload(config);
        }
        after_rounds(&gateways[0], 4);
        is_over.store(true, SeqCst);
        let ended = drivers.into_iter().map(|driver| driver.join());
        ended.map(|one| one.expect("no driver panics")).sum()
    });
    all_know(&[&gateways[1], &gateways[0]], &mut charged);

    // Without `sync` the policy continues by itself, with all its counts; and its metric series
    // end.
    let alone = config_of(redis.address, "").replace("store: redis, ,", "");
    let alone = &alone[alone.find("policies").expect("a policy")..];
    gateways[0].reload(alone);
    ask(&gateways[1]);
    let known = charged;
    assert_eq!(left(&get(gateways[0].address(), "/")) + known + 1, MOST);
    wait_for("the end of its series, with what ran before", || {
        let keys = gateways[0].metric("sluicegate_sync_keys{policy=\"p0\"}");
        keys.is_none().then_some(())
    });
    assert!(!get(gateways[0].admin, "/readyz").text().contains("redis"));
}

#[test]
fn the_last_charges_of_a_process_reach_its_successor() {
    let redis = RedisServer::start();
    let snapshot = ", memory: { snapshot: { path: buckets, every: 1d } }";
    let config = config_of(redis.address, "sync: 1s")
        .replace(" } }\npolicies", &format!(" }}{snapshot} }}\npolicies"));
    assert!(config.contains(snapshot));
    let config = format!("shutdown: {{ delay: 0s, deadline: 5s }}\n{config}");
    let mut ends = Gateway::start(&config);
    let stays = Gateway::start(&config);
    [&ends, &stays].into_iter().for_each(wait_up);
    (0..25).for_each(|_| ask(&ends));
    ends.signal(Signal::TERM);
    assert!(ends.wait().success());
    let mut charged = 25;
    all_know(&[&stays], &mut charged);

    // Charges of others are not restored from the file a second time.
    let again = ends.start_again();
    again.wait_for_log("buckets=0");
    wait_up(&again);
    all_know(&[&again, &stays], &mut charged);
    [&again, &stays]
        .into_iter()
        .for_each(|gateway| after_rounds(gateway, 4));
    all_know(&[&again, &stays], &mut charged);
}

#[test]
fn an_upgrade_keeps_what_all_have_charged_and_counts_nothing_twice() {
    let redis = RedisServer::start();
    let config = config_of(redis.address, "sync: 50ms");
    let mut upgraded = Gateway::start(&config);
    let stays = Gateway::start(&config);
    [&upgraded, &stays].into_iter().for_each(wait_up);
    (0..25).for_each(|_| ask(&upgraded));
    (0..10).for_each(|_| ask(&stays));
    let mut charged = 35;
    all_know(&[&upgraded, &stays], &mut charged);
    upgraded.upgrade();
    // At once: it doesn't have to learn it from Redis.
    charged += 1;
    assert_eq!(left(&get(upgraded.address(), "/")) + charged, MOST);
    for _ in 0..2 {
        all_know(&[&upgraded, &stays], &mut charged);
        [&upgraded, &stays]
            .into_iter()
            .for_each(|gateway| after_rounds(gateway, 40));
    }
}

#[test]
fn an_upgrade_gives_no_spent_key_a_bucket_again() {
    let redis = RedisServer::start();
    let kinds = ["gcra", "token_bucket", "sliding_window", "fixed_window"];
    let policies = kinds.map(|kind| format!("sync: 50ms, quota: 20/300d, algorithm: {kind}"));
    let policies = policies.each_ref().map(String::as_str);
    let mut upgraded = Gateway::start(&config(redis.address, &policies));
    let stays = Gateway::start(&config(redis.address, &policies));
    [&upgraded, &stays].into_iter().for_each(wait_up);
    let ask = |gateway: &Gateway, place: usize| get(gateway.address(), &format!("/{place}")).status;
    for place in 0..kinds.len() {
        (0..12).for_each(|_| assert_eq!(ask(&upgraded, place), 200));
        after_rounds(&upgraded, 2);
        wait_for("the other to know", || {
            after_rounds(&stays, 1);
            (ask(&stays, place) == 429).then_some(())
        });
    }
    after_rounds(&upgraded, 4);
    for _ in 0..2 {
        upgraded.upgrade();
        for (place, kind) in kinds.iter().enumerate() {
            assert_eq!(ask(&upgraded, place), 429, "{kind}");
        }
    }
}
