//! Routes that answer instead of an upstream: redirects and fixed responses.

use std::fs;

use crate::support::client::{Connection, curl, get, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::wait_for;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

#[test]
fn redirects_keep_what_the_target_asks_for() {
    let gateway = Gateway::start(
        "routes:
  - match: { hosts: [\"*.example.com\"] }
    redirect: { to: \"https://{host}{path_and_query}\" }
  - match: { path: \"/users/{id}\" }
    redirect: { to: \"/people?id={id}\", status: 301 }
  - redirect: { to: \"https://{host}:8443/{query}\", any_host: true, status: 303 }
",
    );
    for (host, path, status, location) in [
        (
            "A.example.com:8080",
            "/a//b/../c?x=y&z",
            308,
            "https://a.example.com/a/c?x=y&z",
        ),
        ("a", "/users/7&x=%26", 301, "/people?id=7%26x%3D%26"),
        ("b", "/users/a%40b", 301, "/people?id=a%40b"),
        ("b", "/?//c.example", 303, "https://b:8443/%2F%2Fc.example"),
    ] {
        let mut connection = Connection::open(gateway.address());
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let response = connection.exchange(&request);
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.expect_header("location"), location);
        assert_eq!(response.expect_header("content-length"), "0");
    }
    let mut connection = Connection::open(gateway.address());
    let nameless = connection.exchange("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(nameless.status, 400, "the target needs a host");
    assert_eq!(nameless.header("location"), None);
}

#[test]
fn a_fixed_response_has_its_status_its_fields_and_its_body() {
    let gateway = Gateway::start(
        "access_log: { path: access.log }
limits: [{ key: constant, quota: 5/1h }]
routes:
  - { match: { path: /robots.txt }, respond: { body: \"User-agent: *\\nDisallow: /\\n\" } }
  - { match: { path: /empty }, respond: { status: 204, headers: { x-a: b } } }
  - { match: { path: /same }, respond: { status: 304 } }
  - name: maintenance
    access: { deny: [{ header: { x-from: nowhere } }] }
    respond: { status: 503, headers: { content-type: application/json, retry-after: \"60\" }, body: '{\"a\":1}' }
",
    );
    let address = gateway.address();
    let robots = get(address, "/robots.txt");
    assert_eq!(
        (robots.status, robots.text().as_str()),
        (200, "User-agent: *\nDisallow: /\n")
    );
    assert_eq!(
        robots.expect_header("content-type"),
        "text/plain; charset=utf-8"
    );
    assert!(robots.header("ratelimit").is_some());

    let mut connection = Connection::open(address);
    let head = connection.exchange("HEAD /robots.txt HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(head.expect_header("content-length"), "26");
    for (path, status) in [("/empty", 204), ("/same", 304)] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let response = connection.exchange(&request);
        assert_eq!((response.status, response.body.len()), (status, 0));
        assert_eq!(response.header("content-type"), None);
        assert_eq!(response.header("content-length"), None, "{path}");
        assert_eq!(response.header("x-a").is_some(), status == 204);
    }
    // The body of a request is no next request.
    let down = connection.exchange(
        "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 19\r\n\r\nGET / HTTP/1.1\r\n\r\n ",
    );
    assert_eq!((down.status, down.text().as_str()), (503, "{\"a\":1}"));
    assert_eq!(down.expect_header("content-type"), "application/json");
    assert_eq!(down.expect_header("retry-after"), "60");

    assert_eq!(get(address, "/x").status, 429, "limits come first");
    assert_eq!(
        get_with(address, "/x", "x-from: nowhere\r\n").status,
        403,
        "and access before them"
    );
    let metric = "sluicegate_route_requests_total{route=\"maintenance\",class=\"5xx\"}";
    assert_eq!(gateway.metric(metric), Some(1.0));
    wait_for("the access log", || {
        let log = fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        let line = log.lines().find(|line| line.contains("\"status\":503"))?;
        assert!(line.contains("\"route\":\"maintenance\""), "{line}");
        Some(())
    });
}

#[test]
fn http2_gets_the_same_responses() {
    let gateway = Gateway::start(
        "routes:
  - { match: { path: /old }, redirect: { to: /new } }
  - { respond: { status: 404, body: none } }
",
    );
    let arguments = ["-s", "--http2-prior-knowledge", "-m", "10", "-d", "body"];
    let curl = |path: &str| {
        let url = gateway.url(path);
        let format = ["-w", "|%{http_code} %header{location}", &url];
        curl(&[&arguments[..], &format].concat()).stdout
    };
    assert_eq!(curl("/old"), "|308 /new");
    assert_eq!(curl("/x"), "none|404 ");
}

#[test]
fn a_body_in_a_file_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let page = directory.path().join("page.html");
    let write = |text: &str| fs::write(&page, text).expect("there is room for a file");
    write("<p>back soon");
    let gateway = Gateway::start(&format!(
        "routes: [{{ respond: {{ headers: {{ content-type: text/html }}, body: {{ file: {} }} }} }}]",
        page.display()
    ));
    let get = || get(gateway.address(), "/");
    assert_eq!(get().text(), "<p>back soon");
    assert_eq!(get().expect_header("content-type"), "text/html");
    write("<p>sooner");
    wait_for("the file to be read again", || {
        (get().text() == "<p>sooner").then_some(())
    });

    // A page that is too large changes nothing.
    let failures = gateway.reloads("failure");
    write(&"x".repeat((1 << 20) + 1));
    wait_for("the page to be refused", || {
        (gateway.reloads("failure") > failures).then_some(())
    });
    assert_eq!(get().text(), "<p>sooner");
}

#[test]
fn explain_and_replay_know_routes_without_an_upstream() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("there is room for a file");
        path.to_str().expect("a text").to_owned()
    };
    let config = file(
        "sluicegate.yaml",
        "routes:
  - { match: { hosts: [a.example] }, redirect: { to: \"https://{host}{path_and_query}\" } }
  - { name: down, limits: [{ key: constant, quota: 1/1h }], respond: { status: 503, body: down } }
",
    );
    let explain = |url: &str| {
        let explained = run(BINARY, &["explain", "GET", url, "--config", &config]);
        assert_eq!(explained.code, Some(0), "{explained}");
        explained.stdout
    };
    let redirected = explain("http://a.example/b?c=%40");
    assert!(
        redirected.contains("allowed, and redirected with 308 to https://a.example/b?c=%40"),
        "{redirected}"
    );
    let down = explain("http://b.example/");
    assert!(down.contains("allowed, and answered with 503"), "{down}");

    let line = r#"127.0.0.1 - - [27/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1"#;
    let log = file("access.log", &format!("{line}\n{line}\n"));
    let replayed = run(BINARY, &["replay", &log, "--config", &config]);
    assert_eq!(replayed.code, Some(0), "{replayed}");
    assert!(replayed.stdout.contains("down"), "{replayed}");
}
