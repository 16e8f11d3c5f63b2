//! Routes with `upstream: decide`, which tell other proxies if they may serve a request.

use std::fs;

use crate::support::client::{Connection, Response, curl, get, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, refusing_address};
use crate::support::wait_for;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

/// Trusts 127.0.0.1 and nobody else.
const TRUSTING: &str = "client_ip: { trusted_proxies: [127.0.0.1] }\n";

/// Sends a question with these fields, each ended by CR LF.
fn ask(gateway: &Gateway, fields: &str) -> Response {
    get_with(gateway.address(), "/ask", fields)
}

#[test]
fn the_described_request_is_decided_by_the_route_that_would_serve_it() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "{TRUSTING}routes:
  - {{ match: {{ path: /ask }}, upstream: decide }}
  - name: orders
    match: {{ hosts: [shop.example], path: \"/orders/{{id}}\", methods: [POST] }}
    access: {{ deny: [{{ header: {{ x-evil: \"1\" }} }}] }}
    limits: [{{ name: per-order, key: [\"path:id\", client_ip], quota: 2/1h }}]
    upstream: {}
",
        origin.url()
    ));
    let traefik = "X-Forwarded-Method: POST\r\nX-Forwarded-Host: Shop.example:443\r\n\
                   X-Forwarded-Uri: /orders/./7?x=/orders/8\r\nX-Forwarded-For: 203.0.113.1\r\n";
    let ingress = "X-Original-Method: POST\r\nX-Original-URL: https://shop.example/orders/7\r\n\
                   X-Forwarded-For: 203.0.113.1\r\n";
    let allowed = ask(&gateway, traefik);
    assert_eq!((allowed.status, allowed.body.len()), (200, 0));
    assert_eq!(allowed.expect_header("content-length"), "0");
    assert!(allowed.expect_header("ratelimit").contains("per-order"));
    assert_eq!(ask(&gateway, ingress).status, 200);
    let refused = ask(&gateway, traefik);
    assert_eq!(refused.status, 429);
    let wait: u64 = refused
        .expect_header("retry-after")
        .parse()
        .expect("a number");
    assert!((1_700..=1_800).contains(&wait), "{wait}");

    let other = |old: &str, new: &str| ask(&gateway, &traefik.replace(old, new)).status;
    assert_eq!(other("203.0.113.1", "203.0.113.2"), 200, "another client");
    assert_eq!(other("/orders/./7", "/orders/9"), 200, "another order");
    assert_eq!(other("Shop", "other"), 404, "no route takes it");
    assert_eq!(other("POST", "GET"), 404, "no route takes it");
    assert_eq!(
        ask(&gateway, &format!("{traefik}X-Evil: 1\r\n")).status,
        403
    );
    // The route serves such requests, too, and counts both.
    let mut direct = Connection::open(gateway.address());
    let served = |direct: &mut Connection, id: &str| {
        let from = "host: shop.example\r\nx-forwarded-for: 203.0.113.1\r\n";
        let request = format!("POST /orders/{id} HTTP/1.1\r\n{from}content-length: 0\r\n\r\n");
        direct.exchange(&request).status
    };
    assert_eq!(served(&mut direct, "9"), 200);
    assert_eq!(served(&mut direct, "9"), 429);
    assert_eq!(origin.requests().len(), 1, "no question is forwarded");
    let count = |class: &str| {
        let labels = format!("{{route=\"orders\",class=\"{class}\"}}");
        gateway.metric(&format!("sluicegate_route_requests_total{labels}"))
    };
    assert_eq!((count("2xx"), count("4xx")), (Some(5.0), Some(3.0)));
}

/// To an asking proxy each 200 is a yes, and errors of gRPC are a 200.
#[test]
fn no_refusal_is_one_of_grpc() {
    let gateway = Gateway::start(&format!(
        "{TRUSTING}routes:
  - {{ match: {{ path: /ask }}, upstream: decide }}
  - match: {{ path: /few }}
    limits: [{{ key: constant, quota: 1/1h }}]
    upstream: decide
  - match: {{ path: /denied }}
    access: {{ deny: [{{ path: /denied }}] }}
    upstream: decide
"
    ));
    for kind in [
        "application/grpc",
        "application/grpc-web+proto",
        "application/grpc+x",
    ] {
        let answer = |path: &str, fields: &str| {
            let fields = format!("Content-Type: {kind}\r\n{fields}");
            get_with(gateway.address(), path, &fields).status
        };
        let described = |path: &str| answer("/ask", &format!("X-Forwarded-Uri: {path}\r\n"));
        described("/few");
        assert_eq!(described("/few"), 429, "{kind}");
        assert_eq!(described("/denied"), 403, "{kind}");
        assert_eq!(described("/none"), 404, "{kind}");
        assert_eq!(described("/a%00"), 400, "{kind}");
        assert_eq!(answer("/a%2fb", ""), 400, "{kind}");
        assert_eq!(answer("/none", ""), 404, "{kind}");
    }
}

#[test]
fn the_fields_of_others_describe_nothing() {
    let gateway = Gateway::start(
        "client_ip: { trusted_proxies: [192.0.2.1] }
routes:
  - { limits: [{ key: [host, path], quota: 1/1h }], upstream: decide }
",
    );
    let described = |path: &str| format!("X-Forwarded-Uri: {path}\r\nX-Forwarded-Host: {path}\r\n");
    assert_eq!(ask(&gateway, &described("/a")).status, 200);
    assert_eq!(ask(&gateway, &described("/b")).status, 429);
    // As Envoy asks: the question is the request.
    assert_eq!(get(gateway.address(), "/else").status, 200);
    assert_eq!(get(gateway.address(), "/else").status, 429);
}

#[test]
fn a_description_that_is_no_request_is_refused() {
    let gateway = Gateway::start(&format!("{TRUSTING}routes: [{{ upstream: decide }}]"));
    for (fields, status, reason) in [
        ("X-Forwarded-Method: A B\r\n", 400, "method that"),
        (
            "X-Forwarded-Method: GET\r\nX-Original-Method: PUT\r\n",
            400,
            "contradict",
        ),
        (
            "X-Forwarded-Uri: /a\r\nX-Forwarded-Uri: /b\r\n",
            400,
            "contradict",
        ),
        ("X-Original-URI: a\r\n", 400, "URI that"),
        ("X-Original-URI: /a#b\r\n", 400, "URI that"),
        ("X-Original-URI: /a%00\r\n", 400, "control character"),
        ("X-Original-URI: /a%2fb\r\n", 400, "encoded slash"),
        ("X-Original-URI: /../a\r\n", 400, "leaves its root"),
        ("X-Original-URL: ftp://a/b\r\n", 400, "URI that"),
        ("X-Forwarded-Host: a, b\r\n", 400, "host that"),
        ("X-Forwarded-Host: a b\r\n", 400, "host that"),
        ("X-Forwarded-Host: u@a\r\n", 400, "Host is not"),
        ("X-Forwarded-Method: TRACE\r\n", 501, "TRACE"),
    ] {
        let answer = ask(&gateway, fields);
        assert_eq!(answer.status, status, "{fields}");
        assert!(answer.text().contains(reason), "{fields}: {answer:?}");
    }
}

#[test]
fn a_worker_asks_for_many_units_at_once() {
    let gateway = Gateway::start(
        "routes:
  - limits: [{ key: header:x-account, quota: 50/1h, cost: { header: x-cost, max: 50 } }]
    upstream: decide
",
    );
    let may_send =
        |units: u32| ask(&gateway, &format!("X-Account: a\r\nX-Cost: {units}\r\n")).status;
    assert_eq!([20, 20, 20, 10, 1].map(may_send), [200, 200, 429, 200, 429]);
}

#[test]
fn a_refusal_is_told_whatever_the_policy_tells_clients() {
    let gateway = Gateway::start(&format!(
        "{TRUSTING}policies:
  decoy: {{ quota: 1/1h, on_limit: {{ action: decoy }} }}
  drop: {{ quota: 1/1h, on_limit: {{ action: drop }} }}
  tarpit: {{ quota: 1/1h, on_limit: {{ action: tarpit, delay: 1m }} }}
  other: {{ quota: 1/1h, on_limit: {{ status: 403 }} }}
  settled: {{ quota: 1/1h, count: [401] }}
routes:
  - {{ match: {{ path: /ask }}, upstream: decide }}
  - {{ match: {{ path: /decoy }}, limits: [decoy], upstream: echo }}
  - {{ match: {{ path: /drop }}, limits: [drop], upstream: echo }}
  - {{ match: {{ path: /tarpit }}, limits: [tarpit], upstream: echo }}
  - {{ match: {{ path: /other }}, limits: [other], upstream: echo }}
  - {{ match: {{ path: /settled }}, limits: [settled], upstream: echo }}
"
    ));
    for (path, status) in [
        ("/decoy", 429),
        ("/drop", 429),
        ("/tarpit", 429),
        ("/other", 403),
        ("/settled", 429),
    ] {
        let fields = format!("X-Forwarded-Uri: {path}\r\n");
        assert_eq!(ask(&gateway, &fields).status, 200, "{path}");
        assert_eq!(ask(&gateway, &fields).status, status, "{path}");
    }
}

#[test]
fn the_body_of_a_question_is_no_next_question() {
    let gateway = Gateway::start(&format!(
        "{TRUSTING}limits: [{{ key: constant, quota: 2/1h }}]\nroutes: [{{ upstream: decide }}]"
    ));
    let mut connection = Connection::open(gateway.address());
    let question = "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 19\r\n\r\n\
                    GET / HTTP/1.1\r\n\r\n ";
    let statuses = [(); 3].map(|()| connection.exchange(question).status);
    assert_eq!(statuses, [200, 200, 429]);
    let answer =
        connection.exchange("HEAD /a HTTP/1.1\r\nhost: a\r\nx-forwarded-method: GET\r\n\r\n");
    assert_eq!(answer.status, 429);
}

#[test]
fn http2_asks_alike() {
    let gateway = Gateway::start(&format!(
        "{TRUSTING}routes:
  - {{ match: {{ hosts: [a.example] }}, limits: [{{ key: path, quota: 1/1h }}], upstream: decide }}
  - {{ upstream: decide }}
"
    ));
    let url = gateway.url("/ask");
    let ask = |host: &str| {
        let host = format!("x-forwarded-host: {host}");
        let fields = ["-H", &host, "-H", "x-forwarded-uri: /x"];
        let format = ["--http2-prior-knowledge", "-w", "%{http_code}", &url];
        curl(&[&fields[..], &format].concat()).stdout
    };
    assert_eq!(ask("a.example"), "200");
    assert!(ask("a.example").ends_with("429"));
    assert_eq!(ask("b.example"), "200");
}

#[test]
fn the_access_log_has_the_decided_request() {
    let dead = refusing_address();
    let gateway = Gateway::start(&format!(
        "{TRUSTING}workers: 1
access_log: {{ path: access.log }}
routes:
  - {{ match: {{ path: /ask }}, upstream: decide }}
  - {{ name: all, limits: [{{ name: one, quota: 1/1h }}], upstream: \"http://{dead}\" }}
"
    ));
    let fields = "X-Forwarded-Method: PUT\r\nX-Forwarded-Uri: /a?b\r\nX-Forwarded-Host: h\r\n";
    assert_eq!(ask(&gateway, fields).status, 200);
    assert_eq!(ask(&gateway, fields).status, 429);
    let path = gateway.dir().join("access.log");
    let lines = wait_for("the access log", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
        let lines: Vec<_> = lines.collect::<Result<_, _>>().ok()?;
        (lines.len() == 2).then_some(lines)
    });
    for (line, status) in lines.iter().zip([200, 429]) {
        for (key, value) in [
            ("method", "PUT"),
            ("path", "/a?b"),
            ("host", "h"),
            ("route", "all"),
            ("policy", "one"),
            ("upstream", "decide"),
        ] {
            assert_eq!(line[key], value, "{line}");
        }
        assert_eq!(line["status"], status, "{line}");
    }
    // So `replay` decides about the same requests.
    let config = gateway.config_path();
    let arguments = ["replay", path.to_str().expect("a text"), "--config"];
    let config = config.to_str().expect("a text");
    let replayed = run(BINARY, &[&arguments[..], &[config]].concat());
    assert_eq!(replayed.code, Some(0), "{replayed}");
    assert!(replayed.stdout.contains("one"), "{replayed}");
}

#[test]
fn explain_tells_what_a_question_is_about() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let config = directory.path().join("sluicegate.yaml");
    let text = format!(
        "{TRUSTING}routes:
  - {{ match: {{ path: /ask }}, upstream: decide }}
  - {{ name: a, match: {{ path: \"/a/{{id}}\" }}, limits: [{{ key: \"path:id\", quota: 1/1h }}], upstream: echo }}
"
    );
    fs::write(&config, text).expect("the directory is writable");
    let config = config.to_str().expect("a text");
    let explain = |path: &str, from: &str| {
        let field = format!("x-forwarded-uri: {path}");
        let question = ["explain", "GET", "http://h/ask", "--config", config];
        let fields = [
            "-H",
            "x-forwarded-method: PUT",
            "-H",
            &field,
            "--from",
            from,
        ];
        let explained = run(BINARY, &[&question[..], &fields].concat());
        assert_eq!(explained.code, Some(0), "{explained}");
        explained.stdout
    };
    let decided = explain("/a/7", "127.0.0.1");
    for line in [
        "request   GET http://h/ask",
        "decides   PUT /a/7",
        "route     a",
        "path segment 2 = 7",
        "answer    allowed, and the asking proxy may serve it",
    ] {
        assert!(decided.contains(line), "{line} in {decided}");
    }
    assert!(explain("/b", "127.0.0.1").contains("answer    404"));
    assert!(explain("/a/7", "192.0.2.1").contains("decides   GET /ask"));
    assert!(explain("a", "127.0.0.1").contains("400 Bad Request: "));
}

const BATCH: &str = "client_ip: { trusted_proxies: [127.0.0.1] }
routes:
  - { match: { path: /ask }, upstream: decide_batch }
  - name: sends
    match: { hosts: [api.example], path: /send, methods: [POST] }
    limits: [{ name: per-key, key: header:x-api-key, quota: 5/1h, cost: { header: x-cost, max: 10 } }]
    upstream: echo
";

fn post(gateway: &Gateway, list: &str) -> Response {
    let length = list.len();
    let request = format!(
        "POST /ask HTTP/1.1\r\nhost: gate\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{list}"
    );
    Connection::open(gateway.address()).exchange(&request)
}

/// Posts a list, and returns the status and each decision: status and `retry-after`.
fn ask_list(gateway: &Gateway, list: &str) -> (u16, Vec<(u64, bool)>) {
    let response = post(gateway, list);
    let Ok(serde_json::Value::Array(decided)) = serde_json::from_slice(&response.body) else {
        return (response.status, Vec::new());
    };
    let decided = decided.iter().map(|one| {
        let status = one["status"].as_u64().expect("a status");
        (status, one["headers"]["retry-after"].is_string())
    });
    (response.status, decided.collect())
}

#[test]
fn each_request_of_a_list_is_decided_in_order() {
    let gateway = Gateway::start(BATCH);
    let send = |key: &str, cost: &str| {
        format!(
            r#"{{"method":"POST","host":"api.example","path":"/send?x=1","headers":{{"x-api-key":"{key}","x-cost":"{cost}"}}}}"#
        )
    };
    let other = r#"{"host":"api.example","path":"/send"}"#;
    let invalid = r#"{"method":"P O","path":"/send"}"#;
    let list = [
        &send("a", "3"),
        &send("a", "3"),
        &send("b", "5"),
        other,
        invalid,
        &send("a", "2"),
        &send("a", "1"),
    ];
    let (status, decided) = ask_list(&gateway, &format!("[{}]", list.join(",")));
    assert_eq!(status, 200);
    let expected = [
        (200, false),
        (429, true),
        (200, false),
        (404, false),
        (400, false),
        (200, false),
        (429, true),
    ];
    assert_eq!(decided, expected);
    // Each counts for the route that would serve it, and the list for its own.
    let count = |route: &str, class: &str| {
        let labels = format!("{{route=\"{route}\",class=\"{class}\"}}");
        gateway.metric(&format!("sluicegate_route_requests_total{labels}"))
    };
    assert_eq!(
        (count("sends", "2xx"), count("sends", "4xx")),
        (Some(3.0), Some(2.0))
    );
}

#[test]
fn a_list_is_bounded_and_has_a_known_form() {
    let gateway = Gateway::start(BATCH);
    let statuses = |list: &str| ask_list(&gateway, list).0;
    assert_eq!(ask_list(&gateway, "[]"), (200, Vec::new()));
    for (list, detail) in [
        ("", "EOF"),
        ("{}", "expected a sequence"),
        (
            r#"[{"path":"/a","methode":"GET"}]"#,
            "unknown field `methode`",
        ),
        (r#"[{"method":"GET"}]"#, "missing field `path`"),
        (
            r#"[{"path":"/","headers":{"X-Api-Key":"a","y":"z","x-api-key":"b"}}]"#,
            "duplicate field `x-api-key`",
        ),
    ] {
        let response = post(&gateway, list);
        assert_eq!(response.status, 400, "{list}");
        let text = String::from_utf8_lossy(&response.body);
        assert!(text.contains(detail), "{text}");
    }
    let many = |count: usize| format!("[{}]", vec![r#"{"path":"/"}"#; count].join(","));
    let (status, decided) = ask_list(&gateway, &many(1_000));
    assert_eq!((status, decided.len()), (200, 1_000));
    assert_eq!(statuses(&many(1_001)), 400);
    let large = format!(r#"[{{"path":"/{}"}}]"#, "a".repeat(1 << 20));
    assert_eq!(statuses(&large), 413);
}

#[test]
fn only_trusted_peers_may_send_a_list_and_for_themselves() {
    let list = r#"[{"path":"/"}]"#;
    let gateway = Gateway::start(&BATCH.replace("[127.0.0.1]", "[192.0.2.1]"));
    assert_eq!(ask_list(&gateway, list).0, 403);
    // A load balancer passes these on.
    let gateway = Gateway::start(BATCH);
    let from = |client: &str| {
        let length = list.len();
        let request = format!(
            "POST /ask HTTP/1.1\r\nhost: gate\r\nx-forwarded-for: {client}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{list}"
        );
        Connection::open(gateway.address())
            .exchange(&request)
            .status
    };
    assert_eq!(from("203.0.113.7"), 403);
    assert_eq!(from("127.0.0.1, 203.0.113.7"), 403);
    assert_eq!(from("127.0.0.1"), 200);
}

/// The next begins when one that needn't wait is over.
#[test]
fn requests_of_a_list_are_decided_as_if_each_was_asked_about_alone() {
    let gateway = Gateway::start(
        "client_ip: { trusted_proxies: [127.0.0.1] }
routes:
  - { match: { path: /ask }, upstream: decide_batch }
  - match: { path: /unreserved }
    limits: [{ key: constant, quota: 3/1h, count: [200], count_reserve: false }]
    upstream: decide
  - { match: { path: /in-flight }, limits: [{ algorithm: concurrency, max: 1 }], upstream: decide }
  - match: { path: /queue }
    limits: [{ key: constant, algorithm: leaky_bucket, quota: 20/1s, queue: 2 }]
    upstream: decide
",
    );
    let statuses = |path: &str, count: usize| {
        let item = format!(r#"{{"path":"{path}"}}"#);
        let (_, decided) = ask_list(&gateway, &format!("[{}]", vec![item; count].join(",")));
        decided
            .into_iter()
            .map(|(status, _)| status)
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses("/unreserved", 5), [200, 200, 200, 429, 429]);
    assert_eq!(statuses("/in-flight", 3), [200, 200, 200]);
    assert_eq!(statuses("/queue", 4), [200, 200, 200, 429]);
    assert_eq!(statuses("/queue#x", 1), [400]);
}

#[test]
fn requests_of_a_list_have_its_host_unless_they_name_one() {
    let gateway = Gateway::start(
        "client_ip: { trusted_proxies: [127.0.0.1] }
routes:
  - { match: { hosts: [gate], path: /ask }, upstream: decide_batch }
  - { match: { hosts: [gate] }, upstream: decide }
  - { match: { hosts: [other] }, limits: [{ quota: 0/1h }], upstream: decide }
",
    );
    let list =
        r#"[{"path":"/"},{"path":"/","host":"other"},{"path":"/","headers":{"Host":"other"}}]"#;
    let (_, decided) = ask_list(&gateway, list);
    let statuses = decided.into_iter().map(|(status, _)| status);
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 429, 429]);
    let port = gateway.address().port();
    let (resolve, url) = (
        format!("gate:{port}:127.0.0.1"),
        format!("http://gate:{port}/ask"),
    );
    let over_http2 = curl(&[
        "--http2-prior-knowledge",
        "--resolve",
        &resolve,
        "-d",
        list,
        &url,
    ]);
    assert_eq!(
        over_http2.stdout.matches(r#""status":200"#).count(),
        1,
        "{}",
        over_http2.stdout
    );
    assert_eq!(
        over_http2.stdout.matches(r#""status":429"#).count(),
        2,
        "{}",
        over_http2.stdout
    );
}
