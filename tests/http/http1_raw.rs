//! Raw HTTP/1.1: several hundred cases, byte for byte, each with its allowed outcomes. In all cases
//! nothing hangs, and the origin reads only whole, valid and intended requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, Response};
use crate::support::gateway::Gateway;
use crate::support::now;
use crate::support::origin::{Origin, Received, ok};

/// The allowed outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Answered with an error, or closed; nothing reaches the origin.
    Refused,
    /// This many requests reach the origin, and are answered 200.
    Forwarded(usize),
    /// Refused, or forwarded as this many requests: HTTP leaves the choice.
    Either(usize),
}

use Outcome::{Either, Forwarded, Refused};

/// Bytes on one connection. `@` stands for the number of the case, by which the origin finds the
/// case of a request.
struct Case {
    bytes: Vec<u8>,
    outcome: Outcome,
    /// The expected body of the first request at the origin.
    body: Option<&'static str>,
}

fn case(outcome: Outcome, bytes: impl AsRef<[u8]>) -> Case {
    Case {
        bytes: bytes.as_ref().to_vec(),
        outcome,
        body: None,
    }
}

/// A GET with this raw text among its fields.
fn field(outcome: Outcome, text: impl AsRef<str>) -> Case {
    case(
        outcome,
        format!(
            "GET /c@ HTTP/1.1\r\nHost: a\r\n{}\r\nConnection: close\r\n\r\n",
            text.as_ref()
        ),
    )
}

/// A complete request with this line.
fn line(outcome: Outcome, text: impl AsRef<str>) -> Case {
    case(
        outcome,
        format!("{}\r\nHost: a\r\nConnection: close\r\n\r\n", text.as_ref()),
    )
}

/// A POST with these framing fields, followed by these bytes.
fn framed(outcome: Outcome, fields: &str, body: impl AsRef<str>) -> Case {
    let body = body.as_ref();
    case(
        outcome,
        format!("POST /c@ HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}"),
    )
}

/// A POST with this text as its chunks, and a hidden request after them.
fn chunks(outcome: Outcome, text: &str) -> Case {
    framed(
        outcome,
        "Transfer-Encoding: chunked",
        format!("{text}{HIDDEN}"),
    )
}

/// A hidden request that must never be served: it is part of a body, or follows an error.
const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

