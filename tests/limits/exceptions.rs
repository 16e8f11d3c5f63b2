//! Exemptions and overrides by conditions, and overrides of modes and answers, over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer};
use crate::support::client::{get_with, run};
use crate::support::gateway::Gateway;
use crate::support::now;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

/// The statuses of `N` requests for `path` with these header fields.
fn statuses<const N: usize>(address: SocketAddr, path: &str, headers: &str) -> [u16; N] {
    std::array::from_fn(|_| get_with(address, path, headers).status)
}

#[test]
fn a_condition_exempts_only_requests_that_certainly_meet_it() {
    let gateway = Gateway::start(
        "client_ip: { trusted_proxies: [127.0.0.0/8] }
exempt: [{ when: { path: /health } }]
policies:
  per-key:
    key: header:x-key
    quota: 1/300d
    exempt:
      - { when: { header: { x-plan: gold }, cidr: [10.0.0.0/8] } }
      - { prefix: trusted-, when: { method: [GET] } }
routes: [{ upstream: echo, limits: [per-key] }]
",
    );
    let address = gateway.address();
    let gold = "x-key: a\r\nx-plan: gold\r\nx-forwarded-for: 10.0.0.1\r\n";
    assert_eq!(statuses(address, "/", gold), [200; 3]);
    let both = format!("{gold}x-plan: free\r\n");
    assert_eq!(statuses(address, "/", &both), [200, 429], "two plans");
    let elsewhere = "x-key: b\r\nx-plan: gold\r\nx-forwarded-for: 11.0.0.1\r\n";
    assert_eq!(statuses(address, "/", elsewhere), [200, 429]);
    assert_eq!(statuses(address, "/", "x-key: trusted-1\r\n"), [200; 3]);
    assert_eq!(statuses(address, "/health", "x-key: b\r\n"), [200; 3]);
}

