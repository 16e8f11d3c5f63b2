//! nginx, HAProxy and Caddy ask before they serve, with the recipes of docs/forward-auth.md.

use std::fs;
use std::net::SocketAddr;

use crate::support::client::{Connection, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::other_proxies::{OtherProxy, Replacement};

/// The recipe in this language.
fn recipe(language: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/forward-auth.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let block = page.split_once(&format!("```{language}\n"));
    let (recipe, _) = block
        .and_then(|(_, rest)| rest.split_once("```"))
        .expect("a recipe");
    recipe.to_owned()
}

/// The addresses in a recipe, and those that take their places.
fn replacements(gateway: &Gateway, origin: &Origin) -> [Replacement<'static>; 2] {
    [
        ("127.0.0.1:8080", gateway.address()),
        ("127.0.0.1:3000", origin.address()),
    ]
}

/// One POST to `/login` and any number of other requests are allowed.
fn gateway() -> Gateway {
    Gateway::start(
        "client_ip: { trusted_proxies: [127.0.0.1] }
routes:
  - match: { hosts: [shop.example], path: /login, methods: [POST], when: { scheme: http } }
    limits: [{ key: client_ip, quota: 1/1h }]
    upstream: decide
  - access: { deny: [{ path: \"/secret/**\" }] }
    upstream: decide
",
    )
}

/// What clients of each proxy see.
fn check(proxy: SocketAddr, origin: &Origin) {
    let login = |fields: &str| {
        let fields = format!("host: shop.example\r\ncontent-length: 2\r\n{fields}");
        let request = format!("POST /login HTTP/1.1\r\n{fields}\r\nab");
        let mut connection = Connection::open(proxy);
        connection.exchange(&request)
    };
    assert_eq!(login("").status, 200);
    assert_eq!(origin.only_request().body, b"ab");
    // Fields of clients describe nothing.
    for forged in [
        "",
        "X-Forwarded-Method: GET\r\n",
        "X-Forwarded-Uri: /\r\n",
        "X-Forwarded-Host: other.example\r\n",
        "X-Forwarded-For: 203.0.113.9\r\n",
    ] {
        let refused = login(forged);
        assert_eq!(refused.status, 429, "{forged}");
        let wait: u64 = refused
            .expect_header("retry-after")
            .parse()
            .expect("a number");
        assert!((3_500..=3_600).contains(&wait), "{wait}");
        assert!(refused.header("ratelimit").is_some());
    }
    for forged in [
        "X-Original-Method: GET\r\n",
        "X-Original-URL: http://a/\r\n",
    ] {
        assert!(login(forged).status >= 400, "{forged}");
    }
    assert_eq!(get(proxy, "/login").status, 200, "no POST");
    assert_eq!(get(proxy, "/else?a=/login").status, 200);
    assert_eq!(get_with(proxy, "/secret/a", "").status, 403);
    assert_eq!(origin.requests().len(), 3, "no refused request is served");
}

#[test]
fn nginx_serves_what_is_allowed_and_answers_429_with_retry_after() {
    let (gateway, origin) = (gateway(), Origin::plain());
    let proxy = OtherProxy::nginx(&recipe("nginx"), &replacements(&gateway, &origin));
    check(proxy.address, &origin);
    drop(gateway);
    assert_eq!(get(proxy.address, "/").status, 500, "nobody decides");
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn haproxy_serves_what_is_allowed_and_answers_429_with_retry_after() {
    let (gateway, origin) = (gateway(), Origin::plain());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = directory.path().join("sluicegate.lua");
    let [asked, served] = replacements(&gateway, &origin);
    let lua = recipe("lua").replace(asked.0, &asked.1.to_string());
    fs::write(&script, lua).expect("the directory is writable");
    let script = script.to_str().expect("a plain path");
    let config = recipe("haproxy").replace("/etc/haproxy/sluicegate.lua", script);
    let proxy = OtherProxy::haproxy(&config, &[served]);
    check(proxy.address, &origin);
    drop(gateway);
    assert_eq!(get(proxy.address, "/").status, 500, "nobody decides");
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn caddy_serves_what_is_allowed_and_passes_refusals_on() {
    let (gateway, origin) = (gateway(), Origin::plain());
    let proxy = OtherProxy::caddy(&recipe("caddyfile"), &replacements(&gateway, &origin));
    check(proxy.address, &origin);
}
