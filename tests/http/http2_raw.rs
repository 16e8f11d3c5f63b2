//! HTTP/2 frame by frame: clients that try to cause much work or memory at little cost. Each attack
//! is bounded, and another client is served meanwhile.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::frames::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, GOAWAY,
    HEADERS, Http2, MAX_PAYLOAD, PING, PRIORITY, RST_STREAM, SETTINGS, STREAM_CLOSED,
    WINDOW_UPDATE, field, frame, get_block, indexed_field, request,
};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, ok};
use crate::support::{now, wait_for};

/// One worker, so that the attacker and the other client meet.
const ECHO: &str = "workers: 1\nroutes: [{ upstream: echo }]\n";

/// The most memory that an attack may add, in bytes: a fraction of the frames, heads and responses
/// that it sends.
const BOUND: f64 = 24.0 * 1024.0 * 1024.0;

fn resident(gateway: &Gateway) -> f64 {
    gateway
        .metric("process_resident_memory_bytes")
        .expect("Linux tells it")
}

/// Runs an attack. Checks its cost, and that another client is served meanwhile at `/other`.
fn attacked<T>(gateway: &Gateway, attack: impl FnOnce(SocketAddr) -> T) -> T {
    let done = AtomicBool::new(false);
    assert_eq!(get(gateway.address(), "/other").status, 200);
    let before = resident(gateway);
    let outcome = thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut client = Connection::open(gateway.address());
            while !done.load(Ordering::Relaxed) {
                let asked = now();
                let answer = client.exchange("GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(answer.status, 200);
                assert!(asked.elapsed() < Duration::from_secs(10), "it waits long");
                thread::sleep(Duration::from_millis(1));
            }
        });
        let outcome = {
            let _done = OnDrop(&done);
            attack(gateway.address())
        };
        other.join().expect("the other client is served");
        outcome
    });
    let more = resident(gateway) - before;
    assert!(more < BOUND, "{more} bytes more");
    outcome
}

/// Sets a flag when it is dropped, also by a panic.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends the same many times, until the peer closes or takes no more.
fn flood(address: SocketAddr, first: &[u8], unit: impl Fn(u32) -> Vec<u8>, count: u32) -> Ended {
    let mut attacker = Http2::open(address);
    attacker.wait_to_send_for(Duration::from_secs(1));
    attacker.send(first);
    for batch in (0..count).collect::<Vec<_>>().chunks(500) {
        let bytes: Vec<u8> = batch.iter().flat_map(|number| unit(*number)).collect();
        match attacker.try_send(&bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ended::Stalled,
            Err(_) => return Ended::Closed(attacker.goaway()),
        }
    }
    Ended::Sent(attacker)
}

/// The outcome of a flood.
enum Ended {
    /// The connection, with a GOAWAY that gives this reason.
    Closed(Option<u32>),
    /// The proxy reads nothing more until the attacker reads.
    Stalled,
    /// All bytes were accepted, and the connection may be open.
    Sent(Http2),
}

impl Ended {
    #[track_caller]
    fn expect_calm(self) {
        let reason = match self {
            Self::Closed(reason) => reason,
            Self::Stalled => panic!("the connection is kept"),
            Self::Sent(mut attacker) => attacker.goaway(),
        };
        assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
    }
}

/// Client's streams have odd numbers.
fn stream(number: u32) -> u32 {
    2 * number + 1
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

/// CVE-2023-44487.
#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    let gateway = Gateway::start(ECHO);
    let rapid = |number| [request(stream(number), &get_block()), reset(stream(number))].concat();
    attacked(&gateway, |address| {
        for _ in 0..5 {
            flood(address, &[], rapid, 20_000).expect_calm();
        }
    });
    wait_for("the end of the connections", || {
        let open = gateway.metric(&format!(
            "sluicegate_connections{{listener=\"{}\"}}",
            gateway.address()
        ));
        (open == Some(0.0)).then_some(())
    });
    assert!(gateway.log().lines().count() < 10, "{}", gateway.log());
}