fn request_lines() -> Vec<Case> {
    let mut cases = vec![
        line(Forwarded(1), "GET /c@ HTTP/1.1"),
        line(Forwarded(1), "GET /c@?query=1&b HTTP/1.1"),
        line(Forwarded(1), "DELETE /c@ HTTP/1.1"),
        line(Forwarded(1), "OPTIONS /c@ HTTP/1.1"),
        line(Forwarded(1), "PROPFIND /c@ HTTP/1.1"),
        line(Either(1), "get /c@ HTTP/1.1"),
        line(Forwarded(1), "A!#$%&'*+-.^_`|~9 /c@ HTTP/1.1"),
        case(Forwarded(1), "GET /c@ HTTP/1.0\r\nHost: a\r\n\r\n"),
        case(Either(1), "GET /c@ HTTP/1.0\r\n\r\n"),
        case(
            Forwarded(1),
            "\r\nGET /c@ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ),
        case(
            Either(1),
            "\r\n\r\n\r\nGET /c@ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ),
        case(
            Either(1),
            "\nGET /c@ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ),
        case(Refused, "\r\n"),
        case(Refused, ""),
        case(Refused, " GET /c@ HTTP/1.1\r\nHost: a\r\n\r\n"),
        case(Refused, "GET\r\n\r\n"),
        case(Refused, "GET /c@\r\n\r\n"),
        case(Refused, "GET /c@\r\nHost: a\r\n\r\n"),
        case(Refused, "hello\r\n\r\n"),
        case(Refused, "\0\0\0\0"),
        case(Refused, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        case(Refused, b"\xff\xfe\xfd\r\n\r\n"),
        line(Either(1), "TRACE /c@ HTTP/1.1"),
        line(Refused, "CONNECT a:443 HTTP/1.1"),
        line(Refused, "CONNECT /c@ HTTP/1.1"),
        line(Refused, "GET * HTTP/1.1"),
        line(Refused, "GET a:80 HTTP/1.1"),
        line(Refused, "GET c@ HTTP/1.1"),
        line(Refused, "GET ?c@ HTTP/1.1"),
        line(Refused, "GET  HTTP/1.1"),
        line(Refused, "GET HTTP/1.1"),
        line(Refused, "GET /c@ HTTP/1.1 x"),
        line(Refused, "GET /c@ /d HTTP/1.1"),
        line(Refused, "GET /c@ x HTTP/1.1"),
        line(Either(1), "GET  /c@ HTTP/1.1"),
        line(Either(1), "GET /c@  HTTP/1.1"),
        line(Either(1), "GET /c@ HTTP/1.1 "),
        line(Refused, "GET\t/c@\tHTTP/1.1"),
        line(Refused, "GET /c@\tHTTP/1.1"),
        line(Refused, "GET\u{b}/c@ HTTP/1.1"),
        line(Refused, "G ET /c@ HTTP/1.1"),
        line(Refused, "/c@ HTTP/1.1"),
    ];
    for version in [
        "HTTP/0.9",
        "HTTP/2.0",
        "HTTP/2",
        "HTTP/1",
        "HTTP/1.",
        "HTTP/1.2",
        "HTTP/1.10",
        "HTTP/01.1",
        "HTTP/1.1.1",
        "HTTP/1,1",
        "HTTP/11",
        "HTTP/-1.1",
        "HTTP/ 1.1",
        "HTTP /1.1",
        "http/1.1",
        "Http/1.1",
        "HTTPS/1.1",
        "XTTP/1.1",
        "HTTP/9.9",
        "ICY",
        "HTTP/1.1\0",
    ] {
        let outcome = if version == "HTTP/1.2" {
            Either(1)
        } else {
            Refused
        };
        cases.push(line(outcome, format!("GET /c@ {version}")));
    }
    for byte in "\"(),/:;<=>?@[\\]{}".chars().filter(|byte| *byte != '@') {
        cases.push(line(Refused, format!("GE{byte}T /c@ HTTP/1.1")));
    }
    for byte in [
        '\0', '\u{1}', '\u{7}', '\u{8}', '\u{b}', '\u{c}', '\r', '\u{1b}', '\u{7f}',
    ] {
        cases.push(line(Refused, format!("GET /c@{byte}x HTTP/1.1")));
        cases.push(line(Refused, format!("GE{byte}T /c@ HTTP/1.1")));
    }
    for target in [
        "/c@\u{e9}",
        "/c@\"",
        "/c@<>",
        "/c@{}",
        "/c@|",
        "/c@^",
        "/c@`",
        "/c@#fragment",
        "/c@%",
        "/c@%2",
        "/c@%zz",
        "/c@%00",
        "/c@\\",
    ] {
        cases.push(line(Either(1), format!("GET {target} HTTP/1.1")));
    }
    for length in [1_000, 6_000] {
        cases.push(line(
            Forwarded(1),
            format!("GET /c@?{} HTTP/1.1", "x".repeat(length)),
        ));
    }
    for length in [70_000, 1_000_000] {
        cases.push(line(
            Refused,
            format!("GET /c@?{} HTTP/1.1", "x".repeat(length)),
        ));
        cases.push(line(
            Refused,
            format!("{} /c@ HTTP/1.1", "X".repeat(length)),
        ));
    }
    cases
}

fn hosts() -> Vec<Case> {
    let get = |outcome, target: &str, hosts: &str| {
        case(
            outcome,
            format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n"),
        )
    };
    let mut cases = vec![
        get(Refused, "/c@", ""),
        get(Refused, "/c@", "Host: a\r\nHost: a\r\n"),
        get(Refused, "/c@", "Host: a\r\nHost: b\r\n"),
        get(Refused, "/c@", "Host: a\r\nX: y\r\nhOST: b\r\n"),
        get(Refused, "/c@", "Host : a\r\n"),
        get(Either(1), "/c@", "Host:\r\n"),
        get(Forwarded(1), "/c@", "Host:a\r\n"),
        get(Forwarded(1), "/c@", "HOST:\t a \t\r\n"),
        get(Forwarded(1), "/c@", "Host: a:80\r\n"),
        get(Forwarded(1), "/c@", "Host: a.example.\r\n"),
        get(Forwarded(1), "/c@", "Host: [::1]\r\n"),
        get(Forwarded(1), "/c@", "Host: [::1]:8080\r\n"),
        get(Forwarded(1), "/c@", "Host: 127.0.0.1\r\n"),
        get(Forwarded(1), "http://a/c@", "Host: a\r\n"),
        get(Forwarded(1), "HTTP://a/c@?q", "Host: a\r\n"),
        get(Refused, "http://a/c@", ""),
        get(Refused, "http://a/c@", "Host: b\r\n"),
        get(Refused, "http://a/c@", "Host: a\r\nHost: a\r\n"),
        get(Refused, "http://a@b/c@", "Host: b\r\n"),
        get(Refused, "http:///c@", "Host: a\r\n"),
        get(Refused, "http://:80/c@", "Host: a\r\n"),
        get(Refused, "https://a/c@", "Host: a\r\n"),
        get(Refused, "ftp://a/c@", "Host: a\r\n"),
        get(Refused, "file:///c@", "Host: a\r\n"),
        get(Either(1), "//a/c@", "Host: a\r\n"),
    ];
    for host in [
        "a b", "a,b", "a/b", "a/", "/a", "a?b", "a#b", "user@a", "a\\b", "a:b", "a:80:80",
        "a:99999", "a:-1", "a:+80", "a\tb", "http://a", "[::1", "::1]", "[::g]", "[::1]x", "a<b",
        "a\"b", "a|b", "a^b", "a`b", "a{b}", "a%zz", "\u{e9}", "a\0", "a\u{7f}", "a;b", ":80",
        "[]",
    ] {
        cases.push(get(Refused, "/c@", &format!("Host: {host}\r\n")));
    }
    cases
}

fn fields() -> Vec<Case> {
    let mut cases = vec![
        field(Forwarded(1), "x-empty:"),
        field(Forwarded(1), "x-tabs:\t \tvalue\t "),
        field(Forwarded(1), "x-inner: a \t b"),
        field(Forwarded(1), "x-quoted: \"a, b\"; c=(d)"),
        field(Forwarded(1), "!#$%&'*+-.^_`|~9: token"),
        field(Forwarded(1), "x-utf8: caf\u{e9}"),
        // Folded lines, and a first field that looks like one.
        field(Refused, "x-folded: a\r\n b"),
        field(Refused, "x-folded: a\r\n\tb"),
        field(Refused, "x-folded:\r\n a"),
        field(Refused, "x-folded: a\r\n "),
        case(Refused, "GET /c@ HTTP/1.1\r\n Host: a\r\nHost: a\r\n\r\n"),
        case(Refused, "GET /c@ HTTP/1.1\r\n\tx: y\r\nHost: a\r\n\r\n"),
        // Names.
        field(Refused, "x-space : a"),
        field(Refused, "x-tab\t: a"),
        field(Refused, "x two: a"),
        field(Refused, ": nameless"),
        field(Refused, " : a"),
        field(Refused, "no colon"),
        field(Refused, "nocolon"),
        field(Refused, "\u{e9}: a"),
        field(Refused, "x-long-line-without-end"),
        // White space between a framing field and its colon hides it from one of two parsers.
        framed(Refused, "Content-Length : 5", "hello"),
        framed(Refused, "Content-Length\t: 5", "hello"),
        framed(Refused, "Transfer-Encoding : chunked", "0\r\n\r\n"),
        framed(Refused, "Transfer-Encoding\r\n : chunked", "0\r\n\r\n"),
        framed(Refused, " Transfer-Encoding: chunked", "0\r\n\r\n"),
        framed(Refused, "X: y\r\n Transfer-Encoding: chunked", "0\r\n\r\n"),
        framed(Refused, "X: y\rTransfer-Encoding: chunked", "0\r\n\r\n"),
        framed(Refused, "Content-Length: 5\rX: y", "hello"),
        framed(Refused, "\0Content-Length: 5", "hello"),
        // Ends of lines.
        case(
            Either(1),
            "GET /c@ HTTP/1.1\nHost: a\nConnection: close\n\n",
        ),
        case(
            Either(1),
            "GET /c@ HTTP/1.1\r\nHost: a\nConnection: close\r\n\r\n",
        ),
        case(
            Either(1),
            "GET /c@ HTTP/1.1\r\nHost: a\r\nConnection: close\n\n",
        ),
        case(Refused, "GET /c@ HTTP/1.1\rHost: a\r\r"),
        case(Refused, "GET /c@ HTTP/1.1\r\nHost: a\r\rX: y\r\n\r\n"),
        case(Refused, "GET /c@ HTTP/1.1\r\nHost: a\rX: y\r\n\r\n"),
        case(Refused, "GET /c@ HTTP/1.1\r\nHost: a\r\nX: a\r\r\n\r\n"),
        case(Refused, "GET /c@ HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n"),
        // Sizes and numbers.
        field(Forwarded(1), format!("x-large: {}", "x".repeat(20_000))),
        field(Refused, format!("x-large: {}", "x".repeat(70_000))),
        field(Refused, format!("{}: a", "x".repeat(70_000))),
        field(Refused, "x: y\r\n".repeat(20_000) + "x: y"),
        field(Forwarded(1), "x: y\r\n".repeat(60) + "x: y"),
        // Hop-by-hop fields and upgrades.
        field(Forwarded(1), "Connection: x-gone\r\nx-gone: 1"),
        field(Forwarded(1), "Connection: host"),
        field(Forwarded(1), "Connection: ,,,"),
        field(Either(1), "Connection: a b"),
        field(Forwarded(1), "Upgrade: websocket"),
        field(
            Forwarded(1),
            "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
        ),
        field(Forwarded(1), "Expect: 100-continue"),
        field(Refused, "Expect: 200-ok"),
        field(Forwarded(1), "TE: trailers"),
        field(Forwarded(1), "TE: gzip;q=0.5"),
        field(Forwarded(1), "Proxy-Connection: keep-alive"),
        field(Forwarded(1), "Keep-Alive: timeout=5"),
    ];
    for byte in [
        '(', ')', '<', '>', ',', ';', '\\', '"', '/', '[', ']', '?', '=', '{', '}', '\u{1}',
        '\u{8}', '\u{b}', '\u{c}', '\u{7f}', '\0',
    ] {
        cases.push(field(Refused, format!("x{byte}y: a")));
    }
    for byte in [
        '\0', '\u{1}', '\u{8}', '\u{b}', '\u{c}', '\u{1b}', '\u{7f}', '\r',
    ] {
        cases.push(field(Refused, format!("x-control: a{byte}b")));
    }
    cases
}

fn lengths() -> Vec<Case> {
    let mut cases = vec![
        Case {
            body: Some("hello"),
            ..framed(
                Forwarded(1),
                "Content-Length: 5\r\nConnection: close",
                "hello",
            )
        },
        Case {
            body: Some("hello"),
            ..framed(
                Forwarded(1),
                "content-length:5\r\nConnection: close",
                "hello",
            )
        },
        Case {
            body: Some("hello"),
            ..framed(
                Either(1),
                "Content-Length: 005\r\nConnection: close",
                "hello",
            )
        },
        Case {
            body: Some(""),
            ..framed(Forwarded(1), "Content-Length: 0\r\nConnection: close", "")
        },
        Case {
            body: Some(""),
            ..framed(Forwarded(1), "Connection: close", "")
        },
        Case {
            body: Some("hello"),
            ..framed(
                Either(1),
                "Content-Length: 5\r\nContent-Length: 5\r\nConnection: close",
                "hello",
            )
        },
        Case {
            body: Some("hello"),
            ..framed(
                Either(1),
                "Content-Length: 5, 5\r\nConnection: close",
                "hello",
            )
        },
        case(
            Forwarded(1),
            "GET /c@ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        ),
        framed(
            Refused,
            "Content-Length: 5\r\nContent-Length: 6",
            format!("hello{HIDDEN}"),
        ),
        framed(
            Refused,
            "Content-Length: 6\r\nContent-Length: 5",
            format!("hello{HIDDEN}"),
        ),
        framed(Refused, "Content-Length: 0\r\nContent-Length: 35", HIDDEN),
        framed(Refused, "Content-Length: 5, 6", format!("hello{HIDDEN}")),
        framed(
            Refused,
            "Content-Length: 0\r\ncontent-length: 5",
            format!("hello{HIDDEN}"),
        ),
        // A body that is shorter than announced is no body.
        framed(Refused, "Content-Length: 50", "short"),
        // A hidden request inside of a body is a body.
        Case {
            body: Some(HIDDEN),
            ..framed(
                Forwarded(1),
                "Content-Length: 35\r\nConnection: close",
                HIDDEN,
            )
        },
    ];
    assert_eq!(HIDDEN.len(), 35);
    for length in [
        "",
        "+5",
        "-5",
        "-0",
        "5 5",
        "5,",
        ",5",
        "5;",
        "5.0",
        "0x5",
        "0b101",
        "5h",
        "h5",
        "five",
        "5e0",
        "\"5\"",
        "5_0",
        "'5'",
        "\u{661}",
        "5\u{b}",
        "\u{b}5",
        "5\0",
        "18446744073709551616",
        "18446744073709551621",
        "99999999999999999999999999",
        "9223372036854775808",
        "4294967301 1",
        "- 5",
        "(5)",
    ] {
        cases.push(framed(
            Refused,
            &format!("Content-Length: {length}"),
            format!("hello{HIDDEN}"),
        ));
    }
    cases
}

fn transfer_codings() -> Vec<Case> {
    let whole = "5\r\nhello\r\n0\r\n\r\n";
    let mut cases = vec![
        Case {
            body: Some("hello"),
            ..framed(
                Forwarded(1),
                "Transfer-Encoding: chunked\r\nConnection: close",
                whole,
            )
        },
        Case {
            body: Some("hello"),
            ..framed(
                Forwarded(1),
                "transfer-encoding:CHUNKED\r\nConnection: close",
                whole,
            )
        },
        Case {
            body: Some("hello"),
            ..framed(
                Forwarded(1),
                "Transfer-Encoding: \t chunked \t\r\nConnection: close",
                whole,
            )
        },
        Case {
            body: Some("hello"),
            ..framed(
                Either(1),
                "Transfer-Encoding: , chunked\r\nConnection: close",
                whole,
            )
        },
        Case {
            body: Some("hello"),
            ..framed(
                Either(1),
                "Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\nConnection: close",
                whole,
            )
        },
    ];
    // Both framings: refused, or read as chunks with the connection closed, so that later bytes are
    // no request.
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Content-Length: 1000\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nTransfer-Encoding: CHUNKED",
        "Content-Length: 5\r\nX: y\r\nTransfer-Encoding: chunked\r\nX: y",
    ] {
        cases.push(Case {
            body: Some("hello"),
            ..framed(Either(1), fields, format!("{whole}{HIDDEN}"))
        });
        cases.push(Case {
            body: Some(""),
            ..framed(Either(1), fields, format!("0\r\n\r\n{HIDDEN}"))
        });
    }
    for coding in [
        "xchunked",
        "chunkedx",
        "chunke",
        "chun ked",
        "\"chunked\"",
        "identity",
        "chunked, identity",
        "chunked, chunked",
        "chunked;q=1",
        "chunked;",
        "gzip",
        "gzip, chunked, gzip",
        "chunked, gzip",
        "chunked\u{b}",
        "\u{b}chunked",
        "\u{b}\u{c}chunked",
        "chunked\0",
        "\0chunked",
        "'chunked'",
        "x, chunked x",
        "chunked\u{1}",
        "ch\u{131}nked",
        "ſ",
        "chunKed\u{212a}",
        "[chunked]",
        "chunked/1",
    ] {
        cases.push(framed(
            Refused,
            &format!("Transfer-Encoding: {coding}"),
            format!("{whole}{HIDDEN}"),
        ));
        cases.push(framed(
            Refused,
            &format!("Content-Length: 5\r\nTransfer-Encoding: {coding}"),
            format!("{whole}{HIDDEN}"),
        ));
    }
    for fields in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding:",
    ] {
        // A coding that the proxy does not know, before a last one that ends: forwarded with its
        // one framing, or 501.
        cases.push(framed(Either(1), fields, format!("{whole}{HIDDEN}")));
    }
    // HTTP/1.0 has no chunks.
    cases.push(case(
        Refused,
        format!(
            "POST /c@ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{whole}{HIDDEN}"
        ),
    ));
    cases.push(case(
        Refused,
        format!("POST /c@ HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{whole}{HIDDEN}"),
    ));
    cases
}

fn chunk_forms() -> Vec<Case> {
    let good = |outcome, body, text: &str| Case {
        body: Some(body),
        ..framed(
            outcome,
            "Transfer-Encoding: chunked\r\nConnection: close",
            text,
        )
    };
    let mut cases = vec![
        good(Forwarded(1), "", "0\r\n\r\n"),
        good(
            Forwarded(1),
            "hello world",
            "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        ),
        good(
            Forwarded(1),
            "0123456789abcdef",
            "10\r\n0123456789abcdef\r\n0\r\n\r\n",
        ),
        good(Forwarded(1), "0123456789", "A\r\n0123456789\r\n0\r\n\r\n"),
        good(Forwarded(1), "0123456789", "a\r\n0123456789\r\n0\r\n\r\n"),
        good(Either(1), "hello", "0005\r\nhello\r\n000\r\n\r\n"),
        good(Either(1), "hello", "5;name=value\r\nhello\r\n0\r\n\r\n"),
        good(
            Either(1),
            "hello",
            "5;name=\"quoted\"\r\nhello\r\n0;last\r\n\r\n",
        ),
        good(Either(1), "hello", "5 ;name\r\nhello\r\n0\r\n\r\n"),
        good(Either(1), "hello", "5\t\r\nhello\r\n0\r\n\r\n"),
        good(Either(1), "hello", "5 \r\nhello\r\n0\r\n\r\n"),
        good(
            Forwarded(1),
            "hello",
            "5\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n",
        ),
        good(
            Either(1),
            "hello",
            "5\r\nhello\r\n0\r\nContent-Length: 7\r\nHost: b\r\nTransfer-Encoding: x\r\n\r\n",
        ),
        // A hidden request inside a chunk is a body.
        good(
            Forwarded(1),
            HIDDEN,
            &format!("23\r\n{HIDDEN}\r\n0\r\n\r\n"),
        ),
    ];
    for size in [
        "g",
        "-5",
        "+5",
        "0x5",
        "5h",
        "",
        " ",
        " 5",
        "\t5",
        "5,5",
        "5.",
        "5 5",
        "\"5\"",
        "\u{665}",
        "5\0",
        "\u{0}5",
        "5\u{b}",
        "10000000000000005",
        "fffffffffffffffff",
        "ffffffffffffffff",
        "FFFFFFFFFFFFFFFB",
        "8000000000000005",
        "00000000000000000000000000000000005x",
        "_5",
        "x",
        "0b5",
        "five",
    ] {
        cases.push(chunks(Refused, &format!("{size}\r\nhello\r\n0\r\n\r\n")));
    }
    for text in [
        // Data that is longer or shorter than its size says.
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello \r\n0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "6\r\nhello\r\n0\r\n\r\n",
        // Ends of lines.
        "5\rhello\r\n0\r\n\r\n",
        "5\r\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;a\0b\r\nhello\r\n0\r\n\r\n",
        "5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n",
        "5;a\x7f\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0;\0\r\n\r\n",
        "5\n\rhello\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        // Trailers.
        "0\r\nno colon\r\n\r\n",
        "0\r\nx : y\r\n\r\n",
        "0\r\n folded: y\r\n\r\n",
        "0\r\nx: y\r\n z\r\n\r\n",
        "0\r\nx: a\0b\r\n\r\n",
        "0\r\nx: a\rb\r\n\r\n",
        "0\r\n: y\r\n\r\n",
    ] {
        cases.push(chunks(Refused, text));
    }
    // Some parsers accept a bare line feed: then the proxy and the origin must agree, and the
    // hidden request stays a body.
    for text in [
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "0\n\r\n",
        "0\r\nx: y\n\r\n",
    ] {
        cases.push(framed(
            Either(1),
            "Transfer-Encoding: chunked\r\nConnection: close",
            text,
        ));
    }
    // Endless extensions and trailers are refused, not read for ever.
    cases.push(chunks(
        Refused,
        &format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(200_000)),
    ));
    cases.push(chunks(
        Refused,
        &format!("0\r\n{}\r\n\r\n", "x: y\r\n".repeat(50_000)),
    ));
    // Also if each line is short enough.
    let lines = format!("1;{}\r\nz\r\n", "x".repeat(4_000)).repeat(5);
    cases.push(chunks(Refused, &format!("{lines}0\r\n\r\n")));
    let one_by_one: String = "1;x=yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\nz\r\n".repeat(3_000);
    cases.push(framed(
        Either(1),
        "Transfer-Encoding: chunked\r\nConnection: close",
        format!("{one_by_one}0\r\n\r\n"),
    ));
    // Chunks that do not end.
    cases.push(framed(
        Refused,
        "Transfer-Encoding: chunked",
        "5\r\nhello\r\n",
    ));
    cases.push(framed(Refused, "Transfer-Encoding: chunked", "5\r\nhel"));
    cases.push(framed(Refused, "Transfer-Encoding: chunked", "5"));
    cases.push(framed(Refused, "Transfer-Encoding: chunked", "0\r\n"));
    cases.push(framed(Refused, "Transfer-Encoding: chunked", ""));
    cases
}

fn sequences() -> Vec<Case> {
    let get = "GET /c@ HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET /c@ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let post = "POST /c@ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let chunked =
        "POST /c@ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    vec![
        case(Forwarded(2), format!("{get}{last}")),
        case(Forwarded(10), format!("{}{last}", get.repeat(9))),
        case(Forwarded(3), format!("{post}{chunked}{last}")),
        case(Forwarded(4), format!("{chunked}{chunked}{post}{last}")),
        case(Forwarded(2), format!("{post}\r\n{last}")),
        // Nothing after `close` is a request.
        case(Forwarded(1), format!("{last}{HIDDEN}")),
        case(
            Forwarded(1),
            format!("GET /c@ HTTP/1.0\r\nHost: a\r\n\r\n{HIDDEN}"),
        ),
        case(
            Forwarded(2),
            format!("GET /c@ HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n{last}"),
        ),
        // Nothing after an error is one.
        case(
            Refused,
            format!("GET /c@ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n{HIDDEN}"),
        ),
        case(
            Refused,
            format!("GET /c@ HTTP/1.1\r\n folded\r\nHost: a\r\n\r\n{HIDDEN}"),
        ),
        case(
            Forwarded(1),
            format!("{get}GET /c@ HTTP/7.7\r\nHost: a\r\n\r\n{HIDDEN}"),
        ),
        // The body of a request that is answered by the proxy itself is no request either.
        case(
            Refused,
            format!(
                "POST /none HTTP/1.1\r\nHost: nowhere\r\nContent-Length: 35\r\nConnection: close\r\n\r\n{HIDDEN}"
            ),
        ),
        // A body on a GET, framed for one of two parsers only.
        case(
            Either(1),
            format!(
                "GET /c@ HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\nConnection: close\r\n\r\n{HIDDEN}"
            ),
        ),
        case(
            Either(1),
            format!(
                "HEAD /c@ HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\nConnection: close\r\n\r\n{HIDDEN}"
            ),
        ),
        case(
            Forwarded(1),
            "HEAD /c@ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ),
        // Heads that do not end.
        case(Refused, "GET /c@ HT"),
        case(Refused, "GET /c@ HTTP/1.1\r\nHost: a\r\n"),
        case(Refused, "GET /c@ HTTP/1.1\r\nHost: a\r\nx: "),
        case(Forwarded(1), format!("{get}GET /c@ HTTP/1.1\r\nHos")),
    ]
}

fn cases() -> Vec<Case> {
    [
        request_lines(),
        hosts(),
        fields(),
        lengths(),
        transfer_codings(),
        chunk_forms(),
        sequences(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn config(origin: &Origin) -> String {
    // All hosts of the cases come here; the proxy answers `nowhere`.
    format!(
        "client: {{ timeouts: {{ head: 1s, body: 1s, idle: 1s }}, max_head: 32KiB }}
routes:
  - {{ match: {{ hosts: [nowhere] }}, upstream: echo, limits: [{{ quota: 0/1h }}] }}
  - {{ upstream: \"{}\" }}
",
        origin.url()
    )
}

/// Sends the bytes, and half-closes if `half_close`. Returns all responses until the connection
/// ends.
fn send(gateway: &Gateway, bytes: &[u8]) -> Result<Vec<Response>, String> {
    let mut connection = Connection::open(gateway.address());
    // The proxy may refuse before it has read everything.
    connection.try_send(bytes).ok();
    let mut responses = Vec::new();
    loop {
        let is_head = bytes.starts_with(b"HEAD ");
        let next = if is_head {
            connection.try_receive_head()
        } else {
            connection.try_receive()
        };
        match next {
            Ok(Some(response)) => responses.push(response),
            Ok(None) => return Ok(responses),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return Ok(responses);
            }
            Err(error) => return Err(format!("{error} after {responses:?}")),
        }
    }
}

/// The reason why an outcome is not allowed, if any.
fn judge(case: &Case, responses: &[Response], received: &[Received]) -> Option<String> {
    let admitted = responses
        .iter()
        .filter(|response| response.status == 200)
        .count();
    let right = match case.outcome {
        Refused => received.is_empty() && admitted == 0,
        Forwarded(count) => received.len() == count && admitted == count,
        Either(count) => {
            (received.is_empty() && admitted == 0) || (received.len() == count && admitted == count)
        }
    };
    if !right {
        return Some(format!(
            "{admitted} answers of 200 and {} requests at the origin",
            received.len()
        ));
    }
    let errors = responses.iter().filter(|response| response.status != 200);
    if let Some(odd) = errors
        .map(|response| response.status)
        .find(|status| !(400..=505).contains(status))
    {
        return Some(format!("answered {odd}"));
    }
    let body = received
        .first()
        .map(|request| String::from_utf8_lossy(&request.body).into_owned());
    match (case.body, body) {
        (Some(expected), Some(found)) if expected != found => {
            Some(format!("the origin read the body {found:?}"))
        }
        _ => None,
    }
}

#[test]
fn every_raw_request_has_one_of_its_allowed_outcomes() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let cases = cases();
    assert!(cases.len() > 300, "{}", cases.len());
    let next = AtomicUsize::new(0);
    let failures: Vec<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let mut failures = Vec::new();
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        failures.extend(run(&gateway, &origin, &cases, case));
                    }
                    failures
                })
            })
            .collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client"))
            .collect()
    });
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    assert_eq!(origin.malformed(), [""; 0]);
    let requests = origin.requests();
    let smuggled = requests
        .iter()
        .find(|request| request.target.contains("smuggled"));
    assert!(smuggled.is_none(), "{smuggled:?}");
}

