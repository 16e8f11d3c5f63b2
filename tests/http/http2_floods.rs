//! Upstreams that flood their connections with frames of HTTP/2: the connection is cut, memory stays
//! bounded, and requests go elsewhere or get an error.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::support::DEADLINE;
use crate::support::client::{Connection, get};
use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, scripted};
use crate::support::now;
use crate::support::origin::Origin;

/// The most that a flood sends.
const MOST: usize = 256 << 20;

/// The most by which the proxy may grow meanwhile.
const GROWTH: usize = 24 << 20;

const FLOODED: &str = "floods the connection with frames";

fn config(endpoints: &[String]) -> String {
    format!(
        "workers: 1
upstreams:
  pool: {{ endpoints: {endpoints:?}, protocol: h2, ejection: off, timeouts: {{ response: 5s }} }}
routes: [{{ upstream: pool }}]
"
    )
}

/// Repeats a frame until the connection is cut. Returns the sent bytes.
fn repeat(connection: &mut Http2, frame: &[u8]) -> usize {
    let many = frame.repeat(16_384 / frame.len());
    let mut sent = 0;
    while sent < MOST && connection.try_send(&many).is_ok() {
        sent += many.len();
    }
    sent
}

/// An origin that begins its answer to a request with `begin`, and then floods with `frame`. Reports
/// the bytes that were sent when a connection is cut.
fn flooding(
    begin: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
    frame: Vec<u8>,
    cut: Sender<usize>,
) -> Origin {
    scripted(&[], move |connection| {
        let Some(stream) = connection.next_request() else {
            return;
        };
        let begin = begin(stream);
        if connection.try_send(&begin).is_ok() {
            cut.send(repeat(connection, &frame)).ok();
        }
    })
}

/// Asserts that a flood cuts the connection, that an idempotent request goes elsewhere and another
/// one fails, each with `reason` in the log.
#[track_caller]
fn expect_cut(
    begin: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
    flood: Vec<u8>,
    reason: &str,
) {
    let (cut, seen) = channel();
    let kind = flood[3];
    let origin = flooding(begin, flood, cut);
    let good = Http2Origin::plain();
    let gateway = Gateway::start(&config(&[origin.url(), good.url()]));
    let (before, started) = (gateway.resident(), now());
    for _ in 0..4 {
        assert_eq!(get(gateway.address(), "/").status, 200, "{kind}");
    }
    assert!(started.elapsed() < DEADLINE, "{kind}");
    let sent = seen.recv_timeout(DEADLINE).expect("it is cut");
    assert!(sent < MOST, "{kind}: {sent} bytes");
    let growth = gateway.resident().saturating_sub(before);
    assert!(growth < GROWTH, "{kind}: {growth} bytes");
    gateway.wait_for_log(reason);
    let statuses = (0..2).map(|_| {
        let mut client = Connection::open(gateway.address());
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
        client.exchange(post).status
    });
    let mut statuses: Vec<_> = statuses.collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502], "{kind}");
}

fn nothing(_stream: u32) -> Vec<u8> {
    Vec::new()
}

#[test]
fn frames_that_are_answered_are_bounded() {
    expect_cut(nothing, frame(SETTINGS, 0, 0, &[]), FLOODED);
    // The window of every stream, up and down.
    let windows = [[0, 4, 0, 0, 0, 0], [0, 4, 0, 0, 255, 255]].concat();
    expect_cut(nothing, frame(SETTINGS, 0, 0, &windows), FLOODED);
    expect_cut(nothing, frame(PING, 0, 0, b"12345678"), FLOODED);
}

#[test]
fn frames_that_are_ignored_are_bounded() {
    expect_cut(nothing, frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]), FLOODED);
    expect_cut(nothing, frame(0xbe, 0, 0, &[]), FLOODED);
    expect_cut(nothing, frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), FLOODED);
    expect_cut(nothing, frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), FLOODED);
    let goaway = [i32::MAX.to_be_bytes(), [0; 4]].concat();
    expect_cut(nothing, frame(GOAWAY, 0, 0, &goaway), FLOODED);
}

#[test]
fn header_blocks_without_an_end_are_bounded() {
    let begin = |stream| frame(HEADERS, 0, stream, frames::OK);
    expect_cut(begin, frame(CONTINUATION, 0, 1, &[]), "violates HTTP/2");
}

#[test]
fn resets_of_streams_that_have_ended_are_bounded() {
    let (cut, seen) = channel();
    let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]);
    let origin = flooding(nothing, reset, cut);
    let good = Http2Origin::plain();
    let gateway = Gateway::start(&config(&[origin.url(), good.url()]));
    for _ in 0..4 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    let sent = seen.recv_timeout(DEADLINE).expect("it is cut");
    assert!(sent < MOST, "{sent} bytes");
}

