//! Streams of HTTP/2 that either side resets: what the other side learns.

use std::thread;
use std::time::Duration;

use crate::support::frames::{
    self, CANCEL, DATA, Http2, NO_ERROR, REFUSED_STREAM, RST_STREAM, frame,
    get_block,
};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::scripted;

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
