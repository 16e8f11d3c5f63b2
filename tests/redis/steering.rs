//! One key that three machines share, steered through one of them.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, problem};
use crate::support::gateway::Gateway;
use crate::support::outage::count;
use crate::support::redis::RedisServer;
use crate::support::redis::command;
use crate::support::shared::{ask, proxies, store, wait_up};
use crate::support::steering::{UNTIL, admitted, config, grant, lookup, shared_config, steer};
use crate::support::wait_for;

/// The documented time in which all machines feel an action, with much to spare.
const SECOND: Duration = Duration::from_secs(1);
/// The batches of a machine without `sync` and penalties within which it reads an announcement: one
/// that was under way, the reading itself, and one that compares algorithms; one more until the
/// read action is applied.
const BATCHES_TO_HEAR: f64 = 4.0;

/// Waits until a request to this gateway is answered so.
fn wait_for_status(gateway: &Gateway, path: &str, status: u16) {
    wait_for("the action", || {
        (ask(gateway, path).status == status).then_some(())
    });
}

/// Waits until requests to these gateways are answered so, after the answer of the API. Asserts that
/// each feels the action with its next reading of announcements, whatever time the machine takes.
fn wait_for_next_reading(gateways: &[Gateway], path: &str, status: u16) {
    let batches = |gateway| count(gateway, "background", "ok");
    let before: Vec<_> = gateways.iter().map(batches).collect();
    for (gateway, before) in gateways.iter().zip(before) {
        wait_for("the action", || {
            let so_far = batches(gateway) - before;
            let is_felt = ask(gateway, path).status == status;
            assert!(
                is_felt || so_far < BATCHES_TO_HEAR,
                "{path} is not felt after {so_far} batches"
            );
            is_felt.then_some(())
        });
    }
}

const KINDS: [&str; 7] = [
    "quota: 6/300d",
    "quota: 6/300d, algorithm: token_bucket",
    "capacity: 6, refill: 6 per 300d, algorithm: token_bucket",
    "quota: 6/300d, algorithm: fixed_window",
    "quota: 6/300d, algorithm: sliding_window",
    "quota: 6/300d, algorithm: sliding_window, precision: 60",
    "quota: 6/300d, algorithm: sliding_log",
];

#[test]
fn a_reset_through_one_machine_is_felt_on_all_within_a_second() {
    let redis = RedisServer::start();
    // A refusal that is remembered for a minute would outlast the second.
    let text = store(redis.address).replace("characters", "characters, refusal_cache: 1m");
    let text = format!("{text}{}", shared_config(&KINDS));
    let gateways = [(); 3].map(|()| Gateway::start(&text));
    gateways.iter().for_each(wait_up);
    for (place, kind) in KINDS.iter().enumerate() {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        assert_eq!(admitted(&gateways[0], &path, "a"), 6, "{kind}");
        for gateway in &gateways {
            assert_eq!(ask(gateway, &path).status, 429);
            let state = lookup(gateway, &policy, "a");
            assert_eq!(
                (&state["used"], &state["store"]),
                (&json!(6), &json!("redis"))
            );
            assert_eq!(state["stored"], true);
            assert_eq!(lookup(gateway, &policy, "another")["stored"], false);
        }
        assert_eq!(steer(&gateways[0], "reset", &policy, json!({}))["used"], 0);
        wait_for_next_reading(&gateways, &path, 200);
        assert_eq!(lookup(&gateways[1], &policy, "a")["used"], 3);
        let left: usize = gateways
            .iter()
            .map(|gateway| admitted(gateway, &path, "a"))
            .sum();
        assert_eq!(left, 3, "{kind}");
    }
}

