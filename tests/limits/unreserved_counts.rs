//! Counts by status for which requests reserve nothing, over real sockets.

use serde_json::json;

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer};
use crate::support::client::get_with;
use crate::support::costs::{left, origin};
use crate::support::gateway::Gateway;
use crate::support::parallel::{statuses, together};
use crate::support::wait_for;

const ALGORITHMS: [&str; 6] = [
    "quota: 5/300d",
    "algorithm: token_bucket, capacity: 5, refill: 1 per 1d",
    "algorithm: fixed_window, quota: 5/300d, start: first_request",
    "algorithm: sliding_window, quota: 5/300d, oldest: whole",
    "algorithm: sliding_window, quota: 5/300d, precision: 60, oldest: whole",
    "algorithm: sliding_log, quota: 5/300d",
];

#[test]
fn only_responses_that_count_take_units_and_an_empty_bucket_refuses() {
    let origin = origin();
    for algorithm in ALGORITHMS {
        let gateway = Gateway::start(&format!(
            "{TOKENS}policies: {{ p: {{ key: header:x-key, {algorithm}, count: [401], count_reserve: false }} }}
routes: [{{ name: a, upstream: '{}', limits: [p] }}]
",
            origin.url()
        ));
        let ask = |path: &str| get_with(gateway.address(), path, "x-key: a\r\n");
        for _ in 0..7 {
            assert_eq!(left(&ask("/status/200")), 5, "{algorithm}");
        }
        for number in 0..5 {
            let failed = ask("/status/401");
            assert_eq!(
                (failed.status, left(&failed)),
                (401, 5 - number),
                "{algorithm}"
            );
        }
        let refused = ask("/status/200");
        assert_eq!((refused.status, left(&refused)), (429, 0), "{algorithm}");
        assert!(refused.header("retry-after").is_some(), "{algorithm}");
        let key = json!({ "policy": "p", "key": "a" });
        let state = answer(&AdminClient::new(&gateway, READER).post("/v1/keys/lookup", &key));
        assert_eq!(
            [&state["used"], &state["allowed"]],
            [&json!(5), &json!(false)],
            "{algorithm}"
        );
        assert_eq!(
            get_with(gateway.address(), "/status/200", "x-key: b\r\n").status,
            200
        );
    }
}

#[test]
fn parallel_successes_pass_and_parallel_failures_bring_debt() {
    for algorithm in ALGORITHMS {
        let origin = together(10);
        let gateway = Gateway::start(&format!(
            "{TOKENS}policies: {{ p: {{ {algorithm}, count: [401], count_reserve: false }} }}
routes: [{{ name: a, upstream: '{}', limits: [p] }}]
",
            origin.url()
        ));
        let address = gateway.address();
        assert_eq!(
            statuses(address, "/status/200", 10),
            [200; 10],
            "{algorithm}"
        );
        assert_eq!(
            statuses(address, "/status/401", 10),
            [401; 10],
            "{algorithm}"
        );
        wait_for("the last settlement", || {
            (get_with(address, "/", "").status == 429).then_some(())
        });
        let key = json!({ "policy": "p", "key": "127.0.0.1" });
        let state = answer(&AdminClient::new(&gateway, READER).post("/v1/keys/lookup", &key));
        // Sliding windows and logs count at most their limit.
        let debt = if algorithm.contains("sliding") { 0 } else { 5 };
        let expected = [&json!(5), &json!(debt)];
        assert_eq!([&state["used"], &state["debt"]], expected, "{algorithm}");
    }
}

#[test]
fn soft_limits_take_units_for_requests_that_they_refuse() {
    let origin = origin();
    let gateway = Gateway::start(&format!(
        "policies:
  p:
    quota: 5/300d
    count: [401]
    count_reserve: false
    soft_limits: [{{ above: 2, on_limit: {{ status: 420 }} }}]
routes: [{{ name: a, upstream: '{}', limits: [p] }}]
",
        origin.url()
    ));
    let ask = |path: &str| get_with(gateway.address(), path, "").status;
    let answers = [401, 200, 401, 420, 420, 420, 429];
    let asked = ["401", "200", "401", "200", "200", "200", "200"];
    assert_eq!(
        asked.map(|status| ask(&format!("/status/{status}"))),
        answers
    );
}

#[test]
fn refused_requests_are_charged_what_they_need_if_the_policy_says_so() {
    for (option, used) in [("charge_refused: true", 3), ("", 0)] {
        for algorithm in ALGORITHMS {
            let gateway = Gateway::start(&format!(
                "{TOKENS}policies:
  p: {{ key: header:x-key, {algorithm}, count: [401], count_reserve: false, {option} }}
  q: {{ key: header:x-key, quota: 1/300d }}
routes: [{{ name: a, upstream: echo, limits: [p, q] }}]
"
            ));
            let ask = || get_with(gateway.address(), "/", "x-key: a\r\n").status;
            assert_eq!([ask(), ask(), ask(), ask()], [200, 429, 429, 429]);
            let key = json!({ "policy": "p", "key": "a" });
            let state = answer(&AdminClient::new(&gateway, READER).post("/v1/keys/lookup", &key));
            assert_eq!(state["used"], json!(used), "{algorithm} {option}");
        }
    }
}
