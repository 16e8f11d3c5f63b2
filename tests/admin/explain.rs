//! `POST /v1/explain`: one request under live buckets.

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer, problem};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::steering::UNTIL;
use crate::support::wait_for;

const CONFIG: &str = "client_ip: { trusted_proxies: [127.0.0.0/8], header: x-forwarded-for }
policies:
  per-key: { key: \"header:x-api-key\", quota: 3/300d, overrides: [{ value: gold, quota: 9/300d }] }
  search: { key: [client_ip, \"query:q\"], quota: 5/300d, algorithm: sliding_window }
  trial: { key: client_ip, quota: 1/300d, mode: shadow }
  slots: { algorithm: concurrency, key: client_ip, max: 2 }
routes:
  - { name: items, match: { path: /items }, upstream: echo, limits: [per-key, trial, slots] }
  - { name: search, match: { path: /search }, upstream: echo, limits: [search] }
";
const URL: &str = "http://api.example.com/items";

fn gateway() -> Gateway {
    Gateway::start(&format!("{TOKENS}{CONFIG}"))
}

/// A request of the client at 203.0.113.7 with this key.
fn request(url: &str, key: &str) -> Value {
    json!({
        "method": "GET", "url": url, "from": "203.0.113.7",
        "headers": [["x-api-key", key], ["accept", "*/*"]],
    })
}

#[track_caller]
fn explain(gateway: &Gateway, request: &Value) -> Value {
    answer(&AdminClient::new(gateway, READER).post("/v1/explain", request))
}

/// Sends requests of the client at 203.0.113.7 through a trusted proxy.
fn send(gateway: &Gateway, path: &str, key: &str, count: usize) {
    let headers = format!("x-api-key: {key}\r\nx-forwarded-for: 203.0.113.7\r\n");
    for _ in 0..count {
        get_with(gateway.address(), path, &headers);
    }
    // A client may have its response before the proxy has ended the request.
    wait_for("free slots", || {
        let in_use = gateway.metric("sluicegate_limit_in_use{policy=\"slots\"}");
        in_use.is_none_or(|units| units == 0.0).then_some(())
    });
}

fn steer(gateway: &Gateway, action: &str, mut body: Value) {
    body["policy"] = json!("per-key");
    body["key"] = json!("alice");
    let response = AdminClient::writer(gateway).post(&format!("/v1/keys/{action}"), &body);
    assert_eq!(response.status, 200, "{}", response.text());
}

#[test]
fn a_request_is_explained_by_live_buckets_and_charges_nothing() {
    let gateway = gateway();
    send(&gateway, "/items", "alice", 2);
    for _ in 0..5 {
        let explained = explain(&gateway, &request(URL, "alice"));
        assert_eq!(explained["route"], "items");
        assert_eq!(explained["client_ip"], "203.0.113.7");
        assert_eq!(explained["answer"]["decision"], "allowed");
        let limit = &explained["limits"][0];
        assert_eq!(limit["decision"], "allowed");
        assert_eq!(limit["remaining"], 0);
        let state = &limit["state"];
        assert_eq!(
            (&state["used"], &state["remaining"]),
            (&json!(2), &json!(1))
        );
        assert!(state["reset_s"].as_f64() > Some(0.0), "{state}");
        assert_eq!(state["store"], "memory");
        let trial = &explained["limits"][1];
        assert_eq!(trial["decision"], "shadowed");
        assert_eq!(trial["state"]["used"], 1);
        assert_eq!(explained["limits"][2]["state"]["limit"], 2);
    }
    send(&gateway, "/items", "alice", 1);
    let explained = explain(&gateway, &request(URL, "alice"));
    assert_eq!(explained["answer"]["decision"], "limited");
    assert_eq!(explained["answer"]["policy"], "per-key");
    assert_eq!(explained["answer"]["status"], 429);
    let looked_up = AdminClient::new(&gateway, READER).post(
        "/v1/keys/lookup",
        &json!({ "policy": "per-key", "key": "alice" }),
    );
    let state = &explained["limits"][0]["state"];
    assert_eq!(answer(&looked_up)["key_id"], state["key_id"]);
    let other = explain(&gateway, &request(URL, "bob"));
    assert_eq!(other["limits"][0]["state"]["used"], 0);
    let gold = explain(&gateway, &request(URL, "gold"));
    assert_eq!(gold["limits"][0]["state"]["limit"], 9);
    let text = explained["text"].as_str().expect("a text");
    for line in [
        "has used 3 of 3\n",
        "answer    limited by per-key: 429 Too Many Requests\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn bans_grants_and_modes_of_operators_are_explained() {
    let gateway = gateway();
    send(&gateway, "/items", "alice", 3);
    steer(&gateway, "grant", json!({ "units": 2, "until": *UNTIL }));
    let granted = explain(&gateway, &request(URL, "alice"));
    assert_eq!(granted["answer"]["decision"], "allowed");
    assert_eq!(granted["limits"][0]["remaining"], 1);
    assert_eq!(granted["limits"][0]["state"]["granted"]["units"], 2);
    steer(
        &gateway,
        "ban",
        json!({ "for": "24h", "reason": "ticket 7" }),
    );
    let banned = explain(&gateway, &request(URL, "alice"));
    assert_eq!(banned["answer"]["decision"], "limited");
    assert!(banned["answer"]["retry_after_ms"].as_f64() > Some(86_000_000.0));
    let text = banned["text"].as_str().expect("a text");
    assert!(text.contains("granted 2 of 2 units"), "{text}");
    assert!(text.contains(": ticket 7\n"), "{text}");
    let mode = |mode: &str| {
        let response = AdminClient::writer(&gateway)
            .post("/v1/policies/per-key/mode", &json!({ "mode": mode }));
        assert_eq!(response.status, 200);
        explain(&gateway, &request(URL, "alice"))
    };
    let disabled = mode("disabled");
    assert_eq!(disabled["answer"]["decision"], "allowed");
    assert_eq!(disabled["limits"][0]["reason"], "disabled");
    let shadowed = mode("shadow");
    assert_eq!(shadowed["answer"]["decision"], "allowed");
    assert_eq!(shadowed["limits"][0]["decision"], "allowed", "a grant pays");
    assert!(shadowed["limits"][0]["state"]["ban"].is_object());
}

#[test]
fn secrets_of_the_request_are_in_no_answer() {
    let gateway = gateway();
    let secret = "s3cr3t-0123456789";
    let mut request = request(&format!("http://api.example.com/search?q={secret}"), secret);
    request["headers"] = json!([
        ["x-api-key", secret],
        ["authorization", format!("Bearer {secret}")],
        ["cookie", format!("session={secret}")],
    ]);
    let explained = explain(&gateway, &request);
    assert_eq!(explained["route"], "search");
    assert_eq!(
        explained["request"]["url"],
        "http://api.example.com/search?***"
    );
    assert_eq!(
        explained["limits"][0]["key"],
        json!([
            { "part": "client_ip", "value": "203.0.113.7", "state": "present" },
            { "part": "query:q", "value": "***", "state": "present" },
        ])
    );
    request["url"] = json!(URL);
    for explained in [explained, explain(&gateway, &request)] {
        let text = explained.to_string();
        assert!(!text.contains(secret), "{text}");
    }
    request["headers"] = json!([["x-api-key", "gold"]]);
    let overridden = explain(&gateway, &request);
    assert_eq!(overridden["limits"][0]["state"]["override"], "value ***");
    assert!(!overridden.to_string().contains("gold"), "{overridden}");
    assert!(!gateway.log().contains(secret));
}

#[test]
fn requests_without_a_route_or_against_http_are_explained() {
    let gateway = gateway();
    let nowhere = explain(
        &gateway,
        &request("https://api.example.com/nowhere", "alice"),
    );
    assert_eq!(nowhere["answer"]["decision"], "answered");
    assert_eq!(nowhere["answer"]["status"], 404);
    assert_eq!(nowhere["not_matched"][1]["reason"], "another path");
    let escape = explain(&gateway, &request("http://api.example.com/%zz", "alice"));
    assert_eq!(escape["answer"]["status"], 400);
    let least = explain(&gateway, &json!({ "method": "BREW", "url": URL }));
    assert_eq!(least["client_ip"], "127.0.0.1");
}

#[test]
fn of_many_routes_the_nearest_are_listed_and_the_others_counted() {
    let others = (0..300).map(|number| {
        format!("  - {{ name: r{number}, match: {{ path: /r{number} }}, upstream: echo }}\n")
    });
    let gateway = Gateway::start(&format!(
        "{TOKENS}{CONFIG}{}  - {{ name: post, match: {{ path: /one, methods: [POST] }}, upstream: echo }}\n",
        others.collect::<String>()
    ));
    let nowhere = explain(&gateway, &request("http://api.example.com/one", "alice"));
    let listed = nowhere["not_matched"].as_array().expect("a list");
    assert_eq!(listed.len(), 100);
    assert_eq!(nowhere["not_matched_omitted"], 203);
    let nearest = json!({ "route": "post", "reason": "another method" });
    assert_eq!(listed[0], nearest);
    let text = nowhere["text"].as_str().expect("a text");
    assert!(text.contains("not       203 more routes\n"), "{text}");
    assert_eq!(text.matches("\nnot ").count(), 101);
}

#[test]
fn of_exhausted_buckets_the_one_with_the_shortest_wait_is_explained() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  last: {{ key: constant, quota: 1/300d, overflow: {{ quota: 1/200d, overflow: {{ quota: 1/100d }} }} }}
  second: {{ key: constant, quota: 1/300d, overflow: {{ quota: 1/100d, overflow: {{ quota: 1/200d }} }} }}
  first: {{ key: constant, quota: 1/100d, overflow: {{ quota: 1/200d }} }}
routes:
  - {{ match: {{ path: /last }}, upstream: echo, limits: [last] }}
  - {{ match: {{ path: /second }}, upstream: echo, limits: [second] }}
  - {{ match: {{ path: /first }}, upstream: echo, limits: [first] }}
"
    ));
    for (policy, buckets, soonest) in [("last", 3, 3), ("second", 3, 2), ("first", 2, 1)] {
        let explained = || {
            let url = format!("http://api.example.com/{policy}");
            explain(&gateway, &json!({ "method": "GET", "url": url }))["limits"][0].take()
        };
        let path = format!("/{policy}");
        for bucket in 1..=buckets {
            let paying = explained();
            assert_eq!(paying["bucket"], bucket, "{policy}: the first that pays");
            let response = get_with(gateway.address(), &path, "");
            assert_eq!(response.status, 200);
        }
        let limit = explained();
        assert_eq!(limit["decision"], "limited");
        assert_eq!(limit["bucket"], soonest, "{policy}");
        let hundred_days = 100.0 * 86_400_000.0;
        let wait = limit["retry_after_ms"].as_f64().expect("a wait");
        assert!(
            wait > hundred_days - 60_000.0 && wait <= hundred_days,
            "{wait}"
        );
        let refused = get_with(gateway.address(), &path, "");
        let seconds: f64 = refused
            .header("retry-after")
            .expect("a wait")
            .parse()
            .expect("seconds");
        assert!(
            (seconds * 1_000.0 - wait).abs() < 60_000.0,
            "{seconds} {wait}"
        );
    }
}

#[test]
fn a_request_that_cannot_be_sent_is_refused_without_its_text() {
    let gateway = gateway();
    let client = AdminClient::new(&gateway, READER);
    let refused = |change: &[(&str, Value)]| {
        let mut request = request(URL, "alice");
        for (name, value) in change {
            request[*name] = value.clone();
        }
        let detail = problem(&client.post("/v1/explain", &request), 422);
        assert!(!detail.contains("hunter2"), "{detail}");
        detail
    };
    let field = |name: &str, value: &str| [("headers", json!([["a", "b"], [name, value]]))];
    for (change, wanted) in [
        (
            &[("method", json!("GET hunter2"))][..],
            "`method` isn't an HTTP method",
        ),
        (&[("method", json!(""))], "`method` isn't an HTTP method"),
        (
            &[("url", json!("/items?hunter2"))],
            "`url`: expected an absolute http or https URL",
        ),
        (
            &[("url", json!("ftp://hunter2/"))],
            "`url`: expected an absolute http or https URL",
        ),
        (&[("url", json!("http://a b/hunter2"))], "`url` isn't a URL"),
        (&[("url", json!(""))], "`url` isn't a URL"),
        (
            &[("url", json!("http://root:hunter2@example.com/"))],
            "`url` contains user information",
        ),
        (
            &[("url", json!(format!("{URL}?{}", "x".repeat(8_192))))],
            "`url` is longer than 8192 bytes",
        ),
        (&field("hunter2 2", "x"), "`headers[1]` has an invalid name"),
        (&field("", "x"), "`headers[1]` has an invalid name"),
        (
            &field("x", "hunter2\r\ny: z"),
            "`headers[1]` has an invalid value",
        ),
        (
            &[("headers", json!(vec![["a", "b"]; 101]))],
            "`headers` has more than 100 fields",
        ),
        (&[("from", json!("hunter2"))], "`from` isn't an IP address"),
        (
            &[("from", json!("203.0.113.7:80"))],
            "`from` isn't an IP address",
        ),
    ] {
        let detail = refused(change);
        assert!(detail.contains(wanted), "{detail}");
    }
    problem(&client.post("/v1/explain", &json!({ "url": URL })), 400);
    let pair = json!({ "method": "GET", "url": URL, "headers": [["a"]] });
    problem(&client.post("/v1/explain", &pair), 400);
    let stranger = AdminClient::new(&gateway, "unknown");
    problem(&stranger.post("/v1/explain", &request(URL, "a")), 401);
}

#[test]
fn a_body_is_explained_and_stays_secret() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}routes: [{{ upstream: echo, request: {{ read_body: 64B }}, limits: [{{ key: body:/model, quota: 1/300d }}] }}]\n"
    ));
    let ask = |body: &str| {
        let request = json!({ "method": "POST", "url": "http://a/", "body": body });
        explain(&gateway, &request)["limits"][0]["key"].clone()
    };
    let part = |state: &str| json!([{ "part": "body:/model", "state": state }]);
    let present = json!([{ "part": "body:/model", "value": "***", "state": "present" }]);
    assert_eq!(ask(r#"{"model":"small"}"#), present);
    assert_eq!(ask(r#"{"model":"small","Model":"large"}"#), part("several"));
    assert_eq!(
        ask(&format!("{{}}{}", " ".repeat(64)))[0],
        part("missing")[0]
    );
}

#[test]
fn a_client_is_explained_by_its_name_without_its_key() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}clients: {{ identify_by: header:x-api-key, list: [{{ key: k-acme, name: acme }}] }}
routes: [{{ upstream: echo, limits: [{{ key: client, quota: 1/300d }}] }}]
"
    ));
    get_with(gateway.address(), "/", "x-api-key: k-acme\r\n");
    let named = |client: &str| json!({ "method": "GET", "url": URL, "client": client });
    let explained = explain(&gateway, &named("acme"));
    assert_eq!(explained["client"], "acme");
    assert_eq!(explained["answer"]["decision"], "limited");
    let unknown = AdminClient::new(&gateway, READER).post("/v1/explain", &named("k-acme"));
    assert!(problem(&unknown, 422).contains("no client has this name"));
}