/// Slower: each request has begun when its stream is reset. It leaves nothing, and is charged. A
/// connection that cancels most of its requests ends; refused ones are over, and not cancelled.
#[test]
fn requests_that_are_reset_are_cancelled_and_charged() {
    const STREAMS: u32 = 20_000;
    const QUOTA: usize = 300;
    let origin = Origin::start(|request| match &*request.target {
        "/other" => crate::support::origin::ok("other"),
        _ => vec![Step::Hang],
    });
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{url}\"] }} }}
routes:
  - {{ match: {{ path: /other }}, upstream: origin }}
  - {{ match: {{ path: \"/**\" }}, upstream: origin, limits: [{{ key: constant, quota: {QUOTA}/300d }}] }}
",
        url = origin.url()
    ));
    let (mut cuts, mut is_refused) = (0, false);
    let mut attacker = attacked(&gateway, |address| {
        let mut attacker = Http2::open(address);
        for batch in (0..STREAMS).collect::<Vec<_>>().chunks(50) {
            let begin = batch
                .iter()
                .flat_map(|number| request(stream(*number), &get_block()));
            let begin = begin.chain(frame(PING, 0, 0, b"12345678"));
            let sent = attacker.try_send(&begin.collect::<Vec<_>>());
            let answer = sent.ok().and_then(|()| {
                // Each refused request is answered, and the others hang.
                let mut unanswered = if is_refused { batch.len() } else { usize::MAX };
                attacker.frames().find(|frame| {
                    let is_answer = frame.kind == HEADERS && frame.stream >= stream(batch[0]);
                    is_refused |= frame.kind == HEADERS;
                    unanswered -= usize::from(is_answer);
                    let is_ping = frame.kind == PING && unanswered > batch.len();
                    is_ping || unanswered == 0 || frame.kind == GOAWAY
                })
            });
            if let Some(Frame {
                kind: PING | HEADERS,
                ..
            }) = answer
            {
                let cancel = batch.iter().flat_map(|number| reset(stream(*number)));
                attacker.try_send(&cancel.collect::<Vec<_>>()).ok();
            } else {
                let error = answer.as_ref().and_then(Frame::error);
                assert!(
                    matches!(error, None | Some(ENHANCE_YOUR_CALM)),
                    "{answer:?}"
                );
                attacker = Http2::open(address);
                cuts += 1;
            }
        }
        attacker.ping();
        attacker
    });
    assert_eq!(attacker.status_of(stream(STREAMS), &get_block()), 429);
    assert!(cuts <= QUOTA / 100, "{cuts}");
    let seen = origin.requests();
    let hanging = seen.iter().filter(|request| request.target == "/").count();
    assert!(
        (1..=QUOTA).contains(&hanging),
        "{hanging} reached the origin"
    );
}

#[test]
fn a_field_block_without_an_end_ends_the_connection() {
    let gateway = Gateway::start(ECHO);
    let begin = frame(HEADERS, 0, 1, &get_block());
    for part in [
        vec![],
        field("a", "b"),
        field("a", &"b".repeat(1_000)),
        field("a", &"b".repeat(16_000)),
    ] {
        attacked(&gateway, |address| {
            let more = |_| frame(CONTINUATION, 0, 1, &part);
            flood(address, &begin, more, 5_000).expect_calm();
        });
    }
}

/// A client that does not finish a block holds memory for at most `timeouts.head`.
#[test]
fn a_field_block_that_does_not_end_in_time_ends_the_connection() {
    let gateway = Gateway::start(&format!(
        "client: {{ timeouts: {{ head: 1s, body: 1h, idle: 1h }} }}\n{ECHO}"
    ));
    for (first, drops) in [
        (frame(HEADERS, 0, 3, &get_block()), true),
        (frame(HEADERS, 0, 3, &get_block()), false),
        (request(3, &get_block())[..12].to_vec(), false),
        // Not even the head of the frame.
        (request(3, &get_block())[..1].to_vec(), false),
        (request(3, &get_block())[..8].to_vec(), false),
    ] {
        let mut client = Http2::open(gateway.address());
        // Before the first request the time runs from connecting.
        assert_eq!(client.status_of(1, &get_block()), 200);
        client.send(&first);
        // All frames of a block share one deadline.
        while drops && client.try_send(&frame(CONTINUATION, 0, 3, b"")).is_ok() {
            thread::sleep(Duration::from_millis(250));
        }
        if !drops {
            assert_eq!(client.goaway(), Some(0));
            assert!(client.frames().all(|frame| frame.kind == PING));
        }
    }
    let timeouts = format!(
        "sluicegate_bad_requests_total{{listener=\"{}\",reason=\"timeout\"}}",
        gateway.address()
    );
    assert_eq!(gateway.metric(&timeouts), Some(5.0));
    let mut served = Http2::open(gateway.address());
    assert_eq!(served.status_of(1, &get_block()), 200);
}

/// The first request must arrive within `timeouts.head`, whatever other frames do.
#[test]
fn a_client_without_a_request_gets_a_goaway() {
    let gateway = Gateway::start(&format!(
        "client: {{ timeouts: {{ head: 1s, body: 1h, idle: 1h }} }}\n{ECHO}"
    ));
    for pings in [false, true] {
        let mut client = Http2::open(gateway.address());
        while pings && client.try_send(&frame(PING, 0, 0, &[0; 8])).is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
        if !pings {
            assert_eq!(client.goaway(), Some(0));
        }
    }
    // Later requests have `timeouts.idle`.
    let mut client = Http2::open(gateway.address());
    assert_eq!(client.status_of(1, &get_block()), 200);
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(client.status_of(3, &get_block()), 200);
}

/// RFC 9113 section 6.8: a client that sends a request at that moment learns that it was not seen.
#[test]
fn an_idle_connection_gets_a_goaway() {
    let gateway = Gateway::start(&format!(
        "client: {{ timeouts: {{ idle: 300ms }} }}\n{ECHO}"
    ));
    let mut client = Http2::open(gateway.address());
    assert_eq!(client.status_of(1, &get_block()), 200);
    assert_eq!(client.goaway(), Some(0));
    // A client that goes on is served: the first GOAWAY says that nothing was refused yet.
    assert!(client.try_send(&request(3, &get_block())).is_ok());
    let answer = client.frames().find(|frame| frame.kind == HEADERS);
    assert_eq!(answer.and_then(|frame| frame.status()), Some(200));
    assert!(
        client
            .frames()
            .all(|frame| [GOAWAY, DATA, PING].contains(&frame.kind))
    );
}

#[test]
fn a_value_without_an_end_ends_the_connection() {
    let gateway = Gateway::start(ECHO);
    attacked(&gateway, |address| {
        // A literal whose value claims 256 MiB, then as much of it as is taken.
        let claim = [
            &get_block()[..],
            &[0x00, 1, b'a', 0x7f, 0x81, 0xff, 0xff, 0x7f],
        ]
        .concat();
        let begin = frame(HEADERS, 0, 1, &claim);
        let more = |_| frame(CONTINUATION, 0, 1, &[b'b'; MAX_PAYLOAD]);
        match flood(address, &begin, more, 5_000) {
            Ended::Closed(reason) => assert!(reason.is_some(), "it says why"),
            _ => panic!("80 MB of one value were taken"),
        }
    });
}

#[test]
fn a_head_that_is_too_large_is_answered_431_on_an_open_connection() {
    let gateway = Gateway::start(&format!("client: {{ max_head: 16KiB }}\n{ECHO}"));
    let mut client = Http2::open(gateway.address());
    let with = |length: usize| [get_block(), field("x-long", &"x".repeat(length))].concat();
    assert_eq!(client.status_of(1, &with(15_000)), 200);
    for number in 1..20 {
        assert_eq!(client.status_of(stream(number), &with(17_000)), 431);
    }
    assert_eq!(client.status_of(stream(20), &with(15_000)), 200);
}

#[test]
fn a_head_that_is_large_by_compression_only_is_bounded() {
    let gateway = Gateway::start(ECHO);
    attacked(&gateway, |address| {
        let mut attacker = Http2::open(address);
        let seed = [get_block(), indexed_field("x-bomb", &"x".repeat(3_900))].concat();
        assert_eq!(attacker.status_of(1, &seed), 200);
        // The dynamic table's first entry, 16,000 times: 62 MB.
        let bomb = [get_block(), vec![0xbe; 16_000]].concat();
        attacker.send(&request(3, &bomb));
        let refused = |frame: &Frame| frame.status() == Some(431) || frame.kind == GOAWAY;
        assert!(attacker.frames().any(|frame| refused(&frame)));
    });
}

/// Envoy's bounds, and one for frames that are answered.
#[test]
fn floods_of_cheap_frames_end_the_connection() {
    let gateway = Gateway::start(ECHO);
    let post = frame(
        HEADERS,
        END_HEADERS,
        1,
        &[&[0x83][..], &get_block()[1..]].concat(),
    );
    let floods: [(Vec<u8>, Vec<u8>); 7] = [
        (vec![], frame(PING, 0, 0, b"12345678")),
        (vec![], frame(PING, ACK, 0, b"12345678")),
        (vec![], frame(SETTINGS, 0, 0, &[])),
        (vec![], frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        (vec![], frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        (post, frame(DATA, 0, 1, &[])),
        (vec![], frame(0x77, 0, 0, b"12345678")),
    ];
    for (first, unit) in &floods {
        attacked(&gateway, |address| {
            flood(address, first, |_| unit.clone(), 20_000).expect_calm();
        });
    }
    let counted = format!(
        "sluicegate_bad_requests_total{{listener=\"{}\",reason=\"flood\"}}",
        gateway.address()
    );
    assert_eq!(gateway.metric(&counted), Some(floods.len() as f64));
    assert!(gateway.log().lines().count() < 10, "no line a flood");
}

/// A download with two WINDOW_UPDATE frames and a PING for each DATA frame, and many downloads on one
/// connection.
#[test]
fn a_client_that_answers_each_frame_is_no_flood() {
    const LENGTH: usize = 24 << 20;
    let origin = Origin::start(|_| crate::support::origin::ok(&"x".repeat(LENGTH)));
    let gateway = Gateway::start(&format!(
        "workers: 1\nroutes: [{{ upstream: \"{}\" }}]\n",
        origin.url()
    ));
    let mut client = Http2::open(gateway.address());
    for number in 0..2 {
        client.send(&request(stream(number), &get_block()));
        let mut received = 0;
        while received < LENGTH {
            let frame_in = client.receive().expect("the connection is open");
            if frame_in.kind != DATA || frame_in.payload.is_empty() {
                continue;
            }
            received += frame_in.payload.len();
            let more = (frame_in.payload.len() as u32).to_be_bytes();
            let answers = [
                frame(WINDOW_UPDATE, 0, 0, &more),
                frame(WINDOW_UPDATE, 0, stream(number), &more),
                frame(PING, 0, 0, b"12345678"),
            ];
            client.send(&answers.concat());
        }
        assert_eq!(received, LENGTH);
    }
}

/// Frames that cost their sender nothing, with or without a response: read one by one, never kept.
#[test]
fn floods_of_frames_that_carry_nothing_are_bounded() {
    let gateway = Gateway::start(ECHO);
    let post = frame(
        HEADERS,
        END_HEADERS,
        1,
        &[&[0x83][..], &get_block()[1..]].concat(),
    );
    let floods: [(&str, Vec<u8>, Vec<u8>); 7] = [
        ("PING", vec![], frame(PING, 0, 0, b"12345678")),
        ("PING's answer", vec![], frame(PING, ACK, 0, b"12345678")),
        ("SETTINGS", vec![], frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", vec![], frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        (
            "WINDOW_UPDATE",
            vec![],
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        ),
        ("DATA", post, frame(DATA, 0, 1, &[])),
        ("unknown", vec![], frame(0x77, 0, 0, b"12345678")),
    ];
    for (name, first, unit) in floods {
        // The library may keep or close the connection; its responses are not read.
        let outcome = attacked(&gateway, |address| {
            flood(address, &first, |_| unit.clone(), 800_000)
        });
        if let Ended::Closed(reason) = outcome {
            assert_eq!(reason, Some(ENHANCE_YOUR_CALM), "{name}");
        }
    }
    assert!(gateway.log().lines().count() < 10, "no line a frame");
}

#[test]
fn trailers_with_pseudo_fields_are_malformed() {
    let origin = Origin::start(|request| ok(&format!("{:?}", request.trailers)));
    let gateway = Gateway::start(&format!("routes: [{{ upstream: \"{}\" }}]\n", origin.url()));
    let head = [&[0x83, 0x86, 0x84][..], &indexed_field(":authority", "a")].concat();
    for (pseudo, is_malformed) in [
        (vec![0x84], true),
        // `:authority` of the head, in the dynamic table.
        (vec![0xbe], true),
        (field(":path", "/other"), true),
        ([field("x-a", "1"), vec![0x82]].concat(), true),
        (field("x-a", "1"), false),
    ] {
        let mut client = Http2::open(gateway.address());
        client.send(&frame(HEADERS, END_HEADERS, 1, &head));
        client.send(&frame(DATA, 0, 1, b"body"));
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &pseudo));
        let end = client
            .frames()
            .find(|frame| [HEADERS, RST_STREAM].contains(&frame.kind));
        let end = end.expect("an answer");
        if is_malformed {
            assert_eq!(end.error(), Some(1), "PROTOCOL_ERROR: {end:?}")
        } else {
            assert_eq!(end.status(), Some(200), "{end:?}")
        }
        // The connection goes on.
        assert_eq!(client.status_of(3, &get_block()), 200);
    }
    let posts = origin.requests();
    let posts = posts.iter().filter(|request| request.method == "POST");
    assert_eq!(posts.count(), 1, "only whole requests reach the upstream");
}

/// RFC 9113 section 8.1: a stream that is reset after its response looks like a failure to clients that
/// still send.
#[test]
fn a_short_body_is_taken_whatever_the_answer() {
    let gateway = Gateway::start(
        "routes:
  - { match: { path: /a }, upstream: echo }
  - { match: { path: /denied }, upstream: echo, access: { deny: 127.0.0.1 } }
",
    );
    for (path, status) in [("/none", 404), ("/denied", 403), ("/%zz", 400)] {
        let head = [
            &[0x83, 0x86][..],
            &field(":path", path),
            &indexed_field(":authority", "a"),
        ];
        let mut client = Http2::open(gateway.address());
        client.send(&frame(HEADERS, END_HEADERS, 1, &head.concat()));
        let answer = client.frames().find(|frame| frame.kind == HEADERS);
        assert_eq!(answer.and_then(|frame| frame.status()), Some(status));
        client.send(&frame(DATA, END_STREAM, 1, b"body"));
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get_block()));
        let mut frames = client.frames();
        let next = frames.find(|frame| frame.kind == RST_STREAM || frame.stream == 3);
        assert_eq!(next.map(|frame| frame.kind), Some(HEADERS), "{path}");
    }
}

