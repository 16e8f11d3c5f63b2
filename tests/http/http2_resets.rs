//! Streams of HTTP/2 that either side resets: what the other side learns, and what a shared connection
//! bears.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::support::client::get;
use crate::support::frames::{
    self, CANCEL, DATA, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Http2, NO_ERROR, REFUSED_STREAM,
    RST_STREAM, frame, get_block,
};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, scripted};
use crate::support::wait_for;

const INTERNAL_ERROR: u32 = 2;
const PROTOCOL_ERROR: u32 = 1;
const HTTP_1_1_REQUIRED: u32 = 13;

fn config(url: &str) -> String {
    format!(
        "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{url}\"], protocol: h2, ejection: off }} }}
routes: [{{ upstream: origin }}]
"
    )
}

/// The code with which a client's stream ends after the head, if the origin ends its own with `end`.
fn relayed(end: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Option<u32> {
    let origin = scripted(&[], move |connection| {
        let Some(stream) = connection.next_request() else {
            return;
        };
        let head = frames::response(stream, frames::OK, false);
        connection.send(&[head, frame(DATA, 0, stream, b"part")].concat());
        thread::sleep(Duration::from_millis(50));
        connection.send(&end(stream));
        thread::sleep(Duration::from_millis(50));
    });
    let gateway = Gateway::start(&config(&origin.url()));
    let mut client = Http2::open(gateway.address());
    client.send(&frames::request(1, &get_block()));
    let mut frames = client.frames().skip_while(|frame| frame.kind != DATA);
    assert_eq!(frames.next().expect("a part").payload, b"part");
    let end = frames.find(|frame| frame.stream == 1).expect("an end");
    assert_eq!(end.kind, RST_STREAM, "{end:?}");
    end.error()
}

#[test]
fn a_response_that_is_reset_is_never_whole() {
    for (code, seen) in [
        (NO_ERROR, INTERNAL_ERROR),
        (REFUSED_STREAM, INTERNAL_ERROR),
        (HTTP_1_1_REQUIRED, INTERNAL_ERROR),
        (PROTOCOL_ERROR, PROTOCOL_ERROR),
        (CANCEL, CANCEL),
    ] {
        let end = relayed(move |stream| frames::reset(stream, code));
        assert_eq!(end, Some(seen), "{code}");
    }
}

#[test]
fn a_response_that_ends_with_its_connection_is_never_whole() {
    let gone = relayed(|_| frames::goaway(0, NO_ERROR));
    assert_eq!(gone, Some(INTERNAL_ERROR));
    // DATA on a stream that was never opened.
    let violated = relayed(|_| frame(DATA, 0, 1001, b"more"));
    assert_eq!(violated, Some(INTERNAL_ERROR));
}

/// An origin that ends the response to `/whole` when the gate opens, and sends no other.
fn holding(gate: &Arc<Semaphore>) -> Http2Origin {
    let held = Arc::clone(gate);
    Http2Origin::start(1000, move |mut exchange| {
        let held = Arc::clone(&held);
        async move {
            if exchange.head.uri().path() == "/whole" {
                drop(held.acquire().await.ok()?);
                return exchange.answer(b"ok", &[]).await;
            }
            std::future::poll_fn(|cx| exchange.respond.poll_reset(cx))
                .await
                .ok()
                .map(drop)
        }
    })
}

/// Sends requests that it cancels as soon as the origin has them. Returns how many there were before
/// the proxy closed the connection, at most `most`.
fn cancel(client: &mut Http2, origin: &Http2Origin, most: u32) -> u32 {
    for number in 0..most {
        let stream = 2 * number + 1;
        let before = origin.requests().len();
        if client
            .try_send(&frames::request(stream, &get_block()))
            .is_err()
        {
            return number;
        }
        let mut is_closed = false;
        wait_for("the request, or the end", || {
            is_closed = client
                .try_send(&frame(frames::PRIORITY, 0, stream, &[0, 0, 0, 0, 1]))
                .is_err();
            (is_closed || origin.requests().len() > before).then_some(())
        });
        if is_closed || client.try_send(&frames::reset(stream, CANCEL)).is_err() {
            return number;
        }
    }
    most
}

#[test]
fn a_client_that_cancels_most_requests_at_once_is_cut_off() {
    let origin = holding(&Arc::new(Semaphore::new(0)));
    let gateway = Gateway::start(&config(&origin.url()));
    let mut client = Http2::open(gateway.address());
    for number in 0..300 {
        let stream = 2 * number + 1;
        let request = frames::request(stream, &get_block());
        if client.try_send(&request).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(2));
        client.try_send(&frames::reset(stream, CANCEL)).ok();
    }
    assert_eq!(client.goaway(), Some(ENHANCE_YOUR_CALM));
    let seen = origin.requests().len();
    assert!(seen <= 110, "{seen} requests reached the origin");
    wait_for("the count", || {
        let metrics = get(gateway.admin, "/metrics").text();
        let counted = |line: &str| line.contains("reason=\"flood\"") && line.ends_with(" 1");
        metrics.lines().any(counted).then_some(())
    });
}

