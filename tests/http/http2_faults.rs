//! Upstreams that break HTTP/2, or use it against the proxy: each gets a bounded wait, a clear error
//! and a metric.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, Response, counts_failures, get};
use crate::support::frames::{
    self, DATA, END_STREAM, HEADERS, Http2, PING, RST_STREAM, SETTINGS, field, frame, get_block,
};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::scripted;
use crate::support::now;
use crate::support::origin::{Origin, raw};

fn config(origins: &[&Origin]) -> String {
    let endpoints: Vec<_> = origins
        .iter()
        .map(|origin| format!("\"{}\"", origin.url()))
        .collect();
    format!(
        "workers: 1
upstreams:
  origin:
    endpoints: [{}]
    protocol: h2
    timeouts: {{ connect: 500ms, response: 500ms, idle: 500ms }}
routes: [{{ upstream: origin }}]
",
        endpoints.join(", ")
    )
}

/// Asserts that the response is the proxy's own, with this status and text, and that the endpoint's
/// failure is counted.
#[track_caller]
fn expect_failure(gateway: &Gateway, answer: &Response, status: u16, detail: &str, reason: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("a problem");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|said| said.contains(detail)),
        "{problem}"
    );
    expect_reason(gateway, reason);
}

#[track_caller]
fn expect_reason(gateway: &Gateway, reason: &str) {
    let metrics = get(gateway.admin, "/metrics").text();
    assert!(counts_failures(&metrics, reason), "{reason}: {metrics}");
}

/// Asserts how a request fails at an upstream with this script.
#[track_caller]
fn expect(
    script: impl Fn(&mut Http2) + Send + Sync + 'static,
    status: u16,
    detail: &str,
    reason: &str,
) {
    let origin = scripted(&[], script);
    let gateway = Gateway::start(&config(&[&origin]));
    let started = now();
    let answer = get(gateway.address(), "/");
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "a bounded wait"
    );
    expect_failure(&gateway, &answer, status, detail, reason);
}

