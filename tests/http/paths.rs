//! No spelling of a limited path escapes its limit. Each is limited as the normal path, refused
//! with 400, or forwarded as another path.

use std::collections::BTreeSet;

use crate::support::client::{Connection, Response};
use crate::support::gateway::Gateway;
use sluicegate::http::path::{comparable, normalise};

/// The limited path. Its limit is zero, so that each request is answered 429.
const LIMITED: &str = "/v1/log:in";

const CONFIG: &str = "
routes:
  - name: login
    match: { path: '/v1/log:in' }
    limits: [{ key: constant, quota: 0/1h }]
    upstream: echo
  - { name: rest, upstream: echo }
";

/// Ways to write one character of a path.
fn spellings(character: char) -> Vec<String> {
    let code = character as u32;
    vec![
        format!("%{code:02x}"),
        format!("%{code:02X}"),
        format!("%25{code:02x}"),
        format!("%u{code:04x}"),
        format!("%{:x}%{:x}", 0xc0 | code >> 6, 0x80 | code & 0x3f),
        format!("%{:x}%", code >> 4),
        character.to_ascii_uppercase().to_string(),
    ]
}

/// Segments, separators and endings that may or may not make another path.
const INSERTED: [&str; 36] = [
    "/",
    "//",
    "/.",
    "/./",
    "/../",
    "/x/..",
    "/x/../",
    "/%2e",
    "/%2e/",
    "/%2E%2e/",
    "/.%2e/",
    "/..;/",
    "/..;x=1/",
    "/.;",
    "/..%3b/",
    "%2f",
    "%2F",
    "%5c",
    "\\",
    "/\\",
    ";",
    ";x=1",
    "%3b",
    "%00",
    "%0d%0a",
    "%09",
    "%20",
    "%",
    "%zz",
    "%c0%af",
    "%c0%ae",
    "%ff",
    "%ef%bc%8f",
    "é",
    "#",
    "/%252e%252e/",
];

/// Every spelling of one character or two, and everything inserted at every place, once or twice.
fn variants() -> BTreeSet<String> {
    let mut variants = BTreeSet::from([LIMITED.to_owned()]);
    let places: Vec<usize> = LIMITED.char_indices().map(|(at, _)| at).collect();
    for &at in &places {
        let (before, rest) = LIMITED.split_at(at);
        let mut rest = rest.chars();
        let character = rest.next().expect("a character at every place");
        for spelling in spellings(character) {
            variants.insert(format!("{before}{spelling}{}", rest.as_str()));
        }
    }
    for at in places.into_iter().chain([LIMITED.len()]) {
        let (before, rest) = LIMITED.split_at(at);
        for inserted in INSERTED {
            variants.insert(format!("{before}{inserted}{rest}"));
            variants.insert(format!("{before}{inserted}{inserted}{rest}"));
        }
    }
    let letters = LIMITED[4..]
        .chars()
        .fold(vec!["/v1/".to_owned()], |starts, letter| {
            let forms = [letter.to_string(), format!("%{:02x}", letter as u32)];
            let longer = |start: &String| forms.clone().map(|form| format!("{start}{form}"));
            starts.iter().flat_map(longer).collect()
        });
    variants.extend(letters);
    let every: String = LIMITED
        .chars()
        .map(|c| format!("%{:02x}", c as u32))
        .collect();
    variants.insert(every.replace("%2f", "/"));
    variants.insert(every);
    variants.insert(LIMITED.to_uppercase());
    variants
}

/// A path as a lenient server reads it: decoded, without dot segments and repeated slashes.
fn lenient(path: &str) -> String {
    let text = decoded(path).replace('\\', "/");
    let mut kept = Vec::new();
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

fn decoded(path: &str) -> String {
    let mut octets = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let octet = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        octets.push(octet.unwrap_or(byte));
        rest = if octet.is_some() {
            &behind[2..]
        } else {
            behind
        };
    }
    String::from_utf8_lossy(&octets).into_owned()
}

/// The path that the echo upstream was sent.
fn forwarded(response: &Response) -> String {
    let text = response.text();
    let target = text.split(' ').nth(1).unwrap_or_default();
    target.split('?').next().unwrap_or_default().to_owned()
}

#[test]
fn another_path_is_another_path_to_a_lenient_server_too() {
    for variant in variants() {
        let Ok(normal) = normalise(&variant) else {
            continue;
        };
        if comparable(&normal) == LIMITED {
            continue;
        }
        // A slash at the end is another path, as configured; everything else has to differ.
        let is_other = lenient(&normal) != LIMITED || normal.ends_with('/');
        assert!(is_other, "{variant} is forwarded as {normal}");
    }
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
            match (response.status, normalise(path)) {
                (429, Ok(normal)) => {
                    assert_eq!(comparable(&normal), LIMITED, "{target}");
                    limited += 1;
                }
                (400, _) => refused += 1,
                (200, Ok(normal)) => {
                    assert_ne!(comparable(&normal), LIMITED, "{target} escaped");
                    assert_eq!(forwarded(&response), normal, "{target}");
                    others += 1;
                }
                (status, normal) => panic!("{target}: {status}, {normal:?}"),
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
    let status = |path| crate::support::client::get(gateway.address(), path).status;
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
