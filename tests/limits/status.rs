//! `upstream: status`: the state of the caller's limits, as GitHub's `/rate_limit` reports it.

use serde_json::{Value, json};

use crate::support::client::{Connection, Response, get_with};
use crate::support::gateway::Gateway;
use crate::support::steering;

const ASK: &str = "
  - { match: { path: /rate_limit }, upstream: status }
";

fn get(gateway: &Gateway, path: &str, headers: &str) -> Response {
    get_with(gateway.address(), path, headers)
}

fn resources(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.expect_header("content-type"), "application/json");
    assert_eq!(response.expect_header("cache-control"), "no-store");
    let mut body: Value = serde_json::from_str(&response.text()).expect("JSON");
    body["resources"].take()
}

fn report(gateway: &Gateway, headers: &str) -> Value {
    resources(&get(gateway, "/rate_limit", headers))
}

fn names(report: &Value) -> Vec<&str> {
    let report = report.as_object().expect("an object");
    report.keys().map(String::as_str).collect()
}

#[test]
fn a_client_sees_its_own_buckets_and_pays_nothing() {
    let gateway = Gateway::start(&format!(
        "policies:
  per-key: {{ key: \"header:x-key\", algorithm: fixed_window, quota: 5/1h }}
  search: {{ key: client_ip, quota: 0/1m }}
routes:
  - {{ upstream: echo, limits: [per-key] }}
  - {{ match: {{ path: /search }}, upstream: echo, limits: [search] }}{ASK}"
    ));
    for _ in 0..3 {
        assert_eq!(get(&gateway, "/", "x-key: a\r\n").status, 200);
    }
    for _ in 0..9 {
        let own = report(&gateway, "x-key: a\r\n");
        assert_eq!(names(&own), ["per-key", "search"]);
        let mut per_key = own["per-key"].clone();
        let reset = per_key["reset"].take().as_u64().expect("seconds");
        assert_eq!(reset % 3600, 0, "the end of the hour: {reset}");
        assert_eq!(
            per_key,
            json!({ "limit": 5, "used": 3, "remaining": 2, "reset": null, "quota": "5/1h" })
        );
        assert_eq!(
            own["search"],
            json!({ "limit": 0, "used": 0, "remaining": 0, "reset": null, "retry_after": null, "quota": "0/1m" })
        );
        assert_eq!(report(&gateway, "x-key: b\r\n")["per-key"]["used"], 0);
    }
    let counted = "sluicegate_limit_decisions_total{policy=\"per-key\",route=\"rate_limit\"";
    let metrics = get_with(gateway.admin, "/metrics", "").text();
    assert!(!metrics.contains(counted), "no decision: {metrics}");
}

#[test]
fn a_used_up_bucket_says_when_more_is_there() {
    let gateway = Gateway::start(&format!(
        "routes:\n  - {{ upstream: echo, limits: [{{ name: few, quota: 2/1h }}] }}{ASK}"
    ));
    let statuses = [(); 3].map(|()| get(&gateway, "/", "").status);
    assert_eq!(statuses, [200, 200, 429]);
    let few = report(&gateway, "")["few"].clone();
    assert_eq!((&few["used"], &few["remaining"]), (&json!(2), &json!(0)));
    let wait = few["retry_after"].as_u64().expect("seconds");
    assert!((1700..=1800).contains(&wait), "{few}");
}

#[test]
fn only_policies_that_a_client_may_know_of_are_reported() {
    let gateway = Gateway::start(&format!(
        "policies:
  told: {{ quota: 9/1h, overrides: [{{ cidr: 127.0.0.0/8, quota: 7/1h }}] }}
  internal: {{ quota: 8/1h, announce: false }}
  decoy: {{ quota: 8/1h, on_limit: {{ action: decoy }} }}
  tag: {{ quota: 8/1h, on_limit: {{ action: tag }} }}
  shadow: {{ quota: 8/1h, mode: shadow }}
  disabled: {{ quota: 8/1h, mode: disabled }}
  candidate: {{ quota: 8/1h, candidate: {{ quota: 7/1h }} }}
  none-yet: {{ quota: 8/1h, percent: 0 }}
  per-path: {{ key: path, quota: 8/1h }}
  per-method: {{ key: \"header:x-key\", on_missing_key: method, quota: 8/1h }}
  skipped: {{ key: \"header:x-key\", on_missing_key: skip, quota: 8/1h }}
  exempt: {{ quota: 8/1h, exempt: [{{ cidr: 127.0.0.0/8 }}] }}
  posts: {{ quota: 8/1h, when: {{ method: [POST], path: /posts }} }}
  gold: {{ quota: 8/1h, when: {{ header: {{ x-plan: gold }} }} }}
routes:
  - upstream: echo
    limits: [told, internal, decoy, tag, shadow, disabled, candidate, none-yet, per-path, per-method, skipped, exempt, posts, gold]{ASK}"
    ));
    let own = report(&gateway, "");
    assert_eq!(names(&own), ["candidate", "posts", "told"]);
    assert_eq!(own["told"]["quota"], "7/1h", "the override");
    let own = report(&gateway, "x-plan: gold\r\nx-key: a\r\n");
    assert_eq!(
        names(&own),
        ["candidate", "gold", "posts", "skipped", "told"]
    );
    let own = report(&gateway, "x-key: a\r\nx-key: b\r\n");
    assert_eq!(names(&own), ["candidate", "posts", "told"], "nobody's key");
}

#[test]
fn a_list_chooses_the_policies_and_limits_of_the_route_hold() {
    let gateway = Gateway::start(
        "responses: { headers: [ietf, github] }
policies:
  a: { quota: 9/1h }
  b: { quota: 8/1h }
limits: [{ name: top, quota: 100/1h }]
routes:
  - { upstream: echo, limits: [a, b] }
  - { match: { path: /own }, upstream: status, inherit: false, status: { policies: [b] }, limits: [{ name: own, algorithm: fixed_window, quota: 2/1h }] }
  - { match: { path: /free }, upstream: status, inherit: false, status: { policies: [b] } }
  - { match: { path: /top }, upstream: status }
",
    );
    let free = get(&gateway, "/free", "");
    assert_eq!(names(&resources(&free)), ["b"]);
    assert_eq!(free.expect_header("ratelimit-policy"), "\"b\";q=8;w=3600");
    assert_eq!(free.expect_header("x-ratelimit-resource"), "b");
    assert_eq!(free.expect_header("x-ratelimit-used"), "0");

    let own = get(&gateway, "/own", "");
    assert_eq!(names(&resources(&own)), ["b"]);
    let policies = own.headers_of("ratelimit-policy").join(", ");
    assert_eq!(policies, "\"b\";q=8;w=3600, \"own\";q=2;w=3600");
    assert_eq!(own.expect_header("x-ratelimit-resource"), "own");
    let statuses = [(); 2].map(|()| get(&gateway, "/own", "").status);
    assert_eq!(statuses, [200, 429], "the route's own limit");

    let top = get(&gateway, "/top", "");
    let report = resources(&top);
    assert_eq!(names(&report), ["a", "b", "top", "own"]);
    assert_eq!(report["top"]["used"], 1, "a top-level limit is charged");
    let policies = top.headers_of("ratelimit-policy").join(", ");
    assert_eq!(policies.matches("\"top\"").count(), 1, "{policies}");
}

#[test]
fn a_ban_is_reported() {
    let gateway = Gateway::start(&format!(
        "policies:
  login: {{ key: \"header:x-key\", quota: 1/1m, penalty: {{ strikes: 1, within: 1h, for: [2h] }} }}
routes:
  - {{ upstream: echo, limits: [login] }}{ASK}"
    ));
    let statuses = [(); 2].map(|()| get(&gateway, "/", "x-key: a\r\n").status);
    assert_eq!(statuses, [200, 429]);
    let own = report(&gateway, "x-key: a\r\n")["login"].clone();
    assert_eq!((&own["remaining"], &own["used"]), (&json!(0), &json!(1)));
    let wait = own["retry_after"].as_u64().expect("seconds");
    assert!((7100..=7200).contains(&wait), "{own}");
    assert_eq!(own["banned_until"], own["reset"], "{own}");
    let other = report(&gateway, "x-key: b\r\n")["login"].clone();
    assert_eq!(other.get("banned_until"), None, "{other}");
}

#[test]
fn a_report_has_bodies_and_methods_of_any_kind() {
    let gateway = Gateway::start(&format!(
        "routes:\n  - {{ upstream: echo, limits: [{{ name: few, quota: 2/1h }}] }}{ASK}"
    ));
    let mut connection = Connection::open(gateway.address());
    let head = connection.exchange("HEAD /rate_limit HTTP/1.1\r\nHost: a\r\n\r\n");
    let length = head.expect_header("content-length").parse::<usize>();
    assert!(length.expect("a number") > 50 && head.body.is_empty());
    let posted = connection
        .exchange("POST /rate_limit HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(names(&resources(&posted)), ["few"]);
    let again = connection.exchange("GET /rate_limit HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(names(&resources(&again)), ["few"]);
}

#[test]
fn a_reload_changes_the_report() {
    let config = |quota: u32| {
        format!(
            "routes:\n  - {{ upstream: echo, limits: [{{ name: few, algorithm: fixed_window, quota: {quota}/1h }}] }}{ASK}"
        )
    };
    let gateway = Gateway::start(&config(5));
    get(&gateway, "/", "");
    gateway.reload(&config(9));
    let few = report(&gateway, "")["few"].clone();
    assert_eq!((&few["limit"], &few["used"]), (&json!(9), &json!(1)));
}

/// The report says what the next request would get, as its fields do.
#[test]
fn granted_units_and_bans_of_operators_are_reported() {
    let config = steering::config(&["quota: 3/300d"]);
    let gateway = Gateway::start(&format!(
        "{config}  - {{ match: {{ path: /rate_limit }}, upstream: status }}\n"
    ));
    assert_eq!(steering::admitted(&gateway, "/0", "a"), 3);
    assert_eq!(report(&gateway, "x-key: a\r\n")["p0"]["remaining"], 0);
    steering::grant(&gateway, "p0", 10);
    for remaining in [3, 3] {
        let own = &report(&gateway, "x-key: a\r\n")["p0"];
        assert_eq!(
            (&own["remaining"], &own["used"]),
            (&json!(remaining), &json!(0)),
            "{own}"
        );
        let next = steering::ask(&gateway, "/0", "a");
        assert!(next.expect_header("ratelimit").contains("r=3"), "{next:?}");
    }
    steering::steer(&gateway, "ban", "p0", json!({ "for": "1h" }));
    let response = get(&gateway, "/rate_limit", "x-key: a\r\n");
    let own = &resources(&response)["p0"];
    assert_eq!(own["remaining"], 0, "{own}");
    assert!(
        (3_590..=3_600).contains(&own["retry_after"].as_u64().expect("seconds")),
        "{own}"
    );
    assert!(own["banned_until"].is_u64(), "{own}");
    assert!(
        response.expect_header("ratelimit").contains("r=0"),
        "{response:?}"
    );
    assert_eq!(report(&gateway, "x-key: b\r\n")["p0"]["remaining"], 3);
}
