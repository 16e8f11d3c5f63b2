//! Health checks by `grpc.health.v1.Health/Check`: only `SERVING` is well, and servers that answer
//! anything else are left out, each with its reason in the log.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::grpc::python;
use crate::support::client::get;
use crate::support::frames::{self, Http2};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Exchange, Http2Origin, scripted};
use crate::support::origin::{Origin, raw};
use crate::support::{tls, wait_for};

const CHECK: &str = "/grpc.health.v1.Health/Check";

/// A message with one field, in its framing.
const fn message(status: u8) -> [u8; 7] {
    [0, 0, 0, 0, 2, 8, status]
}

const SERVING: [u8; 7] = message(1);
const NOT_SERVING: [u8; 7] = message(2);

fn config(endpoints: &[String], health: &str) -> String {
    format!(
        "upstreams:
  pool:
    endpoints: {endpoints:?}
    protocol: h2
    slow_start: 0s
    health: {{ every: 1s, {health} }}
routes: [{{ upstream: pool }}]
"
    )
}

/// An origin that answers requests with `name`, and checks as `check` says.
fn origin(
    name: &'static str,
    check: impl AsyncFn(Exchange) -> Option<()> + Clone + Send + 'static,
) -> Http2Origin {
    Http2Origin::start(100, move |mut exchange| {
        let check = check.clone();
        async move {
            match exchange.head.uri().path() {
                CHECK => check(exchange).await,
                _ => exchange.answer(name.as_bytes(), &[]).await,
            }
        }
    })
}

