//! Conditions that choose a route and deny access: patterns of values, lists in files, schemes and
//! listeners.

use std::fs;

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::{Connection, curl, get, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::wait_for;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

/// The status of a GET with these header fields.
fn status(gateway: &Gateway, path: &str, headers: &str) -> u16 {
    get_with(gateway.address(), path, headers).status
}

#[test]
fn every_kind_of_pattern_chooses_a_route() {
    for (pattern, taken, not) in [
        ("gold", "gold", "gold2"),
        ("{ exact: gold }", "gold", "Gold"),
        ("{ exact: gold, ignore_case: true }", "GOLD", "gol"),
        ("{ prefix: go }", "gold", "ego"),
        ("{ suffix: ld }", "gold", "golds"),
        ("{ contains: ol, ignore_case: true }", "GOLD", "glod"),
        ("{ regex: \"^g.l\" }", "gold", "agold"),
        ("{ regex: ^G.L, ignore_case: true }", "gold", "agold"),
        ("{ prefix: \"\" }", "anything", ""),
    ] {
        let gateway = Gateway::start(&format!(
            "routes:
  - {{ match: {{ headers: {{ x-plan: {pattern} }} }}, upstream: echo }}
  - {{ match: {{ path: /query, query: {{ plan: {pattern} }} }}, upstream: echo }}
  - {{ match: {{ path: /cookie, cookies: {{ plan: {pattern} }} }}, upstream: echo }}
"
        ));
        assert_eq!(
            status(&gateway, "/", &format!("x-plan: {taken}\r\n")),
            200,
            "{pattern}"
        );
        assert_eq!(
            status(&gateway, &format!("/query?plan={taken}"), ""),
            200,
            "{pattern}"
        );
        let cookie = format!("cookie: a=b; plan={taken}\r\n");
        assert_eq!(status(&gateway, "/cookie", &cookie), 200, "{pattern}");
        if !not.is_empty() {
            assert_eq!(
                status(&gateway, "/", &format!("x-plan: {not}\r\n")),
                404,
                "{pattern}"
            );
            assert_eq!(
                status(&gateway, &format!("/query?plan={not}"), ""),
                404,
                "{pattern}"
            );
            let cookie = format!("cookie: plan={not}\r\n");
            assert_eq!(status(&gateway, "/cookie", &cookie), 404, "{pattern}");
        }
        assert_eq!(status(&gateway, "/", ""), 404, "absent: {pattern}");
        let twice = format!("x-plan: {taken}\r\nx-plan: other\r\n");
        assert_eq!(status(&gateway, "/", &twice), 404, "two values: {pattern}");
    }
}

#[test]
fn a_list_in_a_file_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("there is room for a file");
        path
    };
    let bots = file("bots.txt", "# bots\n\nBadBot/1.0\nWorse Bot\n");
    let networks = file("networks.txt", "203.0.113.0/24\n192.0.2.7\n");
    let gateway = Gateway::start(&format!(
        "client_ip: {{ trusted_proxies: [127.0.0.0/8] }}
access:
  deny:
    - {{ header: {{ user-agent: {{ file: {}, ignore_case: true }} }} }}
    - {{ cidr: [{{ file: {} }}, 10.0.0.1] }}
routes: [{{ upstream: echo }}]
",
        bots.display(),
        networks.display()
    ));
    let agent = |name: &str| status(&gateway, "/", &format!("user-agent: {name}\r\n"));
    let from = |ip: &str| status(&gateway, "/", &format!("x-forwarded-for: {ip}\r\n"));
    assert_eq!(
        [agent("badbot/1.0"), agent("Worse Bot"), agent("curl")],
        [403, 403, 200]
    );
    assert_eq!(
        [
            from("203.0.113.9"),
            from("192.0.2.7"),
            from("10.0.0.1"),
            from("192.0.2.8")
        ],
        [403, 403, 403, 200]
    );
    file("bots.txt", "curl\n");
    wait_for("the list to be read again", || {
        (agent("curl") == 403).then_some(())
    });
    assert_eq!(agent("badbot/1.0"), 200);

    // A bad file changes nothing.
    let reloads = gateway.reloads("failure");
    file("networks.txt", "203.0.113.0/24\nnot a network\n");
    wait_for("the bad list to be refused", || {
        (gateway.reloads("failure") > reloads).then_some(())
    });
    assert!(gateway.log().contains("line 2"), "{}", gateway.log());
    assert_eq!([agent("curl"), from("192.0.2.7")], [403, 403]);
}

