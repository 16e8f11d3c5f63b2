//! Upstreams that speak HTTP/2: connections are shared, bodies stream both ways, and trailers pass.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use http::Version;
use tokio::sync::Semaphore;

use crate::support::client::{Connection, curl, get};
use crate::support::frames::{
    self, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, field, frame, get_block,
};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, scripted, send};
use crate::support::{DEADLINE, tls, wait_for};

fn config(origin: &Http2Origin) -> String {
    config_for(&origin.url())
}

fn config_for(url: &str) -> String {
    format!(
        "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{url}\"], protocol: h2 }} }}
routes: [{{ upstream: origin }}]
"
    )
}

fn open_connections(origin: &Http2Origin) -> String {
    let endpoint = origin.address();
    format!("sluicegate_upstream_connections{{upstream=\"origin\",endpoint=\"{endpoint}\"}}")
}

#[test]
fn a_request_of_http1_becomes_one_of_http2() {
    let origin = Http2Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let fields = "X-Own: 1\r\nConnection: x-hop\r\nX-Hop: 1\r\nTE: trailers, gzip\r\n\
                  Cookie: a=1\r\nAccept: */*\r\n";
    let request = format!("GET /a?b=c HTTP/1.1\r\nHost: Example.com:81\r\n{fields}\r\n");
    let answer = Connection::open(gateway.address()).exchange(&request);
    assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()));
    assert_eq!(answer.expect_header("via"), "2.0 sluicegate");

    let head = origin.only_request().head;
    assert_eq!(head.version(), Version::HTTP_2);
    assert_eq!(head.method(), "GET");
    assert_eq!(head.uri(), "http://Example.com:81/a?b=c");
    let field = |name: &str| {
        head.headers()
            .get(name)
            .map(|value| value.to_str().expect("text"))
    };
    assert_eq!(field("x-own"), Some("1"));
    assert_eq!(field("te"), Some("trailers"));
    assert_eq!(field("via"), Some("1.1 sluicegate"));
    for absent in [
        "host",
        "connection",
        "x-hop",
        "keep-alive",
        "transfer-encoding",
    ] {
        assert_eq!(field(absent), None, "{absent}");
    }
}

#[test]
fn bodies_and_trailers_pass_both_ways() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        let (body, trailers) = exchange.receive().await?;
        let sum = trailers.get("x-sum").cloned();
        let sum = sum.map_or_else(String::new, |sum| sum.to_str().expect("text").to_owned());
        exchange.answer(&body, &[("x-sum-was", &sum)]).await
    });
    let gateway = Gateway::start(&config(&origin));
    let mut client = Connection::open(gateway.address());
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n";
    let answer = client.exchange(request);
    assert_eq!((answer.status, answer.text()), (200, "abcde".to_owned()));
    assert_eq!(answer.trailer("x-sum-was"), Some("5"));

    let large = "x".repeat(3_000_000);
    let length = large.len();
    let request = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{large}");
    assert_eq!(client.exchange(&request).body, large.as_bytes());
    let uploaded = origin.requests().pop().expect("two requests").head;
    assert_eq!(uploaded.headers()["content-length"], "3000000");
}

#[test]
fn an_empty_response_keeps_its_length_and_a_head_response_the_length_of_get() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        let mut response = http::Response::new(());
        let length = exchange.head.uri().path()[1..].parse().expect("a number");
        response.headers_mut().insert("content-length", length);
        exchange
            .respond
            .send_response(response, true)
            .ok()
            .map(drop)
    });
    let gateway = Gateway::start(&config(&origin));
    assert_eq!(
        get(gateway.address(), "/0").expect_header("content-length"),
        "0"
    );
    let mut client = Connection::open(gateway.address());
    let answer = client.exchange("HEAD /5 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.expect_header("content-length"), "5");
    assert_eq!(
        client.exchange("GET /0 HTTP/1.1\r\nHost: a\r\n\r\n").status,
        200
    );
}

#[test]
fn a_client_of_http2_gets_trailers_and_an_end_without_bytes() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        exchange.receive().await?;
        exchange.answer(b"", &[("grpc-status", "0")]).await
    });
    let gateway = Gateway::start(&config(&origin));
    let mut client = Http2::open(gateway.address());
    client.send(&frames::request(1, &get_block()));
    let frames: Vec<_> = client
        .frames()
        .take(2)
        .map(|frame| (frame.kind, frame.flags))
        .collect();
    let trailers = (HEADERS, END_HEADERS | END_STREAM);
    assert_eq!(frames, [(HEADERS, END_HEADERS), trailers]);
}

