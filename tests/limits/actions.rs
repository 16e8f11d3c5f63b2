//! Actions on limited requests, over real sockets: decoys, tarpits, dropped and tagged requests.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer_of};
use crate::support::client::{Connection, Response, curl, get, get_with, run};
use crate::support::frames::{CANCEL, Http2, RST_STREAM, frame, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, raw};
use crate::support::{now, wait_for};

fn names(answer: &Response) -> Vec<&str> {
    answer
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect()
}

/// A proxy with a decoy for the third request to `/`, beside a disclosed limit.
fn with_decoy() -> Gateway {
    Gateway::start(
        "responses: { headers: [ietf, x-ratelimit], on_limit: { status: 503, docs_url: 'https://a.example', headers: { x-refused: yes } } }
policies:
  hidden: { quota: 2/1h, on_limit: { action: decoy, format: json, body: '{\"ok\":true}', headers: { x-own: a } } }
  known: { key: \"header:x-key\", quota: 3/1h, on_missing_key: skip }
routes:
  - { match: { path: /comments }, upstream: echo, limits: [hidden, known] }
  - { match: { path: /alone }, upstream: echo, limits: [hidden] }
",
    )
}

#[test]
fn a_decoy_looks_like_success() {
    let gateway = with_decoy();
    let post = || {
        Connection::open(gateway.address()).exchange(
            "POST /comments HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 4\r\n\r\nspam",
        )
    };
    for _ in 0..2 {
        let answer = post();
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("spam"), "the upstream's");
    }
    let decoy = post();
    assert_eq!(
        (decoy.status, decoy.text().as_str()),
        (200, "{\"ok\":true}")
    );
    assert_eq!(decoy.expect_header("content-type"), "application/json");
    let mut sent = names(&decoy);
    sent.sort_unstable();
    assert_eq!(
        sent,
        ["content-length", "content-type", "date", "x-own"],
        "nothing that is said of refusals"
    );
    let count = "sluicegate_limit_decisions_total{policy=\"hidden\",route=\"comments\",decision=\"limited\"}";
    assert_eq!(gateway.metric(count), Some(1.0));
}

/// A response of an upstream with fields of its own.
fn answered(user: &str, number: &str) -> Vec<Step> {
    raw(&format!(
        "HTTP/1.1 201 Created\r\nServer: nginx/1.24.0\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: application/json\r\nX-Request-Id: 4f2a-{number}\r\nSet-Cookie: session={user}\r\n\
         X-User: {user}\r\nX-Version: 7\r\nX-Plan: gold\r\nCache-Control: private\r\n\
         Transfer-Encoding: chunked\r\n\r\n12\r\n{{\"id\":\"{number}-1234\"}}\r\n0\r\n\r\n"
    ))
}

#[test]
fn a_decoy_looks_like_the_last_real_answers_of_its_route() {
    let origin = Origin::start(|request| {
        let user = request.header("cookie").unwrap_or("nobody").to_owned();
        answered(&user, "1234")
    });
    let config = |quota: u8| {
        format!(
            "policies: {{ hidden: {{ key: cookie:user, quota: {quota}/1h, on_limit: {{ action: decoy, body: '{{\"ok\":true}}', headers: {{ content-type: application/json }} }} }} }}
routes: [{{ name: comments, upstream: '{}', limits: [hidden] }}]
",
            origin.url()
        )
    };
    let gateway = Gateway::start(&config(1));
    let post = |user: &str| {
        Connection::open(gateway.address()).exchange(&format!(
            "POST /comments HTTP/1.1\r\nHost: a\r\nCookie: user={user}\r\nContent-Length: 4\r\n\r\nspam"
        ))
    };
    let check = |real: &Response, decoy: &Response| {
        assert_eq!(decoy.text(), "{\"ok\":true}");
        assert_eq!(decoy.status, real.status);
        let private = ["set-cookie", "x-user", "x-plan", "x-version"];
        let shared: Vec<_> = names(real);
        let shared: Vec<_> = shared
            .into_iter()
            .filter(|name| !private.contains(name))
            .collect();
        assert_eq!(names(decoy), shared, "the same fields in the same order");
        for name in ["server", "content-type", "cache-control", "via"] {
            assert_eq!(decoy.header(name), real.header(name), "{name}");
        }
        let date = decoy.expect_header("date");
        assert!(!date.contains("1994"), "{date}");
        let id = decoy.expect_header("x-request-id");
        assert_ne!(id, "4f2a-1234");
        assert_eq!(id.len(), "4f2a-1234".len(), "{id}");
    };
    let alice = post("alice");
    let decoy = post("alice");
    assert_eq!(origin.requests().len(), 1, "the second was a decoy");
    check(&alice, &decoy);
    let bob = post("bob");
    let decoy = post("bob");
    assert_eq!(origin.requests().len(), 2);
    check(&bob, &decoy);
    let text = format!("{:?}", post("alice"));
    assert!(
        !text.contains("user=bob"),
        "nothing of another client: {text}"
    );

    gateway.reload(&config(1).replace("policies", "responses: { headers: [draft-6] }\npolicies"));
    check(&bob, &post("bob"));
}

