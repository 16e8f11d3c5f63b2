//! OpenAI's Python and Node.js clients in front of a proxy that charges the usage of responses,
//! streamed and not.
//!
//! `scripts/test` installs them into the target directory (`scripts/model-clients`).

use std::path::PathBuf;

use crate::support::client::run;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Received, Step, raw};
use crate::support::wait_for;
use serde_json::{Value, json};

const PYTHON: &str = r#"
import json, sys
from openai import OpenAI, RateLimitError

client = OpenAI(base_url=sys.argv[1] + "v1", api_key="test", max_retries=0, timeout=20)
messages = [{"role": "user", "content": "hello"}]
ask = client.chat.completions.create

def remaining(raw):
    return int(raw.headers["x-ratelimit-remaining-tokens"])

def whole(**more):
    raw = client.chat.completions.with_raw_response.create(model="m", messages=messages, **more)
    answer = raw.parse()
    return [answer.choices[0].message.content, answer.usage.total_tokens, remaining(raw)]

def streamed(**more):
    text, usage = "", None
    with ask(model="m", messages=messages, stream=True, **more) as stream:
        left = remaining(stream.response)
        for chunk in stream:
            usage = chunk.usage.total_tokens if chunk.usage else usage
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
    return [text, usage, left]

results = [
    whole(),
    streamed(stream_options={"include_usage": True}),
    streamed(),
    whole(extra_headers={"x-estimate": "40"}),
]
stream = ask(model="m", messages=messages, stream=True, extra_headers={"x-case": "long"})
next(iter(stream))
stream.close()
try:
    whole(extra_headers={"x-estimate": "100000"})
except RateLimitError as error:
    results.append(error.status_code)
print(json.dumps(results))
"#;

const NODE: &str = r#"
import OpenAI, { RateLimitError } from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "v1", apiKey: "test", maxRetries: 0, timeout: 20000 });
const messages = [{ role: "user", content: "hello" }];
const ask = (body, headers) => client.chat.completions.create({ model: "m", messages, ...body }, { headers }).withResponse();
const remaining = (response) => Number(response.headers.get("x-ratelimit-remaining-tokens"));

async function whole(headers) {
  const { data, response } = await ask({}, headers);
  return [data.choices[0].message.content, data.usage.total_tokens, remaining(response)];
}

async function streamed(body) {
  const { data, response } = await ask({ stream: true, ...body });
  let [text, usage] = ["", null];
  for await (const chunk of data) {
    usage = chunk.usage?.total_tokens ?? usage;
    text += chunk.choices.map((choice) => choice.delta.content ?? "").join("");
  }
  return [text, usage, remaining(response)];
}

const results = [
  await whole(),
  await streamed({ stream_options: { include_usage: true } }),
  await streamed({}),
  await whole({ "x-estimate": "40" }),
];
const { data } = await ask({ stream: true }, { "x-case": "long" });
for await (const _ of data) break;
try {
  await whole({ "x-estimate": "100000" });
} catch (error) {
  if (!(error instanceof RateLimitError)) throw error;
  results.push(error.status);
}
console.log(JSON.stringify(results));
"#;

/// The directory of a client below the target directory.
pub(crate) fn installed(client: &str) -> PathBuf {
    let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().expect("it is in the target directory");
    let path = target.join("model-clients").join(client);
    assert!(
        path.exists(),
        "{} is missing: ./scripts/model-clients installs it (./scripts/test does so)",
        path.display()
    );
    path
}

/// A response as OpenAI writes it, with a usage of 57 tokens.
fn completion(request: &Received) -> Vec<Step> {
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert_eq!(body["messages"][0]["content"], "hello");
    if body["stream"] != json!(true) {
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "Héllo \"usage\"" } }],
            "usage": { "prompt_tokens": 20, "completion_tokens": 37, "total_tokens": 57 },
        })
        .to_string();
        let length = answer.len();
        return raw(&format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{answer}"
        ));
    }
    let includes_usage = body["stream_options"]["include_usage"] == json!(true);
    let mut steps = raw(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let mut send = |text: String| steps.extend(raw(&format!("{:x}\r\n{text}\r\n", text.len())));
    for content in ["Hé", "llo"] {
        let mut chunk = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{ "index": 0, "delta": { "content": content }, "finish_reason": null }],
        });
        if includes_usage {
            chunk["usage"] = Value::Null;
        }
        send(format!("data: {chunk}\n\n"));
    }
    if request.header("x-case") == Some("long") {
        steps.push(Step::Hang);
        return steps;
    }
    if includes_usage {
        let last = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
            "usage": { "prompt_tokens": 20, "completion_tokens": 80, "total_tokens": 100 },
        });
        send(format!("data: {last}\n\n"));
    }
    send("data: [DONE]\n\n".to_owned());
    steps.extend(raw("0\r\n\r\n"));
    steps
}

/// What clients see, and what they pay if the proxy asks for the usage of their streams, or doesn't.
fn check(command: impl Fn(&str) -> String) {
    check_with("settle: openai", [9303, 3, 1], &command);
    check_with(
        "settle: openai, include_usage: true",
        [9703, 4, 0],
        &command,
    );
}

fn check_with(cost: &str, [left, settled, missing]: [u32; 3], command: impl Fn(&str) -> String) {
    let origin = Origin::start(completion);
    let gateway = Gateway::start(&format!(
        "policies:
  tokens:
    key: header:authorization
    unit: tokens
    quota: 10000/300d
    cost: {{ {cost}, reserve: {{ header: x-estimate, default: 500 }}, max: 100000 }}
responses: {{ headers: [openai] }}
routes: [{{ match: {{ path: '/v1/**' }}, upstream: '{}', limits: [tokens], request: {{ read_body: 1MiB }} }}]
",
        origin.url()
    ));
    let output = command(&gateway.url("/"));
    let results: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}"));
    let whole = "Héllo \"usage\"";
    let expected = json!([
        [whole, 57, 9500],
        ["Héllo", 100, 9443],
        // It doesn't ask for the usage, and gets none.
        ["Héllo", null, 9343],
        [whole, 57, left],
        429,
    ]);
    assert_eq!(results, expected);
    for (result, count) in [
        ("settled", settled),
        ("missing", missing),
        ("malformed", 0),
        ("no_response", 1),
    ] {
        let series =
            format!("sluicegate_limit_settlements_total{{policy=\"tokens\",result=\"{result}\"}}");
        wait_for(&series, || {
            (gateway.metric(&series) == Some(count.into())).then_some(())
        });
    }
    let codings = origin.requests();
    let codings = codings
        .iter()
        .map(|request| request.header("accept-encoding"));
    assert!(codings.into_iter().all(|coding| coding == Some("identity")));
}

#[test]
fn the_python_client_is_charged_the_usage_of_its_responses() {
    let python = installed("python").join("bin/python");
    check(|url| {
        let output = run(&python.to_string_lossy(), &["-c", PYTHON, url]);
        assert_eq!(output.code, Some(0), "{output}");
        output.stdout
    });
}

#[test]
fn the_node_client_is_charged_the_usage_of_its_responses() {
    let node = installed("node");
    let program = node.join("client.mjs");
    check(|url| {
        std::fs::write(&program, NODE).expect("the directory is writable");
        let output = run("node", &[&program.to_string_lossy(), url]);
        assert_eq!(output.code, Some(0), "{output}");
        output.stdout
    });
}
