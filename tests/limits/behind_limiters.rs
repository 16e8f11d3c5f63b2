//! Rate-limit fields where the upstream has limits and fields of its own.

use crate::support::client::{Response, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, raw};

/// An upstream that answers with this status and these fields.
fn upstream(status: &'static str, fields: &'static str) -> Origin {
    Origin::start(move |_| {
        raw(&format!(
            "HTTP/1.1 {status}\r\nContent-Length: 0\r\n{fields}\r\n"
        ))
    })
}

fn ask(origin: &Origin, styles: &str) -> Response {
    let gateway = Gateway::start(&format!(
        "policies: {{ gate: {{ key: constant, algorithm: fixed_window, start: first_request, quota: 100/100s }} }}
responses: {{ headers: {styles} }}
routes: [{{ upstream: '{}', limits: [gate] }}]
",
        origin.url()
    ));
    get(gateway.address(), "/")
}

#[test]
fn a_list_of_the_upstream_grows_and_anything_else_is_replaced() {
    let own = ["\"gate\";r=99;t=100"];
    for (fields, expected) in [
        (
            "RateLimit: \"up\";r=3;t=50\r\n",
            &["\"up\";r=3;t=50", own[0]][..],
        ),
        (
            "RateLimit: \"up\";r=3\r\nRateLimit: \"b\";r=1\r\n",
            &["\"up\";r=3", "\"b\";r=1", own[0]],
        ),
        ("RateLimit: limit=10, remaining=3, reset=50\r\n", &own),
        ("RateLimit: \"up\";r=3\r\nRateLimit: limit=10\r\n", &own),
        ("RateLimit: 10\r\n", &own),
        ("RateLimit: \"up\";r=3,\r\n", &own),
        ("", &own),
    ] {
        let response = ask(&upstream("200 OK", fields), "[ietf]");
        assert_eq!(response.headers_of("ratelimit"), expected, "{fields}");
        let policies = response.headers_of("ratelimit-policy");
        assert_eq!(policies, ["\"gate\";q=100;w=100"], "{fields}");
    }
    let policy = "RateLimit-Policy: 10;w=60\r\n";
    let response = ask(&upstream("200 OK", policy), "[ietf]");
    let policies = response.headers_of("ratelimit-policy");
    assert_eq!(policies, ["\"gate\";q=100;w=100"]);
}

/// draft-ietf-httpapi-ratelimit-headers-11 section 7.2: nobody on the way is more permissive.
#[test]
fn a_refusal_of_the_upstream_announces_no_more_than_the_upstream_does() {
    let fields = "Retry-After: 50\r\nX-RateLimit-Limit: 10\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 50\r\nRateLimit: limit=10, remaining=0, reset=50\r\n";
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let refusing = upstream(status, fields);
        for styles in [
            "[ietf, github]",
            "[draft-7, x-ratelimit]",
            "[ietf, openai]",
            "[ietf, draft-6]",
        ] {
            let response = ask(&refusing, styles);
            assert_eq!(response.expect_header("retry-after"), "50");
            assert_eq!(response.headers_of("x-ratelimit-remaining"), ["0"]);
            assert_eq!(response.headers_of("x-ratelimit-reset"), ["50"]);
            let list = response.headers_of("ratelimit");
            assert_eq!(list, ["limit=10, remaining=0, reset=50"], "{styles}");
            for name in [
                "ratelimit-remaining",
                "x-ratelimit-remaining-requests",
                "ratelimit-policy",
            ] {
                assert_eq!(response.header(name), None, "{styles}");
            }
        }
    }
    let listed = upstream(
        "429 Too Many Requests",
        "Retry-After: 50\r\nRateLimit: \"up\";r=0;t=50\r\n",
    );
    let list = ask(&listed, "[ietf, github]");
    assert_eq!(
        list.headers_of("ratelimit"),
        ["\"up\";r=0;t=50", "\"gate\";r=99;t=100"]
    );
    assert_eq!(list.header("x-ratelimit-remaining"), None);
    // An error that is no refusal says nothing about limits.
    let failing = upstream("503 Service Unavailable", "");
    assert_eq!(
        ask(&failing, "[github]").expect_header("x-ratelimit-remaining"),
        "99"
    );
}

#[test]
fn proxies_in_a_row_have_names_of_their_own() {
    let config = |upstream: &str, prefix: &str| {
        format!(
            "responses: {{ {prefix} }}
routes: [{{ name: any, upstream: '{upstream}', limits: [{{ key: \"header:x-key\", quota: 2/1h }}] }}]
"
        )
    };
    let inner = Gateway::start(&config("echo", ""));
    let outer = Gateway::start(&config(&inner.url(""), "policy_prefix: edge."));
    let ask = |key: &str| get_with(outer.address(), "/", &format!("x-key: {key}\r\n"));
    let admitted = ask("a");
    let names = |response: &Response, field: &str| {
        let items = response.headers_of(field).join(", ");
        let items = items
            .split(", ")
            .map(|item| item.split(';').next().unwrap_or_default());
        items.map(str::to_owned).collect::<Vec<_>>()
    };
    for field in ["ratelimit", "ratelimit-policy"] {
        assert_eq!(names(&admitted, field), ["\"any#0\"", "\"edge.any#0\""]);
    }
    assert_eq!(ask("a").status, 200);
    let refused = ask("a");
    assert_eq!(names(&refused, "ratelimit"), ["\"edge.any#0\""]);
    let body: serde_json::Value = serde_json::from_str(&refused.text()).expect("JSON");
    assert_eq!(body["violated-policies"], serde_json::json!(["edge.any#0"]));
    assert_eq!(
        body["detail"],
        "The limit \"edge.any#0\" of 2/1h is used up."
    );
}

/// Requests in flight are no rate, and OpenAI's clients print only its own error object.
#[test]
fn styles_of_rates_leave_requests_in_flight_out() {
    let gateway = Gateway::start(
        "policies:
  slots: { key: constant, algorithm: concurrency, max: 2 }
  calls: { key: constant, quota: 1/1h, burst: 1 }
  quiet: { key: constant, quota: 0/1h, announce: false, when: { path: /quiet } }
responses: { headers: [ietf, { style: openai, prefix: x-ai }, github] }
routes:
  - { match: { path: /slots }, upstream: echo, limits: [slots] }
  - { upstream: echo, limits: [slots, calls, quiet] }
",
    );
    let only_slots = get(gateway.address(), "/slots");
    assert!(
        only_slots
            .expect_header("ratelimit")
            .contains("\"slots\";r=1")
    );
    assert_eq!(only_slots.header("x-ai-limit-requests"), None);
    assert_eq!(only_slots.header("x-ratelimit-limit"), None);
    let both = get(gateway.address(), "/");
    assert_eq!(both.expect_header("x-ai-limit-requests"), "1");
    assert_eq!(both.expect_header("x-ratelimit-limit"), "1");
    assert_eq!(both.expect_header("x-ratelimit-resource"), "calls");
    let refused = get(gateway.address(), "/");
    assert_eq!(refused.expect_header("content-type"), "application/json");
    let body: serde_json::Value = serde_json::from_str(&refused.text()).expect("JSON");
    assert_eq!(
        body,
        serde_json::json!({ "error": {
            "message": "The limit \"calls\" of 1/1h is used up.",
            "type": "rate_limit_error",
            "param": null,
            "code": "rate_limit_exceeded",
        } })
    );
}
