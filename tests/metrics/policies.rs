//! The settings of policies, and the keys that are banned or have grants.

use serde_json::json;

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::steering::UNTIL;
use crate::support::wait_for;

fn infos(gateway: &Gateway) -> Vec<String> {
    let text = crate::support::client::get(gateway.admin, "/metrics").text();
    let lines = text.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("sluicegate_policy_info"));
    lines.map(str::to_owned).collect()
}

#[test]
fn settings_of_policies_are_labels_and_a_reload_ends_old_ones() {
    let config = |quota: &str, more: &str| {
        format!(
            "policies:
  per-key: {{ key: [\"header:x-key\", client_ip], algorithm: token_bucket, quota: {quota} }}
{more}routes: [{{ upstream: echo, limits: [per-key] }}]
"
        )
    };
    let info = |quota: &str| {
        format!(
            "{{policy=\"per-key\",algorithm=\"token_bucket\",quota=\"{quota}\",key=\"header:x-key, client_ip\",store=\"memory\"}} 1"
        )
    };
    let gateway = Gateway::start(&config("5/1h", "  other: { quota: 1/1s }\n"));
    let before = infos(&gateway);
    assert_eq!(before.len(), 2, "{before:?}");
    assert!(before.contains(&info("5/1h")), "{before:?}");
    gateway.reload(&config("7/1h", ""));
    wait_for("the old series to leave", || {
        (infos(&gateway) == [info("7/1h")]).then_some(())
    });
}

#[test]
fn banned_and_granted_keys_are_counted_while_they_last() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  p: {{ key: \"header:x-key\", quota: 1/300d, penalty: {{ strikes: 1, within: 1m, for: [1h] }} }}
routes: [{{ upstream: echo, limits: [p] }}]
"
    ));
    let keys = || {
        let banned = |by| {
            gateway.metric(&format!(
                "sluicegate_limit_banned_keys{{policy=\"p\",by=\"{by}\"}}"
            ))
        };
        let granted = gateway.metric("sluicegate_limit_granted_keys{policy=\"p\"}");
        [banned("penalty"), banned("operator"), granted].map(|count| count.expect("it exists"))
    };
    assert_eq!(keys(), [0.0, 0.0, 0.0]);
    for _ in 0..2 {
        get_with(gateway.address(), "/", "x-key: a\r\n");
    }
    assert_eq!(keys(), [1.0, 0.0, 0.0]);

    let admin = AdminClient::writer(&gateway);
    let steer = |action: &str, key: &str, more: serde_json::Value| {
        let mut body = json!({ "policy": "p", "key": key });
        let more = more.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(more);
        let response = admin.post(&format!("/v1/keys/{action}"), &body);
        assert_eq!(response.status, 200, "{response:?}");
    };
    steer("ban", "b", json!({ "for": "1h" }));
    let until = UNTIL.as_str();
    steer("grant", "c", json!({ "units": 5, "until": until }));
    assert_eq!(keys(), [1.0, 1.0, 1.0]);
    steer("unban", "a", json!({}));
    steer("unban", "b", json!({}));
    steer("grant", "c", json!({ "units": 0, "until": until }));
    assert_eq!(keys(), [0.0, 0.0, 0.0]);
}
