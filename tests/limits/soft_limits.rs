//! Soft limits on the bucket of a policy, over real sockets.

use std::time::Duration;

use serde_json::json;

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer};
use crate::support::client::{Response, get_with};
use crate::support::gateway::Gateway;
use crate::support::now;
use crate::support::origin::{Origin, raw};
use crate::support::replay::{Replay, line};

const ALGORITHMS: [&str; 7] = [
    "quota: 6/300d",
    "algorithm: token_bucket, quota: 6/300d",
    "algorithm: token_bucket, capacity: 6, refill: 1 per 1d",
    "algorithm: fixed_window, quota: 6/300d, start: first_request",
    "algorithm: sliding_window, quota: 6/300d, oldest: whole",
    "algorithm: sliding_window, quota: 6/300d, precision: 60, oldest: whole",
    "algorithm: sliding_log, quota: 6/300d",
];

const SOFT: &str = "soft_limits: [
  { above: 2, on_limit: { action: tag, tag_header: x-often } },
  { above: 3, on_limit: { status: 420 } },
  { above: 5, on_limit: { action: tarpit, delay: 300ms, status: 503, headers: { x-by: last } } } ]";

fn decisions(gateway: &Gateway, policy: &str, decision: &str) -> f64 {
    let series = format!(
        "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"a\",decision=\"{decision}\"}}"
    );
    gateway.metric(&series).unwrap_or(-1.0)
}

#[test]
fn requests_beyond_a_soft_limit_are_charged_and_answered_by_it() {
    for algorithm in ALGORITHMS {
        let gateway = Gateway::start(&format!(
            "{TOKENS}responses: {{ debug: {{ token: a-token-of-the-debug-header }} }}
policies:
  p: {{ key: header:x-key, {algorithm}, {SOFT} }}
  other: {{ key: header:x-key, quota: 9/300d }}
routes: [{{ name: a, upstream: echo, limits: [p, other] }}]
"
        ));
        let address = gateway.address();
        let ask = |key: &str| {
            let headers = format!(
                "x-key: {key}\r\nx-often: forged\r\nx-sluicegate-debug: a-token-of-the-debug-header\r\n"
            );
            get_with(address, "/", &headers)
        };
        let tags = |response: &Response| {
            let text = response.text();
            [text.contains("x-often: p/2"), text.contains("forged")]
        };
        for _ in 0..2 {
            let plain = ask("a");
            assert_eq!(
                (plain.status, tags(&plain)),
                (200, [false; 2]),
                "{algorithm}"
            );
        }
        let tagged = ask("a");
        assert_eq!(
            (tagged.status, tags(&tagged)),
            (200, [true, false]),
            "{algorithm}"
        );
        let trail = tagged.expect_header("x-sluicegate-debug");
        assert!(
            trail.contains("decision=tagged;limit=6;remaining=3"),
            "{trail}"
        );
        assert!(trail.contains("soft-limit=2"), "{trail}");
        let softly = [ask("a"), ask("a")];
        assert_eq!(
            softly.each_ref().map(|one| one.status),
            [420; 2],
            "{algorithm}"
        );
        assert!(
            softly[0].expect_header("ratelimit").contains(";r=0"),
            "{algorithm}"
        );
        assert!(softly[0].header("retry-after").is_some(), "{algorithm}");
        let trail = softly[0].expect_header("x-sluicegate-debug");
        assert!(trail.contains("decision=limited;policy=\"p/3\""), "{trail}");
        let begun = now();
        let last = ask("a");
        assert_eq!(
            (last.status, last.header("x-by")),
            (503, Some("last")),
            "{algorithm}"
        );
        assert!(now() - begun >= Duration::from_millis(300), "{algorithm}");
        // The six units are taken, one by each request.
        let beyond = ask("a");
        assert_eq!(
            (beyond.status, beyond.header("x-by")),
            (429, None),
            "{algorithm}"
        );
        assert_eq!(ask("b").status, 200);
        for (policy, decision, count) in [
            ("p", "allowed", 3.0),
            ("p", "limited", 1.0),
            ("p/2", "tagged", 1.0),
            ("p/3", "limited", 2.0),
            ("p/5", "limited", 1.0),
        ] {
            assert_eq!(
                decisions(&gateway, policy, decision),
                count,
                "{algorithm} {policy}"
            );
        }
        let admin = AdminClient::new(&gateway, READER);
        let state = |policy: &str, key: &str| {
            answer(&admin.post("/v1/keys/lookup", &json!({ "policy": policy, "key": key })))
        };
        // The other policy was charged with them, but not by the last request.
        assert_eq!(state("other", "a")["used"], 6, "{algorithm}");
        for _ in 0..2 {
            assert_eq!(ask("b").status, 200);
        }
        let soft = state("p", "b");
        assert_eq!(
            [&soft["soft_limit"], &soft["allowed"]],
            [&json!(3), &json!(false)]
        );
        let asked = json!({ "method": "GET", "url": "http://a/", "from": "127.0.0.1", "headers": [["x-key", "b"]] });
        let explained = answer(&admin.post("/v1/explain", &asked));
        assert_eq!(explained["answer"]["policy"], "p/3", "{explained}");
        assert_eq!(explained["answer"]["status"], 420, "{explained}");
    }
}

