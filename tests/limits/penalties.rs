//! Bans of keys that keep sending requests while they are refused, over real sockets.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, Response, get_with};
use crate::support::gateway::Gateway;
use crate::support::replay::{Replay, line};
use crate::support::{now, wait_for};
use serde_json::json;

fn ask(address: SocketAddr, key: &str) -> Response {
    get_with(address, "/", &format!("x-key: {key}\r\n"))
}

fn metric(gateway: &Gateway, policy: &str, decision: &str) -> u64 {
    let series = format!(
        "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"a\",decision=\"{decision}\"}}"
    );
    gateway.metric(&series).unwrap_or(0.0) as u64
}

fn bans(gateway: &Gateway) -> u64 {
    let bans = gateway.metric("sluicegate_limit_bans_total{policy=\"keys\"}");
    bans.unwrap_or(0.0) as u64
}

fn config(quota: &str, penalty: &str) -> String {
    format!(
        "policies:
  keys: {{ key: header:x-key, quota: {quota}, penalty: {penalty} }}
  all: {{ key: header:x-key, algorithm: fixed_window, quota: 100/300d }}
routes: [{{ name: a, upstream: echo, limits: [keys, all] }}]
"
    )
}

#[test]
fn refusals_up_to_the_threshold_ban_a_key_and_a_banned_key_is_not_charged() {
    let gateway = Gateway::start(&config("2/1h", "{ strikes: 3, within: 1m, for: [1d, 2d] }"));
    let address = gateway.address();
    assert_eq!([0; 2].map(|_| ask(address, "a").status), [200; 2]);
    for _ in 0..2 {
        let refused = ask(address, "a");
        let seconds: u64 = refused
            .expect_header("retry-after")
            .parse()
            .expect("seconds");
        assert!((1..=1_800).contains(&seconds), "{seconds} by the quota");
    }
    let third = ask(address, "a");
    assert_eq!(third.status, 429);
    let text = third.text();
    assert!(
        text.contains("This client is banned by the limit \\\"keys\\\"."),
        "{text}"
    );
    assert_eq!(
        third.expect_header("retry-after"),
        "86400",
        "the refusal announces the ban"
    );
    assert!(
        third
            .expect_header("ratelimit")
            .contains("\"keys\";r=0;t=86400")
    );
    assert!(third.expect_header("ratelimit").contains("\"all\";r=98"));
    for _ in 0..5 {
        let banned = ask(address, "a");
        let seconds: u64 = banned
            .expect_header("retry-after")
            .parse()
            .expect("seconds");
        assert!(
            (86_390..=86_400).contains(&seconds),
            "it does not grow: {seconds}"
        );
        let all = banned.expect_header("ratelimit");
        assert!(all.contains("\"all\";r=98"), "nothing is charged: {all}");
    }
    assert_eq!(bans(&gateway), 1);
    assert_eq!(metric(&gateway, "keys", "limited"), 8);
    assert_eq!(ask(address, "b").status, 200, "another key");

    // The bucket has recovered under another quota, and the ban stays.
    gateway.reload(&config("1000/1s", "{ strikes: 5, within: 1m, for: [1m] }"));
    assert_eq!(ask(address, "a").status, 429);
    assert_eq!(ask(address, "b").status, 200);
    gateway.reload(
        &config("1000/1s", "{ strikes: 5, within: 1m, for: [1m] }").replace("keys", "others"),
    );
    assert_eq!(ask(address, "a").status, 200, "another policy");
}

#[test]
fn a_ban_ends_and_the_next_is_longer() {
    let gateway = Gateway::start(&config("0/1h", "{ strikes: 2, within: 1h, for: [1s, 1h] }"));
    let address = gateway.address();
    assert_eq!(
        ask(address, "a").header("retry-after"),
        None,
        "a quota of nothing"
    );
    ask(address, "a");
    assert_eq!(bans(&gateway), 1);
    let started = now();
    wait_for("the end of the ban, and two refusals", || {
        ask(address, "a");
        thread::sleep(Duration::from_millis(20));
        (bans(&gateway) == 2).then_some(())
    });
    assert!(started.elapsed() >= Duration::from_millis(900));
    for _ in 0..10 {
        ask(address, "a");
    }
    thread::sleep(Duration::from_millis(1_200));
    for _ in 0..10 {
        ask(address, "a");
    }
    assert_eq!(bans(&gateway), 2, "an hour is longer");
}