fn run(gateway: &Gateway, origin: &Origin, cases: &[Case], case: &Case) -> Option<String> {
    let number = cases
        .iter()
        .position(|other| std::ptr::eq(other, case))
        .expect("it is one of them");
    let marker = format!("c{number}e");
    let bytes = replace(&case.bytes, b"/c@", format!("/{marker}").as_bytes());
    let started = now();
    let outcome = send(gateway, &bytes).and_then(|responses| {
        let all = origin.requests();
        let own: Vec<Received> = all
            .into_iter()
            .filter(|request| request.target.contains(&marker))
            .collect();
        judge(case, &responses, &own).map_or(Ok(()), |wrong| {
            let said = responses
                .iter()
                .map(|response| (response.status, response.text()));
            Err(format!("{wrong}; answers {:?}", said.collect::<Vec<_>>()))
        })
    });
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let slow = started.elapsed() > Duration::from_secs(6);
    match outcome {
        Err(wrong) => Some(format!("{:?}: {shown:?}\n    {wrong}", case.outcome)),
        Ok(()) if slow => Some(format!("{shown:?}\n    took {:?}", started.elapsed())),
        Ok(()) => None,
    }
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    result.extend_from_slice(rest);
    result
}

#[test]
fn options_for_the_server_as_a_whole_keep_their_target() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let answer =
        Connection::open(gateway.address()).exchange("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 200);
    assert_eq!(origin.only_request().target, "*");
}

