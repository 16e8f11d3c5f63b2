//! Connections are shared: one client leaves room for others, idle connections give way, and none
//! lasts forever.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, connect_from, get};
use crate::support::frames::{GOAWAY, Http2, PING, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, ok};
use crate::support::{now, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// The status line and the fields of a response; `None` if the connection is closed instead.
fn exchange(stream: &mut TcpStream) -> Option<String> {
    stream.write_all(GET.as_bytes()).ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            Ok(_) => return None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no response in time: {error}"),
        }
    }
    let head = String::from_utf8(head).expect("text");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a number"));
    stream.read_exact(&mut vec![0; length]).expect("the body");
    Some(head)
}

fn metric(gateway: &Gateway, family: &str, more: &str) -> f64 {
    let listener = gateway.address();
    let series = format!("sluicegate_{family}{{listener=\"{listener}\"{more}}}");
    gateway.metric(&series).unwrap_or(0.0)
}

fn wait_for_open(gateway: &Gateway, count: usize) {
    wait_for("the connections", || {
        (metric(gateway, "connections", "") == count as f64).then_some(())
    });
}

/// An attacker whose requests are all refused takes every connection that it can get, and goes on.
/// Another client waited until the attacker's keep-alive ended.
#[test]
fn refused_clients_keep_nobody_out() {
    let gateway = Gateway::start(
        "workers: 2
client: { max_connections: 50, max_connections_per_client: 50 }
routes:
  - { match: { path: / }, upstream: echo, limits: [{ key: client_ip, quota: 10/1h }] }
",
    );
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut stream = connect_from(3, gateway.address());
                    while !done.load(Ordering::Relaxed) && exchange(&mut stream).is_some() {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        wait_for("the attack", || {
            (metric(&gateway, "connections", "") >= 44.0).then_some(())
        });
        let begun = now();
        for _ in 0..5 {
            // Each connects anew, and is no longer idle when it has asked.
            let answer = wait_for("an answer", || {
                exchange(&mut connect_from(2, gateway.address()))
            });
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn one_client_leaves_room_for_others() {
    let origin = Origin::start(|request| match &*request.target {
        "/hang" => vec![Step::Hang],
        _ => ok("ok"),
    });
    let gateway = Gateway::start(&format!(
        "workers: 2
client: {{ max_connections: 50 }}
routes: [{{ upstream: \"{}\" }}]
",
        origin.url()
    ));
    // Three quarters of 50.
    let mut held: Vec<_> = (0..38)
        .map(|_| connect_from(3, gateway.address()))
        .collect();
    for stream in &mut held {
        stream
            .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("it reads");
    }
    wait_for_open(&gateway, 38);
    for _ in 0..3 {
        assert_eq!(exchange(&mut connect_from(3, gateway.address())), None);
    }
    let refused = metric(
        &gateway,
        "connections_refused_total",
        ",reason=\"max_per_client\"",
    );
    assert_eq!(refused, 3.0);
    gateway.wait_for_log("max_connections_per_client reached");
    assert!(exchange(&mut connect_from(2, gateway.address())).is_some());
    drop(held.pop());
    wait_for("a connection for the client", || {
        exchange(&mut connect_from(3, gateway.address()))
    });
}

/// Proxies carry many clients, which their headers tell apart.
#[test]
fn trusted_proxies_are_no_clients() {
    let gateway = Gateway::start(
        "listeners: [{ address: \"127.0.0.1:0\", proxy_protocol: true }]
client: { max_connections_per_client: 2 }
client_ip: { trusted_proxies: [127.0.0.1] }
routes: [{ upstream: echo }]
",
    );
    let open = |client: u8| {
        let mut connection = Connection::open(gateway.address());
        connection.send(format!(
            "PROXY TCP4 192.0.2.{client} 192.0.2.1 1 2\r\n{GET}"
        ));
        connection
    };
    let mut served: Vec<_> = [1, 1, 2, 2, 3].map(open).into();
    for connection in &mut served {
        assert_eq!(connection.receive().status, 200);
    }
    open(1).expect_closed();
    // Peers that are no proxies count by themselves.
    let direct = [(); 2].map(|()| connect_from(9, gateway.address()));
    assert!(
        direct
            .into_iter()
            .all(|mut stream| exchange(&mut stream).is_some())
    );
}

#[test]
fn the_oldest_idle_connection_gives_way() {
    let gateway = Gateway::start(
        "workers: 1
client: { max_connections: 10, max_connections_per_client: 10 }
routes: [{ upstream: echo }]
",
    );
    let address = gateway.address();
    let mut idle: Vec<_> = (0..9)
        .map(|_| {
            let mut stream = connect_from(2, address);
            assert!(exchange(&mut stream).is_some());
            stream
        })
        .collect();
    // The first is used again: the second is now the oldest.
    assert!(exchange(&mut idle[0]).is_some());
    let ready = get(gateway.admin, "/readyz");
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.text(),
        "ready\nconnections: 9 of 10, idle ones give way\n"
    );
    let pressure = gateway.metric("sluicegate_connection_pressure_ratio");
    assert_eq!(pressure, Some(0.9));
    let mut http2 = Http2::open(address);
    assert_eq!(http2.status_of(1, &get_block()), 200);
    assert_eq!(exchange(&mut idle[1]), None);
    assert!(exchange(&mut idle[0]).is_some());
    assert_eq!(metric(&gateway, "connections_evicted_total", ""), 1.0);
    // All others are older than the connection of HTTP/2, and then it is its turn.
    let mut new: Vec<_> = (0..9)
        .map(|_| {
            let mut stream = connect_from(2, address);
            assert!(exchange(&mut stream).is_some());
            stream
        })
        .collect();
    assert_eq!(http2.goaway(), Some(0));
    assert!(exchange(&mut idle[0]).is_none());
    assert!(exchange(&mut new[8]).is_some());
}

#[test]
fn requests_in_flight_do_not_give_way() {
    let origin = Origin::start(|_| [vec![Step::Pause(Duration::from_secs(1))], ok("ok")].concat());
    let gateway = Gateway::start(&format!(
        "workers: 2
client: {{ max_connections: 4, max_connections_per_client: 10 }}
routes: [{{ upstream: \"{}\" }}]
",
        origin.url()
    ));
    let mut busy: Vec<_> = (0..4)
        .map(|_| Connection::open(gateway.address()))
        .collect();
    for connection in &mut busy {
        connection.send(GET);
    }
    wait_for_open(&gateway, 4);
    wait_for("the requests", || {
        (origin.requests().len() == 4).then_some(())
    });
    let ready = get(gateway.admin, "/readyz").text();
    assert_eq!(
        ready,
        "ready\nconnections: 4 of 4, none is idle to give way\n"
    );
    let waiting = get(gateway.address(), "/late");
    assert_eq!(waiting.status, 200);
    gateway.wait_for_log("max_connections reached: no connection is idle");
    for connection in &mut busy {
        assert_eq!(connection.receive().status, 200);
    }
}

#[test]
fn a_connection_ends_after_its_last_request() {
    let gateway = Gateway::start("client: { max_requests: 3 }\nroutes: [{ upstream: echo }]\n");
    let mut connection = Connection::open(gateway.address());
    for last in [false, false, true] {
        let answer = connection.exchange(GET);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("connection"), last.then_some("close"));
    }
    connection.expect_closed();
    let mut http2 = Http2::open(gateway.address());
    for stream in [1, 3] {
        assert_eq!(http2.status_of(stream, &get_block()), 200);
    }
    // It may come before the last response.
    http2.send(&request(5, &get_block()));
    let rest: Vec<_> = http2.frames().collect();
    let goaway = rest.iter().find(|frame| frame.kind == GOAWAY);
    assert_eq!(goaway.and_then(|frame| frame.error()), Some(0));
    let answer = rest.iter().find(|frame| frame.stream == 5);
    assert_eq!(answer.and_then(|frame| frame.status()), Some(200));
}

#[test]
fn a_connection_ends_after_its_time_and_its_request() {
    let origin = Origin::start(|request| match &*request.target {
        "/slow" => [vec![Step::Pause(Duration::from_millis(1_500))], ok("slow")].concat(),
        _ => ok("ok"),
    });
    let gateway = Gateway::start(&format!(
        "client: {{ max_lifetime: 1s }}\nroutes: [{{ upstream: \"{}\" }}]\n",
        origin.url()
    ));
    let mut connection = Connection::open(gateway.address());
    assert_eq!(connection.exchange(GET).header("connection"), None);
    let slow = connection.exchange("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((slow.status, slow.text().as_str()), (200, "slow"));
    // It says so before it ends.
    let last = connection.exchange(GET);
    assert_eq!(last.header("connection"), Some("close"));
    connection.expect_closed();
    let mut http2 = Http2::open(gateway.address());
    assert_eq!(http2.status_of(1, &get_block()), 200);
    assert_eq!(http2.goaway(), Some(0));
    assert!(
        http2
            .frames()
            .all(|frame| [GOAWAY, PING].contains(&frame.kind))
    );
}