#[test]
fn retry_after_says_when_a_soft_limit_lets_pass_again() {
    let gateway = Gateway::start(
        "policies:
  p: { key: header:x-key, quota: 100/100s, soft_limits: [{ above: 3, on_limit: { status: 420 } }] }
routes: [{ name: a, upstream: echo, limits: [p] }]
",
    );
    let ask = || get_with(gateway.address(), "/", "x-key: a\r\n");
    let responses = [ask(), ask(), ask(), ask()];
    let last = &responses[3];
    assert_eq!((last.status, last.expect_header("retry-after")), (420, "2"));
}

#[test]
fn soft_limits_in_shadow_or_of_other_quotas_refuse_nothing() {
    let gateway = Gateway::start(
        "policies:
  p: { key: header:x-key, quota: 4/300d, mode: shadow, soft_limits: [{ above: 1, on_limit: { action: drop } }] }
  q:
    key: header:x-key
    quota: 9/300d
    soft_limits: [{ above: 7, on_limit: { status: 420 } }]
    overrides:
      - { value: own, quota: 9/300d }
      - { value: small, burst: 8 }
routes: [{ name: a, upstream: echo, limits: [p, q] }]
",
    );
    let statuses = |key: &str| -> Vec<u16> {
        let headers = format!("x-key: {key}\r\n");
        (0..10)
            .map(|_| get_with(gateway.address(), "/", &headers).status)
            .collect()
    };
    let with = |soft: usize, refused: usize| {
        [
            vec![200; 10 - soft - refused],
            vec![420; soft],
            vec![429; refused],
        ]
        .concat()
    };
    assert_eq!(statuses("own"), with(0, 1));
    assert_eq!(statuses("any"), with(2, 1));
    assert_eq!(statuses("small"), with(1, 2));
    assert_eq!(decisions(&gateway, "p/1", "shadowed"), 9.0);
}