/// RFC 9112 section 3.2.4: the absolute form of `*` has neither path nor query.
#[test]
fn options_for_a_host_without_a_path_are_for_the_server_as_a_whole() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    for (method, target, forwarded) in [
        ("OPTIONS", "http://a", "*"),
        ("OPTIONS", "http://a:80", "*"),
        ("OPTIONS", "http://a/", "/"),
        ("OPTIONS", "http://a?b", "/?b"),
        ("OPTIONS", "http://a/b", "/b"),
        ("GET", "http://a", "/"),
    ] {
        let host = target.trim_start_matches("http://");
        let host = &host[..host.find(['/', '?']).unwrap_or(host.len())];
        let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(
            Connection::open(gateway.address())
                .exchange(&request)
                .status,
            200,
            "{target}"
        );
        assert_eq!(origin.only_request().target, forwarded, "{method} {target}");
        origin.forget();
    }
}

/// RFC 9110 section 7.4. A trusted gateway forwards requests that it received over TLS.
#[test]
fn https_needs_tls_or_a_trusted_proxy() {
    let origin = Origin::plain();
    let request = "GET https://a/ HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n";
    let gateway = Gateway::start(&config(&origin));
    let refused = Connection::open(gateway.address()).exchange(request);
    assert_eq!(refused.status, 421);
    assert!(refused.text().contains("https"), "{}", refused.text());
    assert!(origin.requests().is_empty());
    let trusting = format!(
        "client_ip: {{ trusted_proxies: [127.0.0.1] }}\n{}",
        config(&origin)
    );
    let gateway = Gateway::start(&trusting);
    assert_eq!(
        Connection::open(gateway.address()).exchange(request).status,
        200
    );
    assert_eq!(origin.only_request().target, "/");
}

