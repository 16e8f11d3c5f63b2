//! HTTP/2 with a client, through the connection and the gateway: each stream ends once, no stream is
//! answered that the client has not begun, and nothing hangs or grows.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::BytesMutator;
use super::client::{self, Client};
use super::fixture::{self, PREFIX, Random};
use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frames,
};

/// The first byte chooses how the client behaves, the next eight where its bytes are cut. Frames
/// follow.
pub(super) fn run(data: &[u8]) {
    let Some((choice, seed, bytes)) = fixture::choices(data) else {
        return;
    };
    let all = [PREFACE, bytes].concat();
    let pieces = match choice & 4 {
        0 => vec![&all[..]],
        _ => fixture::cut(&all, seed),
    };
    let requests = Rc::new(Cell::new(0));
    let counted = Rc::clone(&requests);
    let client = Client {
        pieces: &pieces,
        stays: choice & 1 == 0,
        is_trusted: choice & 2 == 0,
        // Fields may be one byte each, if they stood in an earlier head.
        most: 64 * 1024 + 512 * bytes.len(),
    };
    let served = client::serve(client, move |_| counted.set(counted.get() + 1));
    let (sent, _) = frames(bytes);
    let mut client = HashMap::<u32, ClientFrames>::new();
    for frame in &sent {
        let frames = client.entry(stream(frame)).or_default();
        frames.all += 1;
        frames.begins |= frame.kind == HEADERS;
    }
    client.retain(|_, frames| frames.begins);
    assert!(requests.get() <= client.len(), "more requests than streams");
    check(&served.output, client);
}

/// What a client has sent on a stream.
#[derive(Default)]
struct ClientFrames {
    begins: bool,
    all: usize,
}

fn stream(frame: &Frame) -> u32 {
    frame.stream & (u32::MAX >> 1)
}

/// Checks what the server has sent to a client that has begun these streams.
fn check(output: &[u8], mut client: HashMap<u32, ClientFrames>) {
    let (sent, rest) = frames(output);
    let first = sent.first().map(|frame| frame.kind);
    assert!(
        matches!(first, None | Some(SETTINGS | GOAWAY)),
        "{first:?} comes first"
    );
    let mut ended = HashSet::<u32>::new();
    for frame in &sent {
        match frame.kind {
            DATA | HEADERS | CONTINUATION => {
                assert!(client.contains_key(&frame.stream), "no such: {frame:?}");
                assert!(!ended.contains(&frame.stream), "it has ended: {frame:?}");
                if frame.kind != CONTINUATION && frame.flags & END_STREAM != 0 {
                    ended.insert(frame.stream);
                }
            }
            RST_STREAM => {
                ended.insert(frame.stream);
                // Each frame on a closed stream may get one (RFC 9113 section 5.1).
                if let Some(frames) = client.get_mut(&frame.stream) {
                    let left = frames.all.checked_sub(1);
                    frames.all = left.unwrap_or_else(|| panic!("one more: {frame:?}"));
                }
            }
            SETTINGS | PING | GOAWAY => assert_eq!(frame.stream, 0, "{frame:?}"),
            WINDOW_UPDATE => {}
            _ => panic!("a server sends no {frame:?}"),
        }
    }
    assert!(rest.len() < 16 * 1024 + 9, "a frame that never ends");
}

