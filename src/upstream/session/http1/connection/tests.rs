use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;

use super::*;
use crate::http::headers::Headers;
use crate::support::mutations::{cuts, mutated, pieces};

/// An upstream that sends these pieces after the first byte of a request, and then closes.
#[derive(Debug)]
struct Script {
    pieces: VecDeque<Vec<u8>>,
    written: Vec<u8>,
    reader: Option<Waker>,
}

impl Script {
    fn new<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Script {
            pieces: pieces.into_iter().map(<[u8]>::to_vec).collect(),
            written: Vec::new(),
            reader: None,
        }
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.written.is_empty() {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
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
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(buf);
        self.reader.take().inspect(Waker::wake_by_ref);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A whole response.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: u16,
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

fn request(method: &Method) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::empty());
    *request.method_mut() = method.clone();
    request
}

/// The parsed response of these pieces, and whether its connection may be reused.
async fn receive<'a>(
    method: &Method,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Seen, bool), UpstreamErrorKind> {
    let mut connection = UpstreamConnection::new(Script::new(pieces));
    connection.begin(&mut request(method));
    let response = loop {
        let response = poll_fn(|cx| connection.poll_response(cx)).await?;
        if !response.status().is_informational() {
            break response;
        }
    };
    let mut seen = Seen {
        status: response.status().as_u16(),
        fields: fields(response.headers().clone()),
        body: Vec::new(),
        trailers: Vec::new(),
    };
    while let Some(frame) = poll_fn(|cx| connection.poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(data) => seen.body.extend_from_slice(&data),
            Err(trailers) => {
                seen.trailers = fields(trailers.into_trailers().expect("data or trailers"));
            }
        }
    }
    Ok((seen, connection.is_reusable()))
}

/// The same response, parsed by hyper's client.
async fn receive_by_hyper(method: &Method, text: &[u8]) -> Result<Seen, hyper::Error> {
    let io = TokioIo::new(Script::new([text]));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let driver = tokio::spawn(connection);
    let mut request = http::Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method.clone();
    let received = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned().map(fields);
        Ok(Seen {
            status: head.status.as_u16(),
            fields: fields(head.headers),
            body: collected.to_bytes().to_vec(),
            trailers: trailers.unwrap_or_default(),
        })
    };
    let received = received.await;
    driver.abort();
    received
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn get(text: &str) -> Result<(Seen, bool), UpstreamErrorKind> {
    run(receive(&Method::GET, [text.as_bytes()]))
}

/// The body of a response to GET, and whether the connection may be reused.
fn body(text: &str) -> (String, bool) {
    let (seen, reusable) = get(text).expect("a response");
    (String::from_utf8(seen.body).expect("text"), reusable)
}

#[test]
fn bodies_end_at_their_framing() {
    let kept = |text: &str| (text.to_owned(), true);
    let closed = |text: &str| (text.to_owned(), false);
    assert_eq!(
        body("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        kept("hello")
    );
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n";
    assert_eq!(body(chunked), kept("hello"));
    assert_eq!(body("HTTP/1.1 200 OK\r\n\r\nhello"), closed("hello"));
    assert_eq!(body("HTTP/1.1 204 No Content\r\n\r\n"), kept(""));
    assert_eq!(
        body("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
        kept("")
    );
}

#[test]
fn the_connection_persists_while_both_sides_allow() {
    let reusable = |head: &str| body(&format!("{head}\r\ncontent-length: 0\r\n\r\n")).1;
    assert!(reusable("HTTP/1.1 200 OK"));
    assert!(!reusable("HTTP/1.1 200 OK\r\nconnection: x, Close"));
    assert!(!reusable("HTTP/1.0 200 OK"));
    assert!(reusable("HTTP/1.0 200 OK\r\nconnection: keep-alive"));
    let more = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(!body(more).1, "nobody asked for what follows");
}

#[test]
fn informational_responses_precede_the_final_one() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
                HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(body(text), ("ok".to_owned(), true));
}

#[test]
fn a_head_response_has_a_length_and_no_body() {
    let text = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    let (seen, reusable) = run(receive(&Method::HEAD, [&text[..]])).expect("a response");
    assert!(seen.body.is_empty() && reusable);
}

#[test]
fn trailers_come_after_the_last_chunk() {
    let text =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 5\r\n\r\n";
    let (seen, reusable) = get(text).expect("a response");
    assert_eq!(seen.trailers, [("x-sum".to_owned(), b"5".to_vec())]);
    assert!(reusable);
}

#[test]
fn a_response_that_ends_early_is_an_error() {
    for text in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nx: y\r\n",
    ] {
        let failure = get(text).expect_err(text);
        assert!(
            matches!(failure, UpstreamErrorKind::Closed(_)),
            "{text:?}: {failure:?}"
        );
    }
}

#[test]
fn an_ambiguous_response_is_an_error() {
    let chunked =
        |rest: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{rest}");
    let with = |field: &str| format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\nhello");
    for text in [
        with("content-length: +5"),
        with("content-length: 5, 5"),
        with("content-length: 0x5"),
        with("content-length: 99999999999999999999"),
        with("content-length:"),
        with("content-length : 5"),
        with("content-length: 5\r\ncontent-length: 5"),
        with("content-length: 5\r\ntransfer-encoding: chunked"),
        with("transfer-encoding: gzip, chunked"),
        with("a b: c"),
        with(" folded: value"),
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
        "HTTP/1.1 099 Less\r\n\r\n".to_owned(),
        "HTTP/2.0 200 OK\r\n\r\n".to_owned(),
        "ICY 200 OK\r\n\r\n".to_owned(),
        chunked("\r\n"),
        chunked("-1\r\n"),
        chunked("g\r\n"),
        chunked("10000000000000000\r\n"),
        chunked("1\r\nab\r\n0\r\n\r\n"),
        chunked("1\r\na0\r\n\r\n"),
        chunked("0\r\nno colon\r\n\r\n"),
        chunked("0;\nx: y\r\n\r\n"),
        chunked("1;\n0\r\na\r\n0\r\n\r\n"),
        chunked(&format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(5_000))),
        chunked(&format!("0\r\n{}\r\n", "x: y\r\n".repeat(20_000))),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(300)),
        format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(70_000)),
    ] {
        let failure = get(&text).expect_err(&text);
        assert!(
            matches!(failure, UpstreamErrorKind::Invalid(_)),
            "{text:.80}: {failure:?}"
        );
    }
}

