//! Requests that are malformed, or want what cannot be: a bounded error with the right status each,
//! and nothing changes.

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, TOKENS, WRITER, json, problem};
use crate::support::client::Connection;
use crate::support::gateway::Gateway;

const CONFIG: &str = "policies: { per-key: { key: \"header:x-key\", quota: 5/300d } }
routes: [{ upstream: echo, limits: [per-key] }]
";
const LOOKUP: &str = "/v1/keys/lookup";

fn start() -> Gateway {
    Gateway::start(&format!("{TOKENS}{CONFIG}"))
}

/// The `detail` of the error to a body that is sent to `path` as JSON.
#[track_caller]
fn refused(client: &AdminClient, path: &str, body: &str, status: u16) -> String {
    let json = "Content-Type: application/json\r\n";
    problem(&client.send("POST", path, json, Some(body)), status)
}

#[test]
fn a_body_is_one_json_object() {
    let gateway = start();
    let client = AdminClient::writer(&gateway);
    let deep = "[".repeat(30_000);
    for (body, part) in [
        ("", "isn't a JSON object"),
        ("null", "isn't a JSON object"),
        ("\"per-key\"", "isn't a JSON object"),
        (
            "\u{feff}{\"policy\":\"per-key\",\"key\":\"a\"}",
            "isn't a JSON object",
        ),
        (&deep, "isn't a JSON object"),
        (&format!("{{\"key\":{deep}"), "recursion limit"),
        (
            "{\"policy\":\"per-key\",\"policy\":\"a\"}",
            "duplicate field",
        ),
        ("{\"policy\":\"per-key\",\"key\":NaN}", "expected value"),
        ("{\"policy\":\"per-key\",\"key\":1e999}", "out of range"),
        (
            "{\"policy\":\"per-key\",\"key\":\"a\"}{}",
            "trailing characters",
        ),
        ("{\"policy\":\"per-key\",\"key\":\"\\ud800\"}", "hex escape"),
    ] {
        let detail = refused(&client, LOOKUP, body, 400);
        assert!(detail.contains(part), "{body:.60}: {detail}");
    }
    // The values of all fields, in their order.
    for (path, list) in [
        (LOOKUP, json!(["per-key", "a"])),
        ("/v1/keys/ban", json!(["per-key", "a", "1h", null, false])),
        (
            "/v1/keys/grant",
            json!(["per-key", "a", 9, null, "1h", null, false]),
        ),
        ("/v1/policies/per-key/mode", json!(["shadow", null])),
        ("/v1/check", json!(["routes: []"])),
        ("/v1/playground", json!([[], null, [], 0])),
    ] {
        refused(&client, path, &list.to_string(), 400);
    }
    let state = client.post(LOOKUP, &json!({ "policy": "per-key", "key": "a" }));
    let state = json(&state);
    assert_eq!(
        (&state["ban"], &state["granted"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn an_error_repeats_no_more_than_a_part_of_the_request() {
    let gateway = start();
    let client = AdminClient::writer(&gateway);
    let field = json!({ "k".repeat(60_000): 1 }).to_string();
    for path in [LOOKUP, "/v1/keys/ban", "/v1/check", "/v1/playground"] {
        let detail = refused(&client, path, &field, 400);
        assert!(detail.len() < 1_100, "{path}: {}", detail.len());
    }
    let policy = json!({ "policy": "p".repeat(60_000) }).to_string();
    assert!(refused(&client, LOOKUP, &policy, 404).len() < 1_100);
}

#[test]
fn lengths_have_bounds() {
    let gateway = start();
    let client = AdminClient::writer(&gateway);
    let ban =
        |length: &str| json!({ "policy": "per-key", "key": "a", "for": length, "dry_run": true });
    for length in [
        "0s",
        "-1h",
        "1us",
        "999us",
        "367d",
        "1y",
        "9999999999h",
        "99999999999999999999d",
        "",
        "1h x",
        "P1D",
        "1.5h",
        "1 hour",
        "\u{661}h",
        &"9".repeat(60_000),
    ] {
        let response = client.post("/v1/keys/ban", &ban(length));
        let detail = problem(&response, 422);
        assert!(detail.contains("366 days"), "{length}: {detail}");
        assert!(detail.len() < 1_100, "{}", detail.len());
    }
    // As in the configuration.
    for length in ["1s", "366d", "1w", "1h30m", "1d 2h", "1 h 30 m"] {
        json(&client.post("/v1/keys/ban", &ban(length)));
    }
}

#[test]
fn a_request_whose_end_is_uncertain_is_refused() {
    let gateway = start();
    for (fields, status) in [
        ("Content-Length: 2\r\nContent-Length: 3", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip", 501),
        ("Expect: 200-ok", 417),
    ] {
        for line in ["GET /livez", "POST /v1/keys/reset"] {
            let mut connection = Connection::open(gateway.admin);
            let refused = connection.exchange(&format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRITER}\r\n\
                 Content-Type: application/json\r\n{fields}\r\n\r\n"
            ));
            problem(&refused, status);
            if status != 417 {
                connection.expect_closed();
            }
        }
    }
}
