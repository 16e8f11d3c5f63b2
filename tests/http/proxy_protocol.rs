//! Clients behind a proxy that speaks the PROXY protocol, version 1 or 2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::client::{Connection, curl, get};
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::tls;
use crate::support::wait_for;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Version 1, from a client at 192.0.2.7.
const HEADER: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n";

/// A proxy whose only trusted proxies are 127.0.0.1 and 10.0.0.0/8.
fn start(origin: &Origin, more: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
listeners: [{{ address: \"127.0.0.1:0\", proxy_protocol: true }}]
client_ip: {{ trusted_proxies: [127.0.0.1, 10.0.0.0/8] }}
routes: [{{ upstream: \"{}\" }}]
{more}",
        origin.url()
    ))
}

fn bad_preambles(gateway: &Gateway) -> f64 {
    let listener = gateway.address();
    let labels = format!("listener=\"{listener}\",reason=\"bad_preamble\"");
    let series = format!("sluicegate_connections_refused_total{{{labels}}}");
    gateway.metric(&series).expect("the listener has it")
}

/// Version 2: PROXY over IPv4 from 192.0.2.9, with the TLV of an unknown type.
fn version_2(command: u8) -> Vec<u8> {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let addresses = [192, 0, 2, 9, 198, 51, 100, 1, 0, 80, 1, 187];
    let fixed = [command, 0x11, 0, 16];
    [&signature[..], &fixed, &addresses, &[0xe0, 0, 1, 7]].concat()
}

/// The `X-Forwarded-For` of a request that follows these bytes.
fn forwarded_for(gateway: &Gateway, origin: &Origin, begin: &[u8], fields: &str) -> String {
    origin.forget();
    let mut client = Connection::open(gateway.address());
    client.send(
        [
            begin,
            format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes(),
        ]
        .concat(),
    );
    assert_eq!(client.receive().status, 200);
    // The header stands for the connection, not for one request.
    assert_eq!(client.exchange(GET).status, 200);
    let requests = origin.requests();
    let forwarded = |request: usize| requests[request].header("x-forwarded-for");
    assert!(fields.contains("Forwarded") || forwarded(0) == forwarded(1));
    forwarded(0).expect("it is written").to_owned()
}

#[test]
fn a_header_names_the_client() {
    let origin = Origin::plain();
    let gateway = start(&origin, "");
    let from = |begin: &[u8], fields: &str| forwarded_for(&gateway, &origin, begin, fields);
    let port = || {
        origin.requests()[0]
            .header("x-forwarded-port")
            .map(str::to_owned)
    };
    assert_eq!(from(HEADER.as_bytes(), ""), "192.0.2.7");
    assert_eq!(port().as_deref(), Some("443"));
    assert_eq!(from(&version_2(0x21), ""), "192.0.2.9");
    assert_eq!(port().as_deref(), Some("443"));
    let v6 = "PROXY TCP6 2001:db8::7 ::1 1 2\r\n";
    assert_eq!(from(v6.as_bytes(), ""), "2001:db8::7");
    let mapped = "PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n";
    assert_eq!(from(mapped.as_bytes(), ""), "192.0.2.7");
    // The proxy's own connections: a health check, and an unknown client.
    assert_eq!(from(&version_2(0x20), ""), "127.0.0.1");
    assert_eq!(from(b"PROXY UNKNOWN\r\n", ""), "127.0.0.1");
    assert_eq!(port().as_deref(), Some("80"));
    // The client's fields are believed if the client is a trusted proxy, too.
    let claim = "X-Forwarded-For: 203.0.113.5\r\n";
    assert_eq!(from(HEADER.as_bytes(), claim), "192.0.2.7");
    let trusted = "PROXY TCP4 10.0.0.9 198.51.100.1 1 2\r\n";
    assert_eq!(from(trusted.as_bytes(), claim), "203.0.113.5, 10.0.0.9");
    assert_eq!(bad_preambles(&gateway), 0.0);
}

#[test]
fn limits_count_the_client_of_the_header() {
    let gateway = Gateway::start(
        "workers: 1
listeners: [{ address: \"127.0.0.1:0\", proxy_protocol: true }]
client_ip: { trusted_proxies: [127.0.0.0/8] }
routes: [{ upstream: echo, limits: [{ key: client_ip, quota: 1/1h }] }]
",
    );
    let status = |client: u8| {
        let mut connection = Connection::open(gateway.address());
        let header = format!("PROXY TCP4 192.0.2.{client} 198.51.100.1 1 2\r\n");
        connection.exchange(&format!("{header}{GET}")).status
    };
    assert_eq!([1, 2, 1, 2, 3].map(status), [200, 200, 429, 429, 200]);
}

#[test]
fn a_header_may_come_byte_by_byte() {
    let origin = Origin::plain();
    let gateway = start(&origin, "");
    for begin in [HEADER.as_bytes().to_vec(), version_2(0x21)] {
        let mut client = Connection::open(gateway.address());
        for byte in &begin {
            client.send([*byte]);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(client.exchange(GET).status, 200);
    }
}

#[test]
fn other_peers_are_plain_clients() {
    let origin = Origin::plain();
    let config = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", proxy_protocol: true }}]
client_ip: {{ trusted_proxies: [10.0.0.0/8] }}
routes: [{{ upstream: \"{}\" }}]
",
        origin.url()
    );
    let gateway = Gateway::start(&config);
    assert_eq!(get(gateway.address(), "/").status, 200);
    let mut client = Connection::open(gateway.address());
    assert_eq!(client.exchange(&format!("{HEADER}{GET}")).status, 400);
    assert_eq!(bad_preambles(&gateway), 0.0);
    // A reload makes the peer a trusted proxy.
    gateway.reload(&config.replace("10.0.0.0/8", "127.0.0.1"));
    let mut client = Connection::open(gateway.address());
    assert_eq!(client.exchange(&format!("{HEADER}{GET}")).status, 200);
}

#[test]
fn bytes_that_are_no_header_close_the_connection() {
    let origin = Origin::plain();
    let gateway = start(&origin, "");
    let mut checksum = version_2(0x21);
    checksum[15] += 7;
    checksum.extend([3, 0, 4, 1, 2, 3, 4]);
    let bad: [&[u8]; 8] = [
        GET.as_bytes(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 12345\r\n",
        b"PROXY TCP9 192.0.2.7 198.51.100.1 12345 443\r\n",
        &[&b"PROXY UNKNOWN "[..], &[b'x'; 200]].concat(),
        &version_2(0x22),
        &version_2(0x31),
        &checksum,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaa",
    ];
    for (index, bytes) in bad.into_iter().enumerate() {
        let mut client = Connection::open(gateway.address());
        client.send(bytes);
        client.expect_closed();
        wait_for("the count", || {
            (bad_preambles(&gateway) == (index + 1) as f64).then_some(())
        });
    }
    // A header that ends early is one; a peer that only connects is none.
    let client = Connection::open(gateway.address());
    client.finish_sending();
    let mut client = Connection::open(gateway.address());
    client.send("PROXY TCP4 1");
    client.finish_sending();
    client.expect_closed();
    wait_for("the count", || {
        (bad_preambles(&gateway) == 9.0).then_some(())
    });
    assert!(origin.requests().is_empty());
    assert!(gateway.log().lines().count() < 10, "{}", gateway.log());
}

#[test]
fn a_slow_header_is_bounded_by_the_head_time_out() {
    let origin = Origin::plain();
    let gateway = start(&origin, "client: { timeouts: { head: 500ms } }\n");
    for begin in ["", "PROXY TCP4 192.0.2.7 "] {
        let mut client = Connection::open(gateway.address());
        client.send(begin);
        client.expect_closed();
    }
    // Header and head share the time.
    let mut client = Connection::open(gateway.address());
    client.send(HEADER);
    client.expect_closed();
}

#[test]
fn a_drain_ends_connections_within_their_header() {
    let origin = Origin::plain();
    let mut gateway = start(
        &origin,
        "client: { timeouts: { head: 1h } }\nshutdown: { delay: 0s, deadline: 1h }\n",
    );
    let mut waiting = Connection::open(gateway.address());
    waiting.send("PROXY TCP4 192.0.2.7 ");
    // It is accepted before the drain.
    assert_eq!(curl_through(&gateway, &[]), "200");
    gateway.signal(Signal::TERM);
    waiting.expect_closed();
    assert!(gateway.wait().success());
}

/// The status that curl gets behind a header of its own.
fn curl_through(gateway: &Gateway, arguments: &[&str]) -> String {
    let url = gateway.url("/");
    let common = [
        "--haproxy-protocol",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ];
    curl(&[&common, arguments, &[&url]].concat()).stdout
}

#[test]
fn curl_speaks_http_1_and_2_behind_its_header() {
    let origin = Origin::plain();
    let gateway = start(&origin, "");
    assert_eq!(curl_through(&gateway, &["--http1.1"]), "200");
    assert_eq!(curl_through(&gateway, &["--http2-prior-knowledge"]), "200");
}

#[test]
fn tls_follows_the_header() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("a temporary directory");
    tls::certify(dir.path(), "api", &["api.example.com"]);
    let file = |kind: &str| dir.path().join(format!("api.{kind}"));
    let gateway = Gateway::start(&format!(
        "listeners:
  - address: 127.0.0.1:0
    proxy_protocol: true
    tls: {{ certificates: [{{ certificate: {}, key: {} }}] }}
client_ip: {{ trusted_proxies: [127.0.0.1] }}
routes: [{{ upstream: \"{}\" }}]
",
        file("pem").display(),
        file("key").display(),
        origin.url()
    ));
    let certificate = file("pem");
    let mut session = tls::connect(gateway.address(), "api.example.com", &certificate, &[]);
    let plain: &mut TcpStream = &mut session.sock;
    plain
        .write_all(&version_2(0x21))
        .expect("a connected socket");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    session.write_all(request.as_bytes()).expect("a session");
    let mut answer = String::new();
    session.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let request = origin.only_request();
    assert_eq!(request.header("x-forwarded-for"), Some("192.0.2.9"));
    let forwarded = Some("for=192.0.2.9;proto=https");
    assert_eq!(request.header("forwarded"), forwarded);
    let url = gateway.url("/").replace("http:", "https:");
    let arguments = [
        "--haproxy-protocol",
        "-k",
        "-o",
        "/dev/null",
        "-w",
        "%{http_version}",
        &url,
    ];
    assert_eq!(curl(&arguments).stdout, "2");
}

/// One proxy behind another, over TCP and over a Unix socket.
#[test]
fn the_header_of_another_instance_names_the_client() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let socket = dir.path().join("inner.sock");
    let inner = Gateway::start(&format!(
        "listeners:
  - {{ address: \"127.0.0.1:0\", proxy_protocol: true }}
  - {{ address: \"unix:{}\", proxy_protocol: true }}
client_ip: {{ trusted_proxies: [127.0.0.1] }}
routes: [{{ upstream: \"{}\" }}]
",
        socket.display(),
        origin.url()
    ));
    let unix = format!("unix:{}", socket.display());
    for endpoint in [inner.url("").trim_end_matches('/'), &unix] {
        origin.forget();
        let outer = Gateway::start(&format!(
            "upstreams: {{ inner: {{ endpoints: [\"{endpoint}\"], send_proxy_protocol: true }} }}
routes: [{{ upstream: inner }}]
"
        ));
        let url = outer.url("/");
        let output = curl(&["--interface", "127.0.0.2", "-w", "%{http_code}", &url]);
        assert!(output.stdout.ends_with("200"), "{output}");
        let request = origin.only_request();
        assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.2"));
    }
    assert_eq!(bad_preambles(&inner), 0.0);
}
