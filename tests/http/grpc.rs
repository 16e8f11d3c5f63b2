//! gRPC through the proxy: routes and limits for methods, errors as clients of gRPC read them, and
//! deadlines.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};

use crate::support::client::{get, run};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, scripted};
use crate::support::{DEADLINE, now, origin};

/// A response to a call.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

impl Reply {
    /// `grpc-status`, in the trailers or in a response of trailers only.
    fn code(&self) -> Option<&str> {
        let field = |fields: &'_ HeaderMap| fields.get("grpc-status").cloned();
        let value = field(&self.trailers).or_else(|| field(&self.headers))?;
        let codes = ["0", "2", "4", "8", "12", "13", "14"];
        codes.into_iter().find(|code| value == *code)
    }
}

/// Calls a method with these fields and a message of three bytes.
fn call(address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Reply {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("it listens");
        let (mut requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        let mut request = Request::post(format!("http://a{path}")).header("te", "trailers");
        if !fields.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc+proto");
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let (response, mut upload) = requests.send_request(request, false).expect("a stream");
        let message = Bytes::from_static(b"\0\0\0\0\x03abc");
        upload.send_data(message, true).expect("it is open");
        let response = tokio::time::timeout(DEADLINE, response).await;
        let (head, mut receiver) = response.expect("in time").expect("a response").into_parts();
        let mut body = Vec::new();
        while let Some(data) = receiver.data().await {
            body.extend_from_slice(&data.expect("a whole body"));
        }
        let trailers = receiver.trailers().await.expect("a whole response");
        Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            trailers: trailers.unwrap_or_default(),
        }
    })
}

/// A server that answers with the request's message, and details in the trailers.
fn echoing() -> Http2Origin {
    Http2Origin::start(100, |mut exchange| async move {
        let (body, _) = exchange.receive().await?;
        let trailers = [
            ("grpc-status", "0"),
            ("grpc-message", "all%20is%20well"),
            ("grpc-status-details-bin", "AAECAw"),
        ];
        exchange.answer(&body, &trailers).await
    })
}

#[test]
fn a_call_passes_with_its_metadata_and_trailers() {
    let origin = echoing();
    let gateway = Gateway::start(&format!(
        "upstreams: {{ greeter: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes: [{{ match: {{ grpc: helloworld.Greeter }}, upstream: greeter }}]
",
        origin.url()
    ));
    let fields = [("trace-bin", "AAEC"), ("grpc-timeout", "20S")];
    let reply = call(gateway.address(), "/helloworld.Greeter/SayHello", &fields);
    assert_eq!((reply.status, reply.code()), (200, Some("0")), "{reply:?}");
    assert_eq!(reply.body, b"\0\0\0\0\x03abc");
    assert_eq!(reply.trailers["grpc-message"], "all%20is%20well");
    assert_eq!(reply.trailers["grpc-status-details-bin"], "AAECAw");
    let head = origin.only_request().head;
    assert_eq!(head.method(), "POST");
    assert_eq!(head.uri().path(), "/helloworld.Greeter/SayHello");
    let passed = ["te", "content-type", "trace-bin", "grpc-timeout"];
    let passed = passed.map(|name| head.headers()[name].to_str().expect("text"));
    assert_eq!(
        passed,
        ["trailers", "application/grpc+proto", "AAEC", "20S"]
    );
}