/// Changes some frames.
pub(super) fn mutate(
    data: &mut [u8],
    size: usize,
    most: usize,
    seed: u32,
    mutate_bytes: &mut BytesMutator<'_>,
) -> usize {
    let mut random = Random(seed.into());
    // What is no frame also has to be tried.
    if size < PREFIX || random.below(8) == 0 {
        return mutate_bytes(data, size, most);
    }
    let (mut list, rest) = frames(&data[PREFIX..size]);
    let rest = rest.to_vec();
    for _ in 0..=random.below(3) {
        change(&mut list, &mut random, mutate_bytes);
    }
    let mut bytes = data[..PREFIX].to_vec();
    if random.below(8) == 0 {
        let at = random.below(PREFIX);
        bytes[at] = random.below(256) as u8;
    }
    list.iter().for_each(|frame| frame.write(&mut bytes));
    bytes.extend(rest);
    bytes.truncate(most);
    data[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
}

fn change(list: &mut Vec<Frame>, random: &mut Random, mutate_bytes: &mut BytesMutator<'_>) {
    if list.is_empty() || random.below(3) == 0 {
        let at = random.below(list.len() + 1);
        list.insert(at, template(random));
        return;
    }
    let at = random.below(list.len());
    match random.below(9) {
        0 | 1 => {
            let payload = &mut list[at].payload;
            let (size, most) = (payload.len(), payload.len() + 64);
            payload.resize(most, 0);
            let size = mutate_bytes(payload, size, most);
            payload.truncate(size);
        }
        2 => list[at].flags ^= 1 << random.below(8),
        3 => list[at].stream = random.pick(&STREAMS),
        4 => list[at].kind = random.below(12) as u8,
        5 => _ = list.remove(at),
        6 => list.insert(at, list[at].clone()),
        7 => {
            let other = random.below(list.len());
            list.swap(at, other);
        }
        _ if list[at].kind == HEADERS => split_or_extend(list, at, random),
        _ => list[at].payload.extend(field(random.pick(&FIELDS))),
    }
}

/// Continues a header block in another frame, or adds a field to it.
fn split_or_extend(list: &mut Vec<Frame>, at: usize, random: &mut Random) {
    let frame = &mut list[at];
    if random.below(2) == 0 {
        frame.payload.extend(field(random.pick(&FIELDS)));
        return;
    }
    let rest = frame
        .payload
        .split_off(random.below(frame.payload.len() + 1));
    let next = Frame::new(CONTINUATION, frame.flags & END_HEADERS, frame.stream, rest);
    frame.flags &= !END_HEADERS;
    list.insert(at + 1, next);
}

const STREAMS: [u32; 12] = [0, 1, 3, 5, 7, 9, 11, 13, 15, 2, 201, u32::MAX >> 1];

const PATHS: [&str; 12] = [
    "/",
    "/keys",
    "/items/7",
    "/login",
    "/comments",
    "/dropped",
    "/metered/a%2Fb",
    "/queued",
    "/status",
    "/ask",
    "/pkg.Greeter/Hello",
    "/moved?x=1",
];

const FIELDS: [(&str, &str); 25] = [
    ("content-length", "5"),
    ("content-length", "0"),
    ("expect", "100-continue"),
    ("te", "trailers"),
    ("connection", "close"),
    ("transfer-encoding", "chunked"),
    ("host", "a.example"),
    ("x-api-key", "trial-1"),
    ("x-forwarded-for", "198.51.100.7, 10.0.0.9"),
    ("x-forwarded-proto", "https"),
    ("forwarded", "for=198.51.100.7"),
    ("cookie", "session=1; plan=x-free"),
    ("user-agent", "robot"),
    ("origin", "https://app.example"),
    ("access-control-request-method", "POST"),
    ("accept", "text/html, application/json"),
    ("content-type", "application/grpc"),
    ("grpc-timeout", "1S"),
    ("max-forwards", "0"),
    ("x-cost", "40"),
    ("x-version", "2"),
    ("x-original-uri", "/keys"),
    ("sec-websocket-version", "13"),
    (":protocol", "websocket"),
    (":scheme", "https"),
];

/// A frame that makes sense.
fn template(random: &mut Random) -> Frame {
    let stream = random.pick(&STREAMS[1..]);
    match random.below(14) {
        0..=4 => {
            let flags = random.pick(&[END_STREAM | END_HEADERS, END_HEADERS, END_STREAM]);
            Frame::new(HEADERS, flags, stream, request(random))
        }
        5 | 6 => {
            let flags = random.pick(&[0, END_STREAM, 8]);
            let length = random.pick(&[0, 1, 5, 1024]);
            Frame::new(DATA, flags, stream, vec![0; length])
        }
        7 => {
            let trailer = field(random.pick(&FIELDS));
            Frame::new(HEADERS, END_HEADERS | END_STREAM, stream, trailer)
        }
        8 => {
            let (id, value) = (
                random.below(10) as u16,
                random.pick(&[0, 1, 100, 65_535, u32::MAX]),
            );
            let setting = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
            let payload = random.pick(&[&setting[..], b""]);
            Frame::new(SETTINGS, random.pick(&[0, 1]), 0, payload)
        }
        9 => {
            let increment = random.pick(&[0, 1, 1 << 20, u32::MAX >> 1]);
            let stream = random.pick(&[0, stream]);
            Frame::new(WINDOW_UPDATE, 0, stream, increment.to_be_bytes())
        }
        10 => Frame::new(
            RST_STREAM,
            0,
            stream,
            (random.below(14) as u32).to_be_bytes(),
        ),
        11 => Frame::new(PING, random.pick(&[0, 1]), 0, [random.below(256) as u8; 8]),
        12 => Frame::new(GOAWAY, 0, 0, [0; 8]),
        _ => {
            let kind = random.pick(&[PRIORITY, PUSH_PROMISE, CONTINUATION, 10, 16]);
            let length = random.pick(&[0, 4, 5]);
            Frame::new(kind, END_HEADERS, stream, vec![0; length])
        }
    }
}

/// The header block of a request.
fn request(random: &mut Random) -> Vec<u8> {
    // Indices of the static table: GET or POST, and http or https (RFC 7541 appendix A).
    let mut block = vec![random.pick(&[0x82, 0x83]), random.pick(&[0x86, 0x87])];
    if random.below(8) == 0 {
        block = field((
            ":method",
            random.pick(&["CONNECT", "OPTIONS", "HEAD", "PUT"]),
        ));
        block.push(0x86);
    }
    block.extend(field((":path", random.pick(&PATHS))));
    block.extend(field((
        ":authority",
        random.pick(&["a.example", "x.b.example", "a:80"]),
    )));
    for _ in 0..random.below(4) {
        block.extend(field(random.pick(&FIELDS)));
    }
    block
}

/// A literal field, never indexed, without Huffman coding (RFC 7541 section 6.2.2).
fn field((name, value): (&str, &str)) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    [&[0][..], &text(name), &text(value)].concat()
}
