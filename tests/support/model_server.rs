//! Fake APIs of language models, in the formats of OpenAI, Anthropic and Gemini, and what a call
//! costs.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::client::{Connection, Response};
use super::origin::{Origin, Received, Step, raw};

/// Prices in dollars per million tokens.
pub const PRICES: &str =
    "model,input,output,cached_input\nsmall,1,10,0.1\nlarge*,2,20,0.2\n*,3,30,0.3\n";

/// The tokens of each call.
pub const TOKENS: u64 = 1_500;
/// The millionths of a dollar that each call of the model `small` costs: 800 tokens read, 200 read
/// from a cache, and 500 generated.
pub const COST: u64 = 800 + 20 + 5_000;

/// The calls in each format, complete and streamed: their paths and bodies.
pub const CALLS: [(&str, &str, &str); 9] = [
    ("openai", "/v1/chat/completions", r#"{"model":"small"}"#),
    (
        "openai",
        "/v1/chat/completions",
        r#"{"model":"small","stream":true}"#,
    ),
    ("openai", "/v1/responses", r#"{"model":"small"}"#),
    (
        "openai",
        "/v1/responses",
        r#"{"model":"small","stream":true}"#,
    ),
    ("anthropic", "/v1/messages", r#"{"model":"small"}"#),
    (
        "anthropic",
        "/v1/messages",
        r#"{"model":"small","stream":true}"#,
    ),
    ("gemini", "/v1beta/models/small:generateContent", "{}"),
    ("gemini", "/v1beta/models/small:streamGenerateContent", "{}"),
    (
        "gemini",
        "/v1beta/models/small:streamGenerateContent?alt=sse",
        "{}",
    ),
];

const CHAT: &str = r#"{"prompt_tokens":1000,"completion_tokens":500,"total_tokens":1500,"prompt_tokens_details":{"cached_tokens":200},"completion_tokens_details":{"reasoning_tokens":200}}"#;
const RESPONSES: &str = r#"{"input_tokens":1000,"input_tokens_details":{"cached_tokens":200},"output_tokens":500,"output_tokens_details":{"reasoning_tokens":200},"total_tokens":1500}"#;
const MESSAGES: &str = r#"{"input_tokens":800,"cache_creation_input_tokens":0,"cache_read_input_tokens":200,"output_tokens":1}"#;
const GEMINI: &str = r#"{"promptTokenCount":1000,"cachedContentTokenCount":200,"candidatesTokenCount":300,"thoughtsTokenCount":200,"totalTokenCount":1500}"#;

/// A server that pauses before the last event of a stream, or a complete response. It answers with the
/// model that the body names, or that of the path.
pub fn model_server(pause: Duration) -> Origin {
    Origin::start(move |request| answer(request, pause))
}

fn answer(request: &Received, pause: Duration) -> Vec<Step> {
    let body = String::from_utf8_lossy(&request.body);
    let is_streamed = body.contains("\"stream\":true");
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let named = body
        .split("\"model\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let model = named.unwrap_or("small");
    match path.rsplit(['/', ':']).next().unwrap_or_default() {
        "completions" if is_streamed => {
            let chunk = |rest: &str| format!(r#"data: {{"model":"{model}","choices":[{rest}"#);
            let text = chunk(r#"{"index":0,"delta":{"content":"a"}}],"usage":null}"#);
            let usage = chunk(&format!("],\"usage\":{CHAT}}}"));
            events(&[&text, &format!("{usage}\n\ndata: [DONE]")], pause)
        }
        "completions" => json(
            &format!(r#"{{"model":"{model}","choices":[],"usage":{CHAT}}}"#),
            pause,
        ),
        "responses" if is_streamed => {
            let event = |usage: &str| {
                format!(
                    r#"data: {{"type":"response","response":{{"model":"{model}","usage":{usage}}}}}"#
                )
            };
            events(&[&event("null"), &event(RESPONSES)], pause)
        }
        "responses" => json(
            &format!(r#"{{"model":"{model}","usage":{RESPONSES}}}"#),
            pause,
        ),
        "messages" if is_streamed => {
            let start = format!(
                "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"model\":\"{model}\",\"usage\":{MESSAGES}}}}}"
            );
            let end = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":500}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}";
            events(&[&start, end], pause)
        }
        "messages" => {
            let usage = MESSAGES.replace("\"output_tokens\":1}", "\"output_tokens\":500}");
            json(
                &format!(r#"{{"type":"message","model":"{model}","usage":{usage}}}"#),
                pause,
            )
        }
        "generateContent" => json(&gemini(GEMINI), pause),
        "streamGenerateContent" => {
            let first = gemini(r#"{"promptTokenCount":1000,"totalTokenCount":1000}"#);
            let last = gemini(GEMINI);
            if query == "alt=sse" {
                events(
                    &[&format!("data: {first}"), &format!("data: {last}")],
                    pause,
                )
            } else {
                json(&format!("[{first},\r\n{last}]"), pause)
            }
        }
        _ => json("{}", Duration::ZERO),
    }
}

fn gemini(usage: &str) -> String {
    format!(r#"{{"candidates":[],"usageMetadata":{usage},"modelVersion":"small"}}"#)
}

fn json(body: &str, pause: Duration) -> Vec<Step> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    [vec![Step::Pause(pause)], raw(&format!("{head}{body}"))].concat()
}

/// A stream of these events, the last after a pause.
fn events(events: &[&str], pause: Duration) -> Vec<Step> {
    let chunk = |event: &str| format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2);
    let (last, first) = events.split_last().expect("an event");
    let first: String = first.iter().map(|event| chunk(event)).collect();
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    [
        raw(&format!("{head}{first}")),
        vec![Step::Pause(pause)],
        raw(&format!("{}0\r\n\r\n", chunk(last))),
    ]
    .concat()
}

/// Writes the prices beside a configuration.
pub fn write_prices(directory: &Path, prices: &str) {
    let (new, path) = (directory.join("prices.new"), directory.join("prices.csv"));
    std::fs::write(&new, prices).expect("a file");
    std::fs::rename(new, path).expect("its name");
}

/// One call, with these header fields.
pub fn call(address: SocketAddr, path: &str, fields: &str, body: &str) -> Response {
    Connection::open(address).exchange(&request(path, fields, body))
}

/// The text of a call.
pub fn request(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    )
}
