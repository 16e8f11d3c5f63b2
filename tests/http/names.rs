//! Endpoints by name: the proxy sees a hosts file of the test's, by a mount namespace of its own.
//! A system that grants no namespace runs none of these tests.

use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::thread;

use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::{tls, wait_for};

/// Starts the proxy where `/etc/hosts` has these lines. It forwards to `http://app.test:PORT`.
/// `None` if the system grants no namespace.
fn start(hosts: &[&str], port: u16) -> Option<Gateway> {
    let endpoint = format!("endpoints: [\"http://app.test:{port}\"], resolve_every: 1s");
    start_with(hosts, &endpoint)
}

/// As [`start`], with this upstream.
fn start_with(hosts: &[&str], upstream: &str) -> Option<Gateway> {
    start_where("/etc/hosts", hosts, upstream)
}

/// As [`start_with`], where this file has these lines.
fn start_where(file: &str, hosts: &[&str], upstream: &str) -> Option<Gateway> {
    let mut probe = Command::new("unshare");
    probe.args(["--map-root-user", "--mount", "true"]);
    let probed = probe.stderr(Stdio::null()).status();
    if !probed.is_ok_and(|status| status.success()) {
        eprintln!("not tested: `unshare --map-root-user --mount` is not permitted");
        return None;
    }
    let inner = format!(r#"mount --bind hosts {file} && exec "$0" "$@""#);
    let commands = format!(
        r#"printf '{}' > hosts; exec unshare --map-root-user --mount sh -c '{inner}' "$0" "$@""#,
        hosts.join("\n")
    );
    let config = format!(
        "workers: 1
upstreams: {{ app: {{ {upstream} }} }}
routes: [{{ upstream: app }}]
"
    );
    Some(Gateway::start_after(&commands, &config))
}

/// Changes the hosts file in place.
fn set_hosts(gateway: &Gateway, hosts: &[&str]) {
    let path = gateway.dir().join("hosts");
    fs::write(path, hosts.join("\n")).expect("the directory is writable");
}

/// The value of a series of the endpoint.
fn metric(gateway: &Gateway, name: &str, port: u16) -> f64 {
    let labels = format!("{{upstream=\"app\",endpoint=\"app.test:{port}\"}}");
    let value = gateway.metric(&format!("sluicegate_upstream_{name}{labels}"));
    value.unwrap_or(0.0)
}

/// Two origins at one port of 127.0.0.2 and 127.0.0.3.
fn origins() -> (Origin, Origin, u16) {
    let first = Origin::plain_at(([127, 0, 0, 2], 0).into());
    let port = first.address().port();
    let second = Origin::plain_at(([127, 0, 0, 3], port).into());
    (first, second, port)
}

#[test]
fn all_addresses_of_a_name_take_turns() {
    let (first, second, port) = origins();
    let Some(gateway) = start(&["127.0.0.2 app.test", "127.0.0.3 app.test"], port) else {
        return;
    };
    for _ in 0..8 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!([first.requests().len(), second.requests().len()], [4, 4]);
    assert_eq!(metric(&gateway, "hosts", port), 2.0);
    assert_eq!(metric(&gateway, "requests_total", port), 8.0, "one series");
}

/// Names in certificates, and in the handshake, have no dot at the end (RFC 6066 section 3).
#[test]
fn a_dot_at_the_end_of_a_name_is_for_the_resolver() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tls::certify(dir.path(), "other", &["other.test"]);
    tls::certify(dir.path(), "app", &["app.test"]);
    let path = |name: &str| dir.path().join(name).display().to_string();
    let certificate = |name: &str| {
        let (certificate, key) = (path(&format!("{name}.pem")), path(&format!("{name}.key")));
        format!("{{ certificate: {certificate}, key: {key} }}")
    };
    // The second certificate is for those that ask for its name.
    let secure = Gateway::start(&format!(
        "listeners: [{{ address: 127.0.0.1:0, tls: {{ certificates: [{}, {}] }} }}]
routes: [{{ match: {{ hosts: [app.test.] }}, upstream: echo }}]
",
        certificate("other"),
        certificate("app")
    ));
    let (port, ca) = (secure.address().port(), path("app.pem"));
    let upstream = format!(
        "endpoints: [\"https://app.test.:{port}\"], tls: {{ ca: {ca} }}, preserve_host: false"
    );
    let Some(gateway) = start_with(&["127.0.0.1 app.test."], &upstream) else {
        return;
    };
    let answer = get(gateway.address(), "/");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_name_that_moves_is_followed_and_its_old_connections_end() {
    let (first, second, port) = origins();
    let Some(gateway) = start(&["127.0.0.2 app.test"], port) else {
        return;
    };
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert_eq!(metric(&gateway, "connections", port), 1.0, "it is kept");
    set_hosts(&gateway, &["127.0.0.3 app.test"]);
    gateway.wait_for_log("the addresses of the name changed");
    wait_for("requests at the new address", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (!second.requests().is_empty()).then_some(())
    });
    let before = first.requests().len();
    for _ in 0..4 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(first.requests().len(), before);
    wait_for("the end of the old connection", || {
        (metric(&gateway, "connections", port) == 1.0).then_some(())
    });
}

