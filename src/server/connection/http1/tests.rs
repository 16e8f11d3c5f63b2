//! What is read of requests, compared with what hyper reads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use http::HeaderName;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::*;
use crate::http::framing;
use crate::http::message::Request;
use crate::net::drain::DrainController;
use crate::server::connection::tests::{held, held_for};
use crate::server::{ConnectionLife, Timeouts};
use crate::support::mutations::{cuts, mutated, pieces};

const CLIENT: ClientSpec = ClientSpec {
    timeouts: Timeouts {
        head: Duration::from_secs(10),
        body: Duration::from_secs(30),
        idle: Duration::from_secs(75),
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

/// A client that says these pieces one after the other, and then ends its side.
#[derive(Debug)]
struct Script {
    pieces: VecDeque<Vec<u8>>,
    answers: Rc<RefCell<Vec<u8>>>,
}

impl Script {
    fn new<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Script {
            pieces: pieces.into_iter().map(<[u8]>::to_vec).collect(),
            answers: Rc::default(),
        }
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.pieces.pop_front() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answers.borrow_mut().extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request with its whole body, as a service sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    line: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
}

fn fields(headers: impl Into<Headers>) -> Vec<(String, Vec<u8>)> {
    let headers = headers.into();
    let field = |(name, value): (&HeaderName, &[u8])| (name.to_string(), value.to_vec());
    let mut fields: Vec<_> = headers.iter().map(field).collect();
    fields.sort();
    fields
}

/// Notes a request that the proxy would serve and whose body is whole.
async fn see<B>(
    seen: Rc<RefCell<Vec<Seen>>>,
    request: Request<B>,
) -> Result<Response<Empty<Bytes>>, Infallible>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let is_served = framing::check_head(&request).is_ok();
    let (head, body) = request.into_parts();
    let collected = body.collect().await;
    if let (true, Ok(collected)) = (is_served, collected) {
        let trailers = collected.trailers().cloned().map(fields);
        seen.borrow_mut().push(Seen {
            line: format!("{} {} {:?}", head.method(), head.uri(), head.version()),
            fields: fields(head.headers().clone()),
            body: collected.to_bytes().to_vec(),
            trailers: trailers.unwrap_or_default(),
        });
    }
    Ok(Response::new(Empty::new()))
}

/// What is seen of requests that come in these pieces, and what is answered.
fn receive<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, String) {
    let seen = Rc::default();
    let script = Script::new(pieces);
    let answers = Rc::clone(&script.answers);
    let noted = Rc::clone(&seen);
    let service = move |mut request: Request<RequestBody>| {
        request.body_mut().bound(u64::MAX, Duration::from_secs(1));
        Box::pin(see(Rc::clone(&noted), request))
    };
    let draining = Cell::new(false);
    let (_closer, closing) = DrainController::new();
    let guard = held(&closing);
    run(async {
        let mut connection = Http1Connection::new(
            script,
            BytesMut::new(),
            &CLIENT,
            InformationalQueue::default(),
            &draining,
            &guard,
        );
        connection.requests_left = 1_000;
        let end = connection.serve(&service).await;
        if let Err(CloseReason::Refused(status, reason)) = end {
            let answer = response::refusal(status, &reason, &[]);
            connection.close(&answer, true).await;
        }
    });
    let answers = String::from_utf8(answers.borrow().clone()).expect("text");
    (seen.take(), answers)
}