#[test]
fn both_directions_stream_at_once() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        let mut stream = exchange.begin(&[])?;
        while let Some(data) = exchange.body.data().await {
            let data = data.ok()?;
            exchange
                .body
                .flow_control()
                .release_capacity(data.len())
                .ok()?;
            send(&mut stream, &data).await?;
        }
        stream.send_data(bytes::Bytes::new(), true).ok()
    });
    let gateway = Gateway::start(&config(&origin));
    let mut client = Http2::open(gateway.address());
    let block = [&[0x83, 0x86, 0x84][..], &field(":authority", "a")].concat();
    client.send(&frame(HEADERS, END_HEADERS, 1, &block));
    let head = client
        .receive()
        .expect("a head before the end of the request");
    assert_eq!(head.status(), Some(200));
    for number in 0..20_u8 {
        client.send(&frame(DATA, 0, 1, &[number; 10]));
        let echoed = client.frames().find(|frame| frame.kind == DATA);
        assert_eq!(echoed.expect("an echo").payload, [number; 10]);
    }
    client.send(&frame(DATA, END_STREAM, 1, b""));
    let end = client.frames().find(|frame| frame.flags & END_STREAM != 0);
    assert!(end.is_some());
}

#[test]
fn requests_that_come_at_once_share_one_connection() {
    let origin = Http2Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let barrier = Arc::new(Barrier::new(40));
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let (barrier, address) = (Arc::clone(&barrier), gateway.address());
            thread::spawn(move || {
                barrier.wait();
                get(address, "/").status
            })
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("no panic"), 200);
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(gateway.metric(&open_connections(&origin)), Some(1.0));
}

#[test]
fn another_connection_is_opened_before_streams_run_out() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Http2Origin::start(3, move |mut exchange| {
        let held = Arc::clone(&held);
        async move {
            drop(held.acquire().await.ok()?);
            exchange.answer(b"ok", &[]).await
        }
    });
    let gateway = Gateway::start(&config(&origin));
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let address = gateway.address();
            thread::spawn(move || get(address, "/").status)
        })
        .collect();
    wait_for("all requests at the origin", || {
        (origin.requests().len() == 10).then_some(())
    });
    gate.add_permits(100);
    for client in clients {
        assert_eq!(client.join().expect("no panic"), 200);
    }
    assert_eq!(origin.connections(), 4, "three streams each");
}

#[test]
fn an_idle_connection_is_closed() {
    let origin = Http2Origin::plain();
    let idle = config(&origin).replace("protocol: h2", "protocol: h2, timeouts: { idle: 1s }");
    let gateway = Gateway::start(&idle);
    assert_eq!(get(gateway.address(), "/").status, 200);
    let series = open_connections(&origin);
    wait_for("the end of the connection", || {
        (gateway.metric(&series) == Some(0.0)).then_some(())
    });
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_client_that_leaves_cancels_its_stream() {
    let (left, seen) = std::sync::mpsc::channel();
    let origin = Http2Origin::start(100, move |mut exchange| {
        let left = left.clone();
        async move {
            let reason = std::future::poll_fn(|cx| exchange.respond.poll_reset(cx)).await;
            left.send(reason.ok().map(u32::from)).ok()
        }
    });
    let gateway = Gateway::start(&config(&origin));
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the request", || {
        (origin.requests().len() == 1).then_some(())
    });
    client.reset();
    let reason = seen.recv_timeout(Duration::from_secs(20)).expect("a reset");
    assert_eq!(reason, Some(frames::CANCEL));
}

