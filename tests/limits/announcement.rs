//! Policies with `announce: false`: refused clients learn how long to wait, and nothing else.

use serde_json::{Value, json};

use crate::support::client::{Response, curl, get_with};
use crate::support::gateway::Gateway;

/// All styles of fields, a limit for each client and one for all of them.
const CONFIG: &str = "responses: { headers: [ietf, github, { style: draft-6, prefix: x-six }, { style: openai, prefix: x-open }] }
policies:
  known: { key: \"header:x-key\", quota: 4/1h }
  internal: { key: constant, quota: 2/1h, announce: false }
routes: [{ upstream: echo, limits: [internal, known] }]
";

fn ask(gateway: &Gateway, headers: &str) -> Response {
    get_with(gateway.address(), "/", &format!("x-key: a\r\n{headers}"))
}

#[track_caller]
fn assert_untold(response: &Response) {
    let head = format!("{:?}", response.headers);
    for text in [&head, &response.text()] {
        assert!(!text.contains("internal"), "{text}");
        assert!(!text.contains("2/1h"), "{text}");
    }
}

#[test]
fn responses_tell_of_the_other_policies_only() {
    let gateway = Gateway::start(CONFIG);
    for remaining in ["3", "2", "2"] {
        let response = ask(&gateway, "");
        assert_untold(&response);
        let policy = response.expect_header("ratelimit-policy");
        assert_eq!(policy, "\"known\";q=4;w=3600");
        for (name, value) in [
            ("x-ratelimit-limit", "4"),
            ("x-ratelimit-resource", "known"),
            ("x-ratelimit-remaining", remaining),
            ("x-six-remaining", remaining),
            ("x-open-remaining-requests", remaining),
        ] {
            assert_eq!(response.expect_header(name), value, "{name}");
        }
    }
}

#[test]
fn a_refusal_says_how_long_to_wait() {
    let gateway = Gateway::start(CONFIG);
    let status = [(); 3].map(|()| ask(&gateway, "").status);
    assert_eq!(status, [200, 200, 429]);
    for accept in ["application/json", "text/plain", "text/html"] {
        let refused = ask(&gateway, &format!("accept: {accept}\r\n"));
        assert_untold(&refused);
        assert!(refused.text().contains("A limit is used up."));
        let wait: u64 = refused
            .expect_header("retry-after")
            .parse()
            .expect("seconds");
        assert!((1700..=1800).contains(&wait), "{wait}");
    }
    let refused: Value = serde_json::from_str(&ask(&gateway, "").text()).expect("JSON");
    // The form of the `openai` style.
    assert_eq!(refused["error"]["message"], "A limit is used up.");
    let grpc = curl(&[
        "--http2-prior-knowledge",
        "-D-",
        "-H",
        "content-type: application/grpc",
        "-H",
        "x-key: b",
        &gateway.url("/"),
    ]);
    assert!(
        grpc.stdout.contains("grpc-message: A limit is used up."),
        "{grpc}"
    );
    let counted =
        "sluicegate_limit_decisions_total{policy=\"internal\",route=\"any\",decision=\"limited\"}";
    assert_eq!(gateway.metric(counted), Some(6.0), "metrics name it");
}

#[test]
fn a_refusal_by_both_names_the_other() {
    let gateway = Gateway::start(
        "policies:
  known: { quota: 0/1m }
  internal: { quota: 0/1h, announce: false }
  told: { quota: 0/1h, announce: false, on_limit: { format: text, body: '{{policy}}|{{quota}}|{{policies}}|{{detail}}' } }
routes:
  - { match: { path: /both }, upstream: echo, limits: [internal, known] }
  - { match: { path: /own }, upstream: echo, limits: [told, known] }
",
    );
    let refused = get_with(gateway.address(), "/both", "");
    assert_untold(&refused);
    let body: Value = serde_json::from_str(&refused.text()).expect("JSON");
    assert_eq!(body["violated-policies"], json!(["known"]));
    let own = get_with(gateway.address(), "/own", "").text();
    assert_eq!(own, "||known|A limit is used up.");
}
