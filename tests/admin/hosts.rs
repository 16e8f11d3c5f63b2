//! Hosts of the admin listener: pages of other sites read nothing through a name that resolves to
//! this machine.

use crate::support::admin::{READER, TOKENS, WRITER, problem};
use crate::support::client::{Connection, Response};
use crate::support::gateway::Gateway;

const ROUTES: &str = "routes: [{ upstream: echo }]\n";

/// The response to a GET with these header lines.
fn get(gateway: &Gateway, path: &str, headers: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    Connection::open(gateway.admin).exchange(&request)
}

fn status(gateway: &Gateway, host: &str) -> u16 {
    get(gateway, "/metrics", &format!("Host: {host}\r\n")).status
}

#[test]
fn a_name_of_another_site_reads_nothing() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    for path in [
        "/metrics",
        "/livez",
        "/readyz",
        "/",
        "/playground",
        "/assets/icon.svg",
        "/v1/openapi.json",
        "/v1/status",
        "/nothing",
    ] {
        let host = format!("Host: rebound.example:{}\r\n", gateway.admin.port());
        let token = format!("Authorization: Bearer {READER}\r\n");
        let refused = get(&gateway, path, &format!("{host}{token}"));
        let detail = problem(&refused, 421);
        assert!(detail.contains("admin.hosts"), "{detail}");
        assert_eq!(refused.header("x-content-type-options"), Some("nosniff"));
    }
    let counted = "sluicegate_admin_requests_refused_total{reason=\"unknown_host\"}";
    assert_eq!(gateway.metric(counted), Some(9.0));
    gateway.wait_for_log("host=\"rebound.example\"");
    assert_eq!(
        gateway
            .log()
            .matches("a request for another host is refused")
            .count(),
        1,
        "a flood is one line a minute"
    );
}

#[test]
fn scrapes_and_probes_name_an_address_localhost_or_nothing() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    for host in [
        "127.0.0.1:9980",
        "[::1]",
        "10.0.0.7:80",
        "localhost:9980",
        "gate.localhost",
    ] {
        assert_eq!(status(&gateway, host), 200, "{host}");
    }
    assert_eq!(get(&gateway, "/livez", "").status, 200);
    let old = Connection::open(gateway.admin).exchange("GET /livez HTTP/1.0\r\n\r\n");
    assert_eq!(old.status, 200);
    let two = get(&gateway, "/livez", "Host: localhost\r\nHost: localhost\r\n");
    problem(&two, 400);
}

#[test]
fn names_follow_the_configuration() {
    let config = |hosts: &str| {
        format!(
            "admin: {{ address: \"127.0.0.1:0\", hosts: [{hosts}], tokens: {{ write: [{WRITER}] }} }}\n{ROUTES}"
        )
    };
    let gateway = Gateway::start(&config("gate.example.com, \"*.svc.example\""));
    assert_eq!(status(&gateway, "GATE.example.com:9980"), 200);
    assert_eq!(status(&gateway, "a.svc.example"), 200);
    assert_eq!(status(&gateway, "svc.example"), 421);
    gateway.reload(&config("other.example.com"));
    assert_eq!(status(&gateway, "other.example.com"), 200);
    assert_eq!(status(&gateway, "gate.example.com"), 421);
    assert_eq!(status(&gateway, "localhost"), 200);
}
