//! The end of the process: readiness first, then no new connection, then the requests in flight, then exit 0.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::frames::{
    END_HEADERS, Frame, GOAWAY, HEADERS, Http2, field, frame, get_block, request,
};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, ok};
use crate::support::{now, wait_for};
use rustix::process::Signal;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn config(origin: &Origin, shutdown: &str) -> String {
    format!(
        "shutdown: {shutdown}\nroutes: [{{ upstream: \"{}\" }}]\n",
        origin.url()
    )
}

/// An origin that responds after `pause`.
fn slow(pause: Duration) -> Origin {
    Origin::start(move |_| [vec![Step::Pause(pause)], ok("late")].concat())
}

#[test]
fn a_request_in_flight_is_finished_and_the_process_exits_with_0() {
    let origin = slow(Duration::from_millis(700));
    let mut gateway = Gateway::start(&config(&origin, "{ delay: 0s, deadline: 20s }"));
    let mut connection = Connection::open(gateway.address());
    let mut idle = Connection::open(gateway.address());
    connection.send(GET);
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });

    gateway.signal(Signal::TERM);
    idle.expect_closed();
    assert_eq!(connection.receive().text(), "late");
    connection.expect_closed();
    assert!(gateway.wait().success());
}

#[test]
fn readiness_ends_first_and_clients_are_served_during_the_delay() {
    let origin = Origin::plain();
    let mut gateway = Gateway::start(&config(&origin, "{ delay: 2s, deadline: 20s }"));
    gateway.signal(Signal::TERM);
    wait_for("unreadiness", || {
        (get(gateway.admin, "/readyz").status == 503).then_some(())
    });
    assert_eq!(get(gateway.admin, "/livez").status, 200, "it is alive");
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert!(gateway.wait().success());
    assert!(TcpStream::connect(gateway.address()).is_err());
}

#[test]
fn a_hanging_request_is_cut_off_at_the_deadline() {
    let origin = Origin::start(|_| vec![Step::Hang]);
    let mut gateway = Gateway::start(&config(&origin, "{ delay: 0s, deadline: 500ms }"));
    let mut connection = Connection::open(gateway.address());
    connection.send(GET);
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    let told = now();
    gateway.signal(Signal::TERM);
    assert_eq!(connection.receive().status, 503);
    gateway.wait();
    let took = told.elapsed();
    assert!(
        (Duration::from_millis(350)..Duration::from_secs(5)).contains(&took),
        "{took:?}"
    );
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let origin = Origin::start(|_| vec![Step::Hang]);
    let mut gateway = Gateway::start(&config(&origin, "{ delay: 1h, deadline: 1h }"));
    let mut connection = Connection::open(gateway.address());
    connection.send(GET);
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    gateway.signal(Signal::TERM);
    wait_for("unreadiness", || {
        (get(gateway.admin, "/readyz").status == 503).then_some(())
    });
    assert!(gateway.is_running());
    gateway.signal(Signal::TERM);
    gateway.wait();
}

#[test]
fn other_signals_do_not_end_the_process() {
    let origin = Origin::plain();
    let mut gateway = Gateway::start(&config(&origin, "{ delay: 0s, deadline: 20s }"));
    gateway.signal(Signal::USR1);
    gateway.wait_for_log("SIGUSR1: the access log is opened again");
    gateway.signal(Signal::HUP);
    wait_for("the reload", || {
        (gateway.reloads("success") > 0).then_some(())
    });
    assert_eq!(get(gateway.address(), "/").status, 200);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
}

#[test]
fn sigquit_drains_as_in_nginx() {
    let origin = slow(Duration::from_millis(300));
    let mut gateway = Gateway::start(&config(&origin, "{ delay: 0s, deadline: 20s }"));
    let mut connection = Connection::open(gateway.address());
    connection.send(GET);
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    gateway.signal(Signal::QUIT);
    assert_eq!(connection.receive().text(), "late");
    assert!(gateway.wait().success());
}

#[test]
fn ctrl_c_does_not_wait_for_load_balancers() {
    let origin = slow(Duration::from_millis(300));
    let mut gateway = Gateway::start(&config(&origin, "{ delay: 1h, deadline: 20s }"));
    let mut connection = Connection::open(gateway.address());
    connection.send(GET);
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    gateway.signal(Signal::INT);
    assert_eq!(connection.receive().text(), "late");
    assert!(gateway.wait().success());
}