#[test]
fn a_decoy_is_disclosed_in_no_header_field() {
    let gateway = with_decoy();
    let ask = || {
        let request = "GET /comments HTTP/1.1\r\nHost: a\r\nx-key: k\r\n\r\n";
        Connection::open(gateway.address()).exchange(request)
    };
    let answers = [ask(), ask(), ask()];
    for (answer, remaining) in answers.iter().zip(["2", "1", "1"]) {
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.expect_header("ratelimit-policy"),
            "\"known\";q=3;w=3600"
        );
        assert_eq!(answer.expect_header("x-ratelimit-limit"), "3");
        assert_eq!(answer.expect_header("x-ratelimit-remaining"), remaining);
        assert_eq!(answer.header("retry-after"), None);
    }
    let alone = get(gateway.address(), "/alone");
    assert_eq!(
        alone.text(),
        "{\"ok\":true}",
        "another route, the same bucket"
    );
    assert!(!names(&alone).iter().any(|name| name.contains("ratelimit")));
}

#[test]
fn a_refusal_does_not_name_a_decoy_policy() {
    let gateway = Gateway::start(
        "policies:
  hidden: { quota: 1/1m, on_limit: { action: decoy } }
  known: { quota: 1/1h }
routes: [{ upstream: echo, limits: [hidden, known] }]
",
    );
    assert_eq!(get(gateway.address(), "/").status, 200);
    let refusal = get(gateway.address(), "/");
    assert_eq!(refusal.status, 429, "the longer wait speaks");
    let problem: serde_json::Value = serde_json::from_slice(&refusal.body).expect("JSON");
    assert_eq!(problem["violated-policies"], serde_json::json!(["known"]));
    assert!(!format!("{refusal:?}").contains("hidden"));
}

#[test]
fn a_dropped_request_gets_no_response() {
    let gateway = Gateway::refusing("{ action: drop }");
    let mut client = Connection::open(gateway.address());
    let next = "GET /else HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.exchange(next).status, 200);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{next}"));
    client.expect_closed();

    let output = curl(&[&gateway.url("/")]);
    assert_eq!(output.code, Some(52), "an empty reply: {output}");
    let count = "sluicegate_http_requests_total{code=\"444\",method=\"GET\"}";
    assert_eq!(gateway.metric(count), Some(2.0));
}

#[test]
fn a_dropped_stream_is_reset_and_its_connection_stays_open() {
    let gateway = Gateway::refusing("{ action: drop }");
    let mut client = Http2::open(gateway.address());
    client.send(&request(1, &get_block()));
    let answer = client.receive().expect("a frame");
    assert_eq!((answer.kind, answer.stream), (RST_STREAM, 1));
    assert_eq!(answer.error(), Some(2), "INTERNAL_ERROR");
    // `:path: /else`, its name indexed.
    let else_block = [&[0x82, 0x86, 0x04, 5][..], b"/else", &[0x01, 1], b"a"].concat();
    assert_eq!(client.status_of(3, &else_block), 200);
}