/// What hyper's server sees.
fn receive_by_hyper(text: &[u8]) -> Vec<Seen> {
    let seen = Rc::default();
    let noted = Rc::clone(&seen);
    let service = hyper::service::service_fn(move |request: http::Request<_>| {
        let seeing = see(Rc::clone(&noted), request.into());
        async { seeing.await.map(http::Response::from) }
    });
    run(async {
        let io = TokioIo::new(Script::new([text]));
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.header_read_timeout(None).half_close(true);
        let _ = builder.serve_connection(io, service).await;
    });
    seen.take()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// The status lines of the answers.
fn statuses(text: &str) -> Vec<String> {
    let (_, answers) = receive([text.as_bytes()]);
    let lines = answers.lines().filter(|line| line.starts_with("HTTP/1."));
    lines.map(|line| line[9..12].to_owned()).collect()
}

#[test]
fn the_connection_persists_while_both_sides_allow() {
    let get = |fields: &str| format!("GET / HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
    assert_eq!(statuses(&get("").repeat(3)), ["200"; 3]);
    assert_eq!(
        statuses(&(get("connection: x, close\r\n") + &get(""))),
        ["200"]
    );
    assert_eq!(statuses(&get("").replace("1.1", "1.0").repeat(2)), ["200"]);
    let kept = get("connection: keep-alive\r\n").replace("1.1", "1.0");
    assert_eq!(statuses(&kept.repeat(2)), ["200"; 2]);
    assert_eq!(statuses(&format!("\r\n\n{}", get(""))), ["200"]);
    // Where one ends is not certain: nothing behind it is read.
    for fields in [
        "content-length: 1\r\ncontent-length: 1\r\n",
        "content-length: 1, 1\r\n",
        "content-length: +1\r\n",
        "content-length: 1\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: identity\r\n",
    ] {
        let (seen, answers) = receive([(get(fields) + "0\r\n\r\n" + &get("")).as_bytes()]);
        assert_eq!((seen, answers.matches("HTTP/1.1").count()), (vec![], 1));
        assert!(answers.contains("connection: close\r\n"), "{answers}");
    }
}

#[test]
fn an_invalid_request_is_refused_with_its_reason() {
    for (text, status) in [
        ("GET /\r\n\r\n", "400"),
        ("GET / HTTP/1.2\r\n\r\n", "400"),
        ("GET / HTTP/2.0\r\n\r\n", "400"),
        ("G(T / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\na : c\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\na: b\0c\r\n\r\n", "400"),
        ("GET h^p HTTP/1.1\r\n\r\n", "400"),
    ] {
        assert_eq!(statuses(text), [status], "{text:?}");
    }
    let fields = "a: b\r\n".repeat(101);
    assert_eq!(
        statuses(&format!("GET / HTTP/1.1\r\n{fields}\r\n")),
        ["431"]
    );
    let long = "a".repeat(9_000);
    assert_eq!(
        statuses(&format!("GET / HTTP/1.1\r\na: {long}\r\n\r\n")),
        ["431"]
    );
    assert_eq!(statuses(&format!("GET /{long}")), ["431"]);
    let (_, answer) = receive([&b"GET / HTTP/1.1\r\na b: c\r\n\r\n"[..]]);
    assert!(
        answer.ends_with("\r\n\r\n400 Bad Request: it is not valid HTTP: invalid header name\n"),
        "{answer}"
    );
}

#[test]
fn a_head_that_never_ends_is_not_answered() {
    assert_eq!(statuses("GET / HTTP/1.1\r\nhost: x\r\n"), [""; 0]);
    assert_eq!(statuses("\r\n\r\n"), [""; 0]);
}

#[test]
fn continue_is_sent_only_when_the_body_is_read() {
    let post = |rest: &str| {
        let head =
            "POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n";
        let pieces = [head.as_bytes(), rest.as_bytes()];
        receive(pieces.into_iter().filter(|piece| !piece.is_empty())).1
    };
    assert!(post("a").starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"));
    let at_once =
        "POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\na";
    assert_eq!(statuses(at_once), ["200"]);
    let old = at_once.replace("1.1", "1.0");
    assert_eq!(statuses(&old), ["200"]);
}

/// A pipe that holds no more than a part of the first keeps the second waiting until the answer.
#[test]
fn a_late_informational_response_is_dropped() {
    let interim = InformationalQueue::default();
    let hints = interim.clone();
    let service = move |request: Request<RequestBody>| {
        let hints = hints.clone();
        Box::pin(async move {
            if request.uri().path() == "/hints" {
                for _ in 0..2 {
                    let mut hint = Response::new(());
                    *hint.status_mut() = StatusCode::EARLY_HINTS;
                    hints.send(hint);
                    tokio::task::yield_now().await;
                }
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        })
    };
    let answers = run(async {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let requests =
            ["/hints", "/"].map(|path| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        let first = BytesMut::from(requests.concat().as_bytes());
        let draining = Cell::new(false);
        let (_closer, closing) = DrainController::new();
        let guard = held(&closing);
        let mut connection = Http1Connection::new(ours, first, &CLIENT, interim, &draining, &guard);
        connection.requests_left = 10;
        let client = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            theirs.shutdown().await.expect("an open pipe");
            let mut answers = String::new();
            theirs.read_to_string(&mut answers).await.expect("text");
            answers
        };
        let serve = async {
            connection.serve(&service).await.expect("serves");
            drop(connection);
        };
        tokio::join!(serve, client).1
    });
    let lines = answers.lines().filter(|line| line.starts_with("HTTP/1."));
    let statuses: Vec<_> = lines.map(|line| &line[9..12]).collect();
    assert_eq!(statuses, ["103", "200", "200"], "{answers}");
}

/// A body without an announced length, whose first frame is all that ever comes.
struct Endless(Option<Bytes>);

impl crate::http::service::ResponseSource for Endless {}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(data) => Poll::Ready(Some(Ok(http_body::Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

/// The seconds until a connection ends whose client reads nothing of this response, where an
/// exchange may take 10 s.
fn ends_after<B>(body: fn() -> B) -> u64
where
    B: crate::http::service::ResponseSource + 'static,
{
    run(async {
        let (ours, _theirs) = tokio::io::duplex(8);
        let first = BytesMut::from("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        let draining = Cell::new(false);
        let (_closer, closing) = DrainController::new();
        let guard = held_for(&closing, Some(Duration::from_secs(10)));
        let interim = InformationalQueue::default();
        let mut connection = Http1Connection::new(ours, first, &CLIENT, interim, &draining, &guard);
        let service = move |_: Request<RequestBody>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(body())))
        };
        let begun = Instant::now();
        connection.serve(&service).await.expect_err("it is cut off");
        begun.elapsed().as_secs()
    })
}

#[test]
fn a_client_has_time_for_the_whole_answer_or_for_each_part_of_an_endless_one() {
    let whole = || http_body_util::Full::new(Bytes::from_static(&[b'x'; 100]));
    assert_eq!(ends_after(whole), 10);
    let part = || Endless(Some(Bytes::from_static(&[b'x'; 100])));
    assert_eq!(ends_after(part), CLIENT.timeouts.body.as_secs());
}

/// Requests that are whole, to be cut and bent.
fn seed() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "GET /a?b HTTP/1.0\r\n",
        "POST /a HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "PUT http://x/a HTTP/1.1\r\n",
        "\r\nM-SEARCH /x HTTP/1.1\r\n",
    ]);
    let field = prop::sample::select(vec![
        "",
        "host: x\r\n",
        "connection: close\r\n",
        "connection: keep-alive\r\n",
        "X-Long:  a b \r\n",
        "x:\r\n",
        "expect: 100-continue\r\n",
    ]);
    let body = prop::sample::select(vec![
        "\r\n",
        "content-length: 5\r\n\r\nhello",
        "content-length: 0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n003\r\nllo\r\n00\r\nx-t: 1\r\n\r\n",
        "Transfer-Encoding: CHUNKED\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
    ]);
    let request =
        (line, field, body).prop_map(|(line, field, body)| format!("{line}{field}{body}"));
    prop::collection::vec(request, 1..4).prop_map(|requests| requests.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// What is served here is served by hyper, and read as the same, in the same order.
    #[test]
    fn messages_are_read_as_hyper_reads_them(text in mutated(seed())) {
        let (ours, _) = receive([&text[..]]);
        let theirs = receive_by_hyper(&text);
        prop_assert!(theirs.starts_with(&ours), "{:?}\n{ours:?}\n{theirs:?}", String::from_utf8_lossy(&text));
    }

    /// However requests are cut into pieces, they are the same.
    #[test]
    fn pieces_make_no_difference(text in mutated(seed()), cuts in cuts()) {
        let (at_once, _) = receive([&text[..]]);
        let (in_pieces, _) = receive(pieces(&text, &cuts));
        let (drops, _) = receive(text.chunks(1));
        prop_assert_eq!(&at_once, &in_pieces);
        prop_assert_eq!(&at_once, &drops);
    }
}