#[test]
fn data_without_bytes_is_bounded() {
    let (cut, seen) = channel();
    let begin = |stream| frames::response(stream, frames::OK, false);
    let origin = flooding(begin, frame(DATA, 0, 1, &[]), cut);
    let gateway = Gateway::start(&config(&[origin.url()]));
    let before = gateway.resident();
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The flood may be found with the head.
    let answer = client.try_receive().ok().flatten();
    assert!(answer.is_none_or(|answer| answer.status == 502));
    let sent = seen.recv_timeout(DEADLINE).expect("it is cut");
    assert!(sent < MOST, "{sent} bytes");
    let growth = gateway.resident().saturating_sub(before);
    assert!(growth < GROWTH, "{growth} bytes");
}

/// The library would count those of a connection's whole life.
#[test]
fn data_without_bytes_now_and_then_ends_no_connection() {
    let parts = |stream| [frame(DATA, 0, stream, &[]), frame(DATA, 0, stream, b"x")].concat();
    let origin = scripted(&[], move |connection| {
        while let Some(stream) = connection.next_request() {
            let begin = frames::response(stream, frames::OK, false);
            let end = frame(DATA, END_STREAM, stream, &[]);
            connection.send(&[begin, parts(stream).repeat(50), end].concat());
        }
    });
    let gateway = Gateway::start(&format!(
        "{}  - {{ match: {{ path: /echo }}, upstream: echo }}\n",
        config(&[origin.url()]).replace("[{ upstream: pool }]", "\n  - upstream: pool")
    ));
    for _ in 0..5 {
        assert_eq!(get(gateway.address(), "/").text(), "x".repeat(50));
    }
    assert_eq!(origin.connections(), 1);

    let mut client = Http2::open(gateway.address());
    for stream in [1, 3, 5] {
        // `:method: POST`, `:scheme: http`, `:path: /echo` and `:authority`.
        let block = [&[0x83, 0x86, 0x04, 5][..], b"/echo", &[0x01, 1, b'a']].concat();
        client.send(&frames::response(stream, &block, false));
        client.send(&parts(stream).repeat(50));
        client.send(&frame(DATA, END_STREAM, stream, &[]));
        let answer = client.frames().find(|frame| frame.stream == stream);
        assert_eq!(answer.and_then(|answer| answer.status()), Some(200));
    }
}

#[test]
fn informational_responses_are_bounded() {
    // `:status: 103`, not indexed.
    let early = [&[0x08, 3][..], b"103"].concat();
    let (cut, seen) = channel();
    let origin = flooding(nothing, frame(HEADERS, END_HEADERS, 1, &early), cut);
    let gateway = Gateway::start(&config(&[origin.url()]));
    let before = gateway.resident();
    let mut client = Connection::open(gateway.address());
    let answer = client.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answer.status, 502, "{answer:?}");
    let sent = seen.recv_timeout(DEADLINE).expect("it is cut");
    assert!(sent < MOST, "{sent} bytes");
    let growth = gateway.resident().saturating_sub(before);
    assert!(growth < GROWTH, "{growth} bytes");
}

#[test]
fn a_window_that_shrinks_to_zero_is_a_504() {
    let origin = scripted(&[], |connection| {
        while connection.next_request().is_some() {
            connection.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
            connection.drain();
        }
    });
    let gateway = Gateway::start(&config(&[origin.url()]).replace("5s", "700ms"));
    let mut client = Connection::open(gateway.address());
    let body = "x".repeat(500_000);
    let started = now();
    let answer = client.exchange(&format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!(started.elapsed() >= Duration::from_millis(700));
}

/// Checks of health are bounded as requests are.
#[test]
fn a_check_is_cut_as_a_request_is() {
    let (cut, seen) = channel();
    let origin = flooding(nothing, frame(PING, 0, 0, b"12345678"), cut);
    let good = Http2Origin::plain();
    let gateway = Gateway::start(&format!(
        "upstreams:
  pool:
    endpoints: [\"{}\", \"{}\"]
    protocol: h2
    health: {{ path: /, every: 1s, timeout: 1h, unhealthy_after: 1 }}
routes: [{{ upstream: pool }}]
",
        origin.url(),
        good.url()
    ));
    gateway.wait_for_log("the endpoint is unhealthy");
    gateway.wait_for_log(FLOODED);
    assert!(seen.recv_timeout(DEADLINE).expect("it is cut") < MOST);
}
