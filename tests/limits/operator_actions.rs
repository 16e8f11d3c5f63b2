//! The bans and grants of operators: listed, replaced, ended, and made for all policies of a client.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer, problem};
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::steering::{ask, config, grant, lookup, steer};

const POLICIES: [&str; 2] = ["quota: 1/300d", "quota: 5/300d"];

fn list(gateway: &Gateway, query: &str) -> Value {
    answer(&AdminClient::new(gateway, READER).get(&format!("/v1/keys{query}")))
}

/// What is listed: the policy, ban or grant, units left, actor and reason.
fn listed(gateway: &Gateway) -> Vec<[Value; 5]> {
    let page = list(gateway, "");
    let items = page["items"].as_array().expect("items").iter();
    let fields = ["policy", "what", "units", "actor", "reason"];
    items
        .map(|item| fields.map(|field| item[field].clone()))
        .collect()
}

fn revoke(gateway: &Gateway, item: &Value, more: Value) -> Value {
    let mut body = json!({ "policy": item["policy"], "id": item["id"], "what": item["what"] });
    let more = more.as_object().expect("a map").clone();
    body.as_object_mut().expect("a map").extend(more);
    answer(&AdminClient::writer(gateway).post("/v1/keys/revoke", &body))
}

#[test]
fn bans_and_grants_are_listed_over_a_restart_and_ended_by_their_ids() {
    let mut gateway = Gateway::start(&format!(
        "shutdown: {{ delay: 0s, deadline: 5s }}\nstore: {{ memory: {{ snapshot: {{ path: buckets, every: 1h }} }} }}\n{}",
        config(&POLICIES)
    ));
    assert_eq!(listed(&gateway), [] as [[Value; 5]; 0]);
    assert_eq!(ask(&gateway, "/0", "a").status, 200);
    grant(&gateway, "p0", 4);
    assert_eq!(ask(&gateway, "/0", "a").status, 200);
    let state = steer(
        &gateway,
        "ban",
        "p1",
        json!({ "for": "1d", "reason": "ticket 7" }),
    );
    assert_eq!(state["ban"]["actor"], "write#1");
    let expected = [
        [
            json!("p1"),
            json!("ban"),
            Value::Null,
            json!("write#1"),
            json!("ticket 7"),
        ],
        [
            json!("p0"),
            json!("grant"),
            json!(3),
            json!("write#1"),
            json!(""),
        ],
    ];
    assert_eq!(listed(&gateway), expected);
    let before = list(&gateway, "");
    gateway.signal(Signal::TERM);
    gateway.wait();
    let gateway = gateway.start_again();
    assert_eq!(
        list(&gateway, ""),
        before,
        "actor, reason and start outlive the process"
    );
    let [ban, grant] = [0, 1].map(|place| before["items"][place].clone());
    assert_eq!(ban["id"], lookup(&gateway, "p1", "a")["key_id"]);
    let text = before.to_string();
    assert!(!text.contains("\"a\""), "no key is listed: {text}");

    assert_eq!(
        revoke(&gateway, &ban, json!({ "dry_run": true }))["revoked"],
        ban
    );
    assert_eq!(ask(&gateway, "/1", "a").status, 429, "only tried");
    revoke(&gateway, &ban, json!({ "reason": "a mistake" }));
    assert_eq!(ask(&gateway, "/1", "a").status, 200);
    let line = gateway.wait_for_log("a mistake");
    for part in ["audit", "action=\"unban\"", "p1", "write#1", "applied"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    revoke(&gateway, &grant, json!({}));
    assert_eq!(
        ask(&gateway, "/0", "a").status,
        429,
        "the grant is taken back"
    );
    assert_eq!(listed(&gateway), [] as [[Value; 5]; 0]);
    gateway.wait_for_log("action=\"grant\"");

    let writer = AdminClient::writer(&gateway);
    let body = json!({ "policy": "p1", "id": ban["id"], "what": "ban" });
    assert!(problem(&writer.post("/v1/keys/revoke", &body), 404).contains("/v1/keys"));
    let reader = AdminClient::new(&gateway, READER);
    problem(&reader.post("/v1/keys/revoke", &body), 403);
    for (field, value, status) in [
        ("id", "alice", 422),
        ("what", "all", 400),
        ("policy", "x", 404),
    ] {
        let mut body = body.clone();
        body[field] = json!(value);
        problem(&writer.post("/v1/keys/revoke", &body), status);
    }
}

#[test]
fn the_list_has_pages_the_newest_first() {
    let gateway = Gateway::start(&config(&POLICIES));
    let writer = AdminClient::writer(&gateway);
    for number in 0..7 {
        let policy = format!("p{}", number % 2);
        let body = json!({ "policy": policy, "key": number.to_string(), "for": "1h", "reason": number.to_string() });
        answer(&writer.post("/v1/keys/ban", &body));
    }
    let (mut reasons, mut after) = (Vec::new(), String::new());
    loop {
        let page = list(&gateway, &format!("?limit=3{after}"));
        assert_eq!(page["total"], 7);
        let items = page["items"].as_array().expect("items").iter();
        reasons.extend(items.map(|item| item["reason"].as_str().expect("a text").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(reasons, ["6", "5", "4", "3", "2", "1", "0"]);
    assert_eq!(list(&gateway, "?policy=p1")["total"], 3);
    let reader = AdminClient::new(&gateway, READER);
    for (query, status) in [
        ("?limit=0", 400),
        ("?limit=1001", 400),
        ("?after=x", 400),
        ("?key=a", 400),
        ("?policy=p9", 404),
    ] {
        problem(&reader.get(&format!("/v1/keys{query}")), status);
    }
    problem(&AdminClient::new(&gateway, "unknown").get("/v1/keys"), 401);
}

#[test]
fn a_new_ban_or_grant_says_what_it_replaces() {
    let penalty = "quota: 1/300d, penalty: { strikes: 1, within: 1h, for: [2d] }";
    let gateway = Gateway::start(&config(&["quota: 1/300d", penalty]));
    let writer = AdminClient::writer(&gateway);
    let note = |action: &str, policy: &str, more: Value| {
        let mut body = json!({ "policy": policy, "key": "a" });
        let more = more.as_object().expect("a map").clone();
        body.as_object_mut().expect("a map").extend(more);
        let changed = answer(&writer.post(&format!("/v1/keys/{action}"), &body));
        changed["note"].as_str().unwrap_or_default().to_owned()
    };
    let ban = |reason: &str| json!({ "for": "1h", "reason": reason });
    for policy in ["p0", "p1"] {
        assert!(!note("ban", policy, ban("ticket 7")).contains("replaces"));
        let replaced = note("ban", policy, ban("ticket 8"));
        let parts = ["replaces the ban until 20", "Z by write#1 (ticket 7)"];
        assert!(
            parts.iter().all(|part| replaced.contains(part)),
            "{replaced}"
        );
        let units = json!({ "units": 5, "for": "1h", "reason": "sorry" });
        assert!(!note("grant", policy, units.clone()).contains("replaces"));
        let replaced = note("grant", policy, units);
        let parts = [
            "replaces the grant of 5 units, 5 of them left, until 20",
            "(sorry)",
        ];
        assert!(
            parts.iter().all(|part| replaced.contains(part)),
            "{replaced}"
        );
    }
    // The longer ban of a penalty does not hide the operator's.
    note("unban", "p1", json!({}));
    note("grant", "p1", json!({ "units": 0 }));
    (0..3).for_each(|_| _ = ask(&gateway, "/1", "a"));
    assert_eq!(lookup(&gateway, "p1", "a")["ban"]["number"], 1);
    assert!(!note("ban", "p1", ban("ticket 9")).contains("replaces"));
    let replaced = note("ban", "p1", ban("ticket 10"));
    assert!(replaced.contains("(ticket 9)"), "{replaced}");
}

#[test]
fn a_ban_covers_all_policies_with_the_same_key() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  one: {{ key: \"header:x-key\", quota: 5/300d }}
  two: {{ key: \"header:x-key\", quota: 5/300d, algorithm: sliding_log }}
  free: {{ key: \"header:x-key\", quota: 5/300d, exempt: [{{ value: a }}] }}
  pair: {{ key: [client_ip, \"header:x-key\"], quota: 5/300d }}
  other: {{ key: \"header:x-other\", quota: 5/300d }}
  unused: {{ key: \"header:x-key\", quota: 5/300d }}
routes:
  - {{ match: {{ path: /1 }}, upstream: echo, limits: [one] }}
  - {{ match: {{ path: /2 }}, upstream: echo, limits: [two, free] }}
  - {{ match: {{ path: /3 }}, upstream: echo, limits: [pair, other] }}
"
    ));
    let writer = AdminClient::writer(&gateway);
    let status =
        |path: &str| get_with(gateway.address(), path, "x-key: a\r\nx-other: a\r\n").status;
    let send = |action: &str, more: Value| {
        let mut body = json!({ "policy": "one", "key": "a", "all_policies": true });
        let more = more.as_object().expect("a map").clone();
        body.as_object_mut().expect("a map").extend(more);
        answer(&writer.post(&format!("/v1/keys/{action}"), &body))
    };
    let also = |result: &str| {
        json!([
            { "policy": "free", "result": "the key is exempt from the policy" },
            { "policy": "two", "result": result },
        ])
    };
    let tried = send("ban", json!({ "for": "1h", "dry_run": true }));
    assert_eq!(tried["also"], also("dry_run"));
    assert_eq!(["/1", "/2", "/3"].map(status), [200; 3]);
    let banned = send("ban", json!({ "for": "1h" }));
    assert_eq!(banned["also"], also("applied"));
    let note = banned["note"].as_str().expect("a note");
    assert!(note.contains("not in free: the key is exempt"), "{note}");
    assert_eq!(["/1", "/2", "/3"].map(status), [429, 429, 200]);
    assert_eq!(list(&gateway, "")["total"], 2);
    gateway.wait_for_line("the other policy is audited, too", |line| {
        ["audit", "policy=\"two\"", "dry_run=false", "applied"]
            .iter()
            .all(|part| line.contains(part))
    });
    send("unban", json!({}));
    assert_eq!(["/1", "/2", "/3"].map(status), [200; 3]);
    let grant =
        json!({ "policy": "one", "key": "a", "units": 1, "for": "1h", "all_policies": true });
    problem(&writer.post("/v1/keys/grant", &grant), 400);
}
