//! Malformed responses over HTTP/2: what becomes of the others on the connection, and of the host.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::support::client::{Connection, get};
use crate::support::frames::{self, DATA, END_STREAM, HEADERS, Http2, field, frame, get_block};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, scripted};
use crate::support::origin::Origin;
use crate::support::wait_for;

fn config(endpoints: &[String], options: &str) -> String {
    format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: {endpoints:?}, protocol: h2{options} }} }}
routes: [{{ upstream: pool }}]
"
    )
}

fn block(name: &str, value: &str) -> Vec<u8> {
    [frames::OK, &field(name, value)].concat()
}

#[test]
fn a_head_that_is_too_large_resets_its_stream_alone() {
    for (name, size) in [("x-large", 70_000), ("x-large", 300_000)] {
        let large = block(name, &"x".repeat(size));
        let origin = scripted(&[], move |connection| {
            let Some(first) = connection.next_request() else {
                return;
            };
            let head = frames::response(first, frames::OK, false);
            connection.send(&[head, frame(DATA, 0, first, b"part")].concat());
            if let Some(second) = connection.next_request() {
                // Of a response, too: HEADERS and as many CONTINUATION as it needs.
                connection.send(&frames::request(second, &large));
                connection.send(&frame(DATA, END_STREAM, first, b"rest"));
                connection.drain();
            }
        });
        let gateway = Gateway::start(&config(&[origin.url()], ""));
        let mut client = Http2::open(gateway.address());
        client.send(&frames::request(1, &get_block()));
        let data = |frame: &frames::Frame| frame.kind == DATA;
        let part = client.frames().find(data).expect("a part");
        assert_eq!(part.payload, b"part");
        assert_eq!(get(gateway.address(), "/").status, 502, "{size}");
        let rest = client.frames().find(data).expect("the rest");
        assert_eq!(rest.payload, b"rest", "{size}");
    }
}

/// Origins that hold GETs until one of them has got a POST, which it answers with `malformed`.
#[derive(Clone, Default)]
struct Held {
    are_free: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    /// The most requests that one connection has held.
    most: Arc<Mutex<usize>>,
}

impl Held {
    fn origin(&self, malformed: Vec<u8>) -> Origin {
        let state = self.clone();
        scripted(&[], move |connection| state.serve(connection, &malformed))
    }

    fn serve(&self, connection: &mut Http2, malformed: &[u8]) {
        let mut held = Vec::new();
        while let Some(head) = connection.receive() {
            if head.kind != HEADERS {
                continue;
            }
            // The method's index in HPACK's static table is first.
            if head.payload[0] == 0x83 {
                self.are_free.store(true, Ordering::Relaxed);
                connection.send(&frames::response(head.stream, malformed, true));
                connection.drain();
                return;
            }
            held.push(head.stream);
            self.requests.fetch_add(1, Ordering::Relaxed);
            let mut most = self.most.lock().expect("no holder panics");
            *most = held.len().max(*most);
            drop(most);
            if self.are_free.load(Ordering::Relaxed) {
                let answers = held.drain(..);
                let answers = answers.flat_map(|stream| frames::response(stream, frames::OK, true));
                connection.send(&answers.collect::<Vec<_>>());
            }
        }
    }
}

fn post(gateway: &Gateway) -> u16 {
    let mut client = Connection::open(gateway.address());
    client
        .exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .status
}

fn get_many(gateway: &Gateway, count: usize) -> Vec<JoinHandle<u16>> {
    let address = gateway.address();
    let ask = |_| thread::spawn(move || get(address, "/").status);
    (0..count).map(ask).collect()
}

#[test]
fn a_response_that_cannot_be_decoded_counts_once() {
    for malformed in [block("x-a", "a\x01b"), block("X-A", "b")] {
        let held = Held::default();
        let origins = [held.origin(malformed.clone()), held.origin(malformed)];
        let gateway = Gateway::start(&config(
            &origins.each_ref().map(Origin::url),
            ", retries: { min_per_second: 100 }",
        ));
        let clients = get_many(&gateway, 20);
        wait_for("the requests", || {
            (held.requests.load(Ordering::Relaxed) == 20).then_some(())
        });
        assert_eq!(post(&gateway), 502);
        for client in clients {
            assert_eq!(client.join().expect("no panic"), 200);
        }
        assert!(!gateway.log().contains("is ejected"), "{}", gateway.log());
    }
}

#[test]
fn requests_share_less_after_a_response_that_cannot_be_decoded() {
    let held = Held::default();
    let origin = held.origin(block("X-A", "b"));
    let gateway = Gateway::start(&config(&[origin.url()], ", ejection: off"));
    assert_eq!(post(&gateway), 502);
    held.are_free.store(false, Ordering::Relaxed);
    let clients = get_many(&gateway, 20);
    wait_for("the requests", || {
        (held.requests.load(Ordering::Relaxed) == 20).then_some(())
    });
    assert_eq!(*held.most.lock().expect("no holder panics"), 8);
    drop(gateway);
    clients.into_iter().for_each(|client| drop(client.join()));
}

#[test]
fn a_value_with_a_space_at_an_end_is_malformed() {
    for value in [" a", "a ", "\ta"] {
        let head = block("x-a", value);
        let origin = scripted(&[], move |connection| {
            while let Some(stream) = connection.next_request() {
                connection.send(&frames::response(stream, &head, true));
            }
        });
        let gateway = Gateway::start(&config(&[origin.url()], ""));
        assert_eq!(get(gateway.address(), "/").status, 502, "{value:?}");
    }
}

#[test]
fn a_response_without_content_has_no_length() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        let response = http::Response::builder().status(204);
        let response = response.header("content-length", "0").body(());
        let response = response.expect("a response");
        exchange
            .respond
            .send_response(response, true)
            .ok()
            .map(drop)
    });
    let gateway = Gateway::start(&config(&[origin.url()], ""));
    let mut client = Http2::open(gateway.address());
    client.send(&frames::request(1, &get_block()));
    let head = client.receive().expect("a response");
    assert_eq!(head.status(), Some(204));
    // `content-length` is the 28th entry of HPACK's static table, by which encoders name it. The value
    // `0` has one byte, plain or in Huffman code: other bytes may follow 0x5c in a date.
    let names_length = |pair: &[u8]| matches!(pair, [0x5c, 0x01 | 0x81] | [0x0f | 0x1f, 0x0d]);
    assert!(!head.payload.windows(2).any(names_length), "{head:?}");
}
