//! Connections over in-memory pipes, on virtual time.

use std::net::SocketAddr;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use tokio::{
    io::{AsyncWriteExt, DuplexStream, duplex, split},
    net::TcpStream,
    task::{JoinHandle, LocalSet, spawn_local},
    time::{Sleep, sleep},
};

use super::*;
use crate::{
    http::body::RequestBody,
    http::message::{Request, Response},
    net::drain::{DrainController, DrainStage, DrainWatcher},
    server::{ConnectionLife, HalfClose, Timeouts},
};

mod http2;

const HEAD: Duration = Duration::from_secs(10);
const BODY: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(75);

/// Timers fire within a millisecond of their time.
const TICK: Duration = Duration::from_millis(2);

const CLIENT: ClientSpec = ClientSpec {
    timeouts: Timeouts {
        head: HEAD,
        body: BODY,
        idle: IDLE,
    },
    max_head: 8 * 1024,
    max_fields: 100,
    max_connections: 1,
    max_connections_per_client: None,
    life: ConnectionLife {
        max_requests: 1_000,
        max_lifetime: Duration::from_secs(3600),
    },
    half_close: HalfClose::Grace(Duration::from_secs(1)),
};

/// The client's end of a connection.
struct Client {
    io: DuplexStream,
    closer: DrainController,
    served: JoinHandle<Result<(), String>>,
    started: Instant,
    /// Held by every request that is being answered.
    working: Arc<()>,
}

pub(super) fn held(closing: &DrainWatcher) -> ConnectionGuard {
    held_for(closing, None)
}

/// A connection of a server whose exchanges have this bound.
pub(super) fn held_for(closing: &DrainWatcher, max_exchange: Option<Duration>) -> ConnectionGuard {
    in_memory::guard(&CLIENT, closing, max_exchange)
}

fn connect(version: HttpVersion) -> Client {
    connect_as(version, CLIENT)
}

fn connect_as(version: HttpVersion, client: ClientSpec) -> Client {
    // As much as a socket takes before its writer has to wait.
    let (io, theirs) = duplex(64 * 1024);
    let (closer, closing) = DrainController::new();
    let working = Arc::new(());
    let works = working.clone();
    let factory = move |_: &ClientConnection| {
        let works = works.clone();
        move |request| Box::pin(answer(works.clone(), request))
    };
    let served = spawn_local(async move {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let connection = in_memory::connection(address, closing.clone());
        let handler = in_memory::handler(client);
        let held = held(&closing);
        let negotiated = NegotiatedConnection::new(version, theirs, handler.first_head());
        let served = handler
            .serve_requests(negotiated, connection, factory, held)
            .await;
        served.map_err(|error| error.to_string())
    });
    Client {
        io,
        closer,
        served,
        started: Instant::now(),
        working,
    }
}

/// Responds as the path says.
async fn answer(
    working: Arc<()>,
    request: Request<RequestBody>,
) -> Result<Response<BoxBody<Bytes, BoxError>>, BoxError> {
    let path = request.uri().path().to_owned();
    match &*path {
        "/drop" => return Err("dropped".into()),
        "/slow" => sleep(Duration::from_millis(800)).await,
        "/never" => std::future::pending().await,
        "/endless" => return Ok(Response::new(Endless(working).boxed())),
        "/unread" => {
            return Ok(Response::new(
                Full::from("unread").map_err(Into::into).boxed(),
            ));
        }
        "/trickle" => return Ok(Response::new(Trickle::new().boxed())),
        _ => {}
    }
    let mut body = request.into_parts().1;
    body.bound(u64::MAX, BODY);
    let length = body.collect().await?.to_bytes().len();
    let body = Full::from(format!("{path} {length}\n"));
    drop(working);
    Ok(Response::new(body.map_err(Into::into).boxed()))
}

/// A body without an end.
struct Endless(#[expect(dead_code, reason = "counted")] Arc<()>);

impl Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 8192])))))
    }
}

/// A body of three bytes, one a minute.
struct Trickle {
    left: u32,
    next: Pin<Box<Sleep>>,
}

impl Trickle {
    const EVERY: Duration = Duration::from_secs(60);

    fn new() -> Self {
        Self {
            left: 3,
            next: Box::pin(sleep(Self::EVERY)),
        }
    }
}