#[test]
fn a_long_list_finds_its_values() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("list.txt");
    let lines = |count: usize| {
        (0..count)
            .map(|line| format!("value-{line}\n"))
            .collect::<String>()
    };
    fs::write(&path, lines(100_000)).expect("there is room for a file");
    let config = format!(
        "routes: [{{ match: {{ headers: {{ x: {{ file: {} }} }} }}, upstream: echo }}]",
        path.display()
    );
    let gateway = Gateway::start(&config);
    assert_eq!(status(&gateway, "/", "x: value-99999\r\n"), 200);
    assert_eq!(status(&gateway, "/", "x: value-100000\r\n"), 404);

    fs::write(&path, lines(100_001)).expect("there is room for a file");
    let file = gateway.config_path();
    let checked = run(BINARY, &["check", file.to_str().expect("a text")]);
    assert!(
        checked.stderr.contains("found another in line 100001"),
        "{checked}"
    );
}

#[test]
fn denied_requests_are_charged_nothing_and_counted() {
    let gateway = Gateway::start(
        "access_log: { path: access.log }
access: { deny: [{ header: { user-agent: { contains: badbot, ignore_case: true } } }] }
routes:
  - { name: open, match: { path: /open }, upstream: echo, limits: [{ key: constant, quota: 1/1h }] }
  - name: internal
    match: { path: /internal/** }
    access: { allow: [{ cidr: [127.0.0.0/8], not: { header: { x-from: outside } } }], status: 404 }
    upstream: echo
",
    );
    let bot = get_with(gateway.address(), "/open", "user-agent: A BadBot/2\r\n");
    assert_eq!(bot.status, 403);
    assert_eq!(bot.header("ratelimit"), None);
    assert_eq!(bot.header("retry-after"), None);
    // A second field doesn't help.
    let two = "user-agent: BadBot\r\nuser-agent: curl\r\n";
    assert_eq!(status(&gateway, "/open", two), 403);
    assert_eq!(
        status(&gateway, "/nowhere", "user-agent: BadBot\r\n"),
        403,
        "without a route"
    );
    assert_eq!(status(&gateway, "/open", ""), 200, "nothing was charged");
    assert_eq!(status(&gateway, "/open", ""), 429);

    assert_eq!(status(&gateway, "/internal/x", ""), 200);
    assert_eq!(status(&gateway, "/internal/x", "x-from: outside\r\n"), 404);
    assert_eq!(
        status(&gateway, "/internal/x", "x-from: in\r\nx-from: outside\r\n"),
        404
    );

    let denied = |route: &str| {
        gateway.metric(&format!(
            "sluicegate_access_denied_total{{route=\"{route}\"}}"
        ))
    };
    assert_eq!(denied("open"), Some(2.0));
    assert_eq!(denied("internal"), Some(2.0));
    assert_eq!(denied(""), Some(1.0));
    let log = wait_for("the access log", || {
        let log = fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        (log.lines().count() == 8).then_some(log)
    });
    let denied = log
        .lines()
        .filter(|line| line.contains("\"error\":\"denied\""));
    assert_eq!(denied.count(), 5, "{log}");
}

#[test]
fn head_belongs_to_get_unless_it_is_named() {
    let gateway = Gateway::start(
        "policies:
  gets: { key: constant, quota: 1/300d, when: { method: [GET], path: /when } }
  rest: { key: constant, quota: 1/300d, when: { method: [GET], not: { method: [HEAD] }, path: /not } }
routes:
  - { match: { path: /a, methods: [GET] }, upstream: echo, limits: [{ key: constant, quota: 1/300d }] }
  - { match: { path: /b, methods: [GET] }, upstream: echo, limits: [{ key: constant, quota: 1/300d }] }
  - { match: { path: /b, methods: [HEAD] }, upstream: echo }
  - match: { path: /denied }
    access: { deny: [{ method: [GET] }] }
    upstream: echo
  - match: { path: /allowed }
    access: { allow: [{ method: [GET] }], deny: [{ method: [HEAD] }] }
    upstream: echo
  - { upstream: echo, limits: [gets, rest] }
",
    );
    let mut connection = Connection::open(gateway.address());
    let mut statuses = |method: &str, path: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        [(); 2].map(|()| connection.exchange(&request).status)
    };
    assert_eq!(statuses("HEAD", "/a"), [200, 429]);
    assert_eq!(statuses("GET", "/a"), [429; 2]);
    assert_eq!(statuses("GET", "/b"), [200, 429]);
    assert_eq!(statuses("HEAD", "/b"), [200; 2], "another route names it");
    assert_eq!(statuses("HEAD", "/denied"), [403; 2]);
    assert_eq!(statuses("GET", "/allowed"), [200; 2]);
    assert_eq!(statuses("HEAD", "/allowed"), [403; 2]);
    assert_eq!(statuses("HEAD", "/when"), [200, 429]);
    assert_eq!(statuses("HEAD", "/not"), [200; 2]);
    assert_eq!(statuses("POST", "/when"), [200; 2]);
}

#[test]
fn access_closes_every_route_for_maintenance() {
    let gateway = Gateway::start(
        "access:
  deny: [{ not: { path: /healthz } }]
  status: 503
  retry_after: 90s
responses: { error_pages: { 503: { html: \"<h1>Back at 14:00</h1>\" } } }
routes:
  - { match: { path: /api/** }, upstream: echo, limits: [{ key: constant, quota: 1/300d }] }
  - { match: { path: /healthz }, upstream: echo }
",
    );
    for path in ["/", "/api/a", "/api/a", "/healthz/x"] {
        let closed = get_with(gateway.address(), path, "accept: text/html\r\n");
        assert_eq!(closed.status, 503, "{path}");
        assert_eq!(closed.expect_header("retry-after"), "90");
        assert_eq!(closed.text(), "<h1>Back at 14:00</h1>");
    }
    let plain = get_with(gateway.address(), "/", "accept: text/plain\r\n").text();
    assert!(plain.contains("closed at the moment"), "{plain}");
    assert_eq!(status(&gateway, "/healthz", ""), 200);
}

#[test]
fn explain_says_that_access_is_denied() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("sluicegate.yaml");
    let config = "access: { deny: [{ scheme: http }], status: 426 }\nroutes: [{ upstream: echo }]";
    fs::write(&path, config).expect("there is room for a file");
    let explain = |url: &str| {
        let path = path.to_str().expect("a text");
        run(BINARY, &["explain", "GET", url, "--config", path])
    };
    let denied = explain("http://a/").stdout;
    assert!(
        denied.contains("426") && denied.contains("Access is denied"),
        "{denied}"
    );
    assert!(!explain("https://a/").stdout.contains("426"));
}

#[test]
fn the_scheme_is_that_of_the_client_if_a_trusted_proxy_names_it() {
    let config = |trusted: &str| {
        format!(
            "client_ip: {{ trusted_proxies: [{trusted}] }}
routes: [{{ match: {{ when: {{ scheme: https }} }}, upstream: echo }}]"
        )
    };
    let behind = Gateway::start(&config("127.0.0.0/8"));
    assert_eq!(status(&behind, "/", "x-forwarded-proto: https\r\n"), 200);
    assert_eq!(status(&behind, "/", "x-forwarded-proto: http\r\n"), 404);
    assert_eq!(status(&behind, "/", ""), 404);
    // Proxies append, or replace: what differs is unknown.
    assert_eq!(
        status(&behind, "/", "x-forwarded-proto: HTTPS, https\r\n"),
        200
    );
    assert_eq!(
        status(&behind, "/", "x-forwarded-proto: https, http\r\n"),
        404
    );
    assert_eq!(status(&behind, "/", "x-forwarded-proto: wss\r\n"), 200);
    let two = "x-forwarded-proto: https\r\nx-forwarded-proto: http\r\n";
    assert_eq!(status(&behind, "/", two), 404);
    let alone = Gateway::start(&config("192.0.2.1"));
    assert_eq!(
        status(&alone, "/", "x-forwarded-proto: https\r\n"),
        404,
        "not trusted"
    );
}

#[test]
fn a_listener_chooses_a_route() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let socket = directory.path().join("a.sock");
    let mut gateway = Gateway::start(&format!(
        "listeners: [{{ address: 127.0.0.1:0 }}, {{ address: \"unix:{0}\" }}]
routes: [{{ match: {{ when: {{ listener: [\"unix:{0}\"] }} }}, upstream: echo }}]
",
        socket.display()
    ));
    let tcp = gateway.listeners(1)[0];
    assert_eq!(get(tcp, "/").status, 404);
    let socket = socket.to_str().expect("a text");
    let answer = curl(&[
        "-s",
        "-m",
        "10",
        "-w",
        "%{http_code}",
        "--unix-socket",
        socket,
        "http://a/",
    ]);
    assert!(answer.stdout.ends_with("200"), "{answer}");
}

#[test]
fn a_line_feed_hides_nothing_from_an_expression() {
    let gateway = Gateway::start(
        "access: { deny: [{ query: { q: { regex: \"^a.*evil\" } } }] }
routes: [{ upstream: echo }]",
    );
    assert_eq!(status(&gateway, "/?q=a%0Aevil", ""), 403);
    assert_eq!(status(&gateway, "/?q=b%0Aevil", ""), 200);
}

#[test]
fn check_finds_what_conditions_cannot_mean() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("there is room for a file");
        path.to_str().expect("a text").to_owned()
    };
    let checked = |text: &str| run(BINARY, &["check", &file("sluicegate.yaml", text)]);
    for (config, message) in [
        (
            "routes: [{ match: { headers: { host: a } }, upstream: echo }]",
            "use `hosts`",
        ),
        (
            "routes: [{ match: { when: { jwt: { plan: gold } } }, upstream: echo }]",
            "a route can't depend on a claim",
        ),
        (
            "routes: [{ match: { when: { listener: [\"127.0.0.1:1\"] } }, upstream: echo }]",
            "nothing listens on `127.0.0.1:1`",
        ),
        (
            "access: { status: 404 }\nroutes: [{ upstream: echo }]",
            "expected `allow` or `deny`",
        ),
        (
            "access: { deny: [{ header: { x: { regex: \"a(\" } } }] }\nroutes: [{ upstream: echo }]",
            "not a regular expression: unclosed group",
        ),
        (
            "access: { deny: [{ header: { x: { prefix: a, suffix: b } } }] }\nroutes: [{ upstream: echo }]",
            "`suffix` beside `prefix`",
        ),
        (
            "access: { deny: [{ header: { x: { file: missing.txt } } }] }\nroutes: [{ upstream: echo }]",
            "missing.txt",
        ),
    ] {
        let checked = checked(config);
        assert_eq!(checked.code, Some(1), "{checked}");
        assert!(checked.stderr.contains(message), "{message}: {checked}");
    }
    // Two files are two lists.
    file("a.txt", "10.0.0.0/8\n");
    file("b.txt", "192.0.2.0/24\n");
    let two = checked(
        "routes:
  - { match: { when: { cidr: [{ file: a.txt }] } }, upstream: echo }
  - { match: { when: { cidr: [{ file: b.txt }] } }, upstream: echo }
  - { match: { headers: { x: { file: a.txt } } }, upstream: echo }
  - { match: { headers: { x: { file: b.txt } } }, upstream: echo }
",
    );
    assert!(!two.stderr.contains("never takes a request"), "{two}");
}

#[test]
fn values_and_patterns_are_masked() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}access: {{ deny: [{{ header: {{ x: hidden-1, y: {{ prefix: hidden-2 }} }} }}] }}
routes: [{{ match: {{ cookies: {{ c: {{ regex: hidden-3 }} }} }}, upstream: echo }}]
"
    ));
    let shown = AdminClient::writer(&gateway).get("/v1/config");
    let text = shown.text();
    assert!(text.contains("prefix") && text.contains("***"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn a_denied_post_over_http2_is_answered_without_a_reset() {
    let gateway =
        Gateway::start("access: { deny: [{ method: [POST] }] }\nroutes: [{ upstream: echo }]");
    let body = "x".repeat(100_000);
    let url = gateway.url("/");
    let options = [
        "-s",
        "-S",
        "-m",
        "10",
        "--http2-prior-knowledge",
        "-w",
        "%{http_code}",
    ];
    let posted = curl(&[&options[..], &["-d", &body, &url]].concat());
    assert!(posted.stdout.ends_with("403"), "{posted}");
    assert_eq!(posted.code, Some(0), "{posted}");
}

#[test]
fn policies_apply_by_cookie_query_and_host() {
    let gateway = Gateway::start(
        "routes:
  - upstream: echo
    limits:
      - { key: constant, quota: 1/1h, when: { cookie: { plan: { prefix: free } } } }
      - { key: constant, quota: 1/1h, when: { query: { debug: \"1\" } } }
      - { key: constant, quota: 1/1h, when: { host: [\"*.example.com\"] } }
",
    );
    let twice = |path: &str, headers: &str| {
        [
            status(&gateway, path, headers),
            status(&gateway, path, headers),
        ]
    };
    assert_eq!(twice("/", ""), [200, 200]);
    assert_eq!(twice("/", "cookie: plan=free-2026\r\n"), [200, 429]);
    assert_eq!(twice("/?debug=1", ""), [200, 429]);
    assert_eq!(twice("/?debug=%31", ""), [429, 429], "decoded");
    let host = |host: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        Connection::open(gateway.address())
            .exchange(&request)
            .status
    };
    assert_eq!([host("a.example.com"), host("b.example.com")], [200, 429]);
    assert_eq!(host("example.com"), 200);
}
