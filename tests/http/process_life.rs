//! Processes that come and go: the proxy drains beside its successor with streams open, and upstreams
//! are killed and restarted under load.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use rustix::process::Signal;

use crate::support::DEADLINE;
use crate::support::client::{Connection, counts_failures, get};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Exchange, Http2Origin, send};
use crate::support::origin::free_address;
use crate::support::{now, wait_for};

/// Sends each message back, and ends with `grpc-status: 0`.
async fn echo(mut exchange: Exchange) -> Option<()> {
    if exchange.head.method() == "GET" {
        return exchange.answer(b"ok", &[]).await;
    }
    let mut stream = exchange.begin(&[("content-type", "application/grpc")])?;
    while let Some(data) = exchange.body.data().await {
        let data = data.ok()?;
        exchange
            .body
            .flow_control()
            .release_capacity(data.len())
            .ok()?;
        send(&mut stream, &data).await?;
    }
    let ok = (
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from(0),
    );
    stream.send_trailers([ok].into_iter().collect()).ok()
}

/// A call that streams both ways.
struct Call {
    runtime: tokio::runtime::Runtime,
    upload: SendStream<Bytes>,
    download: RecvStream,
}

impl Call {
    fn open(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (upload, download) = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(address).await;
            let handshake = h2::client::handshake(stream.expect("it listens")).await;
            let (mut requests, connection) = handshake.expect("HTTP/2");
            tokio::spawn(connection);
            let request = http::Request::post("http://a/a.B/C")
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(());
            let request = request.expect("a request");
            let (response, upload) = requests.send_request(request, false).expect("a stream");
            let response = tokio::time::timeout(DEADLINE, response).await;
            let response = response.expect("in time").expect("a response");
            (upload, response.into_body())
        });
        Self {
            runtime,
            upload,
            download,
        }
    }

    /// Sends a message, and receives it back.
    #[track_caller]
    fn exchange(&mut self, message: &'static str) {
        let sent = self.upload.send_data(message.into(), false);
        sent.expect("the stream is open");
        let received = self.receive().expect("a message");
        assert_eq!(received.expect("no error"), message);
    }

    /// The next message; `None` at the end.
    #[track_caller]
    fn receive(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let download = &mut self.download;
        let received = async {
            let received = poll_fn(|cx| download.poll_data(cx));
            tokio::time::timeout(DEADLINE, received).await
        };
        self.runtime.block_on(received).expect("in time")
    }

    /// Ends the request. Returns `grpc-status`.
    #[track_caller]
    fn finish(mut self) -> String {
        self.upload
            .send_data(Bytes::new(), true)
            .expect("it is open");
        assert!(self.receive().is_none());
        let trailers = self.runtime.block_on(self.download.trailers());
        let trailers = trailers.expect("a whole response").expect("trailers");
        trailers["grpc-status"].to_str().expect("text").to_owned()
    }
}

