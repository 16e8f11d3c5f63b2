//! Responses over HTTP/2 that break off: they count against their endpoint as those over HTTP/1.1,
//! and the ends that are no fault of it count as nothing.

use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, counts_failures, get};
use crate::support::frames::{self, DATA, END_STREAM, Http2, field, frame};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, scripted};
use crate::support::origin::Origin;
use crate::support::wait_for;

fn config(endpoints: &[String]) -> String {
    format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: {endpoints:?}, protocol: h2 }} }}
routes: [{{ upstream: pool }}]
"
    )
}

/// A GET without the requirement of a whole response.
fn try_get(gateway: &Gateway) -> Option<String> {
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let response = client.try_receive().ok()??;
    (response.status == 200).then(|| response.text())
}

/// An origin that begins each response, and ends it with what `end` makes for its stream.
fn breaking(end: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    scripted(&[], move |connection| {
        while let Some(stream) = connection.next_request() {
            let head = frames::response(stream, frames::OK, false);
            let data = frame(DATA, 0, stream, b"part");
            if connection.try_send(&[head, data].concat()).is_err() {
                return;
            }
            // The head is on its way before the end.
            thread::sleep(Duration::from_millis(5));
            let end = end(stream);
            if end.is_empty() || connection.try_send(&end).is_err() {
                return;
            }
        }
    })
}

#[track_caller]
fn expect_ejection(bad: &Origin) {
    let good = Http2Origin::plain();
    let gateway = Gateway::start(&config(&[bad.url(), good.url()]));
    wait_for("the ejection", || {
        try_get(&gateway);
        let log = gateway.log();
        let line = log.lines().find(|line| line.contains("is ejected"))?;
        assert!(line.contains(&bad.address().to_string()), "{line}");
        assert!(line.contains("consecutive_failures"), "{line}");
        Some(())
    });
    for _ in 0..20 {
        assert_eq!(try_get(&gateway).as_deref(), Some("ok"));
    }
}

#[test]
fn an_endpoint_that_resets_responses_is_left_out() {
    expect_ejection(&breaking(|stream| frames::reset(stream, 2)));
    expect_ejection(&breaking(|stream| frames::reset(stream, frames::CANCEL)));
    // The request was whole: the response cannot be.
    expect_ejection(&breaking(|stream| frames::reset(stream, frames::NO_ERROR)));
}

#[test]
fn an_endpoint_that_closes_in_responses_is_left_out() {
    expect_ejection(&breaking(|_| Vec::new()));
}

#[test]
fn an_endpoint_that_breaks_framing_in_responses_is_left_out() {
    // DATA on a stream that was never opened.
    expect_ejection(&breaking(|_| frame(DATA, 0, 1001, b"more")));
}

/// Begins `count` requests, and leaves in the middle of their responses.
fn leave(gateway: &Gateway, count: usize) {
    for _ in 0..count {
        let mut client = Connection::open(gateway.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.receive_head();
        client.reset();
    }
}

#[test]
fn clients_that_leave_are_no_failure_of_the_endpoint() {
    let hanging = || {
        scripted(&[], |connection| {
            while let Some(stream) = connection.next_request() {
                let head = frames::response(stream, frames::OK, false);
                connection.send(&[head, frame(DATA, 0, stream, b"part")].concat());
            }
        })
    };
    let origins = [hanging(), hanging()];
    let gateway = Gateway::start(&config(&origins.each_ref().map(Origin::url)));
    leave(&gateway, 20);
    thread::sleep(Duration::from_millis(1_500));
    assert!(!gateway.log().contains("ejected"));
    let metrics = get(gateway.admin, "/metrics").text();
    assert!(!counts_failures(&metrics, "body_"), "{metrics}");
}

/// An origin that answers in the middle of requests, and takes no more of them (RFC 9113 section
/// 8.1).
fn hasty(block: Vec<u8>) -> Origin {
    scripted(&[], move |connection| {
        while let Some(stream) = connection.next_request() {
            let response = [
                frames::response(stream, &block, false),
                frame(DATA, END_STREAM, stream, b"enough"),
                frames::reset(stream, frames::NO_ERROR),
            ];
            if connection.try_send(&response.concat()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_response_that_ends_before_its_request_is_whole() {
    let length = [frames::OK, &field("content-length", "6")].concat();
    for block in [frames::OK.to_vec(), length] {
        let origins = [hasty(block.clone()), hasty(block)];
        let gateway = Gateway::start(&config(&origins.each_ref().map(Origin::url)));
        for _ in 0..20 {
            let mut client = Connection::open(gateway.address());
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nbegin");
            assert_eq!(client.receive().text(), "enough");
        }
        let metrics = get(gateway.admin, "/metrics").text();
        assert!(!counts_failures(&metrics, "body_"), "{metrics}");
    }
}

#[test]
fn a_response_that_is_shorter_than_it_says_is_not_whole() {
    let length = [frames::OK, &field("content-length", "100")].concat();
    let origin = scripted(&[], move |connection| {
        while let Some(stream) = connection.next_request() {
            let response = [
                frames::response(stream, &length, false),
                frame(DATA, 0, stream, b"enough"),
                frames::reset(stream, frames::NO_ERROR),
            ];
            connection.send(&response.concat());
        }
    });
    let gateway = Gateway::start(&config(&[origin.url()]));
    let mut client = Connection::open(gateway.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nbegin");
    assert!(client.try_receive().is_err(), "it breaks off");
}

/// Servers of gRPC cancel calls at their deadline, maybe just before the proxy does.
#[test]
fn calls_that_are_cancelled_at_their_deadline_are_no_failure() {
    let cancelling = |has_head: bool| {
        scripted(&[], move |connection: &mut Http2| {
            while let Some(stream) = connection.next_request() {
                if has_head {
                    let head = frames::response(stream, frames::OK, false);
                    connection.send(&[head, frame(DATA, 0, stream, b"part")].concat());
                }
                thread::sleep(Duration::from_millis(95));
                let cancelled = frames::reset(stream, frames::CANCEL);
                if connection.try_send(&cancelled).is_err() {
                    return;
                }
            }
        })
    };
    for has_head in [false, true] {
        let origins = [cancelling(has_head), cancelling(has_head)];
        let gateway = Gateway::start(&config(&origins.each_ref().map(Origin::url)));
        for _ in 0..12 {
            let mut client = Connection::open(gateway.address());
            client.send(
                "POST /a.B/C HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n\
                 grpc-timeout: 100m\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
            let answer = client.try_receive().ok().flatten();
            if !has_head {
                let answer = answer.expect("a response");
                assert_eq!(answer.header("grpc-status"), Some("4"), "{answer:?}");
            }
        }
        thread::sleep(Duration::from_millis(1_200));
        assert!(!gateway.log().contains("ejected"), "{has_head}");
    }
}