#[test]
fn the_last_known_address_serves_while_the_name_does_not_resolve() {
    let (first, _, port) = origins();
    let Some(gateway) = start(&["127.0.0.2 app.test"], port) else {
        return;
    };
    assert_eq!(get(gateway.address(), "/").status, 200);
    for broken in ["127.0.0.3 other.test", "0.0.0.0 app.test"] {
        let failures = metric(&gateway, "lookup_failures_total", port);
        set_hosts(&gateway, &[broken]);
        wait_for("a lookup that fails", || {
            assert_eq!(get(gateway.address(), "/").status, 200);
            (metric(&gateway, "lookup_failures_total", port) > failures).then_some(())
        });
    }
    gateway.wait_for_log("the name does not resolve");
    assert_eq!(first.connections(), 1, "it is kept");
    set_hosts(&gateway, &["127.0.0.2 app.test"]);
    gateway.wait_for_log("the name resolves again");
}

#[test]
fn a_name_with_a_dead_address_serves_every_request() {
    let origin = Origin::plain_at(([127, 0, 0, 2], 0).into());
    let port = origin.address().port();
    let Some(gateway) = start(&["127.0.0.2 app.test", "127.0.0.3 app.test"], port) else {
        return;
    };
    for _ in 0..8 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(origin.requests().len(), 8);
}

/// A name server that has `app.test` at 127.0.0.1, and loses each query for IPv6. Returns its address;
/// `None` if this user may not listen at port 53.
fn name_server() -> Option<String> {
    let address = "127.53.53.53";
    let socket = match UdpSocket::bind((address, 53)) {
        Ok(socket) => socket,
        Err(error) => {
            eprintln!("not tested: {address}:53: {error}");
            return None;
        }
    };
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query) {
            // A head of twelve bytes, then the name, a type and a class (RFC 1035 section 4.1).
            let name = query[12..length].iter().position(|&byte| byte == 0);
            let end = 12 + name.expect("a name ends") + 1;
            if query[end..end + 2] != [0, 1] {
                continue;
            }
            let is_known = query[12..end] == *b"\x03app\x04test\0";
            let code = if is_known { 0 } else { 3 };
            let counts = [0, 1, 0, u8::from(is_known), 0, 0, 0, 0];
            let head = [&query[..2], &[0x81, 0x80 | code], &counts].concat();
            let answer = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1];
            let answer = if is_known { &answer[..] } else { &[] };
            let response = [&head[..], &query[12..end + 4], answer].concat();
            socket.send_to(&response, client).expect("sends");
        }
    });
    Some(address.to_owned())
}

#[test]
fn a_name_server_that_loses_queries_for_ipv6_hides_no_address() {
    let origin = Origin::plain();
    let port = origin.address().port();
    let Some(server) = name_server() else {
        return;
    };
    let upstream = format!("endpoints: [\"http://app.test:{port}\"], timeouts: {{ connect: 4s }}");
    let lines = [
        format!("nameserver {server}"),
        "options timeout:20 attempts:1".to_owned(),
    ];
    let lines = lines.each_ref().map(String::as_str);
    let Some(gateway) = start_where("/etc/resolv.conf", &lines, &upstream) else {
        return;
    };
    assert_eq!(get(gateway.address(), "/").status, 200);
}