fn proxy(address: SocketAddr, origin: &Http2Origin, deadline: &str) -> Gateway {
    Gateway::start(&format!(
        "listeners: [{{ address: {address} }}]
shutdown: {{ delay: 0s, deadline: {deadline} }}
upstreams: {{ origin: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes: [{{ upstream: origin }}]
",
        origin.url()
    ))
}

#[test]
fn a_stream_goes_on_while_the_successor_serves() {
    let (origin, address) = (Http2Origin::start(100, echo), free_address());
    let mut first = proxy(address, &origin, "20s");
    let mut call = Call::open(address);
    call.exchange("before");

    first.signal(Signal::TERM);
    wait_for("the listener to close", || {
        std::net::TcpStream::connect(address).err().map(drop)
    });
    call.exchange("meanwhile");
    let second = proxy(address, &origin, "20s");
    for _ in 0..10 {
        assert_eq!(get(address, "/").status, 200);
    }
    let mut other = Call::open(address);
    other.exchange("other");
    call.exchange("beside");
    assert_eq!(call.finish(), "0");
    assert!(first.wait().success());

    other.exchange("after");
    assert_eq!(other.finish(), "0");
    drop(second);
}

#[test]
fn a_stream_is_cut_at_the_deadline_and_its_upstream_learns_of_it() {
    let left = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&left);
    let origin = Http2Origin::start(100, move |exchange| {
        let seen = Arc::clone(&seen);
        async move {
            let ended = echo(exchange).await;
            seen.fetch_add(usize::from(ended.is_none()), Ordering::SeqCst);
            ended
        }
    });
    let mut gateway = proxy(free_address(), &origin, "500ms");
    let mut call = Call::open(gateway.address());
    call.exchange("before");
    let started = now();
    gateway.signal(Signal::TERM);
    call.exchange("meanwhile");
    assert!(matches!(call.receive(), Some(Err(_))), "it is cut");
    assert!(started.elapsed() >= Duration::from_millis(450));
    gateway.wait();
    wait_for("the origin to learn of it", || {
        (left.load(Ordering::SeqCst) == 1).then_some(())
    });
}

/// An upstream in a process of its own.
fn upstream() -> Gateway {
    Gateway::start(&format!(
        "listeners: [{{ address: {} }}]
shutdown: {{ delay: 0s, deadline: 5s }}
routes: [{{ upstream: echo }}]
",
        free_address()
    ))
}

#[test]
fn an_upstream_that_is_killed_breaks_its_streams_off_and_nothing_else() {
    let (origin, good) = (Http2Origin::start(100, echo), Http2Origin::start(100, echo));
    let mut killed = proxy(free_address(), &origin, "1s");
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: [\"http://{}\", \"{}\"], protocol: h2 }} }}
routes: [{{ upstream: pool }}]
",
        killed.address(),
        good.url()
    ));
    let mut calls = [(); 4].map(|()| Call::open(gateway.address()));
    calls.iter_mut().for_each(|call| call.exchange("before"));
    killed.signal(Signal::KILL);
    killed.wait();
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/").status, 200);
        // Nothing is sent to an endpoint that takes no connection.
        let mut client = Connection::open(gateway.address());
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(client.exchange(post).status, 200);
    }
    let mut broken = 0;
    for mut call in calls {
        // A reset of the stream may take a moment.
        let is_open = call.upload.send_data("after".into(), false).is_ok();
        match call.receive() {
            Some(Ok(data)) if is_open => {
                assert_eq!(data, "after");
                assert_eq!(call.finish(), "0");
            }
            Some(Err(_)) => broken += 1,
            other => panic!("no clean end: {other:?}"),
        }
    }
    assert_eq!(broken, 2);
    let metrics = get(gateway.admin, "/metrics").text();
    assert!(counts_failures(&metrics, "body_closed"), "{metrics}");
}

/// Restarts two upstreams in turn, by this signal, while clients send idempotent requests.
#[track_caller]
fn expect_no_failure(protocol: &str, signal: Signal) {
    let mut upstreams = [(); 2].map(|()| Some(upstream()));
    let endpoints = upstreams.each_ref().map(|one| {
        let address = one.as_ref().expect("it runs").address();
        format!("http://{address}")
    });
    let gateway = Gateway::start(&format!(
        "upstreams: {{ pool: {{ endpoints: {endpoints:?}, protocol: {protocol} }} }}
routes: [{{ upstream: pool }}]
"
    ));
    let (address, is_over) = (gateway.address(), Arc::new(AtomicBool::new(false)));
    let clients = [(); 8].map(|()| {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            let (mut client, mut requests) = (Connection::open(address), 0);
            while !is_over.load(Ordering::Relaxed) {
                let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(answer.status, 200, "{}", answer.text());
                requests += 1;
                thread::sleep(Duration::from_millis(5));
            }
            requests
        })
    });
    for turn in 0..4 {
        let upstream = &mut upstreams[turn % 2];
        let mut old = upstream.take().expect("it runs");
        thread::sleep(Duration::from_millis(300));
        old.signal(signal);
        old.wait();
        thread::sleep(Duration::from_millis(300));
        *upstream = Some(old.start_again());
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("no failure") > 50);
    }
}

#[test]
fn restarts_of_upstreams_under_load_fail_no_idempotent_request() {
    expect_no_failure("http1", Signal::TERM);
    expect_no_failure("h2", Signal::TERM);
}

#[test]
fn upstreams_that_are_killed_under_load_fail_no_idempotent_request() {
    expect_no_failure("http1", Signal::KILL);
    expect_no_failure("h2", Signal::KILL);
}
