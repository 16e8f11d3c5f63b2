//! The admin listener, and errors that stop the start.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::support::client::{Connection, get, get_with, run};
use crate::support::gateway::{Gateway, with_free_ports};
use crate::support::wait_for;
use socket2::{Domain, Socket, Type};

const CONFIG: &str = "policies: { per-key: { key: \"header:x-key\", quota: 2/300d } }
routes:
  - { name: items, match: { path: \"/items/{id}\" }, upstream: echo, limits: [per-key] }
";

fn used() -> Gateway {
    let gateway = Gateway::start(CONFIG);
    for _ in 0..3 {
        get_with(
            gateway.address(),
            "/items/secret-path",
            "x-key: secret-key\r\n",
        );
    }
    get(gateway.address(), "/nowhere");
    gateway
}

#[test]
fn metrics_pass_promtool() {
    let gateway = used();
    let metrics = get(gateway.admin, "/metrics");
    assert!(
        metrics
            .expect_header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );

    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool is installed: ./scripts/test does");
    promtool
        .stdin
        .take()
        .expect("stdin is a pipe")
        .write_all(&metrics.body)
        .expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && complaints.is_empty(),
        "{complaints}\n{}",
        metrics.text()
    );
}

#[test]
fn metrics_count_decisions_and_contain_no_key() {
    let gateway = used();
    let decisions = |decision: &str| {
        gateway.metric(&format!(
            "sluicegate_limit_decisions_total{{policy=\"per-key\",route=\"items\",decision=\"{decision}\"}}"
        ))
    };
    // An answer is counted once its last byte is written, which its reader may notice earlier.
    for code in ["429", "404"] {
        let answers = format!("sluicegate_http_requests_total{{code=\"{code}\",method=\"GET\"}}");
        wait_for("the answer to be counted", || {
            gateway.metric(&answers).filter(|count| *count == 1.0)
        });
    }
    assert_eq!(decisions("allowed"), Some(2.0));
    assert_eq!(decisions("limited"), Some(1.0));
    let text = get(gateway.admin, "/metrics").text();
    for series in [
        "sluicegate_build_info{",
        "sluicegate_connections{",
        "process_resident_memory_bytes",
    ] {
        assert!(text.contains(series), "no {series}");
    }
    for secret in ["secret-key", "secret-path", "127.0.0.1:"] {
        let leaks = text
            .lines()
            .find(|line| line.contains(secret) && !line.contains("listener="));
        assert_eq!(leaks, None);
    }
}

#[test]
fn an_unknown_method_makes_no_series() {
    let gateway = Gateway::start(CONFIG);
    let mut connection = Connection::open(gateway.address());
    for number in 0..50 {
        connection.exchange(&format!(
            "INVENTED{number} /items/1 HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
    }
    assert!(!get(gateway.admin, "/metrics").text().contains("INVENTED"));
}

#[test]
fn clients_of_the_proxy_see_nothing_of_the_admin_listener() {
    let gateway = Gateway::start(CONFIG);
    assert_eq!(get(gateway.admin, "/livez").status, 200);
    assert_eq!(get(gateway.admin, "/readyz").status, 200);
    assert_eq!(get(gateway.admin, "/").status, 200);
    assert_eq!(get(gateway.admin, "/nothing").status, 404);
    let posted = Connection::open(gateway.admin)
        .exchange("POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(posted.status, 405);
    assert_eq!(
        get(gateway.address(), "/metrics").status,
        404,
        "clients see no metrics"
    );
}

/// Runs the binary until it exits.
fn fails_to_start(config: &str) -> String {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("sluicegate.yaml");
    std::fs::write(&path, with_free_ports(config)).expect("the directory is writable");
    let path = path.to_str().expect("a text path");
    let output = run(env!("CARGO_BIN_EXE_sluicegate"), &["run", "--config", path]);
    assert_eq!(output.code, Some(1), "{output}");
    output.stderr
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket");
    for config in [
        format!("admin: {{ address: \"{address}\" }}\nroutes: [{{ upstream: echo }}]\n"),
        format!("listeners: [{{ address: \"{address}\" }}]\nroutes: [{{ upstream: echo }}]\n"),
    ] {
        let said = fails_to_start(&config);
        assert!(
            said.contains(&address.to_string()) && said.contains("in use"),
            "{said}"
        );
    }
}

#[test]
fn a_bad_file_is_reported_with_its_line() {
    let said = fails_to_start("routes:\n  - upstream: echo\n    limitz: []\n");
    assert!(
        said.contains("sluicegate.yaml:5") && said.contains("limits"),
        "{said}"
    );
}

#[test]
fn requests_without_a_route_are_counted_by_reason() {
    let gateway = Gateway::start(&format!(
        "listeners: [ {{ address: \"127.0.0.1:0\", protocols: [http/1.1] }} ]
client: {{ max_head: 8KiB, timeouts: {{ head: 2s }} }}\n{CONFIG}"
    ));
    let long = "x".repeat(9_000);
    for (bytes, status, reason, count) in [
        ("hello\r\n\r\n", 400, "malformed", 1.0),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "malformed", 2.0),
        ("\u{16}\u{3}\u{1}\r\n\r\n", 400, "malformed", 3.0),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed", 4.0),
        (
            &format!("GET / HTTP/1.1\r\nHost: a\r\nx: {long}\r\n\r\n"),
            431,
            "head_too_large",
            1.0,
        ),
        (&format!("GET /{long}"), 431, "head_too_large", 2.0),
        ("GET / HTTP/1.1\r\nHost:", 408, "timeout", 1.0),
        ("G", 408, "timeout", 2.0),
    ] {
        let mut connection = Connection::open(gateway.address());
        if count > 1.0 {
            let first = connection.exchange("GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(first.status, 404, "{bytes:?}");
        }
        connection.send(bytes);
        let answer = connection.receive();
        assert_eq!(answer.status, status, "{bytes:?}");
        connection.finish_sending();
        connection.expect_closed();
        let series = format!(
            "sluicegate_bad_requests_total{{listener=\"{}\",reason=\"{reason}\"}}",
            gateway.address()
        );
        wait_for(&series, || {
            (gateway.metric(&series) == Some(count)).then_some(())
        });
    }

    // Neither is a request that is refused by us, nor a client that leaves in the middle of one.
    let mut connection = Connection::open(gateway.address());
    let refused = connection.exchange("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(refused.status, 400);
    let mut connection = Connection::open(gateway.address());
    connection.send("GET / HT");
    connection.finish_sending();
    connection.expect_closed();
    let metrics = get(gateway.admin, "/metrics").text();
    let counted = metrics
        .lines()
        .filter(|line| line.starts_with("sluicegate_bad_requests_total"));
    let values = counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    assert_eq!(values.sum::<f64>(), 8.0, "{metrics}");
}

/// Clients that each have sent half a head.
const FLOOD: usize = 5_000;

/// Raises the limit of open files of this process to its maximum.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit can be raised to the hard one");
}

#[test]
fn clients_that_send_half_a_head_give_way_to_probes() {
    raise_file_limit();
    let gateway = Gateway::start(CONFIG);
    let mut flood = Vec::with_capacity(FLOOD);
    for number in 0..FLOOD {
        let mut client = TcpStream::connect(gateway.admin).expect("the kernel has room");
        client
            .write_all(b"GET /livez HTTP/1.1\r\nHost:")
            .expect("sent");
        flood.push(client);
        if number % 500 == 499 {
            assert_eq!(get(gateway.admin, "/livez").status, 200);
        }
    }
    assert_eq!(get(gateway.admin, "/readyz").status, 200);
    // The oldest gave way at once. One that had waited in vain for its time would have had an answer, 408.
    let gave_way = |client: &mut TcpStream| {
        client.set_nonblocking(true).expect("a socket");
        match client.read(&mut [0]) {
            Ok(length) => length == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    };
    assert!(flood.iter_mut().any(gave_way));
}

/// A client that asks for more responses than socket buffers hold, and reads none.
fn never_reads(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a socket option");
    socket
        .connect(&address.into())
        .expect("the kernel has room");
    let mut client = TcpStream::from(socket);
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client
        .write_all(request.repeat(1000).as_bytes())
        .expect("sent");
    client
}

/// Four times as many clients as the admin listener serves at once.
#[test]
fn clients_that_read_no_answer_give_way_to_probes() {
    let gateway = Gateway::start(CONFIG);
    let _flood: Vec<_> = (0..1024).map(|_| never_reads(gateway.admin)).collect();
    assert_eq!(get(gateway.admin, "/livez").status, 200);
    assert_eq!(get(gateway.admin, "/readyz").status, 200);
    gateway.wait_for_log("max_connections reached: an older one gives way");
}

/// 256 connections of HTTP/2 may ask for 25,600 responses at once.
#[test]
fn the_admin_listener_speaks_http1_alone() {
    let gateway = Gateway::start(CONFIG);
    let mut connection = Connection::open(gateway.admin);
    connection.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(connection.receive().status, 400);
}

#[test]
fn the_admin_listener_waits_for_a_head_for_less_than_nine_seconds() {
    let gateway = Gateway::start(&format!("client: {{ timeouts: {{ head: 9s }} }}\n{CONFIG}"));
    let mut clients = TcpStream::connect(gateway.address()).expect("it listens");
    let mut admin = Connection::open(gateway.admin);
    clients.write_all(b"GET / HTTP/1.1\r\nHost:").expect("sent");
    admin.send("GET /livez HTTP/1.1\r\nHost:");
    assert_eq!(admin.receive().status, 408);
    clients.set_nonblocking(true).expect("a socket");
    let error = clients.read(&mut [0]).expect_err("it is waited for");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}
