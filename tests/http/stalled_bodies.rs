//! Endpoints that send heads and stall bodies: they are left out. Silence that may be meant, and
//! clients that do not read, are no fault of theirs.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::frames::{Http2, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, send};
use crate::support::origin::{Origin, Step, ok, raw};
use crate::support::wait_for;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn start(endpoints: &[&Origin]) -> Gateway {
    let endpoints: Vec<_> = endpoints.iter().map(|one| one.url()).collect();
    start_with(&endpoints, "http1")
}

fn start_http2(endpoints: &[&Http2Origin]) -> Gateway {
    let endpoints: Vec<_> = endpoints.iter().map(|one| one.url()).collect();
    start_with(&endpoints, "h2")
}

fn start_with(endpoints: &[String], protocol: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: {endpoints:?}, protocol: {protocol}, timeouts: {{ idle: 300ms }} }} }}
routes: [{{ upstream: pool }}]
"
    ))
}

/// Sends a head with this field over HTTP/2, and no byte of the body.
fn stalling_http2(name: &'static str, value: &'static str) -> Http2Origin {
    Http2Origin::start(100, move |mut exchange| async move {
        let _stream = exchange.begin(&[(name, value)])?;
        std::future::pending().await
    })
}

fn stalling(head: &str) -> Origin {
    let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
    Origin::start(move |_| [raw(&head), vec![Step::Hang]].concat())
}

fn counted(gateway: &Gateway, name: &str, endpoint: SocketAddr, reason: &str) -> f64 {
    let labels = format!("{{upstream=\"pool\",endpoint=\"{endpoint}\",reason=\"{reason}\"}}");
    let series = format!("sluicegate_upstream_{name}_total{labels}");
    gateway.metric(&series).unwrap_or_default()
}

/// Sends requests over eight connections until `is_done`, and waits for the end of each response.
fn send_until(gateway: &Gateway, is_done: impl Fn() -> bool) {
    wait_for("the responses", || {
        let client = |_| {
            let address = gateway.address();
            thread::spawn(move || {
                let mut connection = Connection::open(address);
                connection.send(GET);
                // It may break off.
                let _ = connection.try_receive();
            })
        };
        let clients: Vec<_> = (0..8).map(client).collect();
        clients
            .into_iter()
            .for_each(|one| one.join().expect("a client"));
        is_done().then_some(())
    });
}

#[test]
fn an_endpoint_that_stalls_bodies_is_left_out() {
    for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let (bad, good) = (stalling(head), Origin::plain());
        let gateway = start(&[&bad, &good]);
        let ejections = || counted(&gateway, "ejections", bad.address(), "consecutive_failures");
        send_until(&gateway, || ejections() >= 1.0);
        let before = bad.requests().len();
        for _ in 0..20 {
            assert_eq!(get(gateway.address(), "/").status, 200);
        }
        assert_eq!(bad.requests().len(), before, "{head}");
    }
}

#[test]
fn an_event_stream_may_be_silent() {
    let head = "Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked";
    let (quiet, good) = (stalling(head), Origin::plain());
    let gateway = start(&[&quiet, &good]);
    send_until(&gateway, || {
        counted(&gateway, "failures", quiet.address(), "body_timeout") >= 12.0
    });
    // Bodies are judged once a second.
    thread::sleep(Duration::from_millis(1_200));
    assert_eq!(
        counted(
            &gateway,
            "ejections",
            quiet.address(),
            "consecutive_failures"
        ),
        0.0
    );
}

#[test]
fn a_client_that_does_not_read_is_no_fault_of_the_endpoint() {
    let large = "x".repeat(16 * 1024 * 1024);
    let (origin, other) = (Origin::start(move |_| ok(&large)), Origin::plain());
    let gateway = start(&[&origin, &other]);
    let mut clients: Vec<_> = (0..16)
        .map(|_| Connection::open(gateway.address()))
        .collect();
    for client in &mut clients {
        client.send(GET);
    }
    wait_for("the requests", || {
        (origin.requests().len() == 8).then_some(())
    });
    // Longer than `timeouts.idle`, and than the judgement of bodies.
    thread::sleep(Duration::from_millis(1_500));
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    thread::sleep(Duration::from_millis(1_200));
    assert_eq!(
        counted(&gateway, "failures", origin.address(), "body_timeout"),
        0.0
    );
    assert_eq!(
        counted(
            &gateway,
            "ejections",
            origin.address(),
            "consecutive_failures"
        ),
        0.0
    );
}

#[test]
fn an_endpoint_that_stalls_bodies_over_http2_is_left_out() {
    for (name, value) in [("content-length", "10"), ("content-type", "text/html")] {
        let (bad, good) = (stalling_http2(name, value), Http2Origin::plain());
        let gateway = start_http2(&[&bad, &good]);
        let ejections = || counted(&gateway, "ejections", bad.address(), "consecutive_failures");
        send_until(&gateway, || ejections() >= 1.0);
        let before = bad.requests().len();
        for _ in 0..20 {
            assert_eq!(get(gateway.address(), "/").status, 200);
        }
        assert_eq!(bad.requests().len(), before, "{name}");
        assert_eq!(
            counted(&gateway, "failures", good.address(), "body_timeout"),
            0.0
        );
    }
}

#[test]
fn streams_over_http2_may_be_silent() {
    for content_type in [
        "application/grpc",
        "application/grpc-web+proto",
        "text/event-stream",
    ] {
        let quiet = stalling_http2("content-type", content_type);
        let good = Http2Origin::plain();
        let gateway = start_http2(&[&quiet, &good]);
        send_until(&gateway, || {
            counted(&gateway, "failures", quiet.address(), "body_timeout") >= 12.0
        });
        // Bodies are judged once a second.
        thread::sleep(Duration::from_millis(1_200));
        let ejections = counted(
            &gateway,
            "ejections",
            quiet.address(),
            "consecutive_failures",
        );
        assert_eq!(ejections, 0.0, "{content_type}");
    }
}

#[test]
fn clients_that_do_not_read_are_no_fault_of_an_endpoint_over_http2() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        let mut stream = exchange.begin(&[])?;
        send(&mut stream, &vec![b'x'; 4 * 1024 * 1024]).await?;
        stream.send_data(Vec::new().into(), true).ok()
    });
    let gateway = start_http2(&[&origin]);
    let mut http1: Vec<_> = (0..4)
        .map(|_| Connection::open(gateway.address()))
        .collect();
    http1.iter_mut().for_each(|client| client.send(GET));
    let mut http2 = Http2::open(gateway.address());
    for stream in [1, 3, 5, 7] {
        http2.send(&request(stream, &get_block()));
    }
    wait_for("the requests", || {
        (origin.requests().len() == 8).then_some(())
    });
    // Longer than `timeouts.idle`, and than the judgement of bodies.
    thread::sleep(Duration::from_millis(1_500));
    for client in &mut http1 {
        assert_eq!(client.receive().status, 200);
    }
    thread::sleep(Duration::from_millis(1_200));
    assert_eq!(
        counted(&gateway, "failures", origin.address(), "body_timeout"),
        0.0
    );
    assert_eq!(
        counted(
            &gateway,
            "ejections",
            origin.address(),
            "consecutive_failures"
        ),
        0.0
    );
    drop(http2);
}
