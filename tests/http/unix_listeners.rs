//! Clients over Unix sockets.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::support::client::{curl, get, run};
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::{DEADLINE, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// A configuration with a TCP listener, one at `path` with these settings, and `more`.
fn config(path: &Path, settings: &str, more: &str) -> String {
    format!(
        "workers: 2
listeners: [{{ address: \"127.0.0.1:0\" }}, {{ address: \"unix:{}\"{settings} }}]
shutdown: {{ delay: 0s }}
{more}",
        path.display()
    )
}

const ECHO: &str = "routes: [{ upstream: echo }]\n";

fn socket_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("api.sock")
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Sends a request, and reads until the end.
fn exchange(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // The peer has left some of the request unread.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        read => drop(read.expect("an answer")),
    }
    String::from_utf8(answer).expect("text")
}

fn is_served(path: &Path) -> bool {
    exchange(path, GET).starts_with("HTTP/1.1 200 OK\r\n")
}

#[test]
fn requests_are_served_over_a_unix_socket() {
    let dir = directory();
    let path = socket_in(&dir);
    let gateway = Gateway::start(&config(&path, "", ECHO));
    assert!((0..50).all(|_| is_served(&path)));
    let socket = path.to_str().expect("text");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let output = curl(&["--unix-socket", socket, version, "http://a/x"]);
        assert!(output.stdout.starts_with("GET /x HTTP/1.1\n"), "{output}");
    }
    assert_eq!(get(gateway.address(), "/").status, 200);
    let series = format!("sluicegate_connections{{listener=\"unix:{socket}\"}}");
    wait_for("the end of all connections", || {
        (gateway.metric(&series) == Some(0.0)).then_some(())
    });
}

#[test]
fn clients_are_one_unless_their_proxy_is_trusted() {
    let origin = Origin::plain();
    let limited = |trusted: &str| {
        format!(
            "client_ip: {{ trusted_proxies: [{trusted}] }}
routes: [{{ upstream: \"{}\", limits: [{{ key: client_ip, quota: 1/1h }}] }}]
exempt: [{{ cidr: 127.0.0.0/8 }}]
",
            origin.url()
        )
    };
    let status = |path: &Path, client: u8| {
        let field = format!("X-Forwarded-For: 192.0.2.{client}\r\nConnection");
        let answer = exchange(path, &GET.replace("Connection", &field));
        answer[9..12].parse::<u16>().expect("a status")
    };
    for (trusted, expected) in [("0.0.0.0/0", [200, 429, 429]), ("unix", [200, 200, 429])] {
        let dir = directory();
        let path = socket_in(&dir);
        let _gateway = Gateway::start(&config(&path, "", &limited(trusted)));
        origin.forget();
        assert_eq!([1, 2, 1].map(|client| status(&path, client)), expected);
        let requests = origin.requests();
        let (field, forwarded) = match trusted {
            "unix" => (Some("192.0.2.1"), None),
            _ => (None, Some("for=unknown;proto=http")),
        };
        assert_eq!(requests[0].header("x-forwarded-for"), field);
        assert_eq!(requests[0].header("forwarded"), forwarded);
    }
}

#[test]
fn a_header_of_the_proxy_protocol_is_required_if_asked_for() {
    let dir = directory();
    let path = socket_in(&dir);
    let _gateway = Gateway::start(&config(&path, ", proxy_protocol: true", ECHO));
    let header = "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\n";
    let answer = exchange(&path, &format!("{header}{GET}"));
    assert!(answer.contains("x-forwarded-for: 192.0.2.7\n"), "{answer}");
    assert_eq!(exchange(&path, GET), "");
}

#[test]
fn the_file_lives_as_long_as_its_process() {
    let dir = directory();
    let path = socket_in(&dir);
    let mut gateway = Gateway::start(&config(&path, "", ECHO));
    // A second process leaves the first in peace.
    let second = directory();
    let file = second.path().join("second.yaml");
    let listeners = config(&path, "", ECHO);
    fs::write(
        &file,
        format!("{listeners}admin: {{ address: 127.0.0.1:0 }}\n"),
    )
    .expect("a file");
    let output = run(
        env!("CARGO_BIN_EXE_sluicegate"),
        &["run", "--config", file.to_str().expect("text")],
    );
    let line = format!("something listens on unix:{} already", path.display());
    assert!(
        output.code != Some(0) && output.stderr.contains(&line),
        "{output}"
    );
    assert!(is_served(&path));
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    assert!(!path.exists());
}

#[test]
fn a_killed_process_leaves_a_file_that_the_next_replaces() {
    let dir = directory();
    let path = socket_in(&dir);
    let mut gateway = Gateway::start(&config(&path, "", ECHO));
    gateway.signal(Signal::KILL);
    gateway.wait();
    assert!(path.exists());
    let _next = Gateway::start(&config(&path, "", ECHO));
    assert!(is_served(&path));
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let dir = directory();
    let path = socket_in(&dir);
    fs::write(&path, "text").expect("a file");
    let file = dir.path().join("sluicegate.yaml");
    fs::write(
        &file,
        config(
            &path,
            "",
            &format!("admin: {{ address: \"127.0.0.1:0\" }}\n{ECHO}"),
        ),
    )
    .expect("a file");
    let arguments = ["run", "--config", file.to_str().expect("text")];
    let output = run(env!("CARGO_BIN_EXE_sluicegate"), &arguments);
    assert!(
        output.stderr.contains("isn't a socket; remove it"),
        "{output}"
    );
    assert_eq!(fs::read(&path).expect("it stays"), b"text");
}

#[test]
fn a_drain_serves_clients_that_are_connected() {
    let dir = directory();
    let path = socket_in(&dir);
    let mut gateway = Gateway::start(&config(&path, "", ECHO));
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx")
        .expect("it reads");
    let open = format!(
        "sluicegate_connections{{listener=\"unix:{}\"}}",
        path.display()
    );
    wait_for("the connection", || {
        (gateway.metric(&open) == Some(1.0)).then_some(())
    });
    gateway.signal(Signal::TERM);
    gateway.wait_for_log("draining");
    stream.write_all(b"y").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("xy"), "{answer}");
    assert!(gateway.wait().success());
}
