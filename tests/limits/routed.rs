//! Requests beyond a limit that another upstream serves (`action: route`).

use std::fs;

use crate::support::admin::{AdminClient, TOKENS, WRITER};
use crate::support::client::{Connection, Response, get, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ok};
use crate::support::wait_for;
use serde_json::{Value, json};

fn origins() -> [Origin; 3] {
    ["big", "small", "tiny"].map(|name| Origin::start(move |_| ok(name)))
}

/// A gateway with the upstreams `big`, `small` and `tiny`, which say their names.
fn start([big, small, tiny]: &[Origin; 3], policies: &str, limits: &str) -> Gateway {
    Gateway::start(&format!(
        "access_log: {{ path: access.log }}
{TOKENS}responses: {{ debug: {{ header: x-why, token: '{TOKEN}' }} }}
upstreams:
  big: {{ endpoints: ['{}'] }}
  small: {{ endpoints: ['{}'], retries: {{ attempts: 2 }} }}
  tiny: {{ endpoints: ['{}'] }}
policies:
{policies}
routes: [{{ name: a, upstream: big, limits: [{limits}] }}]
",
        big.url(),
        small.url(),
        tiny.url()
    ))
}

const TOKEN: &str = "7Yw2kQ9dTz4uVb1nXs8e";

fn served(gateway: &Gateway, count: usize) -> Vec<String> {
    let by = |answer: Response| match answer.status {
        200 => answer.text(),
        status => status.to_string(),
    };
    (0..count)
        .map(|_| by(get(gateway.address(), "/")))
        .collect()
}

fn decided(gateway: &Gateway, policy: &str, decision: &str) -> Option<f64> {
    let labels = format!("policy=\"{policy}\",route=\"a\",decision=\"{decision}\"");
    gateway.metric(&format!("sluicegate_limit_decisions_total{{{labels}}}"))
}

#[test]
fn requests_beyond_the_quota_go_elsewhere_and_are_charged_to_the_other_limits() {
    let origins = origins();
    let gateway = start(
        &origins,
        "  best: { key: constant, quota: 2/300d, on_limit: { action: route, upstream: small } }
  all: { key: constant, quota: 4/300d }",
        "best, all",
    );
    assert_eq!(served(&gateway, 2), ["big", "big"]);
    let field = format!("x-why: {TOKEN}\r\n");
    let routed = get_with(gateway.address(), "/", &field);
    assert_eq!((routed.status, routed.text().as_str()), (200, "small"));
    let left = routed.expect_header("ratelimit");
    assert!(
        left.contains("\"best\";r=0;t=") && left.contains("\"all\";r=1;t="),
        "{left}"
    );
    assert_eq!(routed.header("retry-after"), None);
    let why = routed.headers_of("x-why").join(", ");
    assert!(
        why.contains("decision=routed;policy=\"best\";upstream=\"small\""),
        "{why}"
    );
    assert!(
        why.contains("limit;policy=\"best\";decision=routed"),
        "{why}"
    );
    assert_eq!(served(&gateway, 2), ["small", "429"]);
    for (policy, decision, count) in [
        ("best", "allowed", 2.0),
        ("best", "routed", 2.0),
        ("all", "allowed", 4.0),
        ("all", "limited", 1.0),
    ] {
        assert_eq!(
            decided(&gateway, policy, decision),
            Some(count),
            "{policy} {decision}"
        );
    }
    let answers = |upstream| {
        let labels = format!("upstream=\"{upstream}\",class=\"2xx\"");
        gateway.metric(&format!("sluicegate_upstream_responses_total{{{labels}}}"))
    };
    assert_eq!(answers("big").zip(answers("small")), Some((2.0, 2.0)));
    let path = gateway.dir().join("access.log");
    let lines = wait_for("five lines", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines: Vec<Value> = lines.collect();
        (lines.len() == 5).then_some(lines)
    });
    let mut routed = lines.iter().filter(|line| line["decision"] == "routed");
    let fields = |line: &Value| ["policy", "upstream", "status"].map(|name| line[name].clone());
    let routed = [routed.next(), routed.next(), routed.next()].map(|line| line.map(fields));
    let expected = [json!("best"), json!("small"), json!(200)];
    assert_eq!(routed, [Some(expected.clone()), Some(expected), None]);
}

#[test]
fn the_first_limit_that_routes_chooses_and_an_upstream_that_fails_gives_its_error() {
    let [big, small, tiny] = origins();
    let origins = [big, small, tiny];
    let gateway = start(
        &origins,
        "  first: { key: constant, quota: 3/300d, on_limit: { action: route, upstream: tiny } }
  second: { key: constant, quota: 1/300d, on_limit: { action: route, upstream: small } }
  soft: { key: constant, quota: 6/300d, soft_limits: [{ above: 4, on_limit: { action: route, upstream: 'http://127.0.0.1:9' } }] }
  watch: { key: constant, quota: 0/300d, mode: shadow, on_limit: { action: route, upstream: tiny } }",
        "first, second, soft, watch",
    );
    let expected = ["big", "small", "small", "tiny", "502", "502", "429"];
    assert_eq!(served(&gateway, 7), expected);
    assert_eq!(decided(&gateway, "soft/4", "routed"), Some(2.0));
    assert_eq!(decided(&gateway, "watch", "shadowed"), Some(6.0));
}