#[test]
fn a_response_before_the_end_of_the_request_passes() {
    let origin = scripted(&[], |connection| {
        while let Some(stream) = connection.next_request() {
            let not_found = frames::response(stream, &[0x8d], true);
            connection.send(&[not_found, frames::reset(stream, frames::NO_ERROR)].concat());
        }
    });
    let gateway = Gateway::start(&config_for(&origin.url()));
    let mut client = Connection::open(gateway.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
    assert_eq!(client.receive().status, 404);
}

#[test]
fn informational_responses_reach_clients_of_http1() {
    // 103, with a Link.
    let block = [&[0x08, 3][..], b"103", &field("link", "</a>")].concat();
    let origin = scripted(&[], move |connection| {
        while let Some(stream) = connection.next_request() {
            connection.send(&frames::response(stream, &block, false));
            connection.send(&frames::response(stream, frames::OK, true));
        }
    });
    let gateway = Gateway::start(&config_for(&origin.url()));
    let answer = get(gateway.address(), "/");
    assert_eq!((answer.status, answer.informational), (200, vec![103]));
}

#[test]
fn curl_speaks_http2_at_both_ends() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        let (body, _) = exchange.receive().await?;
        exchange.answer(&body, &[]).await
    });
    let gateway = Gateway::start(&config(&origin));
    let url = gateway.url("/");
    let version = [
        "-w",
        "%{http_version} %{http_code}",
        "--http2-prior-knowledge",
    ];
    let output = curl(&[&version[..], &["-d", "hello ", &url]].concat());
    assert_eq!(output.stdout, "hello 2 200", "{output}");
}

#[test]
fn a_websocket_of_http1_becomes_an_extended_connect() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        assert_eq!(exchange.head.method(), "CONNECT");
        let protocol = exchange.head.extensions().get::<h2::ext::Protocol>();
        assert_eq!(protocol.map(h2::ext::Protocol::as_str), Some("websocket"));
        assert_eq!(exchange.field("sec-websocket-key"), "");
        let mut stream = exchange.begin(&[("sec-websocket-protocol", "chat")])?;
        let (body, _) = exchange.receive().await?;
        send(&mut stream, &body).await?;
        stream.send_data(bytes::Bytes::new(), true).ok()
    });
    let gateway = Gateway::start(&config(&origin));
    let mut client = TcpStream::connect(gateway.address()).expect("it listens");
    client.set_read_timeout(Some(DEADLINE)).expect("a socket");
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let request = format!("GET /chat HTTP/1.1\r\nHost: a\r\n{fields}\r\nhello");
    client.write_all(request.as_bytes()).expect("it is open");
    client.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    client
        .read_to_string(&mut answer)
        .expect("a response, and an end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for field in [
        "upgrade: websocket",
        "sec-websocket-protocol: chat",
        "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    ] {
        assert!(head.contains(field), "{head}");
    }
    assert_eq!(body, "hello");
}

#[test]
fn a_websocket_needs_a_server_that_supports_it() {
    let origin = scripted(&[], |connection| connection.drain());
    let gateway = Gateway::start(&config_for(&origin.url()));
    let mut client = Connection::open(gateway.address());
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n";
    let answer = client.exchange(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    assert_eq!(answer.status, 501, "{answer:?}");
}

#[test]
fn the_version_is_chosen_by_alpn() {
    for (offered, protocol, status) in [
        ("[h2, http/1.1]", "auto", "200 2.0"),
        ("[http/1.1]", "auto", "200 1.1"),
        ("[h2]", "h2", "200 2.0"),
        ("[h2, http/1.1]", "http1", "200 1.1"),
        ("[http/1.1]", "h2", "502"),
    ] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        tls::certify(dir.path(), "own", &["localhost"]);
        let [certificate, key] = ["own.pem", "own.key"].map(|name| dir.path().join(name));
        let (certificate, key) = (certificate.display(), key.display());
        let origin = Gateway::start(&format!(
            "listeners: [{{ address: 127.0.0.1:0, protocols: {offered}, tls: {{ certificates: [{{ certificate: {certificate}, key: {key} }}] }} }}]
routes: [{{ upstream: echo }}]
"
        ));
        let gateway = Gateway::start(&format!(
            "upstreams:
  origin:
    endpoints: [\"https://{}\"]
    protocol: {protocol}
    tls: {{ ca: {certificate}, server_name: localhost }}
routes: [{{ upstream: origin }}]
",
            origin.address()
        ));
        for _ in 0..3 {
            let answer = get(gateway.address(), "/");
            let via = answer.headers_of("via");
            let version = via.first().and_then(|via| via.split(' ').next());
            let seen = match version {
                Some(version) => format!("{} {version}", answer.status),
                None => answer.status.to_string(),
            };
            assert_eq!(seen, status, "{offered} {protocol}: {answer:?}");
        }
    }
}