#[test]
fn cancelled_requests_of_many_clients_cut_no_response() {
    let gate = Arc::new(Semaphore::new(0));
    let origin = holding(&gate);
    let gateway = Gateway::start(&config(&origin.url()));
    let address = gateway.address();
    let whole = thread::spawn(move || get(address, "/whole").text());
    wait_for("the request", || {
        (origin.requests().len() == 1).then_some(())
    });
    for _ in 0..6 {
        let mut client = Http2::open(gateway.address());
        assert_eq!(cancel(&mut client, &origin, 60), 60);
    }
    let mut requests = HashMap::new();
    for request in origin.requests() {
        *requests.entry(request.connection).or_insert(0) += 1;
    }
    // Envoy closes a connection at 250.
    assert!(requests.values().all(|count| *count < 120), "{requests:?}");
    gate.add_permits(1);
    assert_eq!(whole.join().expect("no panic"), "ok");
}

#[test]
fn a_request_that_is_cancelled_with_its_head_reaches_no_upstream() {
    let origin = Http2Origin::plain();
    let gateway = Gateway::start(&config(&origin.url()));
    let mut client = Http2::open(gateway.address());
    assert_eq!(client.status_of(1, &get_block()), 200);
    let cancelled = (1..=15).map(|number| {
        let stream = 2 * number + 1;
        [
            frames::request(stream, &get_block()),
            frames::reset(stream, CANCEL),
        ]
        .concat()
    });
    client.send(&cancelled.collect::<Vec<_>>().concat());
    assert_eq!(client.status_of(1001, &get_block()), 200);
    assert_eq!(origin.requests().len(), 2);
}

/// Sends frames on streams that are reset, as long as a sender may not know it. The proxy reads them in
/// thirty parts.
fn send_late_frames(connection: &mut Http2, streams: impl Iterator<Item = u32>) {
    let frames = streams.map(|stream| frame(DATA, 0, stream, b"x"));
    let frames = frames.collect::<Vec<_>>().concat();
    for _ in 0..30 {
        connection.send(&frames);
        connection.ping();
    }
}

/// The library remembers some reset streams for a second, and would end the connection at a thousand
/// resets of others.
#[test]
fn late_frames_of_responses_that_a_client_has_left_cut_no_other() {
    let origin = scripted(&[], |connection| {
        let requests = (0..101).map(|_| connection.next_request().expect("a request"));
        let streams: Vec<u32> = requests.collect();
        for &stream in &streams {
            connection.send(&frames::response(stream, frames::OK, false));
        }
        let mut open: HashSet<u32> = streams.iter().copied().collect();
        while open.len() > 1 {
            let frame = connection.receive().expect("a reset");
            if frame.kind == RST_STREAM {
                open.remove(&frame.stream);
            }
        }
        let left = streams.into_iter().filter(|stream| !open.contains(stream));
        send_late_frames(connection, left);
        for stream in open {
            connection.send(&frame(DATA, END_STREAM, stream, b"whole"));
        }
        connection.drain();
    });
    let gateway = Gateway::start(&config(&origin.url()));
    let address = gateway.address();
    let other = thread::spawn(move || get(address, "/").text());
    let mut leaving = Http2::open(address);
    for number in 0..100 {
        leaving.send(&frames::request(2 * number + 1, &get_block()));
    }
    let heads = leaving.frames().filter(|frame| frame.kind == HEADERS);
    assert_eq!(heads.take(100).count(), 100);
    drop(leaving);
    assert_eq!(other.join().expect("no panic"), "whole");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn late_frames_of_refused_uploads_cut_no_other_request() {
    let gateway = Gateway::start(
        "routes:
  - { match: { methods: [GET] }, upstream: echo }
  - { limits: [{ quota: 0/1h }], upstream: echo }
",
    );
    let mut client = Http2::open(gateway.address());
    let post = [&[0x83], &get_block()[1..]].concat();
    let streams = (0..100).map(|number| 2 * number + 1);
    for stream in streams.clone() {
        client.send(&frames::response(stream, &post, false));
    }
    let resets = client.frames().filter(|frame| frame.kind == RST_STREAM);
    assert_eq!(resets.take(100).count(), 100);
    send_late_frames(&mut client, streams);
    assert_eq!(client.status_of(201, &get_block()), 200);
}
