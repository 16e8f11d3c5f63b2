//! `/v1/top`: the keys with the highest counts.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer, problem};
use crate::support::client::get_with;
use crate::support::gateway::{BINARY, Gateway, directory_of};
use crate::support::wait_for;

const POLICIES: &str = "policies:
  per-key: { key: \"header:x-key\", quota: 1/300d, on_missing_key: client_ip }
  pairs: { key: [client_ip, \"header:x-key\"], quota: 1000/300d, cost: { header: x-cost, max: 100 }, on_missing_key: shared }
routes: [{ upstream: echo, limits: [per-key, pairs] }]
";

fn start(keys: &str) -> Gateway {
    let tokens = TOKENS.replace("tokens:", &format!("keys: {keys}, tokens:"));
    Gateway::start(&format!("{tokens}{POLICIES}"))
}

fn ask(gateway: &Gateway, headers: &str, times: usize) {
    for _ in 0..times {
        get_with(gateway.address(), "/", headers);
    }
}

fn top(gateway: &Gateway, query: &str) -> Value {
    AdminClient::new(gateway, READER).read(&format!("/v1/top{query}"))
}

#[test]
fn the_most_limited_keys_come_first_without_their_text() {
    let gateway = start("hashed");
    ask(&gateway, "x-key: alice\r\n", 6);
    ask(&gateway, "x-key: bob\r\n", 3);
    let top = top(&gateway, "?policy=per-key");
    assert_eq!(
        (&top["by"], &top["window"], &top["keys"]),
        (&json!("limited"), &json!("1m"), &json!("hashed"))
    );
    let rows = top["items"].as_array().expect("a list");
    let counts: Vec<_> = rows.iter().map(|row| row["limited"].as_u64()).collect();
    assert_eq!(counts, [Some(5), Some(2)], "{top:#}");
    assert_eq!(rows[0]["error_bound"], 0);
    assert_eq!(rows[0]["key"], Value::Null);
    assert_eq!(rows[0]["requests"], Value::Null);
    let client = AdminClient::new(&gateway, READER);
    let key = json!({ "policy": "per-key", "key": "alice" });
    let looked = answer(&client.post("/v1/keys/lookup", &key));
    assert_eq!(rows[0]["key_id"], looked["key_id"]);
    assert!(!top.to_string().contains("alice"));
    // The other policy refused nobody.
    let other = self::top(&gateway, "?policy=pairs");
    assert_eq!(other["items"], json!([]));
}

#[test]
fn requests_and_units_are_counted_once_somebody_asks() {
    let gateway = start("hashed");
    ask(&gateway, "x-key: before\r\nx-cost: 9\r\n", 1);
    assert_eq!(top(&gateway, "?by=units")["items"], json!([]));
    ask(&gateway, "x-key: alice\r\nx-cost: 7\r\n", 1);
    ask(&gateway, "x-key: bob\r\nx-cost: 2\r\n", 3);
    let units = top(&gateway, "?by=units&policy=pairs&window=15m");
    let rows = units["items"].as_array().expect("a list");
    let counts: Vec<_> = rows.iter().map(|row| row["units"].as_u64()).collect();
    // Refused requests charge nothing.
    assert_eq!(counts, [Some(7), Some(2)], "{units:#}");
    let busiest = top(&gateway, "?by=busiest&limit=1&policy=per-key");
    let rows = busiest["items"].as_array().expect("a list");
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["requests"], &rows[0]["limited"]),
        (&json!(3), &json!(2))
    );
    assert!(busiest["counted_s"].as_f64() < Some(60.0), "{busiest:#}");
}

#[test]
fn a_readable_key_names_the_bucket_that_is_banned() {
    let gateway = start("readable");
    ask(&gateway, "x-key: alice\r\n", 4);
    ask(&gateway, "", 3);
    let limited = top(&gateway, "?policy=per-key");
    let keys: Vec<_> = limited["items"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    let keys: Vec<_> = keys.iter().map(|row| &row["key"]).collect();
    // A client without the field has the key of its address.
    let address = json!([{ "client_ip": "127.0.0.1" }]);
    assert_eq!(keys, [&json!("alice"), &address]);
    let writer = AdminClient::writer(&gateway);
    for row in limited["items"].as_array().expect("a list") {
        let ban = json!({ "policy": "per-key", "key": row["key"], "for": "1h" });
        let banned = answer(&writer.post("/v1/keys/ban", &ban));
        assert_eq!(banned["after"]["key_id"], row["key_id"]);
    }
    let long = "x".repeat(300);
    ask(&gateway, &format!("x-key: {long}\r\n"), 20);
    let limited = top(&gateway, "?policy=per-key");
    assert_eq!(limited["items"][0]["key"], Value::Null, "it is too long");
    assert_eq!(limited["items"][0]["limited"], 19);

    // No text outlives a reload that forbids texts.
    let hashed = TOKENS.replace("tokens:", "keys: hashed, tokens:");
    gateway.reload(&format!("{hashed}{POLICIES}"));
    wait_for("an empty list", || {
        (top(&gateway, "")["items"] == json!([])).then_some(())
    });
    ask(&gateway, "x-key: alice\r\n", 1);
    let limited = top(&gateway, "");
    assert_eq!(limited["items"][0]["key"], Value::Null);
}

#[test]
fn a_client_is_the_same_in_all_policies_that_limit_it() {
    let started = |keys: &str| {
        let tokens = TOKENS.replace("tokens:", &format!("keys: {keys}, tokens:"));
        let dir = directory_of(&format!(
            "{tokens}clients: {{ identify_by: header:x-key, files: [clients.csv] }}
policies:
  plans: {{ key: client, quota: 1/300d }}
  addresses: {{ key: client_ip, quota: 1/300d }}
  together: {{ key: constant, quota: 1/300d }}
routes:
  - {{ match: {{ path: /plans }}, upstream: echo, limits: [plans] }}
  - {{ match: {{ path: /addresses }}, upstream: echo, limits: [addresses] }}
  - {{ match: {{ path: /together }}, upstream: echo, limits: [together] }}
"
        ));
        let clients = "key,name\nk-acme,acme\n";
        std::fs::write(dir.path().join("clients.csv"), clients).expect("a file");
        let gateway = Gateway::start_program(Path::new(BINARY), dir);
        for path in ["/plans", "/addresses", "/together"] {
            (0..3).for_each(|_| _ = get_with(gateway.address(), path, "x-key: k-acme\r\n"));
        }
        gateway
    };
    for (keys, address) in [("readable", json!("127.0.0.1")), ("hashed", Value::Null)] {
        let gateway = started(keys);
        let all = top(&gateway, "");
        let items = all["items"].as_array().expect("a list");
        assert_eq!(items.len(), 3, "{all:#}");
        for item in items {
            let told = (&item["client"], &item["address"]);
            if item["policy"] == "together" {
                assert_eq!(told, (&Value::Null, &Value::Null), "all clients share it");
            } else {
                assert_eq!(told, (&json!("acme"), &address), "{item:#}");
            }
        }
        assert!(!all.to_string().contains("k-acme"), "{all:#}");
    }
}

#[test]
fn a_wrong_question_is_told_what_is_allowed() {
    let gateway = start("hashed");
    let client = AdminClient::new(&gateway, READER);
    for (query, status, told) in [
        ("by=most", 400, "`limited`, `busiest`"),
        ("window=2m", 400, "`1m`, `5m`"),
        ("limit=1000", 400, "from 1 to 100"),
        ("order=by", 400, "`by`, `window`"),
        ("by=units&by=units", 400, "twice"),
        ("policy=per-kei", 404, "did you mean `per-key`?"),
    ] {
        let detail = problem(&client.get(&format!("/v1/top?{query}")), status);
        assert!(detail.contains(told), "{query}: {detail}");
    }
    problem(&AdminClient::new(&gateway, "unknown").get("/v1/top"), 401);
}
