//! Responses to limited requests, over real sockets: configured bodies, and gRPC statuses.

use crate::support::client::{Connection, curl, get, get_with, run};
use crate::support::frames::{END_STREAM, HEADERS, Http2, field, get_block, request};
use crate::support::gateway::Gateway;

#[test]
fn values_in_a_body_are_escaped_for_its_type() {
    let path = "/%22%3Cb%3E&'";
    let cases = [
        (
            "format: json, body: '{\"path\":\"{{path}}\",\"retry\":{{retry_after}}}'",
            "application/json",
        ),
        (
            "format: html, body: '<p title=\"{{path}}\">{{retry_after}}</p>'",
            "text/html; charset=utf-8",
        ),
        (
            "headers: { content-type: text/xml }, body: '<p a=\"{{path}}\"/>'",
            "text/xml",
        ),
        (
            "format: text, body: 'no {{ path }} {{policy}}'",
            "text/plain; charset=utf-8",
        ),
    ];
    let bodies = cases.map(|(on_limit, media_type)| {
        let gateway = Gateway::refusing(&format!("{{ {on_limit} }}"));
        let answer = get(gateway.address(), path);
        assert_eq!(answer.status, 429);
        assert_eq!(answer.expect_header("content-type"), media_type);
        answer.text()
    });
    let read: serde_json::Value = serde_json::from_str(&bodies[0]).expect("JSON");
    let said = serde_json::json!({ "path": path, "retry": null });
    assert_eq!(read, said, "{}", bodies[0]);
    let escaped = "/%22%3Cb%3E&amp;&#39;";
    assert_eq!(bodies[1], format!("<p title=\"{escaped}\"></p>"));
    assert_eq!(bodies[2], format!("<p a=\"{escaped}\"/>"));
    assert_eq!(bodies[3], format!("no {path} spam"));
}

#[test]
fn placeholders_of_a_body_are_filled() {
    let body = "{{policy}}|{{policies}}|{{quota}}|{{retry_after}}|{{status}}|{{title}}|{{client_ip}}|{{method}}|{{host}}|{{route}}|{{docs_url}}";
    let gateway = Gateway::refusing(&format!(
        "{{ format: text, status: 503, body: '{body}', docs_url: 'https://a.example/' }}"
    ));
    assert_eq!(get(gateway.address(), "/few").status, 200);
    let answer = get(gateway.address(), "/few");
    let retry = answer.expect_header("retry-after");
    assert_eq!(
        answer.text(),
        format!(
            "few|few|1/1h|{retry}|503|Service Unavailable|127.0.0.1|GET|127.0.0.1|few|https://a.example/"
        )
    );
}

/// The response head of a gRPC call by curl over HTTP/2, one field a line.
fn call(gateway: &Gateway, path: &str, content_type: &str) -> String {
    let output = curl(&[
        "--http2-prior-knowledge",
        "-D",
        "-",
        "-H",
        &format!("content-type: {content_type}"),
        "-H",
        "te: trailers",
        &gateway.url(path),
    ]);
    assert_eq!(output.code, Some(0), "{output}");
    output.stdout.replace('\r', "")
}

#[test]
fn a_grpc_call_is_refused_with_a_grpc_status() {
    let gateway = Gateway::refusing("{ status: 503, format: html, headers: { x-why: limit } }");
    let first = call(&gateway, "/few", "application/grpc");
    assert!(!first.contains("grpc-status"), "{first}");
    for (asked, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
    ] {
        let answer = call(&gateway, "/few", asked);
        assert!(answer.starts_with("HTTP/2 200"), "{answer}");
        for line in [
            &format!("content-type: {answered}"),
            "grpc-status: 8",
            "grpc-message: The limit \"few\" of 1/1h is used up.",
            "x-why: limit",
            "ratelimit: \"few\";r=0",
            "retry-after: ",
        ] {
            assert!(answer.contains(&format!("\n{line}")), "{line}: {answer}");
        }
        assert!(answer.ends_with("\n\n"), "no body: {answer}");
    }
    let plain = call(&gateway, "/few", "application/json");
    assert!(plain.starts_with("HTTP/2 503"), "{plain}");
}

#[test]
fn a_request_that_needs_more_than_remains_learns_of_both() {
    let gateway = Gateway::start(
        "policies:
  tokens: { key: constant, quota: 1000/300d, cost: { header: x-cost, max: 5000 } }
  hidden: { key: constant, quota: 1000/300d, cost: { header: x-cost, max: 5000 }, announce: false }
  stated: { key: constant, algorithm: fixed_window, quota: { from: 'header:x-rate', per: 300d, default: 1000, max: 2000 }, cost: { header: x-cost, max: 5000 } }
routes:
  - { match: { path: /hidden }, upstream: echo, limits: [hidden] }
  - { match: { path: /stated }, upstream: echo, limits: [stated] }
  - { upstream: echo, limits: [tokens] }
",
    );
    let ask = |path: &str, cost: u32, accept: &str| {
        let head = format!("x-cost: {cost}\r\naccept: {accept}\r\n");
        get_with(gateway.address(), path, &head)
    };
    assert_eq!(ask("/", 600, "*/*").status, 200);
    for (accept, quote) in [
        ("application/problem+json", "\\\""),
        ("application/json", "\\\""),
        ("text/plain", "\""),
        ("text/html", "&quot;"),
    ] {
        let refused = ask("/", 500, accept);
        let text = format!(
            "The limit {quote}tokens{quote} of 1000/300d has 400 of 1000 left, and this request needs 500."
        );
        assert_eq!(refused.status, 429);
        assert!(refused.text().contains(&text), "{}", refused.text());
        let never = ask("/", 1001, accept).text();
        assert!(
            never.contains("has 400 of 1000 left, and this request needs 1001."),
            "{never}"
        );
    }
    let grpc = curl(&[
        "--http2-prior-knowledge",
        "-D-",
        "-Hcontent-type: application/grpc",
        "-Hx-cost: 500",
        &gateway.url("/"),
    ]);
    let text = "grpc-message: The limit \"tokens\" of 1000/300d has 400 of 1000 left, and this request needs 500.";
    assert!(grpc.stdout.contains(text), "{grpc}");
    assert_eq!(ask("/", 400, "*/*").status, 200);
    let spent = ask("/", 500, "*/*").text();
    assert!(spent.contains("of 1000/300d is used up."), "{spent}");

    assert_eq!(ask("/hidden", 600, "*/*").status, 200);
    let hidden = ask("/hidden", 500, "*/*").text();
    let text = "A limit has too few units left for this request.";
    assert!(hidden.contains(text) && !hidden.contains("400"), "{hidden}");
    assert_eq!(ask("/stated", 600, "*/*").status, 200);
    let stated = ask("/stated", 500, "*/*").text();
    assert!(
        stated.contains("has 400 of 1000 left, and this request needs 500."),
        "{stated}"
    );
}