#[test]
fn a_tarpit_refuses_after_its_delay_and_has_bounded_places() {
    let gateway = Gateway::refusing("{ action: tarpit, delay: 5s, max_held: 2 }");
    let held = || gateway.metric("sluicegate_limit_held{policy=\"spam\"}");
    let started = now();
    let mut waiting = [(); 2].map(|()| Connection::open(gateway.address()));
    for client in &mut waiting {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_for("two held", || (held() == Some(2.0)).then_some(()));
    let third = get(gateway.address(), "/");
    assert_eq!(third.status, 429, "no place is free");
    assert!(started.elapsed() < Duration::from_secs(5), "at once");
    for client in &mut waiting {
        assert_eq!(client.receive().status, 429);
    }
    assert!(started.elapsed() >= Duration::from_secs(5), "held");
    assert_eq!(held(), Some(0.0));
}

#[test]
fn a_client_that_leaves_a_tarpit_returns_its_place() {
    let gateway = Gateway::refusing("{ action: tarpit, delay: 5m, max_held: 1 }");
    let held = || gateway.metric("sluicegate_limit_held{policy=\"spam\"}");
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("one held", || (held() == Some(1.0)).then_some(()));
    client.reset();
    wait_for("none held", || (held() == Some(0.0)).then_some(()));
    let mut client = Http2::open(gateway.address());
    client.send(&request(1, &get_block()));
    wait_for("one held again", || (held() == Some(1.0)).then_some(()));
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    wait_for("none held", || (held() == Some(0.0)).then_some(()));
}

#[test]
fn retry_after_of_a_tarpit_is_the_remaining_wait() {
    let gateway = Gateway::start(
        "policies: { few: { quota: 1/10s, on_limit: { action: tarpit, delay: 3s } } }
routes: [{ upstream: echo, limits: [few] }]
",
    );
    assert_eq!(get(gateway.address(), "/").status, 200);
    let refusal = get(gateway.address(), "/");
    let seconds: u64 = refusal
        .expect_header("retry-after")
        .parse()
        .expect("seconds");
    assert!((1..=7).contains(&seconds), "{seconds}");
}

#[test]
fn a_tagged_request_is_forwarded_with_a_field_that_clients_cannot_forge() {
    let gateway = Gateway::start(
        "policies:
  soft: { quota: 1/1h, on_limit: { action: tag } }
  softer: { quota: 2/1h, on_limit: { action: tag } }
  hard: { quota: 4/1h }
routes: [{ name: all, upstream: echo, limits: [soft, softer, hard] }]
",
    );
    let ask = || {
        let request =
            "GET / HTTP/1.1\r\nHost: a\r\nX-Over-Limit: forged\r\nConnection: x-over-limit\r\n\r\n";
        Connection::open(gateway.address()).exchange(request)
    };
    let tags = |answer: &Response| -> Vec<String> {
        let text = answer.text();
        let tags = text
            .lines()
            .filter_map(|line| line.strip_prefix("x-over-limit: "));
        tags.map(str::to_owned).collect()
    };
    for expected in [&[][..], &["soft"], &["soft", "softer"], &["soft", "softer"]] {
        let answer = ask();
        assert_eq!(answer.status, 200);
        assert_eq!(tags(&answer), expected);
        let told = answer.expect_header("ratelimit-policy");
        assert_eq!(told, "\"hard\";q=4;w=3600");
    }
    assert_eq!(ask().status, 429);
    for (policy, decision, count) in [
        ("soft", "tagged", 3.0),
        ("soft", "allowed", 1.0),
        ("softer", "tagged", 2.0),
        ("hard", "limited", 1.0),
    ] {
        let series = format!(
            "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"all\",decision=\"{decision}\"}}"
        );
        assert_eq!(gateway.metric(&series), Some(count), "{series}");
    }
}

#[test]
fn explain_shows_the_action_on_a_request() {
    for (action, said) in [
        ("reject", "limited by spam: 429 Too Many Requests"),
        ("decoy", "answered with a decoy by spam: 200 OK"),
        (
            "tarpit",
            "held, then limited by spam: 429 Too Many Requests",
        ),
        ("drop", "dropped by spam"),
        ("tag", "allowed, and forwarded to echo"),
    ] {
        let gateway = Gateway::refusing(&format!("{{ action: {action} }}"));
        let config = gateway.config_path();
        let config = config.to_str().expect("a path of ours");
        let output = run(
            env!("CARGO_BIN_EXE_sluicegate"),
            &["explain", "GET", "http://a/", "--config", config],
        );
        let said = format!("answer    {said}\n");
        assert!(output.stdout.ends_with(&said), "{output}");
        let is_tagged = output.stdout.contains("\ntag       spam\n");
        assert_eq!(is_tagged, action == "tag", "{output}");
    }
}

#[test]
fn explain_names_the_deciding_limit() {
    let explain = |upper: &str, lower: &str| {
        let limits = format!("{{ quota: 0/1h, {upper} }}, {{ quota: 0/1h, {lower} }}");
        let gateway = Gateway::start(&format!(
            "routes: [{{ name: r, upstream: echo, limits: [{limits}] }}]\n"
        ));
        let config = gateway.config_path();
        let config = config.to_str().expect("a path of ours");
        let arguments = ["explain", "GET", "http://a/", "--config", config];
        let said = run(env!("CARGO_BIN_EXE_sluicegate"), &arguments).stdout;
        (get(gateway.address(), "/").status, said)
    };
    for (upper, lower, status, said) in [
        ("on_limit: { status: 503 }", "", 503, "r#0: 503"),
        (
            "on_limit: { status: 503 }",
            "key: header:x, on_missing_key: refuse, on_limit: { status: 403 }",
            403,
            "r#1: 403",
        ),
    ] {
        let (answered, explained) = explain(upper, lower);
        assert_eq!(answered, status);
        let said = format!("answer    limited by {said}");
        assert!(explained.contains(&said), "{explained}");
    }
}

#[test]
fn replay_counts_tagged_requests() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("the directory is writable");
        path.to_str().expect("a path of ours").to_owned()
    };
    let config = write(
        "a.yaml",
        "policies: { soft: { quota: 1/1h, on_limit: { action: tag } } }
routes: [{ upstream: echo, limits: [soft] }]
",
    );
    let line = "192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    let log = write("access.log", &line.repeat(3));
    let binary = env!("CARGO_BIN_EXE_sluicegate");
    let output = run(binary, &["replay", &log, "--config", &config]);
    assert!(output.stdout.contains("  soft, 2 tagged\n"), "{output}");
    assert!(output.stdout.contains("3 requests, 0 limited"), "{output}");
}

/// Tags charge what all other limits admit, soft limits included, and nothing else.
#[test]
fn refused_requests_are_charged_to_no_tag() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  once: {{ key: \"header:x-key\", quota: 1/300d }}
  soft: {{ key: \"header:x-key\", quota: 9/300d, soft_limits: [{{ above: 1, on_limit: {{ status: 420 }} }}] }}
  tag: {{ key: \"header:x-key\", quota: 3/300d, cost: 2, charge_refused: true, on_limit: {{ action: tag }} }}
routes:
  - {{ name: a, match: {{ path: /once }}, upstream: echo, limits: [once, tag] }}
  - {{ name: b, match: {{ path: /soft }}, upstream: echo, limits: [soft, tag] }}
"
    ));
    for (path, refused) in [("/once", 429), ("/soft", 420)] {
        let field = format!("x-key: {}\r\n", &path[1..]);
        let ask = || get_with(gateway.address(), path, &field).status;
        assert_eq!([ask(), ask(), ask()], [200, refused, refused], "{path}");
        let key = json!({ "policy": "tag", "key": path[1..] });
        let state = answer_of(&AdminClient::new(&gateway, READER).post("/v1/keys/lookup", &key));
        assert_eq!(state["used"], 2, "{path}: {state}");
    }
}