#[test]
fn a_method_has_64_characters_at_most() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let status = |length: usize| {
        let request = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(length));
        Connection::open(gateway.address())
            .exchange(&request)
            .status
    };
    assert_eq!(status(64), 200);
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(status(65), 501);
    assert_eq!(status(20_000), 501);
    assert_eq!(origin.requests().len(), 1);
}

/// RFC 9110 section 2.5: a server states its own version, and frames for the client's.
#[test]
fn http_1_0_is_answered_as_http_1_1_in_its_own_framing() {
    let origin = Origin::start(|_| crate::support::origin::chunked(&["hel", "lo"], &[]));
    let gateway = Gateway::start(&config(&origin));
    let mut stream = TcpStream::connect(gateway.address()).expect("a connection");
    let request = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it is open");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("it ends");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n"), "{rest}");
    assert!(rest.contains("connection: close\r\n"), "{rest}");
    assert!(rest.ends_with("\r\n\r\nhello"), "{rest}");
}

#[test]
fn options_respects_max_forwards() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let options = |target: &str, left: &str| {
        let request =
            format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\nMax-Forwards: {left}\r\n\r\n");
        Connection::open(gateway.address()).exchange(&request)
    };
    assert_eq!(options("/", "7").status, 200);
    assert_eq!(origin.only_request().header("max-forwards"), Some("6"));
    for target in ["/", "*"] {
        let answer = options(target, "0");
        assert_eq!((answer.status, &*answer.body), (200, &b""[..]));
        assert_eq!(answer.expect_header("content-length"), "0");
    }
    let answer = options("/", "many");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("Max-Forwards"), "{}", answer.text());
    assert_eq!(origin.requests().len(), 1, "the others went no further");
}