#[test]
fn methods_of_a_service_have_their_own_routes_and_limits() {
    let origin = echoing();
    let gateway = Gateway::start(&format!(
        "upstreams: {{ greeter: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes:
  - {{ match: {{ grpc: pkg.Service/Dear }}, upstream: greeter, limits: [{{ quota: 1/1h }}] }}
  - {{ match: {{ grpc: \"pkg.Service/*\" }}, upstream: greeter }}
",
        origin.url()
    ));
    let code = |path: &str| {
        let reply = call(gateway.address(), path, &[]);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.code().map(str::to_owned)
    };
    assert_eq!(code("/pkg.Service/Dear").as_deref(), Some("0"));
    assert_eq!(
        code("/pkg.Service/Dear").as_deref(),
        Some("8"),
        "RESOURCE_EXHAUSTED"
    );
    for path in [
        "/pkg.Service/Cheap",
        "/pkg.Service/dear",
        "/pkg.Service/Cheap",
    ] {
        assert_eq!(code(path).as_deref(), Some("0"), "{path}");
    }
    for path in ["/pkg.Services/Dear", "/pkg.service/Dear", "/Service/Dear"] {
        assert_eq!(code(path).as_deref(), Some("12"), "UNIMPLEMENTED: {path}");
    }
    for other in [
        "application/json",
        "application/grpc-web",
        "application/grpcx",
    ] {
        let reply = call(
            gateway.address(),
            "/pkg.Service/Cheap",
            &[("content-type", other)],
        );
        assert!(
            reply.status == 404 || reply.code() == Some("12"),
            "{other}: {reply:?}"
        );
    }
}

#[test]
fn failures_of_the_upstream_have_statuses_of_grpc() {
    let code = |url: &str| {
        let gateway = Gateway::start(&format!(
            "upstreams:
  greeter: {{ endpoints: [\"{url}\"], protocol: h2, timeouts: {{ response: 300ms }} }}
routes: [{{ upstream: greeter }}]
"
        ));
        let reply = call(gateway.address(), "/a.B/C", &[]);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.headers["content-type"], "application/grpc");
        reply.code().map(str::to_owned)
    };
    let refusing = format!("http://{}", origin::refusing_address());
    assert_eq!(code(&refusing).as_deref(), Some("14"), "UNAVAILABLE");
    let silent = scripted(&[], |connection| connection.drain());
    assert_eq!(
        code(&silent.url()).as_deref(),
        Some("4"),
        "DEADLINE_EXCEEDED"
    );
    let resetting = scripted(&[], |connection| {
        while let Some(stream) = connection.next_request() {
            connection.send(&crate::support::frames::reset(stream, 2));
        }
    });
    assert_eq!(code(&resetting.url()).as_deref(), Some("14"), "UNAVAILABLE");
}

#[test]
fn a_call_ends_at_its_deadline() {
    let (left, seen) = std::sync::mpsc::channel();
    let origin = Http2Origin::start(100, move |mut exchange| {
        let left = left.clone();
        async move {
            let reason = std::future::poll_fn(|cx| exchange.respond.poll_reset(cx)).await;
            left.send(reason.ok().map(u32::from)).ok()
        }
    });
    let gateway = Gateway::start(&format!(
        "upstreams: {{ greeter: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes: [{{ upstream: greeter }}]
",
        origin.url()
    ));
    let started = now();
    let reply = call(gateway.address(), "/a.B/C", &[("grpc-timeout", "200m")]);
    assert_eq!((reply.status, reply.code()), (200, Some("4")), "{reply:?}");
    assert!(started.elapsed() >= Duration::from_millis(200));
    let reason = seen.recv_timeout(DEADLINE).expect("a reset");
    assert_eq!(reason, Some(crate::support::frames::CANCEL));
}

/// The interpreter that `scripts/grpcio` installs.
pub(crate) fn python() -> PathBuf {
    let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().expect("it is in the target directory");
    let python = target.join("grpcio/bin/python");
    assert!(
        python.exists(),
        "{} is missing: ./scripts/grpcio installs it (./scripts/test does so)",
        python.display()
    );
    python
}

#[test]
fn grpcio_at_both_ends_sees_no_proxy() {
    let (python, program) = (python(), "tests/http/grpc_calls.py");
    let mut server = Command::new(&python)
        .args([program, "serve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    // The server ends with its input.
    let input = server.stdin.take();
    let mut port = String::new();
    let output = server.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut port).expect("a port");
    let gateway = Gateway::start(&format!(
        "upstreams: {{ service: {{ endpoints: [\"http://127.0.0.1:{}\"], protocol: h2 }} }}
routes:
  - {{ match: {{ grpc: test.Echo/Limited }}, upstream: service, limits: [{{ quota: 1/1h }}] }}
  - {{ match: {{ grpc: test.Echo }}, upstream: service }}
",
        port.trim()
    ));
    let address = gateway.address().to_string();
    let output = run(&python.to_string_lossy(), &[program, "call", &address]);
    drop(input);
    server.wait().expect("our child");
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(output.stdout.lines().count(), 10, "{output}");
}

#[test]
fn a_decoy_is_a_success_of_grpc() {
    let gateway = Gateway::start(
        "routes:
  - upstream: echo
    limits: [{ quota: 0/1h, on_limit: { action: decoy, format: json, body: '{\"ok\":true}' } }]
",
    );
    for _ in 0..2 {
        let reply = call(gateway.address(), "/a.B/C", &[]);
        assert_eq!((reply.status, reply.code()), (200, Some("0")), "{reply:?}");
        assert_eq!(reply.headers["content-type"], "application/grpc");
        assert!(reply.body.is_empty());
    }
}

#[test]
fn a_limited_call_is_told_its_wait_in_milliseconds() {
    let gateway = Gateway::start("routes: [{ upstream: echo, limits: [{ quota: 1/10s }] }]\n");
    let wait = |reply: &Reply| {
        let value = reply.headers.get("grpc-retry-pushback-ms")?;
        value.to_str().ok()?.parse::<u64>().ok()
    };
    let replies = [(); 2].map(|()| call(gateway.address(), "/a.B/C", &[]));
    assert_eq!(wait(&replies[0]), None);
    assert_eq!(replies[1].code(), Some("8"), "{:?}", replies[1]);
    let pushback = wait(&replies[1]).expect("a number");
    assert!((1..=10_000).contains(&pushback), "{pushback}");
    let seconds = replies[1].headers["retry-after"].to_str().expect("text");
    assert_eq!(seconds.parse::<u64>(), Ok(pushback.div_ceil(1000)));
    let plain = get(gateway.address(), "/");
    assert_eq!(
        (plain.status, plain.header("grpc-retry-pushback-ms")),
        (429, None)
    );
}