#[test]
fn counts_by_status_keep_what_soft_limits_charge() {
    let origin = Origin::start(|request| {
        let status = if request.target == "/fails" {
            "401 No"
        } else {
            "200 OK"
        };
        raw(&format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"))
    });
    let gateway = Gateway::start(&format!(
        "policies:
  p: {{ quota: 4/300d, count: [401], soft_limits: [{{ above: 2, on_limit: {{ status: 420 }} }}] }}
routes: [{{ name: a, upstream: '{}', limits: [p] }}]
",
        origin.url()
    ));
    let ask = |path: &str| get_with(gateway.address(), path, "").status;
    assert_eq!(
        [ask("/"), ask("/fails"), ask("/"), ask("/fails")],
        [200, 401, 200, 401]
    );
    assert_eq!([ask("/"), ask("/"), ask("/")], [420, 420, 429]);
}

#[test]
fn replay_names_soft_limits() {
    let config = format!(
        "policies: {{ p: {{ quota: 6/1h, {SOFT} }} }}\nroutes: [{{ name: a, upstream: echo, limits: [p] }}]\n"
    );
    let log: String = (0..7).map(|_| line("1780000000", "/", "")).collect();
    let replay = Replay::new(&config, log);
    let decided = replay.decisions(&[]).into_iter();
    let decided: Vec<_> = decided
        .map(|one| format!("{} {}", one["decision"], one["policy"]))
        .collect();
    let [allowed, limited] = ["allowed", "limited"];
    let expected = [
        (allowed, "p"),
        (allowed, "p"),
        (allowed, "p/2"),
        (limited, "p/3"),
        (limited, "p/3"),
        (limited, "p/5"),
        (limited, "p"),
    ];
    assert_eq!(
        decided,
        expected.map(|(decision, policy)| format!("{decision:?} {policy:?}"))
    );
    let limits = &replay.report(&[])["routes"][0]["limits"];
    let named: Vec<_> = limits
        .as_array()
        .expect("limits")
        .iter()
        .map(|one| &one["policy"])
        .collect();
    assert_eq!(named, ["p", "p/2", "p/3", "p/5"]);
}

/// The upstream has not seen the request: neither its status nor its body says what counts.
#[test]
fn a_refusal_by_a_soft_limit_is_not_charged_as_an_answer_of_the_upstream() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  fails: {{ key: header:x-key, quota: 100/300d, count: [401] }}
  tokens: {{ key: header:x-key, quota: 900/300d, cost: {{ response_json: /n, reserve: 10, max: 100 }} }}
  soft: {{ key: header:x-key, quota: 100/300d, soft_limits: [{{ above: 1, on_limit: {{ status: 401, format: json, body: '{{\"n\":77}}' }} }}] }}
routes: [{{ name: a, upstream: echo, limits: [fails, tokens, soft] }}]
"
    ));
    let statuses = [(); 3].map(|()| get_with(gateway.address(), "/", "x-key: a\r\n").status);
    assert_eq!(statuses, [200, 401, 401]);
    let used = |policy: &str| {
        let key = json!({ "policy": policy, "key": "a" });
        let found = AdminClient::new(&gateway, READER).post("/v1/keys/lookup", &key);
        answer(&found)["used"].clone()
    };
    assert_eq!(used("fails"), json!(0));
    assert_eq!(used("soft"), json!(3));
    assert_eq!(used("tokens"), json!(30), "each as reserved");
}

#[test]
fn explain_says_what_the_next_request_gets() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  soft: {{ key: header:x-key, quota: 6/60s, soft_limits: [{{ above: 2, on_limit: {{ status: 420 }} }}] }}
  hard: {{ key: header:x-key, quota: 4/300d }}
routes:
  - {{ match: {{ path: /a }}, upstream: echo, limits: [soft] }}
  - {{ match: {{ path: /b }}, upstream: echo, limits: [soft, hard] }}
"
    ));
    let explain = |path: &str, key: &str| {
        let request = json!({ "method": "GET", "from": "127.0.0.1", "url": gateway.url(path), "headers": [["x-key", key]] });
        let explained = AdminClient::new(&gateway, READER).post("/v1/explain", &request);
        answer(&explained)["answer"].clone()
    };
    for (path, statuses) in [("/a", [200, 200, 420, 420]), ("/b", [200, 200, 420, 420])] {
        for status in statuses {
            let told = explain(path, path);
            let got = get_with(gateway.address(), path, &format!("x-key: {path}\r\n"));
            assert_eq!(got.status, status, "{told}");
            let is_limited = told["decision"] == "limited";
            assert_eq!(is_limited, status != 200, "{told}");
            if let Some(after) = got.header("retry-after") {
                let wait = told["retry_after_ms"].as_f64().expect("a wait");
                assert_eq!((wait / 1_000.0).ceil().to_string(), after, "{told}");
            }
        }
    }
    // The other limit is used up: nothing is charged, and no soft limit answers.
    let told = explain("/b", "/b");
    assert_eq!(
        get_with(gateway.address(), "/b", "x-key: /b\r\n").status,
        429
    );
    assert_eq!(told["status"], 429, "{told}");
    // Granted units pay, not the bucket of the soft limit.
    let used = [420, 420].map(|_| get_with(gateway.address(), "/a", "x-key: /a\r\n").status);
    assert_eq!(used, [420, 420]);
    let grant = json!({ "policy": "soft", "key": "/a", "units": 5, "for": "1h" });
    assert_eq!(
        AdminClient::writer(&gateway)
            .post("/v1/keys/grant", &grant)
            .status,
        200
    );
    let told = explain("/a", "/a");
    assert_eq!(
        get_with(gateway.address(), "/a", "x-key: /a\r\n").status,
        200
    );
    assert_eq!(told["decision"], "allowed", "{told}");
}
