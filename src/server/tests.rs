//! A whole server on 127.0.0.1, driven by raw sockets and hyper's client.

use std::{
    convert::Infallible,
    io::{Read, Write},
    net::TcpStream,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Response, service::service_fn};

use super::*;
use crate::http_ext::connection::Scheme;

/// Short enough for a test to wait for, long enough to be told from an answer at once.
const TIMEOUTS: Timeouts = Timeouts {
    head: Duration::from_millis(300),
    body: Duration::from_millis(400),
    idle: Duration::from_millis(700),
};

fn spec(protocols: Protocols, tls: Option<Tls>) -> Spec {
    let address = ([127, 0, 0, 1], 0).into();
    Spec {
        name: "test",
        workers: NonZeroUsize::new(2).expect("not zero"),
        listeners: vec![ListenerSpec {
            address,
            protocols,
            tls,
        }],
        client: ClientSpec {
            timeouts: TIMEOUTS,
            max_head: 8 * 1024,
            max_connections: 100,
        },
    }
}

/// Answers what a path asks for; `/` with the scheme and the body's length.
async fn answer(
    connection: Connection,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let path = request.uri().path().to_owned();
    match &*path {
        "/drop" => return Err("dropped"),
        "/slow" => tokio::time::sleep(Duration::from_millis(300)).await,
        "/never" => std::future::pending().await,
        "/unread" => return Ok(Response::new("unread".into())),
        "/large" => return Ok(Response::new(vec![b'x'; 32 << 20].into())),
        _ => {}
    }
    let length = request
        .into_body()
        .collect()
        .await
        .map_err(|_| "body")?
        .to_bytes()
        .len();
    let scheme = match connection.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    Ok(Response::new(format!("{path} {scheme} {length}").into()))
}

fn start_with(spec: Spec) -> Server {
    let factory = |connection: &Connection| {
        let connection = connection.clone();
        service_fn(move |request| answer(connection.clone(), request))
    };
    Server::start(spec, &Registry::default(), factory).expect("starts")
}

fn start(protocols: Protocols) -> Server {
    start_with(spec(protocols, None))
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).expect("listening");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket option");
    stream
}

/// Sends `text` and reads until the server closes.
fn exchange(server: &Server, text: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(text.as_bytes()).expect("writes");
    read_to_end(&mut stream)
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("closed in time");
    answer
}

/// Reads until what was read contains `text`.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains(text) {
        let mut byte = [0];
        assert_eq!(
            stream.read(&mut byte).expect("answers in time"),
            1,
            "closed: {answer:?}"
        );
        answer.push(byte[0]);
    }
    String::from_utf8(answer).expect("text")
}

#[test]
fn serves_http1() {
    let server = start(Protocols::Both);
    let answer = exchange(
        &server,
        "GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("/a http 0"), "{answer}");
}

#[test]
fn serves_http2_to_clients_with_prior_knowledge() {
    for protocols in [Protocols::Both, Protocols::Http2] {
        let server = start(protocols);
        let stream = connect(&server);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let body = runtime.expect("a runtime").block_on(async {
            stream.set_nonblocking(true).expect("a socket option");
            let stream = tokio::net::TcpStream::from_std(stream).expect("a runtime");
            let executor = hyper_util::rt::TokioExecutor::new();
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
                .await
                .expect("HTTP/2");
            tokio::spawn(connection);
            let request = Request::post("http://x/b").body(Full::<Bytes>::from("12345"));
            let response = sender
                .send_request(request.expect("valid"))
                .await
                .expect("answers");
            response
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes()
        });
        assert_eq!(body, "/b http 5");
    }
}
