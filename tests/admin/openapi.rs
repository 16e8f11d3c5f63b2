//! The OpenAPI document: real answers match its schemas.

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, TOKENS, json as answer};
use crate::support::client::{Connection, Response, get};
use crate::support::gateway::Gateway;

const CONFIG: &str = "upstreams:
  api: { endpoints: [http://127.0.0.1:9, http://localhost:9], balance: least_requests }
policies:
  per-key: { key: \"header:x-key\", quota: 2/300d, penalty: { strikes: 2, within: 1m, for: [1m] } }
  slots: { algorithm: concurrency, max: 3 }
  off: { quota: 1/1h, mode: disabled }
routes:
  - { name: items, match: { path: \"/items/{id}\", methods: [GET] }, upstream: api, limits: [per-key, slots] }
  - { upstream: echo }
";

fn document(gateway: &Gateway) -> Value {
    let response = get(gateway.admin, "/v1/openapi.json");
    assert_eq!(response.status, 200);
    serde_json::from_slice(&response.body).expect("JSON")
}

/// Compares an answer to a method of a path with the schema of its status and media type.
#[track_caller]
fn check(document: &Value, path: &str, method: &str, response: &Response) {
    let responses = &document["paths"][path][method]["responses"];
    let media_type = response.expect_header("content-type");
    let content = &responses[response.status.to_string()]["content"];
    let mut schema = content[media_type]["schema"].clone();
    assert!(
        schema.is_object(),
        "{path} documents no {} of {media_type}",
        response.status
    );
    schema["components"] = document["components"].clone();
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let instance = serde_json::from_slice(&response.body).expect("JSON");
    let errors = validator.iter_errors(&instance);
    let errors: Vec<_> = errors
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{path}: {errors:#?}\n{instance:#}");
}

#[test]
fn answers_match_their_schemas() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let (document, client) = (document(&gateway), AdminClient::writer(&gateway));
    let reads = || {
        for path in [
            "status",
            "policies",
            "routes",
            "upstreams",
            "config",
            "reloads",
        ] {
            let path = format!("/v1/{path}");
            let response = client.get(&path);
            assert_eq!(response.status, 200, "{path}");
            check(&document, &path, "get", &response);
        }
    };
    reads();
    gateway.replace_config("routes: [{ upstream: nowhere }]\n");
    gateway.wait_for_log("the configuration is not reloaded");
    gateway.reload(&format!("{TOKENS}{CONFIG}").replace("2/300d", "3/300d"));
    reads();

    for (query, status) in [
        ("", 200),
        ("?by=busiest&window=5m", 200),
        ("?by=most", 400),
        ("?policy=nothing", 404),
    ] {
        let response = client.get(&format!("/v1/top{query}"));
        assert_eq!(response.status, status, "{query}");
        check(&document, "/v1/top", "get", &response);
    }
    let (ban, grant) = (json!({ "for": "1h" }), json!({ "units": 2, "for": "1h" }));
    for (action, more) in [("ban", ban), ("grant", grant)] {
        let mut body = json!({ "policy": "per-key", "key": "a", "reason": "x" });
        let more = more.as_object().expect("a map").clone();
        body.as_object_mut().expect("a map").extend(more);
        let path = format!("/v1/keys/{action}");
        let response = client.post(&path, &body);
        assert_eq!(response.status, 200, "{}", response.text());
        check(&document, &path, "post", &response);
    }
    for (query, status) in [
        ("", 200),
        ("?limit=1", 200),
        ("?limit=x", 400),
        ("?policy=x", 404),
    ] {
        let response = client.get(&format!("/v1/keys{query}"));
        assert_eq!(response.status, status, "{query}");
        check(&document, "/v1/keys", "get", &response);
    }
    let id = answer(&client.get("/v1/keys"))["items"][0]["id"].clone();
    for (id, status) in [
        (id.clone(), 200),
        (id, 404),
        (json!("a"), 422),
        (json!(1), 400),
    ] {
        let body = json!({ "policy": "per-key", "id": id, "what": "ban" });
        let response = client.post("/v1/keys/revoke", &body);
        assert_eq!(response.status, status, "{}", response.text());
        check(&document, "/v1/keys/revoke", "post", &response);
    }
    let one = "/v1/policies/{name}";
    for (name, status) in [
        ("per-key", 200),
        ("slots", 200),
        ("nothing", 404),
        ("%ff", 400),
    ] {
        let response = client.get(&one.replace("{name}", name));
        assert_eq!(response.status, status, "{name}");
        check(&document, one, "get", &response);
    }
    let mode = "/v1/policies/{name}/mode";
    for (name, body, status) in [
        (
            "per-key",
            json!({ "mode": "shadow", "reason": "a try" }),
            200,
        ),
        ("per-key", json!({ "mode": "configured" }), 200),
        ("per-key", json!({ "mode": "loud" }), 400),
        ("per-key", json!({ "mode": "shadow", "more": 1 }), 400),
        ("nothing", json!({ "mode": "shadow" }), 404),
        ("off", json!({ "mode": "enforce" }), 422),
    ] {
        let response = client.post(&mode.replace("{name}", name), &body);
        assert_eq!(response.status, status, "{body}: {}", response.text());
        check(&document, mode, "post", &response);
    }
    let drain = "/v1/upstreams/{name}/endpoints/{endpoint}/drain";
    for (name, endpoint, status) in [
        ("api", "127.0.0.1:9", 200),
        ("api", "127.0.0.1:10", 404),
        ("nothing", "127.0.0.1:9", 404),
    ] {
        let path = drain
            .replace("{name}", name)
            .replace("{endpoint}", endpoint);
        let response = client.post(&path, &json!({ "drain": true }));
        assert_eq!(response.status, status, "{path}: {}", response.text());
        check(&document, drain, "post", &response);
    }
    let readmit = "/v1/upstreams/{name}/endpoints/{endpoint}/readmit";
    for (endpoint, body, status) in [
        ("127.0.0.1:9", json!({ "reason": "fixed" }), 200),
        ("127.0.0.1:9", json!({ "host": "127.0.0.1" }), 400),
        ("127.0.0.1:10", json!({}), 404),
    ] {
        let path = readmit.replace("{name}", "api");
        let response = client.post(&path.replace("{endpoint}", endpoint), &body);
        assert_eq!(response.status, status, "{path}: {}", response.text());
        check(&document, readmit, "post", &response);
    }
    reads();
    let playground = "/v1/playground";
    for (body, status) in [
        (
            json!({ "policies": [{ "quota": "1/1m" }], "arrivals": [{ "at_ms": 0, "count": 2 }] }),
            200,
        ),
        (
            json!({ "policies": [{ "quota": "x" }], "arrivals": [] }),
            422,
        ),
        (json!({ "policies": [], "arrivals": [] }), 422),
        (json!({ "arrivals": 1 }), 400),
        (json!({ "text": "x".repeat(70_000), "arrivals": [] }), 413),
    ] {
        let response = client.post(playground, &body);
        assert_eq!(response.status, status, "{}", response.text());
        check(&document, playground, "post", &response);
    }
    for (body, status) in [
        (
            json!({ "text": "routes: [{ upstream: echo, limits: [{ qota: 1/1m }] }]" }),
            200,
        ),
        (
            json!({ "text": "policies: { a: { quota: 1/1m } }\npolicies: {}" }),
            200,
        ),
        (
            json!({ "text": "routes: []", "against": "policies: {}" }),
            200,
        ),
        (json!({ "txt": "" }), 400),
        (json!({ "text": "# a comment\n".repeat(80_000) }), 200),
        (json!({ "text": "# a comment\n".repeat(180_000) }), 413),
    ] {
        let response = client.post("/v1/check", &body);
        assert_eq!(response.status, status, "{}", response.text());
        check(&document, "/v1/check", "post", &response);
    }
    let against = "policies:\n  a: { quota: 1/1m }\n  b: { quota: 2/1m }\n";
    let body = json!({ "text": against.replace("2/1m", "3/1m"), "against": against });
    let checked = answer(&client.post("/v1/check", &body));
    let difference = checked["difference"].as_str().expect("a text");
    assert!(
        difference.ends_with("\n-  b: { quota: 2/1m }\n+  b: { quota: 3/1m }\n"),
        "{difference}"
    );
    let url = "http://example.com/items/1?a=b";
    for (body, status) in [
        (
            json!({ "method": "GET", "url": url, "from": "::1", "headers": [["x-key", "a"]] }),
            200,
        ),
        (
            json!({ "method": "GET", "url": "https://example.com/" }),
            200,
        ),
        (
            json!({ "method": "GET", "url": url, "headers": [["content-length", "x"]] }),
            200,
        ),
        (json!({ "method": "GET", "url": "/" }), 422),
        (json!({ "url": url }), 400),
    ] {
        let response = client.post("/v1/explain", &body);
        assert_eq!(response.status, status, "{}", response.text());
        check(&document, "/v1/explain", "post", &response);
    }
    let stranger = AdminClient::new(&gateway, "unknown");
    check(&document, "/v1/status", "get", &stranger.get("/v1/status"));
}

#[test]
fn the_document_is_one_of_openapi_3_1() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let document = document(&gateway);
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            for name in ["operationId", "summary"] {
                let is_there = operation[name]
                    .as_str()
                    .is_some_and(|text| !text.is_empty());
                assert!(is_there, "{method} {path}: {name}");
            }
            assert!(operation["responses"]["200"].is_object(), "{method} {path}");
        }
    }
}

#[test]
fn operations_that_need_a_token_refuse_requests_without_one() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let document = document(&gateway);
    let mut needed = 0;
    for (path, operations) in document["paths"].as_object().expect("an object") {
        for (method, operation) in operations.as_object().expect("an object") {
            let path = path.replace(['{', '}'], "");
            let method = method.to_uppercase();
            let request =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
            let status = Connection::open(gateway.admin).exchange(&request).status;
            let roles = operation["security"].as_array().expect("a list").len();
            assert_eq!(status == 401, roles > 0, "{method} {path}: {status}");
            needed += roles.min(1);
        }
    }
    assert!(needed > 15, "{needed}");
}
