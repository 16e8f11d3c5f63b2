use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use h2::SendStream;
use http::HeaderMap;
use http_body_util::BodyExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::http::http2::ReceiveBuffers;

const QUIET: Duration = Duration::from_secs(10);

/// A client that sends a body over HTTP/2.
struct Client {
    stream: SendStream<Bytes>,
    connection: JoinHandle<()>,
}

impl Client {
    fn send(&mut self, data: &'static str) {
        let sent = self.stream.send_data(data.into(), false);
        sent.expect("an open stream");
    }

    fn end(&mut self) {
        let sent = self.stream.send_data(Bytes::new(), true);
        sent.expect("an open stream");
    }
}

/// A body of at most `limit` bytes, of which these parts have been sent, and its client.
async fn body(length: Option<u64>, parts: &[&'static str], limit: u64) -> (RequestBody, Client) {
    let (client, server) = tokio::io::duplex(1 << 16);
    let (client, server) =
        tokio::join!(h2::client::handshake(client), h2::server::handshake(server));
    let ((mut requests, connection), mut server) =
        (client.expect("HTTP/2"), server.expect("HTTP/2"));
    let connection = tokio::spawn(async move { drop(connection.await) });
    let request = http::Request::post("http://a/").body(()).expect("valid");
    let (_, stream) = requests.send_request(request, false).expect("a stream");
    let mut client = Client { stream, connection };
    for part in parts {
        client.send(part);
    }
    let accepted = server.accept().await.expect("a request");
    let (request, respond) = accepted.expect("a request");
    tokio::spawn(async move {
        let _responds = respond;
        while server.accept().await.is_some() {}
    });
    let bodies = ReceiveBuffers::default();
    let mut body = RequestBody::from(StreamBody::new(request.into_body(), length, &bodies));
    body.bound(limit, QUIET);
    (body, client)
}

/// The data of the next frame.
async fn data(body: &mut RequestBody) -> Option<Result<Bytes, RequestBodyError>> {
    let frame = body.frame().await?;
    Some(frame.map(|frame| frame.into_data().expect("a frame of data")))
}

#[tokio::test(start_paused = true)]
async fn a_body_within_the_limit_passes_whole() {
    let (body, mut client) = body(Some(5), &["hello"], 5).await;
    client.end();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_empty());
    let collected = body.collect().await.expect("a whole body");
    assert_eq!(collected.to_bytes(), "hello");
}

#[tokio::test(start_paused = true)]
async fn one_byte_beyond_the_limit_is_too_large() {
    for (length, parts) in [(Some(5), &["hello"][..]), (None, &["he", "llo"])] {
        let (body, mut client) = body(length, parts, 4).await;
        client.end();
        let error = body.collect().await.expect_err("too large");
        assert!(matches!(error, RequestBodyError::TooLarge), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_client_times_out_after_exactly_the_limit() {
    let (mut body, _client) = body(Some(5), &["he"], 5).await;
    assert_eq!(
        data(&mut body).await.and_then(Result::ok).as_deref(),
        Some(&b"he"[..])
    );
    let started = Instant::now();
    let error = data(&mut body)
        .await
        .expect("an error")
        .expect_err("an error");
    assert!(matches!(error, RequestBodyError::Quiet(limit) if limit == QUIET));
    assert_eq!(started.elapsed().as_secs(), QUIET.as_secs());
}

#[tokio::test(start_paused = true)]
async fn every_byte_restarts_the_time_out() {
    let (mut body, mut client) = body(Some(5), &[], 5).await;
    let sender = tokio::spawn(async move {
        for byte in ["h", "e", "l", "l", "o"] {
            tokio::time::sleep(QUIET * 9 / 10).await;
            client.send(byte);
        }
        client.end();
        client
    });
    for _ in 0..5 {
        let byte = data(&mut body).await.expect("a frame").expect("in time");
        assert_eq!(byte.len(), 1);
    }
    assert!(data(&mut body).await.is_none());
    drop(sender.await);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_no_quiet_client() {
    let (mut body, _client) = body(None, &["he", "llo"], 5).await;
    for expected in ["he", "llo"] {
        tokio::time::sleep(QUIET * 2).await;
        let data = data(&mut body).await.expect("a frame").expect("in time");
        assert_eq!(data, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_pass() {
    let (body, mut client) = body(None, &["a"], 1).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", 7.into());
    client
        .stream
        .send_trailers(trailers)
        .expect("an open stream");
    let collected = body.collect().await.expect("a whole body");
    let trailers = collected.trailers().expect("trailers");
    assert_eq!(trailers["x-sum"], "7");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_does_not_end_its_body() {
    for leaves in [
        (|client| client.connection.abort()) as fn(&mut Client),
        |client| client.stream.send_reset(h2::Reason::NO_ERROR),
        |client| client.stream.send_reset(h2::Reason::CANCEL),
    ] {
        let (mut body, mut client) = body(Some(5), &["he"], 5).await;
        assert!(data(&mut body).await.is_some_and(|data| data.is_ok()));
        leaves(&mut client);
        let error = data(&mut body)
            .await
            .expect("an error")
            .expect_err("an error");
        assert!(matches!(error, RequestBodyError::Client(_)), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_need_for_a_body_shows_once_and_before_its_first_byte() {
    let (mut received, mut client) = body(Some(2), &[], 2).await;
    let Some(Inner::Http2(stream)) = &mut received.inner else {
        panic!("a body over HTTP/2");
    };
    let wanted = stream.wanted();
    assert!(!wanted.swap(false, Relaxed));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut received).poll_frame(&mut cx).is_pending());
    assert!(wanted.swap(false, Relaxed));
    client.send("he");
    assert!(data(&mut received).await.is_some_and(|data| data.is_ok()));
    assert!(!wanted.load(Relaxed));
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_may_be_sent_again() {
    let (sent, mut client) = body(Some(0), &[], 0).await;
    client.end();
    let Some(Inner::Http2(mut stream)) = sent.inner else {
        panic!("a body over HTTP/2");
    };
    assert!(poll_fn(|cx| stream.poll_frame(cx)).await.is_none());
    let mut body = RequestBody::from(stream);
    assert!(body.is_empty() && body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(data(&mut body).await.is_none());
}
