//! Quotas that requests state: one bucket, and for each request the limit of its own.

use std::fs;

use jsonwebtoken::{EncodingKey, Header, encode};
use rustix::process::Signal;
use serde_json::json;

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer};
use crate::support::client::{Response, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::replay::Replay;
use crate::support::steering::lookup;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

/// The policy of every test, with this algorithm.
fn config(algorithm: &str) -> String {
    format!(
        "{TOKENS}responses: {{ headers: [draft-7, github] }}
policies:
  mailings:
    key: header:x-mailing
    algorithm: {algorithm}
    quota: {{ from: header:x-send-rate, per: 300d, default: 3, max: 10 }}
routes:
  - {{ match: {{ path: /report }}, upstream: status, limits: [] }}
  - {{ name: a, upstream: echo, limits: [mailings] }}
"
    )
}

fn send(gateway: &Gateway, mailing: &str, rate: &str) -> Response {
    let rate = match rate {
        "" => String::new(),
        rate => format!("x-send-rate: {rate}\r\n"),
    };
    let headers = format!("x-mailing: {mailing}\r\n{rate}");
    get_with(gateway.address(), "/", &headers)
}

fn statuses<const N: usize>(gateway: &Gateway, mailing: &str, rates: [&str; N]) -> [u16; N] {
    rates.map(|rate| send(gateway, mailing, rate).status)
}

const ALGORITHMS: [&str; 5] = [
    "fixed_window, start: first_request",
    "sliding_window",
    "sliding_window, precision: 60",
    "sliding_window, oldest: whole",
    "sliding_log",
];

#[test]
fn each_request_has_the_limit_that_it_states_on_the_same_bucket() {
    for algorithm in ALGORITHMS {
        let gateway = Gateway::start(&config(&algorithm.replace(", ", "\n    ")));
        // A higher rate holds from the next request on, and a lower one, too: units stay used.
        let told = statuses(
            &gateway,
            "a",
            ["2", "2", "2", "4", "4", "4", "2", "1", "10"],
        );
        assert_eq!(
            told,
            [200, 200, 429, 200, 200, 429, 429, 429, 200],
            "{algorithm}"
        );
        // Nothing is gained by alternating.
        let rates: [&str; 16] = std::array::from_fn(|turn| if turn % 2 == 0 { "1" } else { "10" });
        let alternating = statuses(&gateway, "b", rates);
        let admitted = alternating.iter().filter(|status| **status == 200).count();
        assert_eq!(admitted, 9, "{algorithm}: {alternating:?}");
        // Without a number the default holds, and above the largest that one.
        for (mailing, rate) in [
            ("c", ""),
            ("d", "fast"),
            ("e", "-1"),
            ("f", "5.0"),
            ("g", "3\r\nx-send-rate: 9"),
        ] {
            let told = statuses(&gateway, mailing, [rate; 4]);
            assert_eq!(told, [200, 200, 200, 429], "{algorithm}: {rate}");
        }
        let most = statuses(&gateway, "h", ["99999999999999999999"; 11]);
        assert_eq!(most.iter().filter(|status| **status == 200).count(), 10);
        assert_eq!(statuses(&gateway, "i", ["0", "1", "0"]), [429, 200, 429]);
    }
}

#[test]
fn responses_tell_the_limit_of_the_request() {
    let gateway = Gateway::start(&config("sliding_window"));
    let first = send(&gateway, "a", "7");
    assert_eq!(first.expect_header("x-ratelimit-limit"), "7");
    assert_eq!(first.expect_header("x-ratelimit-remaining"), "6");
    assert_eq!(first.expect_header("x-ratelimit-used"), "1");
    assert_eq!(first.expect_header("ratelimit-policy"), "7;w=25920000");
    let spent = send(&gateway, "a", "1");
    assert_eq!(spent.status, 429);
    assert_eq!(spent.expect_header("x-ratelimit-limit"), "1");
    assert_eq!(spent.expect_header("x-ratelimit-remaining"), "0");
    assert!(spent.header("retry-after").is_some());
    let text = spent.text();
    assert!(
        text.contains("The limit \\\"mailings\\\" of 1/300d is used up."),
        "{text}"
    );
    // No quota, no end of the wait.
    let paused = send(&gateway, "a", "0");
    assert_eq!((paused.status, paused.header("retry-after")), (429, None));

    gateway.reload(&config("sliding_window").replace("[draft-7, github]", "[ietf]"));
    let told = send(&gateway, "a", "5");
    assert_eq!(
        told.expect_header("ratelimit-policy"),
        "\"mailings\";q=5;w=25920000"
    );
    assert!(
        told.expect_header("ratelimit")
            .starts_with("\"mailings\";r=3")
    );
    // Series have no value of a client.
    let metrics = get_with(gateway.admin, "/metrics", "").text();
    assert!(
        metrics.contains("quota=\"3/300d, or up to 10/300d by header:x-send-rate\""),
        "{metrics}"
    );
}

#[test]
fn a_template_and_the_report_tell_the_limit_of_the_request() {
    let gateway = Gateway::start(
        "policies:
  mailings:
    algorithm: fixed_window
    quota: { from: query:rate, per: 300d, default: 3, max: 10 }
    on_limit: { format: text, body: \"only {{quota}}\" }
routes:
  - { match: { path: /report }, upstream: status, limits: [mailings] }
  - { upstream: echo, limits: [mailings] }
",
    );
    let get = |target: &str| get_with(gateway.address(), target, "");
    assert_eq!(get("/?rate=1").status, 200);
    assert_eq!(get("/?rate=1").text(), "only 1/300d");
    let report = get("/report?rate=5").text();
    let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
    let mailings = &report["resources"]["mailings"];
    assert_eq!(
        [&mailings["limit"], &mailings["used"], &mailings["quota"]],
        [&json!(5), &json!(2), &json!("5/300d")],
        "{report}"
    );
}

#[test]
fn overrides_trust_some_callers_and_claims_all_of_a_token() {
    let secret = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jwt/secret.txt");
    let gateway = Gateway::start(&format!(
        "jwt: {{ keys: [{{ algorithm: HS256, file: {secret} }}] }}
policies:
  mailings:
    key: header:x-mailing
    algorithm: fixed_window
    quota: 1/300d
    overrides:
      - {{ when: {{ header: {{ x-from: mailer }} }}, quota: {{ from: header:x-send-rate, per: 300d, default: 2, max: 10 }} }}
  plans:
    key: jwt:sub
    on_missing_key: skip
    algorithm: sliding_log
    quota: {{ from: jwt:rate, per: 300d, default: 1, max: 10 }}
routes:
  - {{ match: {{ path: /plans }}, upstream: echo, limits: [plans] }}
  - {{ upstream: echo, limits: [mailings] }}
"
    ));
    let ask = |path: &str, headers: &str| get_with(gateway.address(), path, headers).status;
    let untrusted = "x-mailing: a\r\nx-send-rate: 5\r\n";
    assert_eq!([ask("/", untrusted), ask("/", untrusted)], [200, 429]);
    let trusted = format!("{untrusted}x-from: mailer\r\n");
    let told = [(); 6].map(|()| ask("/", &trusted));
    assert_eq!(told, [200, 200, 200, 200, 200, 429]);

    let secret = fs::read(secret).expect("the fixture is there");
    let key = EncodingKey::from_secret(secret.trim_ascii_end());
    let bearer = |rate: serde_json::Value| {
        let claims = json!({ "sub": "alice", "rate": rate });
        let header = Header::new(jsonwebtoken::Algorithm::HS256);
        let token = encode(&header, &claims, &key).expect("it is signed");
        format!("authorization: Bearer {token}\r\n")
    };
    let three = bearer(json!(3));
    let told = [(); 4].map(|()| ask("/plans", &three));
    assert_eq!(told, [200, 200, 200, 429]);
    assert_eq!(ask("/plans", &bearer(json!("4"))), 200);
    assert_eq!(ask("/plans", &bearer(json!("many"))), 429, "the default");
}

#[test]
fn operators_see_the_bucket_and_the_limit_of_a_request() {
    let gateway = Gateway::start(&config("sliding_window"));
    assert_eq!(statuses(&gateway, "a", ["6"; 4]), [200; 4]);
    let state = lookup(&gateway, "mailings", "a");
    assert_eq!([&state["used"], &state["limit"]], [4, 10], "{state}");
    let explain = |rate: &str| {
        let request = json!({
            "method": "GET", "url": "http://example.com/", "from": "203.0.113.7",
            "headers": [["x-mailing", "a"], ["x-send-rate", rate]],
        });
        let told = answer(&AdminClient::new(&gateway, READER).post("/v1/explain", &request));
        let limit = &told["limits"][0];
        (
            told["answer"]["decision"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            limit["remaining"].as_u64(),
            limit["stated_quota"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let from = "from header:x-send-rate";
    assert_eq!(
        explain("6"),
        ("allowed".into(), Some(1), format!("6/300d, {from}"))
    );
    assert_eq!(
        explain("4"),
        ("limited".into(), Some(0), format!("4/300d, {from}"))
    );
    let default = "3/300d, the default: header:x-send-rate states none";
    assert_eq!(explain("x"), ("limited".into(), Some(0), default.into()));

    let path = gateway.config_path();
    let path = path.to_str().expect("a path of ours");
    let output = run(
        BINARY,
        &[
            "explain",
            "GET",
            "http://a/",
            "-H",
            "x-send-rate: 8",
            "--config",
            path,
        ],
    );
    let text = output.stdout;
    assert!(
        text.contains("  quota   8/300d, from header:x-send-rate\n"),
        "{text}"
    );
}

#[test]
fn a_reload_and_a_restart_keep_what_is_used() {
    let stored = |max: u32| {
        config("sliding_window").replace("max: 10", &format!("max: {max}"))
            + "store: { memory: { snapshot: { path: buckets } } }\n"
    };
    let mut gateway = Gateway::start(&stored(10));
    assert_eq!(statuses(&gateway, "a", ["4"; 5]), [200, 200, 200, 200, 429]);
    gateway.reload(&stored(20));
    assert_eq!(statuses(&gateway, "a", ["4", "5", "5"]), [429, 200, 429]);
    gateway.signal(Signal::TERM);
    gateway.wait();
    let gateway = gateway.start_again();
    assert_eq!(statuses(&gateway, "a", ["5", "20", "6"]), [429, 200, 429]);
}

#[test]
fn replay_decides_by_the_rates_of_the_log() {
    let line = |second: u64, rate: &str| {
        let headers = match rate {
            "" => json!({ "x-mailing": "a" }),
            rate => json!({ "x-mailing": "a", "x-send-rate": rate }),
        };
        json!({ "time": (1_782_864_000 + second) * 1_000, "client_ip": "192.0.2.1", "method": "GET", "path": "/", "headers": headers }).to_string() + "\n"
    };
    let config = config("sliding_log").replace("300d", "1m");
    let log: String = ["2", "2", "2", "3", ""]
        .iter()
        .zip(0..)
        .map(|(rate, second)| line(second, rate))
        .collect();
    let decided = Replay::new(&config, log).decisions(&[]);
    let decided: Vec<_> = decided.iter().map(|one| one["decision"].as_str()).collect();
    let [yes, no] = [Some("allowed"), Some("limited")];
    assert_eq!(decided, [yes, yes, no, yes, no]);
    let unlogged: String = (0..3).map(|second| line(second, "")).collect();
    let text = Replay::new(&config, unlogged).text();
    let warning = "header:x-send-rate, which says the quota, was missing in 3 of 3 requests; each counted under 3/1m";
    assert!(text.contains(warning), "{text}");
}
