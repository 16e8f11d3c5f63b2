//! Anthropic's Python and Node.js clients in front of a proxy with the header style `anthropic`.
//!
//! `scripts/test` installs them into the target directory (`scripts/model-clients`).

use crate::openai_clients::installed;
use crate::support::client::{get, run};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Received, Step, raw};
use serde_json::{Value, json};

const PYTHON: &str = r#"
import datetime, json, sys
from anthropic import Anthropic, RateLimitError

client = Anthropic(base_url=sys.argv[1], api_key="test", max_retries=0, timeout=20)
ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}

def fields(headers):
    names = ["requests", "tokens", "input-tokens", "output-tokens"]
    left = [int(headers[f"anthropic-ratelimit-{name}-remaining"]) for name in names]
    now = datetime.datetime.now(datetime.timezone.utc)
    for name in names:
        reset = datetime.datetime.fromisoformat(headers[f"anthropic-ratelimit-{name}-reset"])
        assert datetime.timedelta(0) < reset - now <= datetime.timedelta(days=301), reset
    return left

raw = client.messages.with_raw_response.create(**ask)
results = [raw.parse().content[0].text, fields(raw.headers)]
try:
    client.messages.create(**ask)
except RateLimitError as error:
    assert 0 < int(error.response.headers["retry-after"]) <= 300 * 86400
    results += [error.status_code, error.body, fields(error.response.headers)]
print(json.dumps(results))
"#;

const NODE: &str = r#"
import Anthropic, { RateLimitError } from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "test", maxRetries: 0, timeout: 20000 });
const ask = { model: "m", max_tokens: 9, messages: [{ role: "user", content: "hello" }] };

function fields(headers) {
  return ["requests", "tokens", "input-tokens", "output-tokens"].map((name) => {
    const wait = Date.parse(headers.get(`anthropic-ratelimit-${name}-reset`)) - Date.now();
    if (!(wait > 0 && wait <= 301 * 86_400_000)) throw new Error(`a reset in ${wait} ms`);
    return Number(headers.get(`anthropic-ratelimit-${name}-remaining`));
  });
}

const { data, response } = await client.messages.create(ask).withResponse();
const results = [data.content[0].text, fields(response.headers)];
try {
  await client.messages.create(ask);
} catch (error) {
  if (!(error instanceof RateLimitError)) throw error;
  results.push(error.status, error.error, fields(error.headers));
}
console.log(JSON.stringify(results));
"#;

/// A message as Anthropic writes it.
fn message(_: &Received) -> Vec<Step> {
    let answer = json!({
        "id": "msg", "type": "message", "role": "assistant", "model": "m",
        "content": [{ "type": "text", "text": "Héllo" }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 12, "output_tokens": 3 },
    })
    .to_string();
    let length = answer.len();
    raw(&format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{answer}"
    ))
}

fn start() -> (Gateway, Origin) {
    let origin = Origin::start(message);
    let gateway = Gateway::start(&format!(
        "policies:
  calls: {{ key: header:x-api-key, quota: 1/300d }}
  input: {{ key: header:x-api-key, unit: input_tokens, quota: 1000/300d, cost: {{ settle: anthropic, reserve: 100, max: 1000 }} }}
  output: {{ key: header:x-api-key, unit: output_tokens, quota: 500/300d, cost: {{ settle: anthropic, reserve: 100, max: 1000 }} }}
responses: {{ headers: [anthropic] }}
routes: [{{ match: {{ path: '/v1/messages' }}, upstream: '{}', limits: [calls, input, output] }}]
",
        origin.url()
    ));
    (gateway, origin)
}

fn check(command: impl Fn(&str) -> String) {
    let (gateway, _origin) = start();
    let output = command(gateway.url("/").trim_end_matches('/'));
    let results: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}"));
    let error = json!({ "type": "error", "error": {
        "type": "rate_limit_error", "message": "The limit \"calls\" of 1/300d is used up.",
    } });
    // While the first request runs, its reservations count. `tokens` is the smallest share left.
    let expected = json!(["Héllo", [0, 400, 900, 400], 429, error, [0, 988, 988, 497]]);
    assert_eq!(results, expected);
}

#[test]
fn the_python_client_reads_its_fields_and_errors() {
    let python = installed("python").join("bin/python");
    check(|url| {
        let output = run(&python.to_string_lossy(), &["-c", PYTHON, url]);
        assert_eq!(output.code, Some(0), "{output}");
        output.stdout
    });
}

#[test]
fn the_node_client_reads_its_fields_and_errors() {
    let program = installed("node").join("anthropic.mjs");
    check(|url| {
        std::fs::write(&program, NODE).expect("the directory is writable");
        let output = run("node", &[&program.to_string_lossy(), url]);
        assert_eq!(output.code, Some(0), "{output}");
        output.stdout
    });
}

/// One proxy stands before both vendors: each route has the errors of its own.
#[test]
fn a_policy_has_the_errors_of_its_vendor() {
    let gateway = Gateway::start(
        "responses: { headers: [openai, anthropic] }
routes:
  - { match: { path: /openai }, upstream: echo, limits: [{ quota: 0/1h }] }
  - { match: { path: /anthropic }, upstream: echo, limits: [{ quota: 0/1h, on_limit: { format: anthropic } }] }
  - { match: { path: /key }, upstream: echo, limits: [{ key: header:x-key, on_missing_key: refuse, quota: 1/1h, on_limit: { format: anthropic } }] }
",
    );
    let answer = |path| {
        let answer = get(gateway.address(), path);
        assert_eq!(answer.expect_header("content-type"), "application/json");
        let body: Value = serde_json::from_str(&answer.text()).expect("JSON");
        (answer.status, body)
    };
    assert_eq!(answer("/openai").1["error"]["code"], "rate_limit_exceeded");
    let (status, body) = answer("/anthropic");
    assert_eq!((status, &body["type"]), (429, &json!("error")));
    let (status, body) = answer("/key");
    assert_eq!(
        (status, &body["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
}