impl Body for Trickle {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        self.next = Box::pin(sleep(Self::EVERY));
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"t")))))
    }
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.io
            .write_all(text.as_bytes())
            .await
            .expect("the server reads");
    }

    async fn read_until(&mut self, end: &str) -> String {
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains(end) {
            answer.push(self.io.read_u8().await.expect("not closed"));
        }
        String::from_utf8(answer).expect("text")
    }

    /// Reads until the server closes. Returns the bytes, and the time.
    async fn read_to_end(&mut self) -> (String, Duration) {
        let mut answer = String::new();
        self.io.read_to_string(&mut answer).await.expect("text");
        (answer, self.started.elapsed())
    }

    /// Waits for the server to end. Returns its error, and the time.
    async fn end(self) -> (Result<(), String>, Duration) {
        let result = self.served.await.expect("does not panic");
        (result, self.started.elapsed())
    }

    fn requests_at_work(&self) -> usize {
        // One is the client's, one the service's.
        Arc::strong_count(&self.working) - 2
    }
}

#[track_caller]
fn assert_at(elapsed: Duration, expected: Duration) {
    assert!(
        (expected..=expected + TICK).contains(&elapsed),
        "{elapsed:?}, not {expected:?}"
    );
}

async fn local<F: Future>(test: F) -> F::Output {
    LocalSet::new().run_until(test).await
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_is_closed_after_the_head_time_out() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        let (answer, at) = client.read_to_end().await;
        assert_eq!(answer, "");
        assert_at(at, HEAD);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_answered_408_in_time() {
    local(async {
        let client = connect(HttpVersion::Http1);
        sleep(Duration::from_secs(4)).await;
        let (mut reader, mut writer) = split(client.io);
        let drip = spawn_local(async move {
            writer
                .write_all(b"GET / HTTP/1.1\r\n")
                .await
                .expect("the server reads");
            while writer.write_all(b"a: b\r\n").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let mut answer = String::new();
        reader.read_to_string(&mut answer).await.expect("text");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        // The deadline counts from connecting.
        assert_at(client.started.elapsed(), HEAD);
        drip.abort();
        let error = client.served.await.expect("does not panic");
        assert_eq!(error, Err("the head did not arrive in time".into()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_connection_is_kept_for_the_idle_time_out() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        for _ in 0..3 {
            client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await;
            client.read_until("/a 0\n").await;
            sleep(IDLE - Duration::from_secs(1)).await;
        }
        let (answer, at) = client.read_to_end().await;
        assert_eq!(answer, "");
        assert_at(
            at,
            3 * (IDLE - Duration::from_secs(1)) + Duration::from_secs(1),
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_second_head_is_bounded_from_its_first_byte() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await;
        client.read_until("/a 0\n").await;
        sleep(Duration::from_secs(50)).await;
        client.send("GET /b HT").await;
        let (answer, at) = client.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert_at(at, Duration::from_secs(50) + HEAD);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_response_may_take_longer_than_every_client_time_out() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client
            .send("GET /trickle HTTP/1.1\r\nhost: x\r\n\r\n")
            .await;
        let answer = client.read_until("0\r\n\r\n").await;
        assert_eq!(answer.matches("1\r\nt\r\n").count(), 3);
        assert_at(client.started.elapsed(), Duration::from_secs(180));
        client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await;
        client.read_until("/a 0\n").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_is_closed_after_the_body_time_out() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client
            .send("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n")
            .await;
        for _ in 0..5 {
            sleep(Duration::from_secs(20)).await;
            let mut some = [0; 10_000];
            client.io.read_exact(&mut some).await.expect("still open");
        }
        let (error, at) = client.end().await;
        assert_eq!(error, Err("the client stopped reading".into()));
        assert_at(at, Duration::from_secs(100) + BODY);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        let requests =
            ["/slow", "/a", "/b"].map(|path| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        client.send(&requests.concat()).await;
        let answer = client.read_until("/b 0\n").await;
        let bodies: Vec<_> = answer
            .lines()
            .filter(|line| line.starts_with('/'))
            .collect();
        assert_eq!(bodies, ["/slow 0", "/a 0", "/b 0"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_half_closes_gets_its_responses() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        let requests =
            ["/slow", "/slow", "/b"].map(|path| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        client.send(&requests.concat()).await;
        client.io.shutdown().await.expect("half-closes");
        let (answer, at) = client.read_to_end().await;
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3, "{answer}");
        assert_at(at, Duration::from_millis(1_600));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_half_closes_has_the_grace_for_each_response() {
    let ended = |half_close, paths: &'static [&'static str]| async move {
        let mut client = connect_as(
            HttpVersion::Http1,
            ClientSpec {
                half_close,
                ..CLIENT
            },
        );
        let get = |path: &&str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        let requests: String = paths.iter().map(get).collect();
        client.send(&requests).await;
        client.io.shutdown().await.expect("half-closes");
        let (answers, at) = client.read_to_end().await;
        (answers.matches("HTTP/1.1 200 OK").count(), at.as_millis())
    };
    local(async {
        let grace = |millis| HalfClose::Grace(Duration::from_millis(millis));
        let slow: &[_] = &["/slow", "/slow"];
        assert_eq!(ended(HalfClose::Serve, slow).await, (2, 1_600));
        assert_eq!(ended(grace(900), slow).await, (2, 1_600));
        let (answered, at) = ended(grace(0), slow).await;
        assert!(answered == 0 && at <= 2, "{answered} at {at}");
        // An immediate response needs no grace.
        assert_eq!(ended(grace(0), &["/a", "/b"]).await, (2, 0));
        let (answered, at) = ended(grace(300), &["/a", "/never"]).await;
        assert!(
            answered == 1 && (300..=302).contains(&at),
            "{answered} at {at}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_cancels_its_request() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client.send("GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await;
        sleep(Duration::from_secs(200)).await;
        assert_eq!(client.requests_at_work(), 1);
        client.io.shutdown().await.expect("leaves");
        let working = client.working.clone();
        let (error, at) = client.end().await;
        assert_eq!(error, Err("the client left before its answer".into()));
        assert_at(at, Duration::from_secs(201));
        assert_eq!(Arc::strong_count(&working), 1, "the request is dropped");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_closes_without_a_response() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client.send("GET /drop HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let (answer, at) = client.read_to_end().await;
        assert_eq!((answer.as_str(), at), ("", Duration::ZERO));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_large_is_answered_431() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client
            .send(&format!(
                "GET / HTTP/1.1\r\na: {}\r\n\r\n",
                "a".repeat(10_000)
            ))
            .await;
        let (answer, _) = client.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_early_response_is_not_lost_to_a_reset() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client
            .send("POST /unread HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n\r\n")
            .await;
        let answer = client.read_until("unread").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // More than the pipe holds, so the server must read it.
        client.send(&"a".repeat(500_000)).await;
        client.io.shutdown().await.expect("ends");
        assert_at(client.end().await.1, Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_unread_body_that_does_not_arrive_ends_the_connection() {
    local(async {
        for rest in [
            "content-length: 10\r\n\r\n",
            "transfer-encoding: chunked\r\n\r\n5\r\nhe",
        ] {
            let mut client = connect(HttpVersion::Http1);
            client
                .send(&format!("POST /unread HTTP/1.1\r\nhost: x\r\n{rest}"))
                .await;
            client.read_until("unread").await;
            assert_at(
                client.end().await.1,
                Duration::from_secs(2) + http1::lingering_close::LINGER,
            );
        }
    })
    .await;
}

/// A connection outside any task.
#[tokio::test(start_paused = true)]
async fn a_short_unread_body_keeps_the_connection() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        for (framing, parts) in [
            ("content-length: 10", ["0123456789", ""]),
            ("content-length: 10", ["01234", "56789"]),
            (
                "transfer-encoding: chunked",
                ["5\r\nhel", "lo\r\n0\r\n\r\n"],
            ),
            (
                "transfer-encoding: chunked",
                ["1\r\na\r\n0\r\nx: y\r\n", "\r\n"],
            ),
        ] {
            let head = format!("POST /unread HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n");
            client.send(&(head + parts[0])).await;
            client.read_until("unread").await;
            sleep(Duration::from_secs(1)).await;
            client.send(parts[1]).await;
        }
        client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await;
        client.read_until("/a 0\n").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_or_large_unread_body_closes_the_connection() {
    local(async {
        for fields in [
            "content-length: 262145",
            "content-length: 5\r\nexpect: 100-continue",
        ] {
            let mut client = connect(HttpVersion::Http1);
            client
                .send(&format!(
                    "POST /unread HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n"
                ))
                .await;
            let answer = client.read_until("unread").await;
            assert!(answer.contains("connection: close\r\n"), "{answer}");
            assert_at(client.end().await.1, http1::lingering_close::LINGER);
        }
        let mut client = connect(HttpVersion::Http1);
        let head = "POST /unread HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(head).await;
        let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
        for _ in 0..5 {
            client.send(&chunk).await;
        }
        client.io.shutdown().await.expect("ends");
        assert_at(client.end().await.1, Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_line_after_a_request_begins_no_head() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await;
        client.read_until("/a 0\n").await;
        sleep(Duration::from_secs(1)).await;
        client.send("\r\n").await;
        let (answer, at) = client.read_to_end().await;
        assert_eq!(answer, "");
        assert_at(at, IDLE);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lingering_is_bounded() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client
            .send("POST /unread HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n\r\n")
            .await;
        let (_, at) = client.end().await;
        assert_at(at, super::http1::lingering_close::LINGER);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_a_response_with_connection_close() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        sleep(Duration::from_millis(100)).await;
        client.closer.begin(DrainStage::Close);
        let (answer, at) = client.read_to_end().await;
        assert!(
            answer.contains("connection: close\r\n") && answer.ends_with("/slow 0\n"),
            "{answer}"
        );
        assert_at(at, Duration::from_millis(800));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn draining_serves_a_request_on_its_way() {
    local(async {
        for served_before in [false, true] {
            let mut client = connect(HttpVersion::Http1);
            if served_before {
                client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await;
                client.read_until("/a 0\n").await;
            }
            client.closer.begin(DrainStage::Close);
            sleep(Duration::from_millis(100)).await;
            client.send("GET /b HTTP/1.1\r\nhost: x\r\n\r\n").await;
            let (answer, at) = client.read_to_end().await;
            assert!(
                answer.contains("connection: close\r\n") && answer.ends_with("/b 0\n"),
                "{answer}"
            );
            assert_at(at, Duration::from_millis(100));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn draining_closes_a_quiet_connection_soon() {
    local(async {
        let mut client = connect(HttpVersion::Http1);
        client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await;
        client.read_until("/a 0\n").await;
        client.closer.begin(DrainStage::Close);
        let (answer, at) = client.read_to_end().await;
        assert_eq!(answer, "");
        assert_at(at, crate::server::drain::DRAIN_GRACE);
        client.closer.closed().await;
    })
    .await;
}

#[tokio::test]
async fn the_preface_distinguishes_http2() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("bound");
    let detect_in_pieces = async |pieces: &[&[u8]]| {
        let mut client = TcpStream::connect(address).await.expect("listening");
        let (socket, _) = listener.accept().await.expect("connected");
        let pieces = pieces.to_vec();
        let send = async {
            for piece in &pieces {
                client.write_all(piece).await.expect("writes");
                tokio::task::yield_now().await;
            }
            client.shutdown().await.expect("ends");
        };
        let detection = detect_version(socket, Protocols::Both, Instant::now());
        let (detected, ()) = tokio::join!(detection, send);
        let detected = detected.expect("reads");
        (detected.version, detected.first)
    };
    let (version, first) = detect_in_pieces(&[PREFACE]).await;
    assert_eq!((version, &first[..]), (HttpVersion::Http2, &PREFACE[..]));
    let (version, _) = detect_in_pieces(&[&PREFACE[..1], &PREFACE[1..20], &PREFACE[20..]]).await;
    assert_eq!(version, HttpVersion::Http2);
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "PRI",
        "PRI * HTTP/2.0\r\n\r\nXX",
        "PUT / HTTP/1.1\r\n",
        "",
    ] {
        let (version, first) = detect_in_pieces(&[text.as_bytes()]).await;
        assert_eq!(version, HttpVersion::Http1, "{text}");
        assert!(text.as_bytes().starts_with(&first), "{text}");
    }
}