/// RFC 9113 section 5.1: fields of a stream that its client has ended are no trailers, whatever they
/// are. `h2` ends the connection over them, which section 5.4.1 allows.
#[test]
fn fields_after_the_end_of_a_stream_are_refused() {
    let gateway = Gateway::start(ECHO);
    let end = END_HEADERS | END_STREAM;
    let get = frame(HEADERS, end, 1, &get_block());
    let post = [
        frame(
            HEADERS,
            END_HEADERS,
            1,
            &[&[0x83][..], &get_block()[1..]].concat(),
        ),
        frame(DATA, END_STREAM, 1, b"body"),
    ];
    for ended in [get, post.concat()] {
        for fields in [get_block(), field("x-a", "1")] {
            let mut client = Http2::open(gateway.address());
            client.send(&[ended.clone(), frame(HEADERS, end, 1, &fields)].concat());
            let frames = client.frames();
            let mut ends = frames.filter(|frame| [RST_STREAM, GOAWAY].contains(&frame.kind));
            match ends.next() {
                Some(reset) if reset.kind == RST_STREAM => {
                    assert_eq!(reset.error(), Some(STREAM_CLOSED), "{reset:?}");
                }
                Some(_) | None => {}
            }
        }
    }
}

/// The upstream speaks HTTP/1.1, where whitespace around a value means nothing.
#[test]
fn a_key_gets_no_other_bucket_by_whitespace() {
    let gateway = Gateway::start(
        "routes: [{ upstream: echo, limits: [{ key: header:x-key, quota: 1/1h }] }]\n",
    );
    let mut client = Http2::open(gateway.address());
    let statuses = ["k", "k", "k ", " k", "\tk", "k\t", " k "];
    let statuses = (0..).zip(statuses).map(|(number, value)| {
        let block = [get_block(), field("x-key", value)].concat();
        client.status_of(stream(number), &block)
    });
    assert_eq!(
        statuses.collect::<Vec<_>>(),
        [200, 429, 400, 400, 400, 400, 400]
    );
}
