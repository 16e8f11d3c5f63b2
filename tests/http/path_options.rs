//! What a route may do with paths: rewrite them, keep encoded slashes, compare loosely, and forward
//! them as they were received.

use std::fs;

use crate::support::client::{Connection, Output, Response, get, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Received, raw};
use crate::support::wait_for;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");
/// The test's own client is a trusted proxy.
const TRUSTED: &str = "client_ip: { trusted_proxies: [127.0.0.1] }\n";

/// The first line of what the echo upstream was sent, without method and version.
fn forwarded(response: &Response) -> String {
    assert_eq!(response.status, 200);
    let text = response.text();
    text.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn check(config: &str) -> Output {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("sluicegate.yaml");
    fs::write(&path, config).expect("there is room for a file");
    run(BINARY, &["check", path.to_str().expect("a text")])
}

#[test]
fn a_route_rewrites_the_path_that_it_forwards() {
    let gateway = Gateway::start(
        r#"
routes:
  - { match: { path: /api/** }, rewrite: { strip_prefix: /api }, upstream: echo }
  - { match: { path: /add/** }, rewrite: { add_prefix: /app/v2 }, upstream: echo }
  - match: { path: /users/** }
    rewrite: { regex: "^/users/([^/]+)/(?<what>.*)$", replace: "/$${what}s/of/$1" }
    upstream: echo
  - match: { path: /all/** }
    rewrite: { strip_prefix: /all, regex: o, replace: "0", add_prefix: /x }
    upstream: echo
  - { match: { path: /dots/** }, rewrite: { regex: "/([^/]*)/up$", replace: "/../$1" }, upstream: echo }
  - { match: { path: /none/** }, rewrite: { regex: "^/none", replace: "none" }, upstream: echo }
"#,
    );
    for (path, expected) in [
        ("/api/a?x=/api", "/a?x=/api"),
        ("/api", "/"),
        ("//api//a%2e", "/a."),
        ("/add/b?c", "/app/v2/add/b?c"),
        ("/users/7/items/%3f", "/items/%3Fs/of/7"),
        ("/users/7", "/users/7"),
        ("/all/foo", "/x/f00"),
    ] {
        let response = get(gateway.address(), path);
        assert_eq!(forwarded(&response), expected, "{path}");
    }
    assert_eq!(get(gateway.address(), "/apix").status, 404);
    for path in ["/dots/a/up", "/none/a"] {
        assert_eq!(get(gateway.address(), path).status, 400, "{path}");
    }
}

#[test]
fn limits_keys_and_logs_have_the_path_of_the_client() {
    let gateway = Gateway::start(
        r#"
access_log: { path: access.log }
routes:
  - match: { path: /api/** }
    limits: [{ key: path, quota: 1/1h }]
    rewrite: { regex: ".*", replace: /same }
    upstream: echo
"#,
    );
    assert_eq!(forwarded(&get(gateway.address(), "/api/a")), "/same");
    assert_eq!(forwarded(&get(gateway.address(), "/api/b")), "/same");
    assert_eq!(get(gateway.address(), "/api/a").status, 429);
    let log = gateway.dir().join("access.log");
    wait_for("lines of the access log", || {
        let lines = fs::read_to_string(&log).unwrap_or_default();
        let is_clients = lines.contains("/api/a") && lines.contains("/api/b");
        (is_clients && !lines.contains("/same")).then_some(())
    });
}

#[test]
fn the_upstream_reads_what_was_stripped_but_not_from_clients() {
    let route = "routes: [{ match: { path: /v1/** }, rewrite: { strip_prefix: /v1 }, upstream: echo }, { upstream: echo }]";
    let prefixes = |gateway: &Gateway, path: &str| {
        let response = get_with(gateway.address(), path, "X-Forwarded-Prefix: /outer\r\n");
        let text = response.text();
        let lines = text.lines().filter_map(|line| {
            let value = line.strip_prefix("x-forwarded-prefix: ")?;
            Some(value.to_owned())
        });
        lines.collect::<Vec<_>>()
    };
    let gateway = Gateway::start(route);
    assert_eq!(prefixes(&gateway, "/v1/a"), ["/v1"]);
    assert_eq!(prefixes(&gateway, "/"), [""; 0]);
    let behind_proxy = Gateway::start(&format!("{TRUSTED}{route}"));
    assert_eq!(prefixes(&behind_proxy, "/v1/a"), ["/outer", "/v1"]);
    assert_eq!(prefixes(&behind_proxy, "/"), ["/outer"]);
}

#[test]
fn paths_in_responses_are_rewritten_back_on_request() {
    let origin = Origin::start(|request: &Received| {
        let host = request.header("host").unwrap_or_default();
        raw(&format!(
            "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: https://{host}/app/next?a\r\n\
             Content-Location: /app\r\nSet-Cookie: a=b; Path=/app; HttpOnly\r\n\
             Set-Cookie: c=d; Path=/else\r\nLink: </app/x>\r\n\r\n"
        ))
    });
    let answer = |responses: bool, preserve: bool| {
        let gateway = Gateway::start(&format!(
            "upstreams: {{ origin: {{ endpoints: [\"{}\"], preserve_host: {preserve} }} }}
routes:
  - match: {{ path: /v1/** }}
    rewrite: {{ strip_prefix: /v1, add_prefix: /app, responses: {responses} }}
    upstream: origin
",
            origin.url()
        ));
        let response = get(gateway.address(), "/v1/here");
        let own = format!("https://{}", gateway.address());
        let cookies = response.headers_of("set-cookie");
        (
            response
                .expect_header("location")
                .replace(&own, "https://own"),
            response.expect_header("content-location").to_owned(),
            cookies.join("|"),
        )
    };
    // The client doesn't know the upstream's host; its own host stays, with the scheme.
    for (preserve, expected) in [(true, "https://own/v1/next?a"), (false, "/v1/next?a")] {
        let (location, content_location, cookies) = answer(true, preserve);
        assert_eq!(location, expected);
        assert_eq!(content_location, "/v1");
        assert_eq!(cookies, "a=b; Path=/v1; HttpOnly|c=d; Path=/else");
    }
    let (location, _, cookies) = answer(false, true);
    assert!(location.ends_with("/app/next?a"), "{location}");
    assert_eq!(cookies, "a=b; Path=/app; HttpOnly|c=d; Path=/else");
    assert_eq!(origin.requests()[0].target, "/app/here");
}

#[test]
fn an_attempt_after_the_first_has_the_rewritten_path_too() {
    let failing = Origin::start(|_| raw("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"));
    let working = Origin::plain();
    let gateway = Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: [\"{}\", \"{}\"], retries: {{ retry_on: [\"503\"] }} }} }}
routes: [{{ match: {{ path: /v1/** }}, rewrite: {{ strip_prefix: /v1 }}, upstream: origin }}]",
        failing.url(),
        working.url()
    ));
    wait_for("an attempt after a failed one", || {
        assert_eq!(get(gateway.address(), "/v1/a").status, 200);
        (!failing.requests().is_empty()).then_some(())
    });
    for request in failing.requests().iter().chain(&working.requests()) {
        assert_eq!(request.target, "/a");
    }
}

#[test]
fn encoded_slashes_are_kept_where_a_route_says_so() {
    let gateway = Gateway::start(
        "
routes:
  - match: { path: '/npm/{name}' }
    encoded_slashes: keep
    limits: [{ key: 'path:name', quota: 1/1h }]
    upstream: echo
  - { match: { path: /vhosts/%2F/x }, encoded_slashes: keep, upstream: echo }
  - upstream: echo
",
    );
    let status = |path: &str| get(gateway.address(), path).status;
    let response = get(gateway.address(), "/npm/@scope%2fname");
    assert_eq!(forwarded(&response), "/npm/@scope%2Fname");
    assert_eq!(
        status("/npm/@scope%2Fname"),
        429,
        "one key, in any spelling"
    );
    assert_eq!(status("/npm/@scope%2Fother"), 200);
    assert_eq!(status("/vhosts/%2f/x"), 200);
    for path in [
        "/other%2fpath",
        "/npm/a%2f..%2fb",
        "/npm/a%5cb",
        "/npm/a%2fb/c",
    ] {
        assert_eq!(status(path), 400, "{path}");
    }
    let refusing = Gateway::start("routes: [{ upstream: echo }]");
    assert_eq!(get(refusing.address(), "/npm/@scope%2fname").status, 400);
}

#[test]
fn a_path_is_forwarded_as_received_but_matched_in_its_normal_form() {
    let gateway = Gateway::start(
        "
routes:
  - match: { path: /bucket/** }
    limits: [{ key: path, quota: 1/1h }]
    forward_path: as_received
    encoded_slashes: keep
    upstream: echo
  - upstream: echo
",
    );
    let send = |target: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        Connection::open(gateway.address()).exchange(&request)
    };
    let odd = "/bucket//%6bey/./a%2f%2Bb?x=%2f";
    assert_eq!(forwarded(&send(odd)), odd);
    assert_eq!(send("/bucket/key/a%2F%2Bb").status, 429);
    assert_eq!(forwarded(&send("http://a/bucket//b")), "/bucket//b");
    assert_eq!(forwarded(&send("/else//b")), "/else/b");
    for target in [
        "/bucket/../..",
        "/bucket/%00",
        "/bucket/%zz",
        "/bucket/..;/x",
    ] {
        assert_eq!(send(target).status, 400, "{target}");
    }
}

#[test]
fn loose_paths_share_the_limits_of_the_plain_one() {
    let gateway = Gateway::start(
        "
routes:
  - match: { path: /login }
    path_match: loose
    limits: [{ key: path, quota: 1/1h }]
    upstream: echo
  - match: { path: '/users/{id}' }
    path_match: loose
    limits: [{ key: 'path:id', quota: 1/1h, exempt: [{ value: root }] }]
    upstream: echo
  - upstream: echo
",
    );
    let sent = forwarded(&get(gateway.address(), "/login;x=1"));
    assert_eq!(sent, "/login;x=1", "it is forwarded as it came");
    for path in [
        "/login",
        "/login/",
        "/login%20",
        "/login.",
        "/;a/login%3bx",
        "/login.;y/",
    ] {
        assert_eq!(get(gateway.address(), path).status, 429, "{path}");
    }
    assert_eq!(get(gateway.address(), "/Login").status, 200);
    assert_eq!(get(gateway.address(), "/users/7;x").status, 200);
    assert_eq!(get(gateway.address(), "/;/users;a/7.").status, 429);
    for _ in 0..2 {
        assert_eq!(get(gateway.address(), "/users/root;x").status, 200);
    }
}

#[test]
fn check_knows_the_traps() {
    for (route, expected) in [
        (
            "rewrite: {}",
            "expected `strip_prefix`, `add_prefix`, or `regex` with `replace`",
        ),
        ("rewrite: { regex: a }", "`replace` is missing"),
        ("rewrite: { replace: a }", "`regex` is missing"),
        (
            "rewrite: { regex: '(a', replace: b }",
            "not a regular expression",
        ),
        (
            "rewrite: { regex: '(a)', replace: '$2' }",
            "the expression has no group `2`",
        ),
        (
            "rewrite: { regex: a, replace: '/b?c' }",
            "a path can't contain `?`",
        ),
        (
            "rewrite: { regex: a, replace: b, responses: true }",
            "can't be rewritten back",
        ),
        (
            "rewrite: { strip_prefix: /w }",
            "not every path of this route starts with `/w`",
        ),
        (
            "request: { strip_prefix: /v }",
            "put it under `rewrite` of the route",
        ),
        ("rewrite: { add_prefix: /a/ }", "isn't a prefix of paths"),
        (
            "rewrite: { add_prefix: /a }, forward_path: as_received",
            "a path can't be rewritten and forwarded as it was received",
        ),
        ("forward_path: as_received", "warning[ambiguous-path]"),
        ("match: { path: /a%2Fb }", "requests with `%2F` are refused"),
        (
            "match: { path: /a. }, path_match: loose",
            "`path_match: loose` ignores a part of `a.`",
        ),
        (
            "match: { path: /a }, path_match: loose, trailing_slash: strict",
            "ignores a slash at the end",
        ),
    ] {
        let matches = if route.contains("match:") {
            ""
        } else {
            "match: { path: /v/** }, "
        };
        let output = check(&format!("routes: [{{ {matches}{route}, upstream: echo }}]"));
        assert!(output.stderr.contains(expected), "{route}: {output}");
    }
    let sound = check(
        "routes: [{ match: { path: /v/** }, rewrite: { strip_prefix: /v, add_prefix: /w, responses: true }, upstream: echo }]",
    );
    assert!(sound.stdout.contains("sound"), "{sound}");
}

#[test]
fn explain_shows_the_path_that_the_upstream_gets() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("sluicegate.yaml");
    let config =
        "routes: [{ match: { path: /v/** }, rewrite: { strip_prefix: /v }, upstream: echo }]";
    fs::write(&path, config).expect("there is room for a file");
    let path = path.to_str().expect("a text");
    let explain = |url: &str| run(BINARY, &["explain", "GET", url, "--config", path]);
    assert!(explain("http://a/v/b").stdout.contains("forwards  /b\n"));
    assert!(explain("http://a/v/b%2fc").stdout.contains("400"));
}