#[test]
fn a_grant_is_shared_by_all_machines_and_spent_once() {
    let redis = RedisServer::start();
    let gateways: [Gateway; 3] = proxies(&redis, &shared_config(&KINDS));
    for (place, kind) in KINDS.iter().enumerate() {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        assert_eq!(admitted(&gateways[0], &path, "a"), 6);
        gateways
            .iter()
            .for_each(|gateway| assert_eq!(ask(gateway, &path).status, 429));
        let state = grant(&gateways[1], &policy, 20);
        assert_eq!(state["granted"]["units"], 20);
        wait_for_next_reading(&gateways, &path, 200);
        let spent: usize = thread::scope(|scope| {
            let clients = gateways
                .each_ref()
                .map(|gateway| scope.spawn(|| admitted(gateway, &path, "a")));
            clients
                .map(|client| client.join().expect("no panic"))
                .into_iter()
                .sum()
        });
        assert_eq!(spent, 17, "{kind}");
        assert_eq!(lookup(&gateways[2], &policy, "a")["granted"]["units"], 0);
    }
    // A machine that starts knows the grants and bans that hold.
    grant(&gateways[0], "p0", 2);
    steer(
        &gateways[0],
        "ban",
        "p1",
        json!({ "for": "1h", "reason": "scrapes" }),
    );
    let [late]: [Gateway; 1] = proxies(&redis, &shared_config(&KINDS));
    assert_eq!(admitted(&late, "/0", "a"), 2);
    assert_eq!(ask(&late, "/1").status, 429);
    assert_eq!(lookup(&late, "p1", "a")["ban"]["reason"], "scrapes");
    late.reload(&format!(
        "{}{}",
        store(redis.address),
        shared_config(&["quota: 7/300d", KINDS[1]])
    ));
    assert_eq!(ask(&late, "/1").status, 429, "a reload keeps the ban");
}

#[test]
fn a_policy_that_a_reload_adds_knows_the_bans_that_hold() {
    let redis = RedisServer::start();
    let policies = ["quota: 1000000/1h"; 2];
    let [gateway]: [Gateway; 1] = proxies(&redis, &shared_config(&policies));
    let [other]: [Gateway; 1] = proxies(&redis, &shared_config(&policies[..1]));
    for policy in ["p1", "p0"] {
        steer(
            &gateway,
            "ban",
            policy,
            json!({ "for": "1h", "reason": "scrapes" }),
        );
    }
    // It has read both announcements.
    wait_for_status(&other, "/0", 429);
    other.reload(&format!(
        "{}{}",
        store(redis.address),
        shared_config(&policies)
    ));
    wait_for_status(&other, "/1", 429);
}

#[test]
fn a_ban_and_its_end_are_felt_on_all_machines() {
    let redis = RedisServer::start();
    let penalty = "quota: 1/300d, penalty: { strikes: 2, within: 1h, for: [1h] }";
    // Requests before a machine hears of the ban do not spend the quota.
    let policies = ["quota: 100000/300d", penalty];
    let gateways: [Gateway; 3] = proxies(&redis, &shared_config(&policies));
    steer(&gateways[0], "ban", "p0", json!({ "for": "1h" }));
    gateways
        .iter()
        .for_each(|gateway| wait_for_status(gateway, "/0", 429));
    steer(&gateways[1], "unban", "p0", json!({}));
    gateways
        .iter()
        .for_each(|gateway| wait_for_status(gateway, "/0", 200));
    // The ban of a penalty stays lifted, whatever machines report later.
    (0..3).for_each(|_| _ = ask(&gateways[0], "/1"));
    for gateway in &gateways {
        wait_for("the ban", || {
            lookup(gateway, "p1", "a")["ban"].is_object().then_some(())
        });
    }
    steer(&gateways[2], "unban", "p1", json!({}));
    for gateway in &gateways {
        wait_for("the end of the ban", || {
            lookup(gateway, "p1", "a")["ban"].is_null().then_some(())
        });
    }
    thread::sleep(SECOND);
    let [late]: [Gateway; 1] = proxies(&redis, &shared_config(&policies));
    for gateway in gateways.iter().chain([&late]) {
        assert_eq!(lookup(gateway, "p1", "a")["ban"], Value::Null);
    }
    steer(&gateways[0], "reset", "p1", json!({}));
    wait_for_status(&gateways[1], "/1", 200);
}

