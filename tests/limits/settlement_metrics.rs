//! Settled and unsettled costs in metrics and in the log.

use crate::support::client::{Connection, get};
use crate::support::costs::origin;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, raw};
use crate::support::redis::RedisServer;
use crate::support::shared::proxies;
use crate::support::wait_for;

const RESULTS: [&str; 4] = ["settled", "missing", "malformed", "no_response"];

/// The count of each result, in the order of `RESULTS`.
fn settlements(gateway: &Gateway, policy: &str) -> [u64; 4] {
    RESULTS.map(|result| {
        let series = format!(
            "sluicegate_limit_settlements_total{{policy=\"{policy}\",result=\"{result}\"}}"
        );
        gateway
            .metric(&series)
            .map_or(u64::MAX, |count| count as u64)
    })
}

#[track_caller]
fn wait_for_settlements(gateway: &Gateway, policy: &str, expected: [u64; 4]) {
    let mut last = [0; 4];
    wait_for(&format!("{expected:?} of {policy}"), || {
        last = settlements(gateway, policy);
        (last == expected).then_some(())
    });
}

fn warnings(gateway: &Gateway, policy: &str) -> Vec<String> {
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains("states no cost"));
    let policy = format!("policy={policy:?}");
    lines
        .filter(|line| line.contains(&policy))
        .map(str::to_owned)
        .collect()
}

/// A request whose client leaves before the response.
fn leave(gateway: &Gateway, path: &str, admitted: f64) {
    let mut client = Connection::open(gateway.address());
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_for("the request", || {
        let series =
            "sluicegate_limit_decisions_total{policy=\"p\",route=\"a\",decision=\"allowed\"}";
        (gateway.metric(series) == Some(admitted)).then_some(())
    });
    client.reset();
}

/// The warnings about a policy `p`, once the log has so many.
fn wait_for_warnings(gateway: &Gateway, count: usize) -> Vec<String> {
    let warnings = wait_for("a warning", || {
        let warnings = warnings(gateway, "p");
        (warnings.len() >= count).then_some(warnings)
    });
    assert_eq!(warnings.len(), count, "{warnings:?}");
    warnings
}

/// Requests of every kind to a policy that settles by a header field.
fn every_result(gateway: &Gateway) {
    assert_eq!(settlements(gateway, "p"), [0; 4], "there from the start");
    let address = gateway.address();
    for path in ["/used/30", "/used/0"] {
        assert_eq!(get(address, path).status, 200);
    }
    wait_for_settlements(gateway, "p", [2, 0, 0, 0]);
    for path in ["/", "/status/500", "/"] {
        get(address, path);
    }
    wait_for_settlements(gateway, "p", [2, 3, 0, 0]);
    for path in ["/used/few", "/used/-1"] {
        assert_eq!(get(address, path).status, 200);
    }
    wait_for_settlements(gateway, "p", [2, 3, 2, 0]);
    assert_eq!(get(address, "/reset").status, 502);
    leave(gateway, "/hang", 9.0);
    wait_for_settlements(gateway, "p", [2, 3, 2, 2]);
    let warnings = wait_for_warnings(gateway, 1);
    for part in ["WARN", "x-tokens-used", "missing", "status=200"] {
        assert!(warnings[0].contains(part), "{part}: {warnings:?}");
    }
}

const POLICY: &str =
    "quota: 10000/300d, cost: { response_header: x-tokens-used, reserve: 100, max: 500 }";

#[test]
fn each_settlement_is_counted_by_its_result_and_a_missing_cost_is_warned_of_once() {
    let origin = origin();
    let config = format!(
        "policies: {{ p: {{ {POLICY} }} }}\nroutes: [{{ name: a, upstream: '{}', limits: [p] }}]\n",
        origin.url()
    );
    let gateway = Gateway::start(&config);
    every_result(&gateway);
    gateway.reload(&config.replace("10000/300d", "20000/300d"));
    get(gateway.address(), "/used/many");
    wait_for_settlements(&gateway, "p", [2, 3, 3, 2]);
    // Once more after a reload.
    let warnings = wait_for_warnings(&gateway, 2);
    assert!(warnings[1].contains("malformed"), "{warnings:?}");
}

#[test]
fn settlements_in_redis_are_counted_alike() {
    let (origin, redis) = (origin(), RedisServer::start());
    let config = format!(
        "policies: {{ p: {{ store: redis, key: constant, {POLICY} }} }}
routes: [{{ name: a, upstream: '{}', limits: [p] }}]
",
        origin.url()
    );
    let [gateway] = proxies(&redis, &config);
    every_result(&gateway);
}

#[test]
fn statuses_and_bytes_always_settle() {
    let origin = origin();
    let gateway = Gateway::start(&format!(
        "policies:
  guesses: {{ quota: 100/300d, count: [401] }}
  traffic: {{ quota: 100000/300d, cost: {{ response_bytes: 1KiB, max: 100 }} }}
  tokens: {{ quota: 100000/300d, count: [200], cost: {{ response_header: x-tokens-used, max: 100 }} }}
  told: {{ quota: 1000/300d, cost: {{ response_header: x-tokens-used, max: 100 }}, on_limit: {{ action: tag, tag_header: x-over }} }}
  p: {{ quota: 1000/300d }}
routes: [{{ name: a, upstream: '{}', limits: [guesses, traffic, tokens, told, p] }}]
",
        origin.url()
    ));
    let address = gateway.address();
    for path in ["/status/401", "/bytes/3000", "/reset", "/used/3"] {
        get(address, path);
    }
    wait_for_settlements(&gateway, "guesses", [4, 0, 0, 0]);
    wait_for_settlements(&gateway, "traffic", [3, 0, 0, 1]);
    // A status that does not count settles to nothing; 502 is none of the upstream's.
    wait_for_settlements(&gateway, "tokens", [3, 1, 0, 0]);
    wait_for_settlements(&gateway, "told", [1, 2, 0, 1]);
    let series = "sluicegate_limit_settlements_total{policy=\"p\",result=\"settled\"}";
    assert_eq!(gateway.metric(series), None, "its cost is a constant");
    leave(&gateway, "/hang", 5.0);
    wait_for_settlements(&gateway, "guesses", [4, 0, 0, 1]);
    wait_for_settlements(&gateway, "traffic", [3, 0, 0, 2]);
}

#[test]
fn a_truncated_response_settles_by_its_header_field() {
    let origin = Origin::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nx-tokens-used: 7\r\nContent-Length: 100\r\n\r\nx";
        [raw(head), vec![Step::Reset]].concat()
    });
    let gateway = Gateway::start(&format!(
        "policies: {{ p: {{ {POLICY} }} }}\nroutes: [{{ name: a, upstream: '{}', limits: [p] }}]\n",
        origin.url()
    ));
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for_settlements(&gateway, "p", [1, 0, 0, 0]);
}
