//! `include_usage`: chat streams are asked for their usage, and clients get it if they asked
//! themselves.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::client::{Connection, Response, curl};
use crate::support::gateway::Gateway;
use crate::support::model_server::{call, request};
use crate::support::origin::{Origin, Received, Step, raw};
use crate::support::wait_for;

const CHAT: &str = "/v1/chat/completions";
const STREAMED: &str = "{ \"stream\" : true}";
const ASKS: &str = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
const REPORT: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":37}}\n\n";

/// The events of a stream without its report, before and behind that.
const EVENTS: [&str; 2] = [
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n: ping\n\ndata:{\"choices\":[],\"prompt_filter_results\":[]}\n\n",
    "data: [DONE]\n\n",
];

/// The spelling and framing of a stream.
#[derive(Clone, Copy, Debug)]
struct Style {
    line_break: &'static str,
    /// The bytes that come at a time.
    piece: usize,
    framing: Framing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Chunked,
    Length,
    /// Compressed, as the head says.
    Coded,
}

const PLAIN: Style = Style {
    line_break: "\n",
    piece: 10_000,
    framing: Framing::Chunked,
};

impl Style {
    fn text(self, report: &str) -> String {
        let [before, after] = EVENTS;
        [before, report, after]
            .concat()
            .replace('\n', self.line_break)
    }

    /// A server that reports the usage of streams if it is asked for that.
    fn server(self) -> Origin {
        Origin::start(move |request| self.answer(request))
    }

    fn answer(self, request: &Received) -> Vec<Step> {
        let body = String::from_utf8_lossy(&request.body).replace(' ', "");
        if !body.contains("\"stream\":true") {
            let text = r#"{"usage":{"total_tokens":57},"choices":[]}"#;
            return raw(&format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            ));
        }
        let asks = body.contains("\"include_usage\":true");
        let text = self.text(if asks { REPORT } else { "" });
        let framing = match self.framing {
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Framing::Length => format!("Content-Length: {}\r\n", text.len()),
            Framing::Coded => {
                format!(
                    "Content-Length: {}\r\nContent-Encoding: gzip\r\n",
                    text.len()
                )
            }
        };
        let mut steps = raw(&format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n"
        ));
        for piece in text.as_bytes().chunks(self.piece) {
            let piece = str::from_utf8(piece).expect("ASCII");
            steps.extend(match self.framing {
                Framing::Chunked => raw(&format!("{:x}\r\n{piece}\r\n", piece.len())),
                _ => raw(piece),
            });
            if self.piece < text.len() {
                steps.push(Step::Pause(Duration::from_millis(1)));
            }
        }
        if self.framing == Framing::Chunked {
            steps.extend(raw("0\r\n\r\n"));
        }
        steps
    }
}

/// A proxy whose limit reserves 100 tokens.
fn start(server: &Origin, upstream: &str) -> Gateway {
    Gateway::start(&format!(
        "upstreams: {{ a: {{ endpoints: ['{}'], {upstream} }} }}
policies:
  p: {{ unit: tokens, quota: 100000/1h, cost: {{ settle: openai, include_usage: true, reserve: 100 }} }}
routes: [{{ name: a, upstream: a, limits: [p], request: {{ read_body: 1KiB }} }}]
",
        server.url()
    ))
}

#[track_caller]
fn wait_until_settled(gateway: &Gateway, tokens: f64) {
    let mut last = None;
    wait_for(&format!("{tokens} settled tokens"), || {
        last = gateway.metric("sluicegate_limit_settled_units_total{policy=\"p\"}");
        (last == Some(tokens)).then_some(())
    });
}

fn settled(gateway: &Gateway, result: &str) -> Option<f64> {
    gateway.metric(&format!(
        "sluicegate_limit_settlements_total{{policy=\"p\",result=\"{result}\"}}"
    ))
}

#[test]
fn a_stream_is_asked_for_its_usage_which_the_client_does_not_get() {
    for line_break in ["\n", "\r\n"] {
        for (piece, framing) in [
            (10_000, Framing::Chunked),
            (10_000, Framing::Length),
            (1, Framing::Chunked),
            (7, Framing::Length),
        ] {
            let style = Style {
                line_break,
                piece,
                framing,
            };
            let server = style.server();
            let gateway = start(&server, "");
            let response = call(gateway.address(), CHAT, "Content-Digest: x\r\n", STREAMED);
            assert_eq!(response.text(), style.text(""), "{style:?}");
            assert_eq!(response.header("content-length"), None);
            wait_until_settled(&gateway, 57.0);
            let received = server.only_request();
            let body = str::from_utf8(&received.body).expect("text");
            let expected = r#"{ "stream" : true,"stream_options":{"include_usage":true}}"#;
            assert_eq!(body, expected);
            assert_eq!(received.header("content-length"), Some("58"));
            assert_eq!(received.header("content-digest"), None);
            assert_eq!(received.header("accept-encoding"), Some("identity"));
        }
    }
}

