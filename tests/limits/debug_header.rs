//! `responses.debug`: requests with the token get the decisions of their limits back.

use std::fs;

use sfv::{BareItem, List, ListEntry, Parser};

use crate::support::client::{Connection, Response, curl, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, raw};
use crate::support::wait_for;

const TOKEN: &str = "0123456789abcdef";
const DEBUG: &str = "responses: { debug: { token: 0123456789abcdef } }\n";

type Item = (String, Vec<(String, String)>);

fn debug(gateway: &Gateway, path: &str, headers: &str) -> Response {
    let token = format!("X-Sluicegate-Debug: {TOKEN}\r\n{headers}");
    get_with(gateway.address(), path, &token)
}

/// The items of the field: the name and the parameters of each.
fn trail(response: &Response) -> Vec<Item> {
    let value = response.expect_header("x-sluicegate-debug");
    assert!(value.len() <= 4096, "{} bytes", value.len());
    assert_eq!(response.expect_header("cache-control"), "no-store");
    let list: List = Parser::new(value).parse().expect("a list (RFC 9651)");
    let text = |value: &BareItem| match value {
        BareItem::Token(token) => token.to_string(),
        BareItem::String(text) => text.to_string(),
        BareItem::Integer(number) => number.to_string(),
        BareItem::Decimal(number) => number.to_string(),
        BareItem::Boolean(flag) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    let item = |entry: &ListEntry| match entry {
        ListEntry::Item(item) => {
            let params = item.params.iter();
            let params = params.map(|(name, value)| (name.to_string(), text(value)));
            (text(&item.bare_item), params.collect())
        }
        ListEntry::InnerList(list) => panic!("{list:?}"),
    };
    list.iter().map(item).collect()
}

/// A parameter of the item about this policy.
fn of_limit(response: &Response, policy: &str, name: &str) -> Option<String> {
    let is_its = |(item, params): &&Item| {
        item == "limit" && params[0] == ("policy".to_owned(), policy.to_owned())
    };
    let trail = trail(response);
    let found = trail.iter().find(is_its);
    let (_, params) = found.unwrap_or_else(|| panic!("{policy}: {trail:?}"));
    let found = params.iter().find(|(param, _)| param == name);
    found.map(|(_, value)| value.clone())
}

fn of_request(response: &Response, name: &str) -> Option<String> {
    let trail = trail(response);
    assert_eq!(trail[0].0, "request");
    let found = trail[0].1.iter().find(|(param, _)| param == name);
    found.map(|(_, value)| value.clone())
}

/// The policies of `/`, with a kind of decision each.
const POLICIES: [&str; 8] = [
    "per-key", "watched", "exempt", "posts", "soft", "spare", "keyless", "decoy",
];

fn with_decisions() -> Gateway {
    Gateway::start(&format!(
        "{DEBUG}policies:
  per-key: {{ key: \"header:x-key\", quota: 2/1h, announce: false, overrides: [{{ value: gold, quota: 9/1h }}] }}
  watched: {{ key: constant, quota: 0/1h, mode: shadow }}
  exempt: {{ quota: 5/1h, exempt: [{{ cidr: 127.0.0.0/8 }}] }}
  posts: {{ quota: 5/1h, when: {{ method: [POST] }} }}
  soft: {{ key: \"header:x-key\", quota: 1/1h, on_limit: {{ action: tag }} }}
  spare: {{ key: \"header:x-key\", quota: 1/1h, overflow: {{ quota: 100/1h }} }}
  keyless: {{ key: cookie:none, on_missing_key: refuse, quota: 1/1h, percent: 100 }}
  decoy: {{ key: host, quota: 100/1h, on_limit: {{ action: decoy }} }}
routes:
  - {{ name: all, upstream: echo, limits: [{}] }}
  - {{ name: dead, match: {{ path: /dead }}, upstream: \"http://127.0.0.1:1\" }}
",
        POLICIES.join(", ")
    ))
}

#[test]
fn every_limit_of_the_route_is_described() {
    let gateway = with_decisions();
    let first = debug(&gateway, "/", "x-key: a\r\n");
    assert_eq!(first.status, 200, "{first:?}");
    let decisions = POLICIES.map(|policy| of_limit(&first, policy, "decision").expect("a word"));
    assert_eq!(
        decisions,
        [
            "allowed",
            "shadowed",
            "exempt",
            "not_applicable",
            "allowed",
            "allowed",
            "shadowed",
            "allowed"
        ]
    );
    assert_eq!(of_request(&first, "route").as_deref(), Some("all"));
    assert_eq!(of_request(&first, "error"), None);
    let time = of_request(&first, "ms").expect("a time");
    assert!(time.parse::<f64>().is_ok(), "{time}");
    for (name, value) in [
        ("limit", "2"),
        ("remaining", "1"),
        ("mode", "enforce"),
        ("store", "memory"),
    ] {
        let found = of_limit(&first, "per-key", name);
        assert_eq!(found.as_deref(), Some(value), "{name}");
    }
    assert_eq!(
        of_limit(&first, "watched", "mode").as_deref(),
        Some("shadow")
    );

    let second = debug(&gateway, "/", "x-key: a\r\n");
    assert_eq!(
        of_limit(&second, "soft", "decision").as_deref(),
        Some("tagged")
    );
    assert_eq!(
        of_limit(&second, "spare", "decision").as_deref(),
        Some("overflowed")
    );
    assert_eq!(of_limit(&second, "spare", "tier").as_deref(), Some("1"));

    let refused = debug(&gateway, "/", "x-key: a\r\n");
    assert_eq!(refused.status, 429);
    assert_eq!(of_request(&refused, "decision").as_deref(), Some("limited"));
    assert_eq!(of_request(&refused, "policy").as_deref(), Some("per-key"));
    assert_eq!(
        of_limit(&refused, "soft", "decision").as_deref(),
        Some("not_asked")
    );
    let wait = of_limit(&refused, "per-key", "retry-after");
    assert_eq!(wait.as_deref(), refused.header("retry-after"));

    let gold = debug(&gateway, "/", "x-key: gold\r\n");
    assert_eq!(
        of_limit(&gold, "per-key", "override").as_deref(),
        Some("true")
    );
    let keys = [&first, &refused, &gold].map(|one| of_limit(one, "per-key", "key").expect("a key"));
    assert!(keys[0] == keys[1] && keys[0] != keys[2], "{keys:?}");
    assert!(
        keys[2].starts_with("k_") && !keys[2].contains("gold"),
        "{keys:?}"
    );
}

#[test]
fn a_request_is_not_named_after_a_limit_in_shadow_that_admits_it() {
    let gateway = Gateway::start(&format!(
        "{DEBUG}policies:
  quiet: {{ quota: 1/1h, mode: shadow, overflow: {{ quota: 100/1h }} }}
  kept: {{ quota: 100/1h }}
routes:
  - {{ match: {{ path: /alone }}, upstream: echo, limits: [quiet] }}
  - {{ upstream: echo, limits: [quiet, kept] }}
"
    ));
    let alone = debug(&gateway, "/alone", "");
    assert_eq!(of_request(&alone, "policy"), None);
    let beside = debug(&gateway, "/", "");
    assert_eq!(
        of_limit(&beside, "quiet", "decision").as_deref(),
        Some("overflowed")
    );
    assert_eq!(of_request(&beside, "policy").as_deref(), Some("kept"));
}

#[test]
fn a_wrong_token_has_no_effect() {
    let gateway = with_decisions();
    let token = format!("x-sluicegate-debug: {TOKEN}\r\n");
    for (key, wrong) in [
        "x-sluicegate-debug: 0123456789abcdeF\r\n".to_owned(),
        "x-sluicegate-debug: 0123456789abcde\r\n".to_owned(),
        "x-sluicegate-debug: \r\n".to_owned(),
        String::new(),
        format!("{token}{token}"),
    ]
    .iter()
    .enumerate()
    {
        let response = get_with(gateway.address(), "/", &format!("x-key: {key}\r\n{wrong}"));
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.header("x-sluicegate-debug"), None, "{wrong}");
        assert_eq!(response.header("cache-control"), None, "{wrong}");
    }
    let without = Gateway::start("routes: [{ upstream: echo }]\n");
    let response = debug(&without, "/", "");
    assert_eq!(response.header("x-sluicegate-debug"), None);
    let echoed = response.text();
    assert!(
        echoed.contains("x-sluicegate-debug"),
        "a field as any other: {echoed}"
    );
}

#[test]
fn no_upstream_sees_the_field() {
    let origin = Origin::start(|_| {
        raw("HTTP/1.1 200 OK\r\nX-Sluicegate-Debug: mine\r\nContent-Length: 0\r\n\r\n")
    });
    let gateway = Gateway::start(&format!(
        "{DEBUG}upstreams: {{ api: {{ endpoints: ['{}'] }} }}
routes:
  - {{ upstream: api }}
  - {{ match: {{ path: /echo }}, upstream: echo }}
",
        origin.url()
    ));
    let response = debug(&gateway, "/", "");
    let fields = response.headers_of("x-sluicegate-debug");
    assert_eq!(fields.len(), 1, "in place of the upstream's: {fields:?}");
    assert_eq!(of_request(&response, "upstream").as_deref(), Some("api"));
    assert!(of_request(&response, "upstream-ms").is_some());
    get_with(gateway.address(), "/", "x-sluicegate-debug: wrong\r\n");
    let requests = origin.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.header("x-sluicegate-debug"), None);
    }
    for value in [TOKEN, "wrong"] {
        let field = format!("x-sluicegate-debug: {value}\r\n");
        let echoed = get_with(gateway.address(), "/echo", &field).text();
        assert!(!echoed.to_lowercase().contains("debug"), "{echoed}");
    }
}

#[test]
fn errors_and_http2_have_it_too() {
    let gateway = with_decisions();
    let dead = debug(&gateway, "/dead", "");
    assert_eq!(dead.status, 502);
    assert_eq!(of_request(&dead, "error").as_deref(), Some("connect"));
    assert_eq!(trail(&dead).len(), 1, "no limits");
    let malformed = debug(&gateway, "/%2e%2e/%2e%2e", "");
    assert_eq!((malformed.status, trail(&malformed).len()), (400, 1));
    let output = curl(&[
        "--http2-prior-knowledge",
        "-D-",
        "-o",
        "/dev/null",
        "-H",
        &format!("x-sluicegate-debug: {TOKEN}"),
        &gateway.url("/"),
    ]);
    let field = "x-sluicegate-debug: request;route=\"all\"";
    assert!(output.stdout.contains(field), "{output}");
}

#[test]
fn the_value_is_bounded() {
    let limits = (1..=100).map(|number| {
        format!("{{ name: a-rather-long-name-of-a-limit-{number}, quota: {number}00000/1h }}")
    });
    let limits: Vec<_> = limits.collect();
    let gateway = Gateway::start(&format!(
        "{DEBUG}routes: [{{ upstream: echo, limits: [{}] }}]\n",
        limits.join(", ")
    ));
    let trail = trail(&debug(&gateway, "/", ""));
    let (name, params) = trail.last().expect("items");
    assert_eq!(name, "more");
    let shown = trail.len() - 2;
    assert_eq!(params[0], ("limits".to_owned(), (100 - shown).to_string()));
    assert!(shown > 10, "{shown}");
}

#[test]
fn a_token_in_a_file_changes_with_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("token");
    fs::write(&path, format!("{TOKEN}\n")).expect("a file");
    let gateway = Gateway::start(&format!(
        "responses: {{ debug: {{ header: x-why, token: {{ file: {} }} }} }}\nroutes: [{{ upstream: echo }}]\n",
        path.display()
    ));
    let mut connection = Connection::open(gateway.address());
    let mut has_trail = |token: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Why: {token}\r\n\r\n");
        connection.exchange(&request).header("x-why").is_some()
    };
    assert!(has_trail(TOKEN));
    fs::write(&path, "fedcba9876543210\n").expect("a file");
    wait_for("the new token", || {
        has_trail("fedcba9876543210").then_some(())
    });
    assert!(!has_trail(TOKEN));
}

#[test]
fn a_policy_in_shadow_that_tags_is_shadowed_everywhere() {
    let gateway = Gateway::start(&format!(
        "{DEBUG}access_log: {{ path: access.log, format: json }}
policies: {{ soft: {{ key: constant, quota: 0/1h, mode: shadow, on_limit: {{ action: tag }} }} }}
routes: [{{ name: r, upstream: echo, limits: [soft] }}]
"
    ));
    let response = debug(&gateway, "/", "");
    assert_eq!(response.status, 200);
    assert_eq!(
        of_limit(&response, "soft", "decision").as_deref(),
        Some("shadowed")
    );
    assert_eq!(
        of_request(&response, "decision").as_deref(),
        Some("shadowed")
    );
    assert_eq!(of_request(&response, "policy").as_deref(), Some("soft"));
    let line = wait_for("the line", || {
        let log = fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        log.lines().next().map(str::to_owned)
    });
    assert!(
        line.contains("\"shadowed\"") && line.contains("\"soft\""),
        "{line}"
    );
}