#[test]
fn a_client_that_half_closes_gets_its_response() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let mut connection = Connection::open(gateway.address());
    connection.send("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    connection.finish_sending();
    assert_eq!(connection.receive().status, 200);
    connection.expect_closed();
}

#[test]
fn slow_heads_are_read_within_the_head_time_out_only() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&origin));
    let request = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut steady = Connection::open(gateway.address());
    for byte in request {
        steady.send([*byte]);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(steady.receive().status, 200);

    let mut endless = Connection::open(gateway.address());
    endless.send("GET /slow HTTP/1.1\r\nHost: a\r\n");
    let started = now();
    while endless.try_send("x: y\r\n").is_ok() && started.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(100));
    }
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "a field each 100 ms keeps nobody for ever"
    );
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_silent_connection_is_closed() {
    let gateway = Gateway::start(&config(&Origin::plain()));
    let mut silent = Connection::open(gateway.address());
    let started = now();
    silent.expect_closed();
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_body_in_single_bytes_arrives_whole() {
    let origin = Origin::start(|request| ok(&request.body.len().to_string()));
    let gateway = Gateway::start(&config(&origin));
    let mut connection = Connection::open(gateway.address());
    connection.send("POST /bytes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for byte in "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".bytes() {
        connection.send([byte]);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(connection.receive().text(), "5");
    assert_eq!(origin.only_request().body, b"abcde");
}
