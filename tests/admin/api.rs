//! The endpoints that read.

use serde_json::json;

use crate::support::admin::{AdminClient, TOKENS, problem};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::wait_for;

const POLICIES: &str = "policies:
  per-key: { key: [\"header:x-key\", \"path:id\"], quota: 2/300d, mode: enforce }
  watched: { quota: 1/300d, mode: shadow, algorithm: sliding_window }
  off: { quota: 1/300d, mode: disabled }
limits: [watched]
routes:
  - { name: items, match: { path: \"/items/{id}\" }, upstream: echo, limits: [per-key] }
  - { name: rest, upstream: echo }
";

#[test]
fn status_says_what_runs_and_what_is_wrong() {
    let gateway = Gateway::start(&format!("{TOKENS}{POLICIES}"));
    let client = AdminClient::writer(&gateway);
    let status = client.read("/v1/status");
    assert_eq!(status["phase"], "ready");
    assert_eq!(status["pid"], gateway.pid().as_raw_nonzero().get());
    assert_eq!(status["last_reload"], json!(null));
    assert_eq!(status["problems"], json!([]));
    assert_eq!(
        status["stores"],
        json!([{ "name": "memory", "state": "up", "detail": null }])
    );
    let hash = status["ruleset"]["hash"].as_str().expect("a hash");
    assert_eq!(
        gateway.metric(&format!("sluicegate_config_info{{hash=\"{hash}\"}}")),
        Some(1.0)
    );

    gateway.reload(&format!("{TOKENS}{POLICIES}# changed\n"));
    let status = client.read("/v1/status");
    assert_eq!(status["last_reload"]["result"], "applied");
    assert_ne!(status["ruleset"]["hash"], hash);
    gateway.replace_config("routes: [{ upstream: nowhere }]\n");
    gateway.wait_for_log("the configuration is not reloaded");
    let status = client.read("/v1/status");
    assert_eq!(status["last_reload"]["result"], "failed");
    let error = status["last_reload"]["error"].as_str().expect("an error");
    assert!(error.contains("nowhere"), "{error}");
    let problem = status["problems"][0].as_str().expect("a problem");
    assert!(problem.starts_with("the last reload failed"), "{problem}");
}

#[test]
fn policies_show_settings_buckets_and_decisions() {
    let gateway = Gateway::start(&format!("{TOKENS}{POLICIES}"));
    for _ in 0..3 {
        get_with(gateway.address(), "/items/1", "x-key: secret-key\r\n");
    }
    let client = AdminClient::writer(&gateway);
    let policies = client.read("/v1/policies");
    let names: Vec<_> = policies["policies"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    let names: Vec<_> = names.iter().map(|policy| policy["name"].as_str()).collect();
    assert_eq!(names, [Some("off"), Some("per-key"), Some("watched")]);

    let mut per_key = client.read("/v1/policies/per-key");
    let fields = per_key.as_object_mut().expect("an object");
    assert_eq!(fields.remove("first_overrides"), Some(json!([])));
    assert_eq!(policies["policies"][1], per_key, "the rest");
    assert_eq!(per_key["algorithm"], "gcra");
    assert_eq!(per_key["key"], json!(["header:x-key", "path:id"]));
    assert_eq!(per_key["limit_units"], 2);
    assert_eq!(per_key["window_s"], 300.0 * 86_400.0);
    assert_eq!(per_key["routes"], json!(["items"]));
    assert_eq!(per_key["buckets"]["in_use"], 1);
    assert_eq!(per_key["decisions"]["allowed"], 2);
    assert_eq!(per_key["decisions"]["limited"], 1);
    assert_eq!(per_key["bans"], json!(null));

    let watched = client.read("/v1/policies/watched");
    assert_eq!(watched["mode"]["configured"], "shadow");
    assert_eq!(watched["routes"], json!(["items", "rest", ""]));
    assert_eq!(
        watched["decisions"]["shadowed"], 1,
        "the other request is refused"
    );
    assert_eq!(
        client.read("/v1/policies/off")["mode"]["current"],
        "disabled"
    );
    let unknown = problem(&client.get("/v1/policies/per-kei"), 404);
    assert!(unknown.contains("did you mean `per-key`?"), "{unknown}");
    problem(&client.get("/v1/policies/%ff"), 400);
    let body = client.get("/v1/policies").text();
    assert!(!body.contains("secret-key"), "{body}");
}

#[test]
fn a_policy_in_shadow_counts_the_clients_that_it_would_have_limited() {
    let config = |more: &str| {
        format!(
            "{TOKENS}policies:
  trial: {{ key: \"header:x-key\", quota: 2/300d, mode: shadow }}
  live: {{ key: \"header:x-key\", quota: 9/300d }}
routes: [{{ upstream: echo, limits: [trial, live] }}]
{more}"
        )
    };
    let gateway = Gateway::start(&config(""));
    for client in 0..20 {
        let header = format!("x-key: client-{client}\r\n");
        for _ in 0..if client < 3 { 3 + client } else { 1 } {
            assert_eq!(get_with(gateway.address(), "/", &header).status, 200);
        }
    }
    let client = AdminClient::writer(&gateway);
    let shadow = client.read("/v1/policies/trial")["shadow"].clone();
    let clients = shadow["clients"].as_u64().expect("a number");
    assert!((18..=22).contains(&clients), "{shadow}");
    assert_eq!(shadow["limited_clients"], 3);
    let most = shadow["most_limited"].as_array().expect("a list").iter();
    let most: Vec<_> = most.map(|client| &client["requests"]).collect();
    assert_eq!(most, [3, 2, 1]);
    let state = client.post(
        "/v1/keys/lookup",
        &json!({ "policy": "trial", "key": "client-2" }),
    );
    let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
    assert_eq!(shadow["most_limited"][0]["key_id"], state["key_id"]);
    assert_eq!(client.read("/v1/policies/live")["shadow"], json!(null));
    gateway.reload(&config("# again\n"));
    assert_eq!(client.read("/v1/policies/trial")["shadow"], shadow);
    gateway.reload(&config("# another quota\n").replace("2/300d", "3/300d"));
    assert_eq!(client.read("/v1/policies/trial")["shadow"], json!(null));
}

#[test]
fn routes_and_upstreams_are_shown_as_they_run() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}upstreams: {{ api: {{ endpoints: [{{ url: http://127.0.0.1:9, weight: 3 }}, http://127.0.0.1:10], balance: random }} }}
limits: [{{ name: all, quota: 100/1s }}]
routes:
  - {{ name: beta, match: {{ hosts: [a.example.com], methods: [GET], path: \"/v1/{{id}}/**\", headers: {{ x-beta: secret }} }}, upstream: api }}
  - {{ upstream: echo }}
"
    ));
    let client = AdminClient::writer(&gateway);
    let routes = client.read("/v1/routes");
    assert_eq!(
        routes,
        json!({
            "routes": [
                {
                    "name": "beta",
                    "match": "GET a.example.com /v1/{id}/** header:x-beta",
                    "upstream": "api",
                    "limits": ["all"],
                    "recent": null,
                },
                { "name": "any", "match": "/**", "upstream": "echo", "limits": ["all"], "recent": null },
            ],
            "unmatched": ["all"],
        })
    );
    let upstreams = client.read("/v1/upstreams");
    let host = |port| {
        json!([{ "address": format!("127.0.0.1:{port}"), "state": "available", "reason": null,
                 "text": "available", "for_s": null, "in_flight": 0, "failures": 0 }])
    };
    assert_eq!(
        upstreams["upstreams"][0],
        json!({
            "name": "api",
            "protocol": "http/1.1",
            "balance": "random",
            "endpoints": [
                { "endpoint": "127.0.0.1:9", "weight": 3, "draining": false, "failures": {}, "hosts": host(9) },
                { "endpoint": "127.0.0.1:10", "weight": 1, "draining": false, "failures": {}, "hosts": host(10) },
            ],
            "recent": null,
        })
    );
    assert_eq!(upstreams["upstreams"][1]["endpoints"], json!([]));
}

#[test]
fn the_configuration_is_shown_without_secrets_and_with_what_reloads_did() {
    let config = |quota: &str, key: &str| {
        format!(
            "{TOKENS}policies:
  kept: {{ quota: 1/1h }}
  changed: {{ quota: {quota}, key: {key} }}
  by_key: {{ quota: 9/1h, key: header:x-key, overrides: [{{ value: alice, quota: {quota} }}] }}
routes: [{{ upstream: echo, limits: [kept, changed, by_key] }}] # a comment
"
        )
    };
    let gateway = Gateway::start(&config("10/1h", "client_ip"));
    let client = AdminClient::writer(&gateway);
    let running = client.read("/v1/config");
    let text = running["text"].as_str().expect("a text");
    assert!(text.contains("quota: 10/1h"), "{text}");
    assert!(!text.contains("a comment"), "it may hold a secret: {text}");
    assert!(!text.contains("0123456789"), "{text}");
    assert!(
        running["source"]
            .as_str()
            .expect("a path")
            .ends_with("sluicegate.yaml")
    );
    assert_eq!(running["reset"], json!([]));
    assert_eq!(client.read("/v1/reloads"), json!({ "reloads": [] }));

    gateway.reload(&config("20/1h", "client_ip"));
    let rescaled = json!([{
        "policy": "by_key", "key": "header:x-key or client_ip where value ***", "override": "value ***",
        "outcome": "rescaled", "reason": "10/1h becomes 20/1h",
    }, {
        "policy": "changed", "key": "client_ip", "override": null, "outcome": "rescaled",
        "reason": "10/1h becomes 20/1h",
    }]);
    assert_eq!(client.read("/v1/config")["reset"], rescaled);
    gateway.reload(&config("20/1h", "header:x-key"));
    wait_for("the other key", || {
        let reloads = client.read("/v1/reloads");
        let mut buckets = reloads["reloads"][0]["buckets"].as_array()?.iter();
        buckets.any(|one| one["outcome"] == "reset").then_some(())
    });
    gateway.replace_config("routes: [{ upstream: nowhere }]\n");
    gateway.wait_for_log("the configuration is not reloaded");
    let reloads = client.read("/v1/reloads");
    let results: Vec<_> = (0..3)
        .map(|index| &reloads["reloads"][index]["result"])
        .collect();
    assert_eq!(results, ["failed", "applied", "applied"]);
    assert_eq!(reloads["reloads"][2]["buckets"], rescaled);
    let cause = reloads["reloads"][0]["cause"].as_str().expect("a cause");
    assert!(
        cause.contains("nowhere") && !cause.contains('\n'),
        "{cause}"
    );
    let error = client.read("/v1/config")["last_error"].clone();
    assert!(
        error.as_str().expect("an error").contains("nowhere"),
        "{error}"
    );
}
