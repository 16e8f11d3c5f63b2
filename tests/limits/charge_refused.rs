//! Policies that charge refused requests, through the binary.

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer};
use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::replay::{Replay, line};
use serde_json::{Value, json};

/// The remaining units of a policy, from the fields of a response.
fn left(gateway: &Gateway, policy: &str) -> String {
    let answer = get(gateway.address(), "/");
    let state = answer.expect_header("ratelimit");
    let own = state
        .split(", ")
        .find_map(|item| item.strip_prefix(&format!("\"{policy}\";r=")));
    let own = own.expect("the policy is told of");
    own.split(';').next().expect("a number").to_owned()
}

#[test]
fn a_request_that_another_policy_refuses_is_charged_too() {
    let gateway = Gateway::start(
        "policies: { all: { quota: 5/1h, charge_refused: true }, few: { quota: 1/1h } }
routes: [{ upstream: echo, limits: [all, few] }]
",
    );
    let counted: Vec<_> = (0..6).map(|_| left(&gateway, "all")).collect();
    assert_eq!(counted, ["4", "3", "2", "1", "0", "0"]);
    assert_eq!(get(gateway.address(), "/").status, 429);
}

#[test]
fn a_request_that_overflows_elsewhere_is_charged_once() {
    let gateway = Gateway::start(
        "policies: { all: { quota: 9/1h, charge_refused: true }, tiers: { quota: 1/1h, overflow: { quota: 2/1h } } }
routes: [{ upstream: echo, limits: [all, tiers] }]
",
    );
    let counted: Vec<_> = (0..5).map(|_| left(&gateway, "all")).collect();
    assert_eq!(counted, ["8", "7", "6", "5", "4"]);
}

#[test]
fn a_reload_that_charges_refusals_keeps_the_buckets() {
    let config =
        |more: &str| format!("routes: [{{ upstream: echo, limits: [{{ quota: 2/1h{more} }}] }}]\n");
    let gateway = Gateway::start(&config(""));
    assert_eq!(get(gateway.address(), "/").status, 200);
    gateway.reload(&config(", charge_refused: true"));
    let statuses = [(); 3].map(|()| get(gateway.address(), "/").status);
    assert_eq!(statuses, [200, 429, 429]);
}

/// A log with requests at these seconds.
fn decided(limit: &str, times: &[u64]) -> Vec<(Value, Value)> {
    let config = format!("routes: [{{ name: a, upstream: echo, limits: [{{ {limit} }}] }}]\n");
    let log: String = times
        .iter()
        .map(|time| line(&(1_000_000 + 1_000 * time).to_string(), "/", ""))
        .collect();
    let decided = Replay::new(&config, log).decisions(&[]);
    let told = decided.iter();
    told.map(|one| (one["decision"].clone(), one["retry_after_ms"].clone()))
        .collect()
}

#[test]
fn replay_says_when_a_client_that_keeps_retrying_is_admitted() {
    let allowed = || (json!("allowed"), Value::Null);
    let limited = |seconds: u64| (json!("limited"), json!(1_000 * seconds));
    let charging = decided(
        "quota: 2/20s, charge_refused: true",
        &[0, 0, 1, 6, 11, 21, 31],
    );
    // A unit comes back each ten seconds; what is owed is twenty seconds at most.
    assert_eq!(
        charging,
        [
            allowed(),
            allowed(),
            limited(10),
            limited(10),
            limited(10),
            allowed(),
            allowed()
        ]
    );
    let free = decided("quota: 2/20s", &[0, 0, 1, 6, 11, 21, 31]);
    assert_eq!(
        free,
        [
            allowed(),
            allowed(),
            limited(9),
            limited(4),
            allowed(),
            allowed(),
            allowed()
        ]
    );
}

#[test]
fn a_shadowed_policy_charges_would_be_refusals_too() {
    let log: String = [0, 1, 6, 11]
        .map(|time| line(&(1_000_000 + 1_000 * time).to_string(), "/", ""))
        .concat();
    let config = "routes: [{ upstream: echo, limits: [{ quota: 1/10s, charge_refused: true, mode: shadow }] }]\n";
    let decided = Replay::new(config, log).decisions(&[]);
    let shadowed: Vec<_> = decided
        .iter()
        .map(|one| one["shadowed_by"].is_array())
        .collect();
    assert_eq!(shadowed, [false, true, true, true]);
}

#[test]
fn explain_counts_the_charge_of_a_request_that_is_refused() {
    let algorithms = [
        "gcra",
        "token_bucket",
        "fixed_window, start: first_request",
        "sliding_window",
    ];
    for algorithm in algorithms {
        let gateway = Gateway::start(&format!(
            "{TOKENS}policies: {{ all: {{ quota: 2/20s, algorithm: {algorithm}, charge_refused: true }} }}
routes: [{{ upstream: echo, limits: [all] }}]
"
        ));
        for _ in 0..4 {
            let request = json!({ "method": "GET", "from": "127.0.0.1", "url": gateway.url("/") });
            let told = AdminClient::new(&gateway, READER).post("/v1/explain", &request);
            let told = answer(&told)["answer"].clone();
            let got = get(gateway.address(), "/");
            assert_eq!(told["decision"] == "limited", got.status == 429, "{told}");
            if let Some(after) = got.header("retry-after") {
                let wait = told["retry_after_ms"].as_f64().expect("a wait");
                assert_eq!(
                    (wait / 1_000.0).ceil().to_string(),
                    after,
                    "{algorithm}: {told}"
                );
            }
        }
    }
}