#[test]
fn an_override_with_a_condition_has_buckets_of_its_own_and_goes_first() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  per-key:
    key: header:x-key
    quota: 1/300d
    overrides:
      - {{ value: partner, quota: 2/300d }}
      - {{ when: {{ path: {{ regex: \"^/v[0-9]+/bulk\" }} }}, quota: 3/300d }}
routes: [{{ name: a, upstream: echo, limits: [per-key] }}]
"
    ));
    let address = gateway.address();
    let partner = "x-key: partner\r\n";
    assert_eq!(statuses(address, "/v1/bulk", partner), [200, 200, 200, 429]);
    assert_eq!(statuses(address, "/v1", partner), [200, 200, 429]);
    assert_eq!(statuses(address, "/v1", "x-key: other\r\n"), [200, 429]);
    let bulk = statuses(address, "/v2/bulk", "x-key: other\r\n");
    assert_eq!(bulk, [200, 200, 200, 429]);
    // A key alone meets no condition: the buckets under those stand beside its own.
    let key = json!({ "policy": "per-key", "key": "partner" });
    let state = AdminClient::new(&gateway, READER).post("/v1/keys/lookup", &key);
    let state = answer(&state);
    assert_eq!(
        [&state["override"], &state["quota"]],
        ["value ***", "2/300d"]
    );
    let other = &state["others"][0];
    assert_eq!(
        [&other["quota"], &other["used"], &other["allowed"]],
        [&json!("3/300d"), &json!(3), &json!(false)]
    );
    let condition = other["override"].as_str().expect("a condition");
    assert!(condition.contains("path"), "{state}");
    // A reload with another order and another quota keeps what is used.
    gateway.reload(&format!(
        "{TOKENS}policies:
  per-key:
    key: header:x-key
    quota: 1/300d
    overrides:
      - {{ when: {{ path: {{ regex: \"^/v[0-9]+/bulk\" }} }}, quota: 4/300d }}
      - {{ value: partner, quota: 2/300d }}
routes: [{{ name: a, upstream: echo, limits: [per-key] }}]
"
    ));
    assert_eq!(statuses(address, "/v1/bulk", partner), [200, 429]);
    assert_eq!(statuses(address, "/v1", partner), [429]);
    // A reset goes to all buckets that the key may have.
    let reset = AdminClient::writer(&gateway).post("/v1/keys/reset", &key);
    assert_eq!(reset.status, 200, "{}", reset.text());
    let reset = answer(&reset);
    assert_eq!(reset["before"]["others"][0]["used"], json!(4));
    assert_eq!(reset["after"].get("others"), None, "{reset}");
    assert_eq!(
        statuses(address, "/v1/bulk", partner),
        [200, 200, 200, 200, 429]
    );
    assert_eq!(statuses(address, "/v1", partner), [200, 200, 429]);
}

#[test]
fn an_override_without_a_quota_changes_mode_and_answer_and_keeps_the_bucket() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  per-key:
    key: header:x-key
    on_missing_key: refuse
    quota: 2/300d
    on_limit: {{ status: 420, headers: {{ x-by: policy }} }}
    overrides:
      - {{ when: {{ header: {{ x-test: \"1\" }} }}, mode: shadow }}
      - {{ when: {{ header: {{ x-test: \"2\" }} }}, on_limit: {{ status: 503 }} }}
      - {{ when: {{ header: {{ x-test: \"3\" }} }}, on_limit: {{ action: decoy, format: text, body: fine }} }}
      - {{ value: slow, on_limit: {{ action: tarpit, delay: 300ms }} }}
routes: [{{ name: a, upstream: echo, limits: [per-key] }}]
"
    ));
    let address = gateway.address();
    let with = |test: &str| get_with(address, "/", &format!("x-key: a\r\nx-test: {test}\r\n"));
    assert_eq!([with("0").status, with("2").status], [200, 200]);
    assert_eq!([with("0").status, with("1").status], [420, 200]);
    let refused = with("2");
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.expect_header("x-by"),
        "policy",
        "the policy fills in"
    );
    assert!(refused.text().contains("2/300d"), "{}", refused.text());
    let decoy = with("3");
    assert_eq!((decoy.status, decoy.text().as_str()), (200, "fine"));
    assert_eq!(decoy.header("retry-after"), None);
    assert_eq!(decoy.header("ratelimit"), None, "a decoy tells nothing");
    // Without a key, too.
    assert_eq!(get_with(address, "/", "x-test: 1\r\n").status, 200);
    assert_eq!(get_with(address, "/", "x-test: 2\r\n").status, 503);
    assert_eq!(get_with(address, "/", "").status, 420);

    let slow = || get_with(address, "/", "x-key: slow\r\n").status;
    assert_eq!([slow(), slow()], [200, 200]);
    let started = now();
    assert_eq!(slow(), 420);
    assert!(started.elapsed() >= Duration::from_millis(300));

    let config = gateway.config_path();
    let config = config.to_str().expect("a path of ours");
    let explained = |test: &str| {
        let field = format!("x-test: {test}");
        let key = ["-H", "x-key: a", "-H", &field, "--config", config];
        run(
            BINARY,
            &[&["explain", "GET", "http://a/"], &key[..]].concat(),
        )
        .stdout
    };
    assert!(
        explained("1").contains("mode    shadow"),
        "{}",
        explained("1")
    );
    assert!(
        !explained("0").contains("mode    shadow"),
        "{}",
        explained("0")
    );

    // What an operator sets goes before the override's mode.
    let api = AdminClient::writer(&gateway);
    let set = |mode: &str| {
        let set = api.post("/v1/policies/per-key/mode", &json!({ "mode": mode }));
        assert_eq!(set.status, 200, "{}", set.text());
    };
    set("enforce");
    assert_eq!(with("1").status, 420);
    set("configured");
    assert_eq!(with("1").status, 200);
}

/// nginx: `limit_req_zone $http_x_key zone=keys:10m rate=..`, and `limit_req zone=keys burst=.. nodelay`
/// with another burst in each location.
#[test]
fn a_burst_alone_is_another_threshold_on_the_same_bucket() {
    for algorithm in ["gcra", "token_bucket"] {
        let gateway = Gateway::start(&format!(
            "policies:
  keys:
    key: header:x-key
    algorithm: {algorithm}
    quota: 1/30d
    burst: 6
    overrides: [{{ when: {{ path: /search }}, burst: 2 }}]
routes: [{{ name: a, upstream: echo, limits: [keys] }}]
"
        ));
        let address = gateway.address();
        let search = |key: &str| get_with(address, "/search", &format!("x-key: {key}\r\n"));
        let first = search("a");
        let told = first.expect_header("ratelimit").to_owned();
        assert!(told.starts_with("\"keys\";r=1"), "{algorithm}: {told}");
        // 2 in 60 days are as much as 1 in 30.
        let policy = first.expect_header("ratelimit-policy");
        assert_eq!(policy, "\"keys\";q=2;w=5184000", "{algorithm}");
        assert_eq!(
            [search("a").status, search("a").status],
            [200, 429],
            "{algorithm}"
        );
        assert!(
            search("a")
                .expect_header("ratelimit")
                .starts_with("\"keys\";r=0")
        );
        // Others have the rest of the same bucket.
        assert_eq!(
            statuses(address, "/", "x-key: a\r\n"),
            [200, 200, 200, 200, 429]
        );
        assert_eq!(statuses(address, "/", "x-key: b\r\n"), [200, 200]);
        assert_eq!(search("b").status, 429, "what others took counts");
        assert_eq!(search("c").status, 200);
        // 4 of 6 may come back before it is admitted again, and one of 2.
        let wait: u64 = search("a")
            .expect_header("retry-after")
            .parse()
            .expect("seconds");
        let days = wait / 86_400;
        assert!((145..=150).contains(&days), "{algorithm}: {days} days");
    }
}
