//! The same over HTTP/2.

use hyper::client::conn::http2::{SendRequest, handshake};

use hyper_util::rt::TokioIo;

use super::*;

/// Runs hyper's client on the test's thread.
#[derive(Clone)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        spawn_local(task);
    }
}

type Sender = SendRequest<Empty<Bytes>>;

/// hyper's client on the connection; its task's end is the connection's.
async fn speak(io: DuplexStream) -> (Sender, JoinHandle<()>) {
    let (sender, connection) = handshake(LocalExecutor, TokioIo::new(io))
        .await
        .expect("speaks HTTP/2");
    (sender, spawn_local(async move { drop(connection.await) }))
}

fn get(path: &str) -> http::Request<Empty<Bytes>> {
    http::Request::get(format!("http://x{path}"))
        .body(Empty::new())
        .expect("valid")
}

async fn text(response: http::Response<Incoming>) -> String {
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    String::from_utf8(body.into()).expect("text")
}

#[tokio::test(start_paused = true)]
async fn streams_are_concurrent_and_an_idle_connection_ends() {
    local(async {
        let client = connect(HttpVersion::Http2);
        let (mut sender, closed) = speak(client.io).await;
        let slow = sender.send_request(get("/slow"));
        let fast = sender.clone().send_request(get("/a"));
        assert_eq!(text(fast.await.expect("answers")).await, "/a 0\n");
        assert_at(client.started.elapsed(), Duration::ZERO);
        assert_eq!(text(slow.await.expect("answers")).await, "/slow 0\n");
        closed.await.expect("does not panic");
        assert_at(client.started.elapsed(), Duration::from_millis(800) + IDLE);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_resets_its_stream_only() {
    local(async {
        let client = connect(HttpVersion::Http2);
        let (mut sender, _closed) = speak(client.io).await;
        sender.send_request(get("/drop")).await.expect_err("reset");
        let response = sender.send_request(get("/a")).await.expect("answers");
        assert_eq!(text(response).await, "/a 0\n");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn draining_lets_streams_end() {
    local(async {
        let client = connect(HttpVersion::Http2);
        let (mut sender, closed) = speak(client.io).await;
        let slow = sender.send_request(get("/slow"));
        sleep(Duration::from_millis(100)).await;
        client.closer.begin(DrainStage::Close);
        assert_eq!(text(slow.await.expect("answers")).await, "/slow 0\n");
        closed.await.expect("does not panic");
        assert_at(client.started.elapsed(), Duration::from_millis(800));
        client.closer.closed().await;
    })
    .await;
}

/// Other streams of the connection make no difference.
#[tokio::test(start_paused = true)]
async fn a_stream_whose_window_stays_closed_is_reset_after_the_body_time_out() {
    local(async {
        let client = connect(HttpVersion::Http2);
        let (mut sender, closed) = speak(client.io).await;
        let stalled = sender.send_request(get("/endless")).await.expect("answers");
        let trickle = sender.send_request(get("/trickle")).await.expect("answers");
        let trickle = spawn_local(text(trickle));
        // The window is not opened while the body is not read.
        while Arc::strong_count(&client.working) == 3 {
            sleep(Duration::from_secs(2)).await;
            let response = sender.send_request(get("/a")).await.expect("answers");
            assert_eq!(text(response).await, "/a 0\n");
            assert!(client.started.elapsed() <= 2 * BODY + Duration::from_secs(4));
        }
        assert!(client.started.elapsed() >= BODY);
        stalled.into_body().collect().await.expect_err("reset");
        assert_eq!(trickle.await.expect("does not panic"), "ttt");
        closed.await.expect("does not panic");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_its_client_reads_slowly_goes_on() {
    local(async {
        let client = connect(HttpVersion::Http2);
        let (mut sender, _closed) = speak(client.io).await;
        let response = sender.send_request(get("/endless")).await.expect("answers");
        let mut body = response.into_body();
        for _ in 0..200 {
            sleep(BODY / 5).await;
            let frame = body.frame().await.expect("it has no end");
            frame.expect("it goes on");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_reset_cancels_its_request() {
    local(async {
        let client = connect(HttpVersion::Http2);
        let (mut sender, _closed) = speak(client.io).await;
        let request = spawn_local(sender.send_request(get("/never")));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&client.working), 3);
        request.abort();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&client.working), 2);
    })
    .await;
}