#[test]
fn a_server_without_http2_is_a_502() {
    let origin = Origin::start(|_| raw("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
    let gateway = Gateway::start(&config(&[&origin]));
    let answer = get(gateway.address(), "/");
    expect_failure(&gateway, &answer, 502, "does not speak HTTP/2", "handshake");
}

#[test]
fn a_server_without_settings_is_a_504() {
    let origin = Origin::raw(|mut stream| {
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    });
    let gateway = Gateway::start(&config(&[&origin]));
    let answer = get(gateway.address(), "/");
    expect_failure(
        &gateway,
        &answer,
        504,
        "no connection in time",
        "connect_timeout",
    );
}

#[test]
fn a_reset_before_the_head_is_a_502() {
    expect(
        |connection| {
            while let Some(stream) = connection.next_request() {
                connection.send(&frames::reset(stream, 2));
            }
        },
        502,
        "reset the stream",
        "reset",
    );
}

#[test]
fn a_reset_after_the_head_resets_the_client_with_the_same_code() {
    let origin = scripted(&[], |connection| {
        while let Some(stream) = connection.next_request() {
            connection.send(&frames::response(stream, frames::OK, false));
            connection.send(&frame(DATA, 0, stream, b"part"));
            connection.ping();
            connection.send(&frames::reset(stream, frames::ENHANCE_YOUR_CALM));
        }
    });
    let gateway = Gateway::start(&config(&[&origin]));
    let mut client = Http2::open(gateway.address());
    client.send(&frames::request(1, &get_block()));
    let reset = client.frames().find(|frame| frame.kind == RST_STREAM);
    assert_eq!(
        reset.and_then(|frame| frame.error()),
        Some(frames::ENHANCE_YOUR_CALM)
    );
    expect_reason(&gateway, "body_reset");
}

#[test]
fn a_refused_stream_goes_to_another_endpoint() {
    let refusing = scripted(&[], |connection| {
        while let Some(stream) = connection.next_request() {
            connection.send(&frames::reset(stream, frames::REFUSED_STREAM));
        }
    });
    let serving = scripted(&[], |connection| {
        while let Some(stream) = connection.next_request() {
            connection.send(&frames::response(stream, frames::OK, true));
        }
    });
    let gateway = Gateway::start(&config(&[&refusing, &serving]));
    for _ in 0..4 {
        let mut client = Connection::open(gateway.address());
        let answer = client.exchange("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.status, 200);
        let answer = client.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(answer.status, 200);
    }
    expect_reason(&gateway, "reset");
}

#[test]
fn after_goaway_requests_in_flight_end_and_others_have_a_new_connection() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let origin = scripted(&[], move |connection| {
        if count.fetch_add(1, Ordering::SeqCst) > 0 {
            while let Some(stream) = connection.next_request() {
                connection.send(&frames::response(stream, frames::OK, true));
            }
            return;
        }
        let first = connection.next_request().expect("a request");
        let second = connection.next_request().expect("another request");
        // The second was not processed.
        connection.send(&frames::goaway(first, frames::NO_ERROR));
        thread::sleep(Duration::from_millis(100));
        assert_eq!(second, first + 2);
        connection.send(&frames::response(first, frames::OK, true));
        connection.drain();
    });
    let gateway = Gateway::start(&config(&[&origin]));
    let address = gateway.address();
    let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let clients: Vec<_> = (0..2)
        .map(|_| thread::spawn(move || Connection::open(address).exchange(post).status))
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("no panic"), 200);
    }
    assert_eq!(get(address, "/").status, 200);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn connections_of_few_requests_refuse_none_for_good() {
    // As of nginx with a small `keepalive_requests`.
    let origin = scripted(&[], |connection| {
        let mut last = 0;
        for _ in 0..2 {
            let Some(stream) = connection.next_request() else {
                return;
            };
            connection.send(&frames::response(stream, frames::OK, true));
            last = stream;
        }
        connection.send(&frames::goaway(last, frames::NO_ERROR));
        connection.drain();
    });
    let gateway = Gateway::start(&config(&[&origin]).replace("500ms", "10s"));
    let address = gateway.address();
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
    ] {
        let clients = [(); 12]
            .map(|()| thread::spawn(move || Connection::open(address).exchange(request).status));
        for client in clients {
            assert_eq!(client.join().expect("no panic"), 200, "{request}");
        }
    }
    assert!(origin.connections() >= 12, "{}", origin.connections());
}

#[test]
fn a_storm_of_goaway_is_a_502_and_few_connections() {
    let origin = scripted(&[], |connection| {
        if connection.next_request().is_some() {
            connection.send(&frames::goaway(0, frames::ENHANCE_YOUR_CALM));
            connection.drain();
        }
    });
    let gateway = Gateway::start(&config(&[&origin]));
    for _ in 0..5 {
        let answer = get(gateway.address(), "/");
        expect_failure(&gateway, &answer, 502, "closed the connection", "closed");
    }
    assert!(origin.connections() <= 10, "{}", origin.connections());
}