#[test]
fn a_request_is_written_with_its_fields_and_its_framing() {
    let written = |method: Method, field: Option<(&'static str, &'static str)>| {
        let mut request = request(&method);
        *request.uri_mut() = "/a?b".parse().expect("a target");
        if let Some((name, value)) = field {
            let name = HeaderName::from_static(name);
            let value = HeaderValue::from_static(value);
            request.headers_mut().insert(name, value);
        }
        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
        let mut connection = UpstreamConnection::new(Script::new([&answer[..]]));
        connection.begin(&mut request);
        run(poll_fn(|cx| connection.poll_response(cx))).expect("a response");
        String::from_utf8(connection.io.written).expect("text")
    };
    let host = Some(("host", "x"));
    assert_eq!(
        written(Method::GET, host),
        "GET /a?b HTTP/1.1\r\nhost: x\r\n\r\n"
    );
    assert_eq!(
        written(Method::POST, None),
        "POST /a?b HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    );
    // Framing fields that contradict the body are not sent.
    assert_eq!(
        written(Method::GET, Some(("content-length", "7"))),
        "GET /a?b HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    );
    assert_eq!(
        written(Method::GET, Some(("transfer-encoding", "chunked"))),
        "GET /a?b HTTP/1.1\r\n\r\n"
    );
}

#[tokio::test]
async fn empty_lines_before_a_response_are_skipped() {
    let text = b"\r\n\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
    for size in 1..=text.len() {
        let received = receive(&Method::GET, text.chunks(size)).await;
        let (seen, is_reusable) = received.expect("a response");
        assert_eq!(
            (seen.status, &seen.body[..], is_reusable),
            (200, &b"a"[..], true)
        );
    }
}

#[tokio::test]
async fn an_idle_connection_is_open_until_bytes_arrive() {
    let (ours, mut theirs) = tokio::io::duplex(64);
    let mut connection = UpstreamConnection::new(ours);
    assert!(connection.is_open());
    tokio::io::AsyncWriteExt::write_all(&mut theirs, b"H")
        .await
        .expect("an open pipe");
    assert!(!connection.is_open());

    let (ours, theirs) = tokio::io::duplex(64);
    let mut connection = UpstreamConnection::new(ours);
    drop(theirs);
    assert!(!connection.is_open());
}

/// Whole responses, to be cut and mutated.
fn seed() -> impl Strategy<Value = Vec<u8>> {
    let status = prop::sample::select(vec![
        "200 OK",
        "204 No Content",
        "304 Not Modified",
        "404",
        "500 x y",
    ]);
    let version = prop::sample::select(vec!["HTTP/1.1", "HTTP/1.0"]);
    let field = prop::sample::select(vec![
        "",
        "x: y\r\n",
        "connection: close\r\n",
        "connection: keep-alive\r\n",
        "X-Long:  a b \r\n",
        "x:\r\n",
    ]);
    let body = prop::sample::select(vec![
        "\r\n",
        "\r\nuntil the end",
        "content-length: 5\r\n\r\nhello",
        "content-length: 0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n003\r\nllo\r\n00\r\nx-t: 1\r\n\r\n",
        "Transfer-Encoding: CHUNKED\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
    ]);
    let interim = prop::sample::select(vec![
        "",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 x\r\na: b\r\n\r\n",
    ]);
    (interim, version, status, field, body).prop_map(|(interim, version, status, field, body)| {
        format!("{interim}{version} {status}\r\n{field}{body}").into_bytes()
    })
}

fn any_method() -> impl Strategy<Value = Method> {
    prop::sample::select(vec![Method::GET, Method::GET, Method::HEAD, Method::POST])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// hyper accepts each accepted response, and reads it alike.
    #[test]
    fn messages_are_read_as_hyper_reads_them(method in any_method(), text in mutated(seed())) {
        run(async {
            if let Ok((ours, _)) = receive(&method, [&text[..]]).await {
                let theirs = receive_by_hyper(&method, &text).await;
                prop_assert_eq!(theirs.as_ref().ok(), Some(&ours), "{:?}", theirs);
            }
            Ok(())
        })?;
    }

    /// A response is read alike however it is cut into pieces.
    #[test]
    fn pieces_make_no_difference(text in mutated(seed()), cuts in cuts()) {
        let at_once = run(receive(&Method::GET, [&text[..]]));
        let in_pieces = run(receive(&Method::GET, pieces(&text, &cuts)));
        let drops = run(receive(&Method::GET, text.chunks(1)));
        for other in [in_pieces, drops] {
            match (&at_once, other) {
                // Later pieces are not yet received when the response has ended.
                (Ok((one, _)), Ok((other, _))) => prop_assert_eq!(one, &other),
                (Err(_), Err(_)) => {}
                (one, other) => prop_assert!(false, "{one:?} {other:?}"),
            }
        }
    }
}