#[test]
fn requests_that_wait_are_answered_before_the_deadline() {
    let origin = Origin::start(|_| vec![Step::Hang]);
    let mut gateway = Gateway::start(&format!(
        "workers: 1
shutdown: {{ delay: 0s, deadline: 2s }}
policies:
  paced: {{ key: constant, algorithm: leaky_bucket, quota: 1/1h, queue: 5, max_wait: 1h }}
  single: {{ key: constant, algorithm: concurrency, max: 1, queue: 5, max_wait: 1h }}
access_log: {{ path: access.log, format: json }}
routes:
  - {{ match: {{ path: /paced }}, upstream: \"{url}\", limits: [paced] }}
  - {{ match: {{ path: /single }}, upstream: \"{url}\", limits: [single] }}
  - {{ upstream: \"{url}\" }}
",
        url = origin.url()
    ));
    let paths = ["/paced", "/paced", "/single", "/single", "/"];
    let mut waiting: Vec<_> = paths
        .iter()
        .map(|path| {
            let mut connection = Connection::open(gateway.address());
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            connection
        })
        .collect();
    let mut http2 = Http2::open(gateway.address());
    http2.send(&request(1, &get_block()));
    wait_for("the requests that do not queue", || {
        (origin.requests().len() == 4).then_some(())
    });
    for policy in ["paced", "single"] {
        let series = format!("sluicegate_limit_waiting{{policy=\"{policy}\"}}");
        wait_for("the queue", || {
            (gateway.metric(&series) == Some(1.0)).then_some(())
        });
    }
    gateway.signal(Signal::TERM);
    for connection in &mut waiting {
        let answer = connection.receive();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
        connection.expect_closed();
    }
    let frames: Vec<_> = http2.frames().collect();
    assert!(
        frames.iter().any(|frame| frame.kind == GOAWAY),
        "{frames:?}"
    );
    let statuses: Vec<_> = frames.iter().filter_map(Frame::status).collect();
    assert_eq!(statuses, [503]);
    assert!(gateway.wait().success());
    let log = fs::read_to_string(gateway.dir().join("access.log")).expect("a log");
    assert_eq!(log.matches("drain_deadline").count(), 6, "{log}");
}

/// An origin that begins its answer before it has a request's body, and ends none but that of `/whole`.
fn endless() -> Origin {
    Origin::raw(|stream| {
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let target = lines.next().unwrap_or_default();
        let is_upgrade = lines
            .take_while(|line| !line.is_empty())
            .any(|line| line.to_ascii_lowercase().starts_with("upgrade:"));
        let answer = match () {
            () if is_upgrade => {
                "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhalf"
            }
            () if target.contains("/whole") => {
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nhalf"
            }
            () => "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf",
        };
        _ = (&stream).write_all(answer.as_bytes());
        _ = (&stream).read_to_end(&mut Vec::new());
    })
}

#[test]
fn what_the_deadline_cuts_is_no_success_in_the_log_and_not_the_upstreams_fault() {
    let origin = endless();
    let mut gateway = Gateway::start(&format!(
        "workers: 1
shutdown: {{ delay: 0s, deadline: 1s }}
access_log: {{ path: access.log, format: json }}
routes:
  - {{ match: {{ path: /echo }}, upstream: echo }}
  - {{ upstream: \"{}\", upgrades: any }}
",
        origin.url()
    ));
    let heads = [
        ("GET /", "", 200),
        ("POST /", "Content-Length: 10\r\n", 200),
        ("POST /echo", "Content-Length: 10\r\n", 200),
        ("GET /", "Connection: upgrade\r\nUpgrade: echo\r\n", 101),
    ];
    assert_eq!(get(gateway.address(), "/whole").text(), "half");
    let _open = heads.map(|(line, fields, status)| {
        let mut connection = Connection::open(gateway.address());
        connection.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let expected = format!("HTTP/1.1 {status}");
        let begins = connection.read_exactly(expected.len());
        assert_eq!(String::from_utf8_lossy(&begins), expected, "{line}");
        connection
    });
    // On a connection of its own each: one answer is read.
    let mut http2 = [request(1, &get_block()), {
        let post = [&[0x83, 0x86, 0x84][..], &field(":authority", "a")].concat();
        frame(HEADERS, END_HEADERS, 1, &post)
    }]
    .map(|request| {
        let mut connection = Http2::open(gateway.address());
        connection.send(&request);
        let head = connection.frames().find(|frame| frame.stream == 1);
        assert_eq!(head.as_ref().and_then(Frame::status), Some(200), "{head:?}");
        connection
    });
    gateway.signal(Signal::TERM);
    http2.iter_mut().for_each(Http2::drain);
    gateway.wait();
    let log = fs::read_to_string(gateway.dir().join("access.log")).expect("a log");
    let (cut, whole): (Vec<&str>, Vec<&str>) = log
        .lines()
        .partition(|line| line.contains("\"error\":\"drain_deadline\""));
    assert_eq!(cut.len(), 6, "{log}");
    assert_eq!(whole.len(), 1, "{log}");
    assert!(whole[0].contains("/whole") && !whole[0].contains("\"error\""));
    let log = gateway.log();
    assert!(!log.contains("the endpoint fails"), "{log}");
}