#[test]
fn a_refused_grpc_call_gets_a_trailers_only_response() {
    let gateway = Gateway::refusing("{}");
    let block = [get_block(), field("content-type", "application/grpc")].concat();
    let mut client = Http2::open(gateway.address());
    client.send(&request(1, &block));
    let answer = client.receive().expect("an answer");
    assert_eq!((answer.kind, answer.status()), (HEADERS, Some(200)));
    assert_eq!(answer.flags & END_STREAM, END_STREAM, "trailers-only");
}

#[test]
fn proxy_errors_have_a_grpc_status_for_grpc_clients() {
    let gateway = Gateway::start(
        "routes:
  - { match: { path: /dead }, upstream: \"http://127.0.0.1:1\" }
  - { match: { path: /small }, upstream: echo, request: { max_body: 0B } }
",
    );
    for (path, code) in [("/none", 12), ("/dead", 14), ("/a%2fb", 13)] {
        let answer = call(&gateway, path, "application/grpc");
        assert!(answer.starts_with("HTTP/2 200"), "{path}: {answer}");
        let status = format!("\ngrpc-status: {code}\n");
        assert!(answer.contains(&status), "{path}: {answer}");
    }
    let answer = Connection::open(gateway.address()).exchange(
        "POST /small HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 1\r\n\r\n1",
    );
    assert_eq!(answer.status, 200);
    assert_eq!(answer.expect_header("grpc-status"), "8", "over HTTP/1 too");
}

/// The quota has nothing to do with a request that has no bucket.
#[test]
fn a_request_without_a_key_of_its_own_learns_what_is_wrong() {
    let config = |on_limit: &str| {
        format!(
            "policies:
  session: {{ key: \"cookie:sid\", on_missing_key: refuse, quota: 5/1h{on_limit} }}
  hidden: {{ key: \"header:x-key\", on_missing_key: refuse, quota: 5/1h, announce: false }}
routes:
  - {{ match: {{ path: /hidden }}, upstream: echo, limits: [hidden] }}
  - {{ name: all, upstream: echo, limits: [session] }}
"
        )
    };
    let gateway = Gateway::start(&config(""));
    let missing = "The limit \"session\" needs cookie:sid, which this request lacks.";
    let several = "The limit \"session\" needs one cookie:sid, and this request has several.";
    let two = "cookie: sid=a; sid=b\r\n";
    for (headers, detail, word) in [
        ("", missing, "the key is missing"),
        (two, several, "the key has different values"),
    ] {
        let response = get_with(gateway.address(), "/", headers);
        assert_eq!(response.status, 400, "{response:?}");
        assert_eq!(response.header("retry-after"), None);
        assert_eq!(response.header("ratelimit"), None);
        let body: serde_json::Value = serde_json::from_str(&response.text()).expect("JSON");
        assert_eq!(body["detail"], detail);
        assert_eq!(
            (&body["title"], &body["status"]),
            (&"Bad Request".into(), &400.into())
        );
        assert_eq!(body["violated-policies"], serde_json::json!(["session"]));
        let path = gateway.config_path();
        let path = path.to_str().expect("a path of ours");
        let mut arguments = vec!["explain", "GET", "http://a/", "--config", path];
        let header = headers.trim_end();
        if !header.is_empty() {
            arguments.extend(["-H", header]);
        }
        let explained = run(env!("CARGO_BIN_EXE_sluicegate"), &arguments);
        assert!(
            explained.stdout.contains("limited by session: 400"),
            "{explained}"
        );
        assert!(explained.stdout.contains(word), "{explained}");
    }
    assert_eq!(
        get_with(gateway.address(), "/", "cookie: sid=a; sid=a\r\n").status,
        200
    );
    let hidden = get(gateway.address(), "/hidden");
    assert_eq!(hidden.status, 400);
    let text = hidden.text();
    assert!(
        !text.contains("hidden") && !text.contains("x-key"),
        "{text}"
    );
    let call = call(&gateway, "/", "application/grpc");
    assert!(call.contains("grpc-status: 3\n"), "{call}");
    // The status of the policy, and a body of its own.
    let own = ", on_limit: { status: 403, format: text, body: '{{status}} {{title}}: {{detail}}' }";
    let gateway = Gateway::start(&config(own));
    let response = get(gateway.address(), "/");
    assert_eq!(response.status, 403);
    assert_eq!(response.text(), format!("403 Forbidden: {missing}"));
}
