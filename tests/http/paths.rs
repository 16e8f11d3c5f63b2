//! No spelling of a limited path escapes its limit. Each is limited as the normal path, refused
//! with 400, or forwarded as another path.

use crate::support::client::{Connection, Response, get};
use crate::support::gateway::Gateway;
use crate::support::spellings::{LIMITED, lenient, variants};

const CONFIG: &str = "
routes:
  - name: login
    match: { path: '/v1/log:in' }
    limits: [{ key: constant, quota: 0/1h }]
    upstream: echo
  - { name: rest, upstream: echo }
";

/// The path that the echo upstream was sent.
fn forwarded(response: &Response) -> String {
    let text = response.text();
    let target = text.split(' ').nth(1).unwrap_or_default();
    target.split('?').next().unwrap_or_default().to_owned()
}

#[test]
fn no_spelling_of_a_limited_path_escapes_its_limit() {
    let gateway = Gateway::start(CONFIG);
    let (mut limited, mut refused, mut others) = (0, 0, 0);
    for variant in variants() {
        for target in [
            variant.clone(),
            format!("http://a{variant}"),
            format!("{variant}?x=/../y"),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let response = Connection::open(gateway.address()).exchange(&request);
            // A fragment is no part of a target.
            let path = match variant.split('#').next() {
                Some("") if target.starts_with("http") => "/",
                path => path.unwrap_or_default(),
            };
            match response.status {
                429 => {
                    assert_eq!(lenient(path), LIMITED, "{target}");
                    limited += 1;
                }
                400 => refused += 1,
                200 => {
                    let sent = forwarded(&response);
                    assert_eq!(lenient(&sent), lenient(path), "{target}");
                    // A slash at the end is another path, as configured; everything else has to differ.
                    let is_other = lenient(&sent) != LIMITED || sent.ends_with('/');
                    assert!(is_other, "{target} is forwarded as {sent}");
                    let again = get(gateway.address(), &sent);
                    assert_eq!(forwarded(&again), sent, "it is normal already");
                    others += 1;
                }
                status => panic!("{target}: {status}"),
            }
        }
    }
    assert!(
        limited > 50 && refused > 50 && others > 50,
        "{limited} {refused} {others}"
    );
}

#[test]
fn bytes_that_are_no_text_and_nul_are_refused() {
    let gateway = Gateway::start(CONFIG);
    for path in [
        &b"/v1/log:in\xff"[..],
        b"/v1/\xc0\xaflog:in",
        b"/v1/log:in\0",
        b"/v1/\x7flog:in",
    ] {
        let request = [
            b"GET ",
            path,
            b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ]
        .concat();
        let mut connection = Connection::open(gateway.address());
        connection.send(request);
        assert_eq!(
            connection.receive().status,
            400,
            "{}",
            String::from_utf8_lossy(path)
        );
    }
}

#[test]
fn routes_may_ignore_case_and_a_trailing_slash() {
    let gateway = Gateway::start(
        "
routes:
  - match: { path: /v1/login }
    case_sensitive: false
    trailing_slash: ignore
    limits: [{ key: constant, quota: 0/1h }]
    upstream: echo
  - upstream: echo
",
    );
    let status = |path| get(gateway.address(), path).status;
    for path in [
        "/v1/login",
        "/V1/LogIn",
        "/v1/login/",
        "/v1//LOGIN//",
        "/%561/login/.",
    ] {
        assert_eq!(status(path), 429, "{path}");
    }
    assert_eq!(status("/v1/login/x"), 200);
}

/// The echo of a request, or the status that refused it.
fn echo(gateway: &Gateway, request: &str) -> Result<String, u16> {
    let mut connection = Connection::open(gateway.address());
    let response = connection.exchange(request);
    match response.status {
        200 => Ok(response.text()),
        status => Err(status),
    }
}

#[test]
fn the_upstream_is_sent_origin_form_and_the_fields_of_this_hop_only() {
    let gateway = Gateway::start("routes: [{ upstream: echo }]");
    let close = "Connection: close\r\n\r\n";
    let absolute = format!("GET http://A.example?x=1 HTTP/1.1\r\nHost: a.example\r\n{close}");
    let sent = echo(&gateway, &absolute).expect("an answer");
    assert!(
        sent.starts_with("GET /?x=1 HTTP/1.1\nhost: a.example\n"),
        "{sent}"
    );
    assert!(sent.contains("x-forwarded-host: a.example\n"), "{sent}");
    let star = format!("OPTIONS * HTTP/1.1\r\nHost: a\r\n{close}");
    let sent = echo(&gateway, &star).expect("an answer");
    assert!(sent.starts_with("OPTIONS * HTTP/1.1\n"), "{sent}");
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\
        X-Forwarded-For: 6.6.6.6\r\nConnection: close, Upgrade, HTTP2-Settings, x-forwarded-for, host\r\n\r\n";
    let sent = echo(&gateway, upgrade).expect("an answer");
    assert!(
        !sent.contains("upgrade") && !sent.contains("http2-settings"),
        "{sent}"
    );
    assert!(
        sent.contains("host: a\n") && sent.contains("x-forwarded-for: 127.0.0.1\n"),
        "{sent}"
    );
}

#[test]
fn an_ambiguous_target_is_refused() {
    let gateway = Gateway::start("routes: [{ upstream: echo }]");
    for (line, host, status) in [
        ("GET * HTTP/1.1", "Host: a\r\n", 400),
        ("GET a HTTP/1.1", "Host: a\r\n", 400),
        ("GET http://b/ HTTP/1.1", "Host: a\r\n", 400),
        ("GET http://a/ HTTP/1.1", "", 400),
        ("GET / HTTP/1.1", "", 400),
        ("GET / HTTP/1.1", "Host: a\r\nHost: a\r\n", 400),
        ("GET / HTTP/1.1", "Host:\r\n", 400),
        ("GET / HTTP/1.1", "Host: a, b\r\n", 400),
        ("CONNECT a:80 HTTP/1.1", "Host: a:80\r\n", 501),
        ("TRACE / HTTP/1.1", "Host: a\r\n", 501),
        // Some servers read it as POST.
        ("post / HTTP/1.1", "Host: a\r\n", 501),
        ("Post / HTTP/1.1", "Host: a\r\n", 501),
    ] {
        let request = format!("{line}\r\n{host}Connection: close\r\n\r\n");
        assert_eq!(echo(&gateway, &request), Err(status), "{request}");
    }
}

#[test]
fn http_1_0_without_a_host_is_forwarded_with_the_upstreams() {
    let origin = crate::support::origin::Origin::plain();
    let config = format!("routes: [{{ upstream: 'http://{}' }}]", origin.address());
    let gateway = Gateway::start(&config);
    let response = Connection::open(gateway.address()).exchange("GET /x HTTP/1.0\r\n\r\n");
    assert_eq!(response.status, 200);
    let received = origin.requests();
    assert_eq!(
        received[0].header("host"),
        Some(&*origin.address().to_string())
    );
    assert_eq!(received[0].header("x-forwarded-host"), None);
}