/// The machine reads the announcement of the first one's end after the second has begun.
#[test]
fn a_ban_that_follows_the_end_of_another_stays() {
    let redis = RedisServer::start();
    let penalty = "quota: 1/300d, penalty: { strikes: 2, within: 1h, for: [1h] }";
    let [gateway] = proxies(&redis, &shared_config(&[penalty]));
    let is_banned = || lookup(&gateway, "p0", "a")["ban"].is_object();
    (0..3).for_each(|_| _ = ask(&gateway, "/0"));
    assert!(is_banned());
    steer(&gateway, "unban", "p0", json!({}));
    (0..2).for_each(|_| _ = ask(&gateway, "/0"));
    assert!(is_banned());
    thread::sleep(SECOND);
    assert!(is_banned());
}

#[test]
fn a_ban_tags_where_the_policy_does() {
    let redis = RedisServer::start();
    let policies = ["quota: 100/300d, on_limit: { action: tag }"];
    let [shared] = proxies(&redis, &shared_config(&policies));
    for gateway in [Gateway::start(&config(&policies)), shared] {
        let is_tagged = || {
            let answer = ask(&gateway, "/0");
            assert_eq!(answer.status, 200);
            answer.text().contains("x-over-limit")
        };
        assert!(!is_tagged());
        steer(&gateway, "ban", "p0", json!({ "for": "1h" }));
        wait_for("the ban", || is_tagged().then_some(()));
        let used = || lookup(&gateway, "p0", "a")["used"].clone();
        let before = used();
        assert!(is_tagged());
        assert_eq!(used(), before, "a ban charges nothing");
        steer(&gateway, "unban", "p0", json!({}));
        wait_for("its end", || (!is_tagged()).then_some(()));
    }
}

const SYNCHRONISED: [&str; 4] = [
    "quota: 12/300d, sync: 50ms",
    "quota: 12/300d, sync: 50ms, algorithm: fixed_window",
    "quota: 12/300d, sync: 50ms, algorithm: sliding_window",
    "quota: 12/300d, sync: 50ms, algorithm: sliding_window, precision: 60",
];

#[test]
fn synchronised_buckets_are_reset_on_all_machines_and_stay_so() {
    let redis = RedisServer::start();
    let gateways: [Gateway; 3] = proxies(&redis, &shared_config(&SYNCHRONISED));
    for (place, kind) in SYNCHRONISED.iter().enumerate() {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        for gateway in &gateways {
            (0..4).for_each(|_| assert_eq!(ask(gateway, &path).status, 200));
        }
        for gateway in &gateways {
            wait_for("all charges", || {
                (lookup(gateway, &policy, "a")["used"] == 12).then_some(())
            });
            assert_eq!(ask(gateway, &path).status, 429);
        }
        steer(&gateways[0], "reset", &policy, json!({}));
        for gateway in &gateways {
            wait_for_status(gateway, &path, 200);
        }
        // Some rounds later, only charges since the reset count, on each machine.
        for gateway in &gateways {
            wait_for("the charges since", || {
                (lookup(gateway, &policy, "a")["used"] == 3).then_some(())
            });
        }
        thread::sleep(SECOND);
        for gateway in &gateways {
            assert_eq!(lookup(gateway, &policy, "a")["used"], 3, "{kind}");
        }
    }
}