#[test]
fn only_enforced_refusals_of_the_policy_itself_are_strikes() {
    let gateway = Gateway::start(
        "policies:
  seen: { key: header:x-key, quota: 0/1h, mode: shadow, penalty: { strikes: 1, within: 1m, for: [1d] } }
  keys: { key: header:x-key, quota: 9/300d, penalty: { strikes: 1, within: 1m, for: [1d] }, overrides: [{ value: low, quota: 1/300d }] }
  few: { key: header:x-key, quota: 1/300d }
routes:
  - { name: a, match: { path: / }, upstream: echo, limits: [seen, keys, few] }
  - { name: b, match: { path: /b }, upstream: echo, limits: [keys] }
",
    );
    let address = gateway.address();
    let asks_b = |key: &str| get_with(address, "/b", &format!("x-key: {key}\r\n"));
    assert_eq!(ask(address, "a").status, 200);
    assert_eq!(
        [0; 5].map(|_| ask(address, "a").status),
        [429; 5],
        "by another policy"
    );
    assert_eq!(bans(&gateway), 0);
    assert_eq!([0; 8].map(|_| asks_b("a").status), [200; 8]);
    let refused = asks_b("a");
    let seconds: u64 = refused
        .expect_header("retry-after")
        .parse()
        .expect("seconds");
    assert!(
        seconds > 2_800_000,
        "the quota's wait is the longer: {seconds}"
    );
    assert_eq!(bans(&gateway), 1);
    assert_eq!(asks_b("low").status, 200);
    assert_eq!(asks_b("low").status, 429);
    assert_eq!(
        bans(&gateway),
        2,
        "who has an override is banned by the policy"
    );
    assert_eq!(
        gateway.metric("sluicegate_limit_bans_total{policy=\"seen\"}"),
        Some(0.0)
    );
}

#[test]
fn replay_bans_at_the_instants_of_the_log() {
    let config = "policies: { keys: { algorithm: fixed_window, quota: 1/10s, penalty: { strikes: 2, within: 1m, for: [30s, 2m] } } }
routes: [{ upstream: echo, limits: [keys] }]
";
    let seconds = [0, 1, 2, 12, 31, 32, 33, 34, 153, 154];
    let log: String = seconds
        .iter()
        .map(|second| line(&(second * 1_000).to_string(), "/", ""))
        .collect();
    let replay = Replay::new(config, log);
    let decisions = replay.decisions(&[]);
    let told: Vec<_> = decisions
        .iter()
        .map(|one| (one["decision"].clone(), one["retry_after_ms"].clone()))
        .collect();
    let allowed = (json!("allowed"), json!(null));
    let limited = |wait: u64| (json!("limited"), json!(wait));
    assert_eq!(
        told,
        [
            allowed.clone(),
            limited(9_000),
            limited(30_000),
            limited(20_000),
            limited(1_000),
            allowed.clone(),
            limited(7_000),
            limited(120_000),
            limited(1_000),
            allowed,
        ]
    );
}

/// The table has room for the strikes of some 700 keys.
#[test]
fn a_flood_of_keys_does_not_protect_a_persistent_key_from_its_ban() {
    let penalty = "{ strikes: 10, within: 1h, for: [1d] }";
    let gateway = Gateway::start(&format!(
        "store: {{ memory: {{ max_size: 1MiB }} }}\n{}",
        config("0/1h", penalty)
    ));
    let mut flood = Connection::open(gateway.address());
    let mut refusals = 0;
    for batch in 0..200 {
        let requests: String = (0..100)
            .map(|key| format!("GET / HTTP/1.1\r\nHost: a\r\nx-key: {batch}-{key}\r\n\r\n"))
            .collect();
        flood.send(&requests);
        (0..100).for_each(|_| assert_eq!(flood.receive().status, 429));
        if batch >= 100 && batch % 3 == 0 && bans(&gateway) == 0 {
            ask(gateway.address(), "goes-on");
            refusals += 1;
        }
    }
    assert_eq!((bans(&gateway), refusals), (1, 10));
    let evictions = "sluicegate_limit_tracking_evictions_total{policy=\"keys\",what=\"strikes\"}";
    assert!(gateway.metric(evictions) > Some(15_000.0));
}
