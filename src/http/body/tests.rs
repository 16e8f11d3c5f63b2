use std::convert::Infallible;

use http::Response;
use http_body_util::{BodyExt, Empty};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;

const QUIET: Duration = Duration::from_secs(10);

/// A body of which `start` has been sent; the client may send more.
async fn body(start: &str, limit: u64) -> (RequestBody, DuplexStream) {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let sent = arrived.send(request.into_body());
        async move {
            sent.expect("the test waits for the body");
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(server), service));
    let head = "POST / HTTP/1.1\r\nhost: a\r\n";
    let request = format!("{head}{start}");
    client
        .write_all(request.as_bytes())
        .await
        .expect("an open pipe");
    let incoming = arrivals.recv().await.expect("a request");
    let mut body = RequestBody::from(incoming);
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
    let (body, _client) = body("content-length: 5\r\n\r\nhello", 5).await;
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_empty());
    let collected = body.collect().await.expect("a whole body");
    assert_eq!(collected.to_bytes(), "hello");
}

#[tokio::test(start_paused = true)]
async fn one_byte_beyond_the_limit_is_too_large_in_any_framing() {
    for start in [
        "content-length: 5\r\n\r\nhello",
        "transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ] {
        let (body, _client) = body(start, 4).await;
        let error = body.collect().await.expect_err("too large");
        assert!(matches!(error, RequestBodyError::TooLarge), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_client_times_out_after_exactly_the_limit() {
    let (mut body, _client) = body("content-length: 5\r\n\r\nhe", 5).await;
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
    let (mut body, mut client) = body("content-length: 5\r\n\r\n", 5).await;
    let sender = tokio::spawn(async move {
        for byte in ["h", "e", "l", "l", "o"] {
            tokio::time::sleep(QUIET * 9 / 10).await;
            client
                .write_all(byte.as_bytes())
                .await
                .expect("an open pipe");
        }
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
    let start = "transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    let (mut body, _client) = body(start, 5).await;
    for expected in ["he", "llo"] {
        tokio::time::sleep(QUIET * 2).await;
        let data = data(&mut body).await.expect("a frame").expect("in time");
        assert_eq!(data, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_pass() {
    let start =
        "trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 7\r\n\r\n";
    let (body, _client) = body(start, 1).await;
    let collected = body.collect().await.expect("a whole body");
    let trailers = collected.trailers().expect("trailers");
    assert_eq!(trailers["x-sum"], "7");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_does_not_end_its_body() {
    let (mut body, client) = body("content-length: 5\r\n\r\nhe", 5).await;
    assert!(data(&mut body).await.is_some_and(|data| data.is_ok()));
    drop(client);
    let error = data(&mut body)
        .await
        .expect("an error")
        .expect_err("an error");
    assert!(matches!(error, RequestBodyError::Client(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_may_be_sent_again() {
    for start in ["\r\n", "content-length: 0\r\n\r\n"] {
        let (mut body, _client) = body(start, 0).await;
        assert!(body.is_empty() && body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(data(&mut body).await.is_none());
    }
}
