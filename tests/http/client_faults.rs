//! Whatever a client sends, or fails to send, no endpoint is blamed for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::frames::{self, END_STREAM, HEADERS};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::scripted;
use crate::support::origin::Origin;
use crate::support::wait_for;

/// Requests of each kind: more than eject an endpoint.
const REQUESTS: usize = 32;

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const LENGTH: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n";

/// A server that waits 50 ms for the rest of a request, and then closes the connection.
fn impatient() -> Origin {
    Origin::raw(|mut stream: TcpStream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            if !head.starts_with(b"GET") {
                thread::sleep(Duration::from_millis(50));
                return;
            }
            head.clear();
            let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if stream.write_all(ok).is_err() {
                return;
            }
        }
    })
}

/// The same over HTTP/2, where only the stream ends.
fn impatient_over_http2() -> Origin {
    scripted(&[], |connection| {
        while let Some(head) = connection.receive() {
            if head.kind != HEADERS {
                continue;
            }
            let answer = if head.flags & END_STREAM != 0 {
                frames::response(head.stream, frames::OK, true)
            } else {
                thread::sleep(Duration::from_millis(50));
                frames::reset(head.stream, 2)
            };
            if connection.try_send(&answer).is_err() {
                return;
            }
        }
    })
}

/// Sends requests that begin with `request`, and asserts that both endpoints are in use afterwards.
fn expect_no_blame(origin: fn() -> Origin, protocol: &str, timeouts: &str, request: &str) {
    expect_no_blame_after(Duration::ZERO, origin, protocol, timeouts, request);
}

/// As [`expect_no_blame`], after a pause.
fn expect_no_blame_after(
    pause: Duration,
    origin: fn() -> Origin,
    protocol: &str,
    timeouts: &str,
    request: &str,
) {
    let origins = [origin(), origin()];
    let urls = origins.each_ref().map(Origin::url);
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: {urls:?}, protocol: {protocol}{timeouts} }} }}
routes: [{{ upstream: pool }}]
"
    ));
    let address = gateway.address();
    let clients: Vec<_> = (0..REQUESTS)
        .map(|number| {
            let request = request.to_owned();
            thread::spawn(move || {
                let mut client = Connection::open(address);
                client.send(&request);
                match number % 4 {
                    0 => client.finish_sending(),
                    1 => {
                        thread::sleep(Duration::from_millis(20));
                        return client.reset();
                    }
                    _ => {}
                }
                client.try_receive().ok();
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().expect("a client"));
    thread::sleep(pause);
    for _ in 0..4 {
        wait_for("an answer in time", || {
            (get(address, "/").status == 200).then_some(())
        });
    }
    for origin in &origins {
        let label = format!("{{upstream=\"pool\",endpoint=\"{}\"}}", origin.address());
        let available = gateway.metric(&format!("sluicegate_upstream_hosts_available{label}"));
        assert_eq!(available, Some(1.0), "{protocol}{timeouts}: {request:?}");
    }
}

#[test]
fn requests_that_never_end_or_are_malformed() {
    let requests = [
        format!("{CHUNKED}3\r\nabc\r\nzz\r\n"),
        format!("{CHUNKED}3\r\nabcd\r\n"),
        format!("{CHUNKED}3\r\nabc\r\n0\r\nx y: z\r\n\r\n"),
        format!("{LENGTH}abc"),
        LENGTH.to_owned(),
        CHUNKED.to_owned(),
    ];
    for request in &requests {
        expect_no_blame(impatient, "http1", "", request);
        expect_no_blame(impatient_over_http2, "h2", "", request);
    }
}

/// A server that begins its response at once, and breaks it off when the request does not end.
fn hasty() -> Origin {
    Origin::raw(|mut stream: TcpStream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_exact(&mut byte).is_err() {
                return;
            }
            head.push(byte[0]);
        }
        let is_get = head.starts_with(b"GET");
        let length = if is_get { 4 } else { 100 };
        let begin = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\npart");
        stream.write_all(begin.as_bytes()).ok();
        thread::sleep(Duration::from_millis(50));
    })
}

/// The same over HTTP/2.
fn hasty_over_http2() -> Origin {
    scripted(&[], |connection| {
        while let Some(head) = connection.receive() {
            if head.kind != HEADERS {
                continue;
            }
            let is_get = head.flags & END_STREAM != 0;
            let begin = frames::response(head.stream, frames::OK, is_get);
            if connection.try_send(&begin).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
            if !is_get && connection.try_send(&frames::reset(head.stream, 2)).is_err() {
                return;
            }
        }
    })
}

/// Rows of such responses are looked at once a second.
#[test]
fn responses_to_requests_that_never_end() {
    let (request, pause) = (format!("{LENGTH}abc"), Duration::from_millis(1_200));
    expect_no_blame_after(pause, hasty, "http1", "", &request);
    expect_no_blame_after(pause, hasty_over_http2, "h2", "", &request);
}

#[test]
fn requests_that_are_slower_than_the_time_for_an_attempt() {
    let timeouts = ", timeouts: { attempt: 500ms }";
    let request = format!("{LENGTH}abc");
    expect_no_blame(Origin::plain, "http1", timeouts, &request);
    let patient = || {
        scripted(&[], |connection| {
            while let Some(frame) = connection.receive() {
                if frame.kind == HEADERS && frame.flags & END_STREAM != 0 {
                    connection.send(&frames::response(frame.stream, frames::OK, true));
                }
            }
        })
    };
    expect_no_blame(patient, "h2", timeouts, &request);
}