/// Bans route as the quota does, and requests that no other upstream may serve stay where they are.
#[test]
fn a_banned_key_is_routed_and_answers_of_the_proxy_stay() {
    let origins = origins();
    let gateway = start(
        &origins,
        "  best: { key: 'header:x-key', quota: 9/300d, on_limit: { action: route, upstream: small } }",
        "best",
    );
    let client = AdminClient::new(&gateway, WRITER);
    let ban = json!({ "policy": "best", "key": "k", "for": "1h" });
    assert_eq!(client.post("/v1/keys/ban", &ban).status, 200);
    let ask = |key| get_with(gateway.address(), "/", &format!("x-key: {key}\r\n")).text();
    assert_eq!([ask("k"), ask("l")], ["small", "big"]);
    let own = Gateway::start(
        "limits: [{ key: constant, quota: 0/1h, on_limit: { action: route, upstream: echo } }]
routes: [{ match: { path: /own }, respond: { body: mine } }]
",
    );
    assert_eq!(get(own.address(), "/own").text(), "mine");
    assert_eq!(get(own.address(), "/none").status, 404);
}

#[test]
fn a_body_and_a_stream_of_http2_go_elsewhere_whole() {
    let origins = origins();
    let gateway = start(
        &origins,
        "  best: { key: constant, quota: 0/300d, on_limit: { action: route, upstream: small } }",
        "best",
    );
    let mut client = Connection::open(gateway.address());
    let answer = client.exchange("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((answer.status, answer.text().as_str()), (200, "small"));
    let url = gateway.url("/b");
    let output = run(
        "curl",
        &["-s", "--http2-prior-knowledge", "-d", "again", &url],
    );
    assert_eq!(output.stdout, "small");
    let bodies: Vec<_> = origins[1]
        .requests()
        .into_iter()
        .map(|one| one.body)
        .collect();
    assert_eq!(bodies, [&b"hello"[..], b"again"]);
    assert!(origins[0].requests().is_empty());
}

/// A cheaper model has another name.
#[test]
fn bodies_are_changed_for_the_other_upstream_alone() {
    let [big, small, _] = origins();
    let gateway = Gateway::start(&format!(
        "policies: {{ best: {{ key: constant, quota: 1/300d, on_limit: {{ action: route, upstream: '{}', set_body: {{ /model: small }} }} }} }}
routes: [{{ upstream: '{}', limits: [best], request: {{ read_body: 64B, set_body: {{ /stream: true }} }} }}]
",
        small.url(),
        big.url()
    ));
    let post = |body: &str| {
        let length = body.len();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        Connection::open(gateway.address())
            .exchange(&format!("{head}{body}"))
            .status
    };
    let long = format!("{{\"model\":\"{}\"}}", "x".repeat(99));
    let statuses = [
        post("{\"model\": \"big\"}"),
        post("{\"model\": \"big\"}"),
        post(&long),
    ];
    assert_eq!(statuses, [200, 200, 413]);
    assert_eq!(
        get(gateway.address(), "/").text(),
        "small",
        "it has no body"
    );
    let bodies = |origin: &Origin| -> Vec<Value> {
        let requests = origin
            .requests()
            .into_iter()
            .filter(|one| !one.body.is_empty());
        requests
            .map(|one| serde_json::from_slice(&one.body).expect("JSON"))
            .collect()
    };
    assert_eq!(bodies(&big), [json!({ "model": "big", "stream": true })]);
    assert_eq!(
        bodies(&small),
        [json!({ "model": "small", "stream": true })]
    );
}

#[test]
fn explain_and_replay_know_the_other_upstream() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("the directory is writable");
        path.to_str().expect("a path of ours").to_owned()
    };
    let config = |quota| {
        write(
            "a.yaml",
            &format!(
                "upstreams: {{ small: {{ endpoints: [http://127.0.0.1:9] }} }}
policies: {{ best: {{ quota: {quota}/1h, on_limit: {{ action: route, upstream: small }} }} }}
routes: [{{ upstream: echo, limits: [best] }}]
"
            ),
        )
    };
    let binary = env!("CARGO_BIN_EXE_sluicegate");
    let explain = ["explain", "GET", "http://a/", "--config", &config(0)];
    let output = run(binary, &explain);
    assert!(
        output
            .stdout
            .ends_with("answer    allowed, and forwarded to small\n"),
        "{output}"
    );
    assert!(output.stdout.contains("says    routed: "), "{output}");
    let line = "192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    let log = write("access.log", &line.repeat(3));
    let output = run(binary, &["replay", &log, "--config", &config(1)]);
    assert!(output.stdout.contains("  best, 2 routed\n"), "{output}");
    assert!(output.stdout.contains("3 requests, 0 limited"), "{output}");
}
