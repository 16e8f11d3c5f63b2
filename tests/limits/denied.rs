//! Requests that `access` denies meet the limits by address, and those that count the answer, over
//! real sockets.

use std::net::SocketAddr;

use crate::support::client::{Connection, connect_from, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::replay::{Replay, line};

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");
const WRONG: &str = "x-api-key: wrong\r\n";
const RIGHT: &str = "x-api-key: right\r\n";
const ACCESS: &str = "access: { allow: [{ header: { x-api-key: right } }], status: 401 }\n";

fn statuses<const N: usize>(address: SocketAddr, headers: &str) -> [u16; N] {
    std::array::from_fn(|_| get_with(address, "/", headers).status)
}

/// The status for a client at `127.0.0.{last}`.
fn from(last: u8, address: SocketAddr, headers: &str) -> u16 {
    let mut connection = Connection::over(connect_from(last, address));
    connection
        .exchange(&format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n"))
        .status
}

#[test]
fn guesses_are_limited_by_address_and_banned() {
    let gateway = Gateway::start(&format!(
        "{ACCESS}limits:
  - {{ name: all, key: client_ip, quota: 3/1h, penalty: {{ strikes: 2, within: 1m, for: [1d] }} }}
routes: [{{ name: a, upstream: echo }}]
access_log: {{ path: access.log }}
"
    ));
    let address = gateway.address();
    assert_eq!(statuses(address, WRONG), [401, 401, 401, 429, 429, 429]);
    assert_eq!(statuses(address, RIGHT), [429], "the address is banned");
    assert_eq!(from(2, address, RIGHT), 200, "another address isn't");
    let count = |series: &str| gateway.metric(series);
    assert_eq!(
        count("sluicegate_access_denied_total{route=\"a\"}"),
        Some(3.0)
    );
    let limited =
        "sluicegate_limit_decisions_total{policy=\"all\",route=\"a\",decision=\"limited\"}";
    assert_eq!(count(limited), Some(4.0));
    assert_eq!(
        count("sluicegate_limit_bans_total{policy=\"all\"}"),
        Some(1.0)
    );
}

/// As HAProxy's `http_err_rate`: four failures, and then the right password is refused, too.
#[test]
fn own_denials_are_counted_as_those_of_the_upstream() {
    for (count, expected) in [
        ("[401]", [401, 401, 401, 401, 429]),
        ("[4xx], count_reserve: false", [401, 401, 401, 401, 429]),
        ("[4xx], count_own: false", [401, 401, 401, 401, 429]),
        ("[403]", [401; 5]),
    ] {
        let gateway = Gateway::start(&format!(
            "routes:
  - upstream: echo
    {ACCESS}    limits: [{{ key: client_ip, algorithm: fixed_window, quota: 4/10m, count: {count} }}]
"
        ));
        let address = gateway.address();
        assert_eq!(
            statuses(address, RIGHT),
            [200; 6],
            "{count}: successes are free"
        );
        assert_eq!(statuses(address, WRONG), expected, "{count}");
        let last = if expected[4] == 429 { 429 } else { 200 };
        assert_eq!(statuses(address, RIGHT), [last], "{count}");
        assert_eq!(from(3, address, RIGHT), 200, "{count}");
    }
}

#[test]
fn what_a_denied_request_claims_is_charged_nothing() {
    for key in [
        "header:x-api-key",
        "[client_ip, header:x-user]",
        "basic_user",
        "constant",
    ] {
        let gateway = Gateway::start(&format!(
            "{ACCESS}check: {{ allow: [{{ warning: forgeable-key, reason: x }}] }}
limits: [{{ key: {key}, quota: 1/1h }}]
routes: [{{ upstream: echo }}]
"
        ));
        assert_eq!(statuses(gateway.address(), WRONG), [401; 4], "{key}");
        assert_eq!(statuses(gateway.address(), RIGHT), [200, 429], "{key}");
    }
}

#[test]
fn shadow_exemptions_and_actions_hold_for_denied_requests_too() {
    let gateway = |limit: &str| {
        Gateway::start(&format!(
            "{ACCESS}limits: [{{ key: client_ip, quota: 1/1h, {limit} }}]
routes: [{{ upstream: echo }}]
"
        ))
    };
    let shadow = gateway("mode: shadow");
    assert_eq!(statuses(shadow.address(), WRONG), [401; 3]);
    let exempt = gateway("exempt: [{ cidr: 127.0.0.0/8 }]");
    assert_eq!(statuses(exempt.address(), WRONG), [401; 3]);
    let other = gateway("on_limit: { status: 403 }");
    assert_eq!(statuses(other.address(), WRONG), [401, 403, 403]);
    // The limits of a route follow its access.
    let own = Gateway::start(&format!(
        "routes:
  - upstream: echo
    {ACCESS}    limits: [{{ key: client_ip, quota: 1/1h }}]
"
    ));
    assert_eq!(statuses(own.address(), WRONG), [401; 3]);
    assert_eq!(statuses(own.address(), RIGHT), [200, 429]);
}

#[test]
fn redis_decides_before_the_denial() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "{ACCESS}store: {{ redis: {{ url: {} }} }}
limits: [{{ key: client_ip, quota: 2/1h, store: redis }}]
routes: [{{ upstream: echo }}]
",
        redis.url()
    ));
    assert_eq!(statuses(gateway.address(), WRONG), [401, 401, 429, 429]);
    assert_eq!(statuses(gateway.address(), RIGHT), [429]);
}

#[test]
fn explain_names_the_limit_that_refuses_before_the_denial() {
    let gateway = Gateway::start(&format!(
        "{ACCESS}limits: [{{ name: all, key: client_ip, quota: 0/1h }}, {{ name: keys, key: header:x-api-key, quota: 9/1h }}]
routes: [{{ upstream: echo }}]
"
    ));
    let path = gateway.config_path();
    let explained = |expected: &str, quota: &str| {
        let path = path.to_str().expect("a text");
        let config = std::fs::read_to_string(path).expect("the configuration");
        std::fs::write(path, config.replace("0/1h", quota)).expect("there is room");
        let out = run(
            BINARY,
            &[
                "explain",
                "GET",
                "http://a/",
                "--config",
                path,
                "--expect",
                expected,
            ],
        );
        assert_eq!(out.code, Some(0), "{out}");
        assert!(!out.stdout.contains("keys"), "{out}");
    };
    explained("limited", "0/1h");
    explained("429", "0/1h");
    explained("401", "5/1h");
}

#[test]
fn replay_charges_denied_requests_alike() {
    for limit in ["key: client_ip", "key: constant, count: [403]"] {
        let config = format!(
            "access: {{ deny: [{{ path: /secret }}] }}
limits: [{{ {limit}, algorithm: fixed_window, quota: 2/1h }}]
routes: [{{ upstream: echo }}]
"
        );
        let log: String = ["/secret", "/secret", "/secret", "/open"]
            .iter()
            .zip(1..)
            .map(|(path, second)| line(&(second * 1_000).to_string(), path, ""))
            .collect();
        let decisions = Replay::new(&config, log).decisions(&[]);
        let told: Vec<_> = decisions.iter().map(|one| &one["decision"]).collect();
        assert_eq!(
            told,
            ["unlimited", "unlimited", "limited", "limited"],
            "{limit}"
        );
    }
}