/// Answers a call with these fields, this body and these trailers.
async fn reply(
    mut exchange: Exchange,
    content_type: &str,
    body: &[u8],
    trailers: &[(&'static str, &str)],
) -> Option<()> {
    exchange.receive().await?;
    let mut stream = exchange.begin(&[("content-type", content_type)])?;
    crate::support::http2_origin::send(&mut stream, body).await?;
    let fields = trailers.iter().map(|(name, value)| {
        let value = value.parse().expect("a value");
        (http::HeaderName::from_static(name), value)
    });
    stream.send_trailers(fields.collect()).ok()
}

/// An origin whose checks have this answer.
fn answering(name: &'static str, body: &[u8]) -> Http2Origin {
    let body = body.to_vec();
    origin(name, async move |exchange: Exchange| {
        reply(exchange, "application/grpc", &body, &[("grpc-status", "0")]).await
    })
}

fn answers(gateway: &Gateway, name: &str) -> usize {
    let answers = (0..20).map(|_| get(gateway.address(), "/").text());
    answers.filter(|text| text == name).count()
}

/// How many checks had this result.
fn checks(gateway: &Gateway, endpoint: &str, result: &str) -> f64 {
    let labels = format!("upstream=\"pool\",endpoint=\"{endpoint}\",result=\"{result}\"");
    let series = format!("sluicegate_upstream_health_checks_total{{{labels}}}");
    gateway.metric(&series).unwrap_or_default()
}

#[test]
fn a_server_that_does_not_serve_is_left_out_and_comes_back() {
    let is_serving = Arc::new(AtomicBool::new(true));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (flag, seen) = (Arc::clone(&is_serving), Arc::clone(&asked));
    let a = origin("a", async move |mut exchange: Exchange| {
        let (body, _) = exchange.receive().await?;
        seen.lock().expect("no holder panics").push(body);
        let body = if flag.load(Ordering::Relaxed) {
            SERVING
        } else {
            NOT_SERVING
        };
        let mut stream = exchange.begin(&[("content-type", "application/grpc+proto")])?;
        crate::support::http2_origin::send(&mut stream, &body).await?;
        let ok = (
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from(0),
        );
        stream.send_trailers([ok].into_iter().collect()).ok()
    });
    let b = answering("b", &SERVING);
    let health = "grpc: pkg.Api, host: api.internal";
    let gateway = Gateway::start(&config(&[a.url(), b.url()], health));
    let endpoint = a.address().to_string();
    wait_for("a check", || {
        (checks(&gateway, &endpoint, "healthy") >= 1.0).then_some(())
    });
    assert_eq!(answers(&gateway, "a"), 10);

    is_serving.store(false, Ordering::Relaxed);
    gateway.wait_for_log("the endpoint is unhealthy");
    gateway.wait_for_log("the service is NOT_SERVING");
    assert_eq!(answers(&gateway, "a"), 0);

    is_serving.store(true, Ordering::Relaxed);
    gateway.wait_for_log("the endpoint is healthy again");
    wait_for("its share", || (answers(&gateway, "a") == 10).then_some(()));

    let requests = a.requests();
    let call = requests.iter().find(|one| one.head.uri().path() == CHECK);
    let head = &call.expect("a check").head;
    assert_eq!(head.method(), "POST");
    let authority = head.uri().authority().map(|host| host.as_str());
    assert_eq!(authority, Some("api.internal"));
    assert_eq!(head.headers()["content-type"], "application/grpc");
    assert_eq!(head.headers()["te"], "trailers");
    let asked = asked.lock().expect("no holder panics");
    assert_eq!(
        asked[0],
        [&[0, 0, 0, 0, 9, 0x0a, 7], &b"pkg.Api"[..]].concat()
    );
}

#[test]
fn failures_that_are_not_in_a_row_change_nothing() {
    let count = Arc::new(AtomicUsize::new(0));
    let a = origin("a", async move |exchange: Exchange| {
        let number = count.fetch_add(1, Ordering::Relaxed) as u8;
        let body = message(1 + number % 2);
        reply(exchange, "application/grpc", &body, &[("grpc-status", "0")]).await
    });
    let b = answering("b", &SERVING);
    let gateway = Gateway::start(&config(&[a.url(), b.url()], "grpc: \"\""));
    let endpoint = a.address().to_string();
    wait_for("three failures", || {
        (checks(&gateway, &endpoint, "unhealthy") >= 3.0).then_some(())
    });
    assert_eq!(answers(&gateway, "a"), 10);
    assert!(!gateway.log().contains("unhealthy"));
}

/// Expects that the endpoint of `url` is left out for this reason, and another one is not.
#[track_caller]
fn expect_unhealthy(url: &str, reason: &str) {
    let good = answering("good", &SERVING);
    let health = "grpc: \"\", timeout: 500ms, unhealthy_after: 1";
    let gateway = Gateway::start(&config(&[url.to_owned(), good.url()], health));
    let line = gateway.wait_for_log("the endpoint is unhealthy");
    assert!(line.contains(reason), "{reason}: {line}");
    assert!(line.contains(&url["http://".len()..]), "{reason}: {line}");
    assert_eq!(answers(&gateway, "good"), 20, "{reason}");
}

#[test]
fn only_serving_is_well() {
    for (body, reason) in [
        (&message(3)[..], "the service is SERVICE_UNKNOWN"),
        (&[0, 0, 0, 0, 0], "the service is UNKNOWN"),
        (&message(9), "isn't a HealthCheckResponse"),
        (&[], "isn't a HealthCheckResponse"),
        (&[1, 0, 0, 0, 2, 8, 1], "isn't a HealthCheckResponse"),
        (&[0, 0, 0, 0, 3, 8, 1], "isn't a HealthCheckResponse"),
        (&[1; 1025], "more than 1 KiB"),
    ] {
        expect_unhealthy(&answering("bad", body).url(), reason);
    }
}

#[test]
fn answers_that_are_no_calls_of_grpc_fail() {
    let with = |content_type: &'static str, trailers: &'static [(&'static str, &'static str)]| {
        origin("bad", async move |exchange: Exchange| {
            reply(exchange, content_type, &SERVING, trailers).await
        })
    };
    let grpc = "application/grpc";
    for (origin, reason) in [
        (with(grpc, &[("grpc-status", "14")]), "grpc-status 14"),
        (with(grpc, &[("grpc-status", "-1")]), "no valid grpc-status"),
        (with(grpc, &[("x", "0")]), "no valid grpc-status"),
        (with("text/html", &[("grpc-status", "0")]), "isn't gRPC"),
    ] {
        expect_unhealthy(&origin.url(), reason);
    }
    // A head alone.
    let unimplemented = Http2Origin::start(100, |mut exchange| async move {
        let response = http::Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "12");
        let response = response.body(()).expect("a response");
        exchange
            .respond
            .send_response(response, true)
            .ok()
            .map(drop)
    });
    expect_unhealthy(&unimplemented.url(), "grpc-status 12");
    let failing = Http2Origin::start(100, |mut exchange| async move {
        let response = http::Response::builder().status(503).body(());
        let response = response.expect("a response");
        exchange
            .respond
            .send_response(response, true)
            .ok()
            .map(drop)
    });
    expect_unhealthy(&failing.url(), "status 503");
}

#[test]
fn servers_that_break_off_or_hang_fail() {
    let silent = scripted(&[], Http2::drain);
    expect_unhealthy(&silent.url(), "no answer within 500ms (health.timeout)");
    let resetting = scripted(&[], |connection| {
        if let Some(stream) = connection.next_request() {
            connection.send(&frames::reset(stream, frames::CANCEL));
            connection.drain();
        }
    });
    expect_unhealthy(&resetting.url(), "the stream was reset");
    let leaving = scripted(&[], |connection| {
        connection.next_request();
    });
    expect_unhealthy(&leaving.url(), "the connection closed before a response");
    let http1 = Origin::start(|_| raw("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
    expect_unhealthy(&http1.url(), "unhealthy");
    // A window of zero takes no request.
    let closed = scripted(&[0, 4, 0, 0, 0, 0], Http2::drain);
    expect_unhealthy(&closed.url(), "no answer within 500ms (health.timeout)");
}

/// A server with TLS that offers these versions, before `origin`, and a proxy that checks it.
fn checked_over_tls(offered: &str, origin: &Http2Origin) -> (Gateway, Gateway) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tls::certify(dir.path(), "own", &["localhost"]);
    let [certificate, key] = ["own.pem", "own.key"].map(|name| dir.path().join(name));
    let (certificate, key) = (certificate.display(), key.display());
    let server = Gateway::start(&format!(
        "listeners: [{{ address: 127.0.0.1:0, protocols: {offered}, tls: {{ certificates: [{{ certificate: {certificate}, key: {key} }}] }} }}]
upstreams: {{ origin: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes: [{{ upstream: origin }}]
",
        origin.url()
    ));
    let gateway = Gateway::start(&format!(
        "upstreams:
  pool:
    endpoints: [\"https://{}\"]
    protocol: auto
    tls: {{ ca: {certificate}, server_name: localhost }}
    health: {{ grpc: \"\", every: 1s }}
routes: [{{ upstream: pool }}]
",
        server.address()
    ));
    (server, gateway)
}

#[test]
fn a_server_with_tls_is_checked_over_http2_alone() {
    let origin = answering("ok", &SERVING);
    let (server, gateway) = checked_over_tls("[http/1.1]", &origin);
    gateway.wait_for_log("the server does not choose HTTP/2 (ALPN), which gRPC needs");
    assert_eq!(get(gateway.address(), "/").status, 200, "all are used");
    drop(server);

    let (server, gateway) = checked_over_tls("[h2, http/1.1]", &origin);
    let endpoint = server.address().to_string();
    wait_for("two checks", || {
        (checks(&gateway, &endpoint, "healthy") >= 2.0).then_some(())
    });
    assert_eq!(checks(&gateway, &endpoint, "unhealthy"), 0.0);
}

/// grpcio-health-checking, whose status a test sets through its input.
#[test]
fn a_server_of_grpcio_is_checked() {
    let mut server = Command::new(python())
        .arg("tests/http/grpc_health_server.py")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = server.stdin.take().expect("a pipe");
    let mut port = String::new();
    let output = server.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut port).expect("a port");
    let endpoint = format!("127.0.0.1:{}", port.trim());
    let upstream = |name: &str, service: &str| {
        format!(
            "  {name}: {{ endpoints: [\"http://{endpoint}\"], protocol: h2, health: {{ grpc: \"{service}\", every: 1s, unhealthy_after: 1, healthy_after: 1 }} }}\n"
        )
    };
    let gateway = Gateway::start(&format!(
        "upstreams:\n{}{}routes: [{{ match: {{ path: /unknown }}, upstream: unknown }}, {{ upstream: pool }}]\n",
        upstream("pool", "test.Echo"),
        upstream("unknown", "test.Other"),
    ));
    gateway.wait_for_log("grpc-status 5");
    wait_for("a check", || {
        (checks(&gateway, &endpoint, "healthy") >= 1.0).then_some(())
    });
    writeln!(input, "NOT_SERVING").expect("it reads");
    gateway.wait_for_log("the service is NOT_SERVING");
    writeln!(input, "SERVING").expect("it reads");
    gateway.wait_for_log("the endpoint is healthy again");
    drop(input);
    server.wait().expect("our child");
}