#[test]
fn what_needs_no_question_passes_byte_for_byte() {
    let server = PLAIN.server();
    let gateway = start(&server, "");
    let not_streamed = r#"{"usage":{"total_tokens":57},"choices":[]}"#.to_owned();
    let long = format!("{STREAMED}{}", " ".repeat(1024));
    for (path, body, expected) in [
        (CHAT, ASKS, PLAIN.text(REPORT)),
        (CHAT, r#"{"stream":false}"#, not_streamed.clone()),
        (
            CHAT,
            r#"{"stream":null,"stream_options":null}"#,
            not_streamed.clone(),
        ),
        (CHAT, "", not_streamed),
        // Another API, which always reports it, and knows no such option.
        ("/v1/responses", STREAMED, PLAIN.text("")),
        (CHAT, &long, PLAIN.text("")),
    ] {
        let response = call(gateway.address(), path, "", body);
        assert_eq!(response.text(), expected, "{path} {body}");
        let received = server.requests().pop().expect("a request");
        assert_eq!(received.body, body.as_bytes());
        assert_eq!(
            received.header("content-length"),
            Some(&*body.len().to_string())
        );
    }
    // The last two say nothing of their usage.
    wait_until_settled(&gateway, 4.0 * 57.0 + 2.0 * 100.0);
    assert_eq!(settled(&gateway, "missing"), Some(2.0));
}

#[test]
fn a_body_that_upstreams_read_differently_is_refused() {
    let server = PLAIN.server();
    let gateway = start(&server, "");
    for body in [
        r#"{"stream":false,"stream":true}"#,
        r#"{"stream":true,"Stream":false}"#,
        r#"{"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}"#,
        r#"{"stream":true,"stream_options":{},"stream_options":{"include_usage":true}}"#,
    ] {
        let response = call(gateway.address(), CHAT, "", body);
        assert_eq!(response.status, 400, "{body}");
    }
    assert_eq!(server.requests().len(), 0);
}

/// The server compresses against what it was asked for: what can't be read isn't changed.
#[test]
fn a_compressed_stream_passes() {
    let style = Style {
        framing: Framing::Coded,
        ..PLAIN
    };
    let server = style.server();
    let gateway = start(&server, "");
    let response = call(gateway.address(), CHAT, "", STREAMED);
    let text = style.text(REPORT);
    assert_eq!(response.text(), text);
    assert_eq!(
        response.header("content-length"),
        Some(&*text.len().to_string())
    );
    wait_until_settled(&gateway, 100.0);
    assert_eq!(settled(&gateway, "malformed"), Some(1.0));
}

/// What has come of an event isn't kept for ever.
#[test]
fn an_endless_event_reaches_the_client() {
    let server = Origin::start(|_| {
        let mut steps = raw(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        let piece = "x".repeat(1000);
        for _ in 0..40 {
            steps.extend(raw(&format!("3e8\r\n{piece}\r\n")));
        }
        steps.push(Step::Hang);
        steps
    });
    let gateway = start(&server, "");
    let mut client = Connection::open(gateway.address());
    client.send(request(CHAT, "", STREAMED));
    assert_eq!(client.receive_head().status, 200);
    client.read_exactly(24_000);
}

fn over_http2(address: SocketAddr, body: &str) -> String {
    let url = format!("http://{address}{CHAT}");
    curl(&["--http2-prior-knowledge", "-sS", "-d", body, &url]).stdout
}

#[test]
fn streams_over_http2_are_asked_too() {
    let style = Style { piece: 5, ..PLAIN };
    let server = style.server();
    let gateway = start(&server, "");
    // The second proxy speaks HTTP/2 with the first.
    let front = Gateway::start(&format!(
        "upstreams: {{ a: {{ endpoints: ['{}'], protocol: h2 }} }}
policies:
  p: {{ unit: tokens, quota: 100000/1h, cost: {{ settle: openai, include_usage: true, reserve: 100 }} }}
routes: [{{ name: a, upstream: a, limits: [p], request: {{ read_body: 1KiB }} }}]
",
        gateway.url("")
    ));
    assert_eq!(over_http2(front.address(), STREAMED), style.text(""));
    wait_until_settled(&gateway, 57.0);
    wait_until_settled(&front, 57.0);
    assert_eq!(over_http2(front.address(), ASKS), style.text(REPORT));
}

/// A stream that ends within its report, or breaks off, or has trailers.
#[test]
fn nothing_but_the_report_is_lost_at_the_end_of_a_stream() {
    let open = "data: {\"choices\":[{}]}\n\ndata: {\"choices\":[";
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    for (end, text, trailer) in [
        ("0\r\n\r\n", open.to_owned(), None),
        ("0\r\nx-sum: 7\r\n\r\n", open.to_owned(), Some("7")),
        (
            "0\r\nx-sum: 7\r\n\r\n",
            format!("{}{REPORT}", EVENTS[0]),
            Some("7"),
        ),
    ] {
        let body = chunk(&text);
        let server = Origin::start(move |_| {
            raw(&format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{body}{end}"
            ))
        });
        let gateway = start(&server, "");
        let mut client = Connection::open(gateway.address());
        let response: Response = client.exchange(&request(CHAT, "TE: trailers\r\n", STREAMED));
        assert_eq!(response.text(), text.replace(REPORT, ""), "{end:?}");
        assert_eq!(response.trailer("x-sum"), trailer);
    }
}
