//! The endpoints that read.

use serde_json::json;

use crate::support::admin::{AdminClient, TOKENS, problem};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;

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

    let per_key = client.read("/v1/policies/per-key");
    assert_eq!(policies["policies"][1], per_key);
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
    assert_eq!(watched["decisions"]["shadowed"], 2);
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
