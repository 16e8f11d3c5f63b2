//! Fields that `Connection` names are gone before anything judges by them (RFC 9110 section 7.6.1).

use crate::support::client::{get_with, run};
use crate::support::gateway::Gateway;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");
/// What names a field `x`, in all spellings.
const NAMING: [&str; 5] = [
    "connection: x\r\n",
    "connection: close ,\tX\r\n",
    "connection: keep-alive, x\r\n",
    "connection: close\r\nConnection: X\r\n",
    "connection: upgrade,,x\r\nupgrade: websocket\r\n",
];

#[test]
fn a_field_that_the_upstream_never_sees_brings_no_bucket() {
    for part in ["header:x", "cookie:k", "basic_user", "header:authorization"] {
        let gateway = Gateway::start(&format!(
            "routes: [{{ upstream: echo, limits: [{{ key: \"{part}\", quota: 5/1h }}] }}]"
        ));
        let statuses = (0..6).map(|number| {
            let (name, value) = match part {
                "header:x" => ("x", format!("{number}")),
                "cookie:k" => ("cookie", format!("k={number}")),
                "basic_user" => ("authorization", format!("Basic YWJj{number}Q6")),
                _ => ("authorization", format!("Bearer {number}")),
            };
            let naming = NAMING[number % NAMING.len()].to_ascii_lowercase();
            let naming = naming.replace('x', name);
            let fields = format!("{naming}{name}: {value}\r\n");
            let answer = get_with(gateway.address(), "/", &fields);
            let told = answer.text();
            assert!(!told.contains(&format!("\n{name}: ")), "{told}");
            answer.status
        });
        assert_eq!(
            statuses.collect::<Vec<_>>(),
            [200, 200, 200, 200, 200, 429],
            "{part}"
        );
    }
}

#[test]
fn a_named_field_opens_nothing() {
    let gateway = Gateway::start(
        "exempt: [{ when: { header: { x: exempt } } }]
policies:
  cost: { key: client_ip, quota: 2/300d, cost: { header: x, max: 9 } }
  stated: { key: client_ip, algorithm: fixed_window, quota: { from: header:x, default: 1, max: 9, per: 300d } }
  gold: { key: client_ip, quota: 1/1h, when: { not: { header: { x: gold } } } }
check: { allow: [{ warning: forgeable-quota, reason: x }] }
routes:
  - { match: { path: /only, headers: { x: \"1\" } }, upstream: echo }
  - { match: { path: /key }, access: { allow: [{ header: { x: \"1\" } }] }, upstream: echo }
  - { match: { path: /cost }, upstream: echo, limits: [cost] }
  - { match: { path: /stated }, upstream: echo, limits: [stated] }
  - { match: { path: /gold }, upstream: echo, limits: [gold] }
  - { match: { path: /exempt }, upstream: echo, limits: [{ key: client_ip, quota: 1/1h }] }
",
    );
    let status = |path: &str, fields: &str| get_with(gateway.address(), path, fields).status;
    for naming in NAMING {
        let named = format!("{naming}x: 1\r\n");
        assert_eq!(status("/only", &named), 404, "{naming}");
        assert_eq!(status("/key", &named), 403, "{naming}");
    }
    assert_eq!(status("/only", "x: 1\r\n"), 200);
    assert_eq!(status("/key", "connection: close, te\r\nx: 1\r\n"), 200);
    let costly = "connection: x\r\nx: 2\r\n";
    assert_eq!([(); 2].map(|()| status("/cost", costly)), [200; 2]);
    for (path, value) in [("/stated", "9"), ("/gold", "gold"), ("/exempt", "exempt")] {
        let named = format!("connection: x\r\nx: {value}\r\n");
        assert_eq!([(); 2].map(|()| status(path, &named)), [200, 429], "{path}");
    }
}

#[test]
fn fields_that_route_frame_or_tell_of_the_client_stay() {
    let gateway = Gateway::start(
        "client_ip: { trusted_proxies: [127.0.0.0/8] }
routes: [{ upstream: echo, limits: [{ key: client_ip, quota: 1/1h }] }]
",
    );
    let named =
        "connection: host, x-forwarded-for, content-length, transfer-encoding, connection\r\n";
    for (client, expected) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.1", 429)] {
        let fields = format!("{named}x-forwarded-for: {client}\r\n");
        assert_eq!(get_with(gateway.address(), "/", &fields).status, expected);
    }
}

#[test]
fn explain_leaves_them_out_as_well() {
    let gateway = Gateway::start(
        "routes: [{ upstream: echo, access: { allow: [{ header: { x: \"1\" } }] } }]",
    );
    let path = gateway.config_path();
    let path = path.to_str().expect("a text");
    for (connection, expected) in [("close", "allowed"), ("x", "403")] {
        let connection = format!("connection: {connection}");
        let out = run(
            BINARY,
            &[
                "explain",
                "GET",
                "http://a/",
                "-H",
                "x: 1",
                "-H",
                &connection,
                "--config",
                path,
                "--expect",
                expected,
            ],
        );
        assert_eq!(out.code, Some(0), "{out}");
    }
}