#[test]
fn a_connection_that_closed_meanwhile_is_no_failure() {
    let origin = scripted(&[], |connection| {
        if let Some(stream) = connection.next_request() {
            connection.send(&frames::response(stream, frames::OK, true));
        }
    });
    let gateway = Gateway::start(&config(&[&origin]));
    for _ in 0..5 {
        let mut client = Connection::open(gateway.address());
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(client.exchange(post).status, 200);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn windows_of_zero_are_a_504() {
    // SETTINGS_INITIAL_WINDOW_SIZE 0.
    let origin = scripted(&[0, 4, 0, 0, 0, 0], Http2::drain);
    let gateway = Gateway::start(&config(&[&origin]));
    let mut client = Connection::open(gateway.address());
    let answer = client.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    expect_failure(
        &gateway,
        &answer,
        504,
        "no response in time",
        "response_timeout",
    );
}

#[test]
fn a_response_that_stands_still_ends() {
    let origin = scripted(&[], |connection| {
        if let Some(stream) = connection.next_request() {
            connection.send(&frames::response(stream, frames::OK, false));
            connection.send(&frame(DATA, 0, stream, b"part"));
            connection.drain();
        }
    });
    let gateway = Gateway::start(&config(&[&origin]));
    let mut client = Http2::open(gateway.address());
    client.send(&frames::request(1, &get_block()));
    assert!(client.frames().any(|frame| frame.kind == RST_STREAM));
    expect_reason(&gateway, "body_timeout");
}

#[test]
fn huge_heads_are_a_502() {
    expect(
        |connection| {
            if let Some(stream) = connection.next_request() {
                let field = field("x-large", &"x".repeat(15_000));
                connection.send(&frame(HEADERS, 0, stream, &[frames::OK, &field].concat()));
                for end in [0, 0, 0, 0, 0, frames::END_HEADERS] {
                    let sent = connection.try_send(&frame(9, end, stream, &field));
                    if sent.is_err() {
                        return;
                    }
                }
                connection.drain();
            }
        },
        502,
        "not valid HTTP",
        "invalid",
    );
    expect(
        |connection| {
            while let Some(stream) = connection.next_request() {
                let fields: Vec<u8> = (0..300).flat_map(|_| field("x", "1")).collect();
                let block = [frames::OK, &fields].concat();
                connection.send(&frames::response(stream, &block, true));
            }
        },
        502,
        "not valid HTTP",
        "invalid",
    );
}

#[test]
fn malformed_responses_are_a_502() {
    let blocks = [
        // Without a status.
        field("x", "1"),
        // Fields of HTTP/1.
        [frames::OK, &field("connection", "close")].concat(),
        [frames::OK, &field("transfer-encoding", "chunked")].concat(),
        [frames::OK, &field("content-length", "5")].concat(),
        // 101, which HTTP/2 does not have.
        [&[0x08, 3][..], b"101"].concat(),
    ];
    for block in blocks {
        expect(
            move |connection| {
                while let Some(stream) = connection.next_request() {
                    connection.send(&frames::response(stream, &block, true));
                }
            },
            502,
            "not valid HTTP",
            "invalid",
        );
    }
}

#[test]
fn floods_of_frames_do_not_keep_others_waiting() {
    for flood in [frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, b"12345678")] {
        let origin = scripted(&[], move |connection| {
            let many = flood.repeat(1_000);
            if connection.next_request().is_some() {
                while connection.try_send(&many).is_ok() {}
            }
        });
        let gateway = Gateway::start(&format!(
            "{}  - {{ match: {{ path: /echo }}, upstream: echo }}\n",
            config(&[&origin]).replace(
                "routes: [{ upstream: origin }]\n",
                "routes:\n  - { upstream: origin }\n"
            )
        ));
        let address = gateway.address();
        let flooded = thread::spawn(move || get(address, "/"));
        for _ in 0..20 {
            assert_eq!(get(address, "/echo").status, 200);
        }
        assert_eq!(flooded.join().expect("no panic").status, 502);
    }
}

#[test]
fn a_request_without_a_free_stream_waits_for_a_bounded_time() {
    // SETTINGS_MAX_CONCURRENT_STREAMS 0.
    let origin = scripted(&[0, 3, 0, 0, 0, 0], Http2::drain);
    let gateway = Gateway::start(&config(&[&origin]));
    let answer = get(gateway.address(), "/");
    expect_failure(
        &gateway,
        &answer,
        503,
        "takes no more requests",
        "no_stream",
    );
    // At most 64 at a time: on a slow machine some have ended idle before others began.
    assert!(origin.connections() <= 128, "{}", origin.connections());
}

#[test]
fn trailers_with_pseudo_fields_do_not_reach_clients() {
    let origin = scripted(&[], |connection| {
        while let Some(stream) = connection.next_request() {
            connection.send(&frames::response(stream, frames::OK, false));
            connection.send(&frame(DATA, 0, stream, b"ok"));
            let trailers = [frames::OK, &field("x-after", "1")].concat();
            connection.send(&frame(
                HEADERS,
                frames::END_HEADERS | END_STREAM,
                stream,
                &trailers,
            ));
        }
    });
    let gateway = Gateway::start(&config(&[&origin]));
    let mut client = Connection::open(gateway.address());
    let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    assert_eq!(answer.trailers, [("x-after".to_owned(), "1".to_owned())]);
}