#[test]
fn a_refusal_between_a_grant_and_its_announcement_is_not_remembered() {
    let redis = RedisServer::start();
    let text = store(redis.address).replace("characters", "characters, refusal_cache: 1m");
    let text = format!("{text}{}", shared_config(&["quota: 6/300d"; 16]));
    let gateways = [(); 2].map(|()| Gateway::start(&text));
    gateways.iter().for_each(wait_up);
    let mut refusals = 0;
    for place in 0..16 {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        assert_eq!(admitted(&gateways[0], &path, "a"), 6);
        grant(&gateways[0], &policy, 20);
        // Mostly a refusal: this machine reads the announcement a quarter of a second later.
        refusals += usize::from(ask(&gateways[1], &path).status == 429);
        wait_for_next_reading(&gateways[1..], &path, 200);
        if refusals == 8 {
            return;
        }
    }
    assert!(
        refusals > 0,
        "each announcement was read before the request"
    );
}

#[test]
fn a_synchronised_grant_is_spent_by_all_machines() {
    let redis = RedisServer::start();
    let gateways: [Gateway; 3] = proxies(&redis, &shared_config(&SYNCHRONISED[..2]));
    for place in 0..2 {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        assert_eq!(admitted(&gateways[0], &path, "a"), 12);
        for gateway in &gateways[1..] {
            ask(gateway, &path);
            wait_for("all charges", || {
                (ask(gateway, &path).status == 429).then_some(())
            });
        }
        grant(&gateways[0], &policy, 20);
        gateways
            .iter()
            .for_each(|gateway| wait_for_status(gateway, &path, 200));
        for gateway in &gateways {
            let left = |gateway| lookup(gateway, &policy, "a")["granted"]["units"].as_u64();
            wait_for("what others spent", || {
                (left(gateway) <= Some(17)).then_some(())
            });
        }
        let spent = admitted(&gateways[0], &path, "a");
        assert!((15..=17).contains(&spent), "{spent}");
        for gateway in &gateways {
            wait_for("the end of the grant", || {
                (ask(gateway, &path).status == 429).then_some(())
            });
        }
    }
}

#[test]
fn without_redis_nothing_is_steered_and_a_repeated_call_succeeds() {
    let mut redis = RedisServer::start();
    let policies = [
        "quota: 6/300d, on_store_error: refuse",
        "quota: 6/300d, sync: 50ms",
        "algorithm: concurrency, max: 2",
    ];
    let gateways: [Gateway; 2] = proxies(&redis, &shared_config(&policies));
    assert_eq!(lookup(&gateways[0], "p2", "a")["in_flight"], 0);
    steer(&gateways[0], "ban", "p1", json!({ "for": "1h" }));
    redis.kill();
    let api = AdminClient::writer(&gateways[0]);
    let key = |policy: &str| json!({ "policy": policy, "key": "a" });
    let grant = |policy: &str| json!({ "policy": policy, "key": "a", "units": 3, "until": *UNTIL });
    for policy in ["p0", "p1"] {
        let post = |path: &str, body: &Value| problem(&api.post(path, body), 503);
        let told = post("/v1/keys/reset", &key(policy));
        assert!(
            told.contains("Redis") && told.contains("repeat it"),
            "{told}"
        );
        post("/v1/keys/grant", &grant(policy));
        post("/v1/keys/unban", &key(policy));
    }
    problem(&api.post("/v1/keys/lookup", &key("p0")), 503);
    assert_eq!(
        ask(&gateways[0], "/1").status,
        429,
        "bans are known without Redis"
    );
    redis.start_again();
    wait_for("the store", || {
        let granted = api.post("/v1/keys/grant", &grant("p0"));
        (granted.status == 200).then_some(())
    });
    for gateway in &gateways {
        wait_for("the policy", || {
            (ask(gateway, "/0").status == 200).then_some(())
        });
    }
    assert_eq!(lookup(&gateways[1], "p0", "a")["granted"]["units"], 3);
    // The server has forgotten the ban, and hears of it again.
    let [late]: [Gateway; 1] = proxies(&redis, &shared_config(&policies));
    wait_for("the ban", || (ask(&late, "/1").status == 429).then_some(()));
    let entries = command(&redis, &["XLEN", "sluicegate:steering"]);
    assert!(matches!(entries, redis::Value::Int(2..=5)), "{entries:?}");
}
