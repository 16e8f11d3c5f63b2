//! Fields that the configuration sets, adds and removes in responses, and CORS.

use std::fs;

use crate::support::client::{Connection, Response, get, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, raw};

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

/// The response to a request with these header fields.
fn respond(gateway: &Gateway, request: &str, headers: &str) -> Response {
    let mut connection = Connection::open(gateway.address());
    connection.exchange(&format!(
        "{request} HTTP/1.1\r\nhost: a.example\r\n{headers}\r\n"
    ))
}

#[test]
fn fields_change_in_all_responses_those_of_the_proxy_among_them() {
    let gateway = Gateway::start(
        "responses:
  set_headers: { x-frame-options: DENY, x-route: \"{{route}}\" }
  add_headers: { link: </a>, x-from: \"{{client_ip}} {{method}} {{host}}{{path}}\" }
  remove_headers: [content-type]
routes:
  - name: one
    match: { path: /one }
    limits: [{ key: constant, quota: 1/1h }]
    response: { set_headers: { x-route: own, x-id: \"<{{request_id}}>\" }, remove_headers: [x-from] }
    upstream: echo
  - { name: two, match: { path: /two }, respond: { headers: { link: </b> } } }
",
    );
    let address = gateway.address();
    for status in [200, 429] {
        let one = get_with(address, "/one", "x-request-id: 7\r\n");
        assert_eq!(one.status, status);
        assert_eq!(one.expect_header("x-frame-options"), "DENY");
        assert_eq!(one.expect_header("x-route"), "own");
        assert_eq!(one.expect_header("x-id"), "<7>");
        assert_eq!(one.header("x-from"), None, "the route's changes come last");
        assert_eq!(one.header("content-type"), None);
        assert!(one.header("ratelimit").is_some());
    }
    let two = respond(&gateway, "GET /two", "");
    assert_eq!(two.headers_of("link"), ["</b>", "</a>"]);
    assert_eq!(two.expect_header("x-route"), "two");
    assert_eq!(two.expect_header("x-from"), "127.0.0.1 GET a.example/two");
    let none = get(address, "/none");
    assert_eq!(none.status, 404);
    assert_eq!(none.header("x-route"), None);
    assert_eq!(none.headers_of("x-frame-options"), ["DENY"]);
    // What a client sends stays within its value.
    let odd = get_with(address, "/one", "x-request-id: a\tb\r\n");
    assert_eq!(odd.expect_header("x-id"), "<a b>");
}

#[test]
fn allowed_origins_can_read_refusals() {
    let gateway = Gateway::start(
        "responses:
  headers: [draft-6]
  cors: { origins: [https://app.example, \"https://*.example.com\"], credentials: true }
limits: [{ key: constant, quota: 2/1h }]
routes:
  - match: { path: /all }
    inherit: false
    response: { cors: { origins: [\"*\"] } }
    upstream: echo
  - { upstream: echo }
",
    );
    let get = |path: &str, headers: &str| respond(&gateway, &format!("GET {path}"), headers);
    let origin = |response: &Response| {
        let origin = response.header("access-control-allow-origin");
        origin.map(str::to_owned)
    };
    for status in [200, 200, 429] {
        let response = get("/", "origin: https://app.example\r\n");
        assert_eq!(response.status, status);
        assert_eq!(origin(&response).as_deref(), Some("https://app.example"));
        assert_eq!(
            response.expect_header("access-control-allow-credentials"),
            "true"
        );
        assert_eq!(
            response.headers_of("access-control-expose-headers"),
            ["retry-after, ratelimit-limit, ratelimit-remaining, ratelimit-reset"]
        );
        assert!(response.headers_of("vary").contains(&"origin"));
    }
    let below = get("/", "origin: https://a.b.example.com\r\n");
    assert_eq!(origin(&below).as_deref(), Some("https://a.b.example.com"));
    for other in [
        "",
        "origin: http://app.example\r\n",
        "origin: https://example.com\r\n",
        "origin: null\r\n",
        "origin: https://app.example\r\norigin: https://app.example\r\n",
    ] {
        let response = get("/", other);
        assert_eq!(origin(&response), None, "{other}");
        assert_eq!(response.header("access-control-expose-headers"), None);
        assert!(response.headers_of("vary").contains(&"origin"), "{other}");
    }
    let all = get("/all", "origin: https://anyone.example\r\n");
    assert_eq!(origin(&all).as_deref(), Some("*"));
    assert_eq!(all.header("access-control-allow-credentials"), None);
    assert_eq!(all.header("vary"), None);
}

#[test]
fn an_upstream_that_allows_origins_itself_is_left_alone() {
    let origin = Origin::start(|_| {
        raw(
            "HTTP/1.1 200 OK\r\naccess-control-allow-origin: https://its.example\r\ncontent-length: 0\r\n\r\n",
        )
    });
    let gateway = Gateway::start(&format!(
        "responses: {{ cors: {{ origins: [https://app.example] }} }}
routes:
  - {{ match: {{ path: /own }}, response: {{ remove_headers: [access-control-allow-origin] }}, upstream: \"http://{0}\" }}
  - {{ upstream: \"http://{0}\" }}
",
        origin.address()
    ));
    let allowed = |path: &str| {
        let response = respond(
            &gateway,
            &format!("GET {path}"),
            "origin: https://app.example\r\n",
        );
        let allowed = response.headers_of("access-control-allow-origin");
        allowed.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(allowed("/"), ["https://its.example"]);
    assert_eq!(allowed("/own"), ["https://app.example"]);
}

#[test]
fn preflight_requests_are_answered_for_allowed_origins() {
    let gateway = Gateway::start(
        "responses:
  cors: { origins: [https://app.example], answer_preflight: true, limit_preflight: false, max_age: 10m }
limits: [{ key: constant, quota: 1/1h }]
routes:
  - { match: { path: /charged }, response: { cors: { origins: [\"*\"], answer_preflight: true } }, respond: {} }
  - { match: { path: /members }, access: { allow: [{ header: { authorization: { prefix: Bearer } } }] }, respond: {} }
  - { respond: { status: 418 } }
",
    );
    let preflight = |path: &str, origin: &str| {
        let fields = format!(
            "origin: {origin}\r\naccess-control-request-method: PUT\r\naccess-control-request-headers: x-a,x-b\r\n"
        );
        respond(&gateway, &format!("OPTIONS {path}"), &fields)
    };
    for _ in 0..3 {
        let allowed = preflight("/", "https://app.example");
        assert_eq!(allowed.status, 204);
        for (name, value) in [
            ("access-control-allow-origin", "https://app.example"),
            ("access-control-allow-methods", "PUT"),
            ("access-control-allow-headers", "x-a,x-b"),
            ("access-control-max-age", "600"),
            ("vary", "origin"),
        ] {
            assert_eq!(allowed.expect_header(name), value);
        }
    }
    let other = preflight("/", "https://other.example");
    assert_eq!(other.status, 418, "it goes where the route leads");
    assert_eq!(other.header("access-control-allow-methods"), None);
    let charged = preflight("/charged", "https://other.example");
    assert_eq!(charged.status, 204);
    assert_eq!(charged.expect_header("access-control-allow-origin"), "*");
    assert_eq!(charged.expect_header("access-control-max-age"), "5");
    assert_eq!(preflight("/charged", "https://other.example").status, 429);
    // Browsers send it without credentials.
    assert_eq!(preflight("/members", "https://app.example").status, 204);
    assert_eq!(preflight("/members", "https://other.example").status, 403);
    let plain = respond(
        &gateway,
        "OPTIONS /charged",
        "origin: https://a.example\r\n",
    );
    assert_eq!(plain.status, 429, "no preflight request");
}

#[test]
fn explain_knows_preflight_requests() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("sluicegate.yaml");
    let config = "responses: { cors: { origins: [\"*\"], answer_preflight: true } }\nroutes: [{ upstream: echo }]";
    fs::write(&path, config).expect("there is room for a file");
    let path = path.to_str().expect("a text");
    let fields = [
        "--header",
        "origin: https://a",
        "--header",
        "access-control-request-method: PUT",
    ];
    let explain = |method: &str| {
        let arguments = ["explain", method, "http://a/", "--config", path];
        run(BINARY, &[&arguments[..], &fields].concat()).stdout
    };
    assert!(explain("OPTIONS").contains("answered with 204 as a preflight request"));
    assert!(explain("PUT").contains("forwarded to echo"));
}

/// An empty value is no value, and the upstream's credentials aren't those of an origin that the proxy
/// allows.
#[test]
fn what_the_upstream_says_is_kept_or_removed_as_it_must_be() {
    let origin = Origin::start(|_| {
        raw(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-request-id: upstream\r\naccess-control-allow-credentials: true\r\n\r\n",
        )
    });
    let gateway = Gateway::start(&format!(
        "responses:
  set_headers: {{ x-request-id: \"{{{{request_id}}}}\", x-both: \"{{{{method}}}} {{{{request_id}}}}\" }}
  cors: {{ origins: [https://a.example] }}
routes: [{{ upstream: {} }}]
",
        origin.url()
    ));
    let response = respond(&gateway, "GET /", "origin: https://a.example\r\n");
    assert_eq!(response.expect_header("x-request-id"), "upstream");
    assert_eq!(response.expect_header("x-both"), "GET");
    assert_eq!(
        response.expect_header("access-control-allow-origin"),
        "https://a.example"
    );
    assert_eq!(response.header("access-control-allow-credentials"), None);
}

#[test]
fn removed_fields_are_removed_from_informational_responses_and_trailers() {
    let origin = Origin::start(|_| {
        raw(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Node: 7\r\nContent-Length: 0\r\n\r\n\
             HTTP/1.1 200 OK\r\nX-Node: 7\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\nX-Node: 7\r\nX-Sum: 9\r\n\r\n",
        )
    });
    let gateway = Gateway::start(&format!(
        "responses: {{ remove_headers: [x-node] }}\nroutes: [{{ upstream: \"{}\" }}]\n",
        origin.url()
    ));
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    assert_eq!(client.read_exactly(hints.len()), hints.as_bytes());
    let answer = client.receive();
    assert_eq!((answer.status, answer.header("x-node")), (200, None));
    assert_eq!(
        (answer.trailer("x-node"), answer.trailer("x-sum")),
        (None, Some("9"))
    );
}

#[test]
fn errors_before_a_route_have_the_fields_of_all_responses() {
    let gateway = Gateway::start(
        "responses:
  set_headers: { x-content-type-options: nosniff, x-seen: \"{{client_ip}} {{path}}\" }
  cors: { origins: [\"https://app.example\"] }
routes: [{ match: { path: /a }, upstream: echo }]
",
    );
    for (request, status) in [
        ("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
        ("GET /a%2Fb HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET https://a/a HTTP/1.1\r\nHost: a\r\n", 421),
        ("GET /b HTTP/1.1\r\nHost: a\r\n", 404),
    ] {
        let request = format!("{request}Origin: https://app.example\r\n\r\n");
        let answer = Connection::open(gateway.address()).exchange(&request);
        assert_eq!(answer.status, status, "{request}");
        assert_eq!(answer.expect_header("x-content-type-options"), "nosniff");
        assert!(
            answer.expect_header("x-seen").starts_with("127.0.0.1 /"),
            "{answer:?}"
        );
        let origin = answer.expect_header("access-control-allow-origin");
        assert_eq!(origin, "https://app.example");
        // The body has the format that the client prefers, and is for this request alone.
        assert_eq!(answer.expect_header("cache-control"), "no-store");
        assert!(answer.headers_of("vary").contains(&"accept"), "{answer:?}");
    }
}

#[test]
fn refusals_of_unreadable_heads_have_the_constant_fields_of_all_responses() {
    let config = |referrer: &str| {
        format!(
            "client: {{ timeouts: {{ head: 1s }}, max_head: 8KiB }}
responses:
  set_headers: {{ referrer-policy: {referrer}, x-seen: \"{{{{path}}}}\", content-type: text/html }}
  add_headers: {{ x-content-type-options: nosniff }}
routes: [{{ upstream: echo }}]
"
        )
    };
    let gateway = Gateway::start(&config("origin"));
    gateway.reload(&config("no-referrer"));
    let long = "a".repeat(9_000);
    for (head, status) in [
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n".to_owned(), 408),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nx: {long}\r\n\r\n"),
            431,
        ),
    ] {
        let answer = Connection::open(gateway.address()).exchange(&head);
        assert_eq!(answer.status, status);
        assert_eq!(answer.expect_header("referrer-policy"), "no-referrer");
        assert_eq!(answer.expect_header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("x-seen"), None);
        assert_eq!(
            answer.headers_of("content-type"),
            ["text/plain; charset=utf-8"]
        );
    }
    let url = gateway.url("/");
    let field = format!("x: {long}");
    let answer = run(
        "curl",
        &["-si", "--http2-prior-knowledge", "-H", &field, &url],
    );
    let answer = answer.stdout;
    assert!(answer.starts_with("HTTP/2 431"), "{answer}");
    assert!(
        answer.contains("x-content-type-options: nosniff"),
        "{answer}"
    );
}
