//! One key, as an operator sees and steers it, in memory.

use std::sync::Barrier;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer, problem};
use crate::support::client::{Connection, get_with};
use crate::support::gateway::Gateway;
use crate::support::steering::{UNTIL, admitted, ask, config, grant, lookup, steer};
use crate::support::wait_for;

const QUOTA: usize = 5;

/// Every algorithm that units come back to with time, with room for [`QUOTA`].
const ALGORITHMS: [&str; 8] = [
    "quota: 5/300d",
    "quota: 5/300d, algorithm: token_bucket",
    "capacity: 5, refill: 5 per 300d, algorithm: token_bucket",
    "quota: 5/300d, algorithm: fixed_window",
    "quota: 5/300d, algorithm: fixed_window, start: staggered",
    "quota: 5/300d, algorithm: sliding_window",
    "quota: 5/300d, algorithm: sliding_window, precision: 60",
    "quota: 5/300d, algorithm: sliding_log",
];

#[test]
fn a_lookup_shows_what_requests_did_and_charges_nothing() {
    let gateway = Gateway::start(&config(&ALGORITHMS));
    for (place, algorithm) in ALGORITHMS.iter().enumerate() {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        (0..3).for_each(|_| assert_eq!(ask(&gateway, &path, "a").status, 200));
        for _ in 0..2 {
            let state = lookup(&gateway, &policy, "a");
            let told = ["limit", "used", "remaining", "debt", "in_flight"];
            let told = told.map(|field| state[field].as_u64().expect("a number"));
            assert_eq!(told, [5, 3, 2, 0, 0], "{algorithm}");
            assert_eq!(state["allowed"], true);
            assert_eq!(state["retry_after_s"], Value::Null);
            assert!(state["reset_s"].as_f64() > Some(0.0));
            assert_eq!(state["store"], "memory");
            assert!(state["cell"].is_object());
        }
        assert_eq!(admitted(&gateway, &path, "a"), 2);
        let state = lookup(&gateway, &policy, "a");
        assert_eq!(
            (&state["allowed"], &state["used"]),
            (&json!(false), &json!(5))
        );
        // The request that ended `admitted`.
        assert_eq!(state["limited"]["requests"], 1);
        assert_eq!(state["limited"]["error_bound"], 0);
        let refused = ask(&gateway, &path, "a");
        let announced: f64 = refused
            .expect_header("retry-after")
            .parse()
            .expect("seconds");
        let told = state["retry_after_s"].as_f64().expect("it recovers");
        assert!(
            (announced - told).abs() <= 2.0,
            "{algorithm}: {announced} {told}"
        );
        assert_eq!(lookup(&gateway, &policy, "b")["used"], 0, "another key");
    }
}

#[test]
fn a_reset_and_a_grant_are_felt_by_the_next_request() {
    let gateway = Gateway::start(&config(&ALGORITHMS));
    for (place, algorithm) in ALGORITHMS.iter().enumerate() {
        let (path, policy) = (format!("/{place}"), format!("p{place}"));
        assert_eq!(admitted(&gateway, &path, "a"), QUOTA);
        assert_eq!(steer(&gateway, "reset", &policy, json!({}))["used"], 0);
        assert_eq!(admitted(&gateway, &path, "a"), QUOTA, "{algorithm}");
        let state = grant(&gateway, &policy, 3);
        assert_eq!(state["granted"]["units"], 3);
        assert_eq!(state["granted"]["until"], *UNTIL);
        assert_eq!(
            (&state["allowed"], &state["used"]),
            (&json!(true), &json!(5))
        );
        assert_eq!(admitted(&gateway, &path, "a"), 3, "{algorithm}");
        assert_eq!(lookup(&gateway, &policy, "a")["granted"]["units"], 0);
        assert_eq!(admitted(&gateway, &path, "b"), QUOTA, "another key");
        steer(&gateway, "reset", &policy, json!({}));
        grant(&gateway, &policy, 2);
        assert_eq!(admitted(&gateway, &path, "a"), QUOTA + 2, "{algorithm}");
    }
    let series = "sluicegate_limit_granted_total{policy=\"p0\"}";
    assert_eq!(gateway.metric(series), Some(5.0));
    let resets = "sluicegate_limit_operations_total{policy=\"p0\",action=\"reset\"}";
    assert_eq!(gateway.metric(resets), Some(2.0));
}

#[test]
fn remaining_counts_granted_units_up_to_the_quota() {
    let gateway = Gateway::start(&config(&["quota: 5/300d"]));
    let remaining = || {
        let response = ask(&gateway, "/0", "a");
        let told = response.expect_header("ratelimit").to_owned();
        let of_policy = told.split(";r=").nth(1).expect("units");
        of_policy.split(';').next().expect("a number").to_owned()
    };
    assert_eq!(admitted(&gateway, "/0", "a"), 5);
    grant(&gateway, "p0", 7);
    let told: Vec<_> = (0..8).map(|_| remaining()).collect();
    assert_eq!(told, ["5", "5", "4", "3", "2", "1", "0", "0"]);
}

#[test]
fn a_ban_needs_no_penalty_and_ends_when_it_is_lifted() {
    let gateway = Gateway::start(&config(&["quota: 5/300d", "quota: 5/300d, mode: shadow"]));
    let ban = json!({ "for": "2h", "reason": "scrapes" });
    let state = steer(&gateway, "ban", "p0", ban.clone());
    assert_eq!(state["ban"]["reason"], "scrapes");
    assert_eq!(state["ban"]["number"], Value::Null);
    assert!((7_190.0..=7_200.0).contains(&state["ban"]["for_s"].as_f64().expect("seconds")));
    let refused = ask(&gateway, "/0", "a");
    assert_eq!(refused.status, 429);
    let seconds: u64 = refused
        .expect_header("retry-after")
        .parse()
        .expect("seconds");
    assert!((7_190..=7_200).contains(&seconds), "{seconds}");
    let text = refused.text();
    assert!(
        text.contains("This client is banned by the limit \\\"p0\\\"."),
        "{text}"
    );
    let policies = answer(&AdminClient::new(&gateway, READER).get("/v1/policies"));
    assert_eq!(policies["policies"][0]["banned_keys"], 1);
    assert_eq!(ask(&gateway, "/0", "b").status, 200, "another key");
    assert_eq!(
        lookup(&gateway, "p0", "a")["used"],
        0,
        "a banned key is not charged"
    );
    assert_eq!(
        steer(&gateway, "unban", "p0", json!({}))["ban"],
        Value::Null
    );
    assert_eq!(ask(&gateway, "/0", "a").status, 200);
    steer(&gateway, "ban", "p1", ban);
    assert_eq!(
        ask(&gateway, "/1", "a").status,
        200,
        "a policy in shadow refuses nobody"
    );
    steer(&gateway, "ban", "p0", json!({ "for": "1s" }));
    assert_eq!(ask(&gateway, "/0", "a").status, 429);
    wait_for("the end of the ban", || {
        (ask(&gateway, "/0", "a").status == 200).then_some(())
    });
}

#[test]
fn an_unban_lifts_the_ban_of_a_penalty_and_forgets_its_strikes() {
    let penalty = "quota: 1/300d, penalty: { strikes: 2, within: 1h, for: [1h, 2d] }";
    let gateway = Gateway::start(&config(&[penalty]));
    for _ in 0..2 {
        ask(&gateway, "/0", "a");
        (0..2).for_each(|_| assert_eq!(ask(&gateway, "/0", "a").status, 429));
        let ban = &lookup(&gateway, "p0", "a")["ban"];
        assert_eq!(
            (&ban["number"], &ban["reason"]),
            (&json!(1), &json!("2 refusals within 3600 s"))
        );
        steer(&gateway, "unban", "p0", json!({}));
        steer(&gateway, "reset", "p0", json!({}));
        assert_eq!(lookup(&gateway, "p0", "a")["ban"], Value::Null);
    }
    assert_eq!(ask(&gateway, "/0", "a").status, 200);
}

#[test]
fn bans_and_grants_hold_over_reloads() {
    let before = config(&["quota: 5/300d", "quota: 5/300d"]);
    let gateway = Gateway::start(&before);
    assert_eq!(admitted(&gateway, "/0", "a"), 5);
    grant(&gateway, "p0", 4);
    assert_eq!(ask(&gateway, "/0", "a").status, 200);
    steer(&gateway, "ban", "p1", json!({ "for": "1d" }));
    gateway.reload(&config(&[
        "quota: 5/301d, on_full: strict",
        "quota: 9/2h, algorithm: sliding_log",
    ]));
    assert_eq!(lookup(&gateway, "p0", "a")["granted"]["units"], 3);
    assert_eq!(admitted(&gateway, "/0", "a"), 3);
    assert_eq!(ask(&gateway, "/1", "a").status, 429);
    gateway.reload(&before.replace("p1", "q1"));
    assert_eq!(ask(&gateway, "/1", "a").status, 200, "another policy");
}

#[test]
fn bans_and_grants_hold_over_a_restart_with_a_snapshot() {
    let text = config(&["quota: 5/300d", "quota: 5/300d"]);
    let text = format!(
        "shutdown: {{ delay: 0s, deadline: 5s }}\nstore: {{ memory: {{ snapshot: {{ path: buckets, every: 1s }} }} }}\n{text}"
    );
    let mut gateway = Gateway::start(&text);
    assert_eq!(admitted(&gateway, "/0", "a"), 5);
    grant(&gateway, "p0", 4);
    assert_eq!(ask(&gateway, "/0", "a").status, 200);
    steer(
        &gateway,
        "ban",
        "p1",
        json!({ "for": "1d", "reason": "scrapes" }),
    );
    gateway.signal(Signal::TERM);
    gateway.wait();
    let mut gateway = gateway.start_again();
    assert_eq!(lookup(&gateway, "p0", "a")["granted"]["units"], 3);
    assert_eq!(admitted(&gateway, "/0", "a"), 3);
    assert_eq!(ask(&gateway, "/1", "a").status, 429);
    assert_eq!(lookup(&gateway, "p1", "a")["ban"]["reason"], "scrapes");
    // A kill loses only what came after the last save.
    steer(&gateway, "unban", "p1", json!({}));
    let saves = || {
        let saved = gateway.metric("sluicegate_snapshots_total{result=\"success\"}");
        saved.unwrap_or_default()
    };
    let before = saves();
    wait_for("a snapshot", || (saves() >= before + 2.0).then_some(()));
    gateway.signal(Signal::KILL);
    gateway.wait();
    let gateway = gateway.start_again();
    assert_eq!(ask(&gateway, "/1", "a").status, 200);
    assert_eq!(ask(&gateway, "/0", "a").status, 429, "the grant is spent");
}

#[test]
fn concurrent_requests_get_the_quota_and_all_grants() {
    const CLIENTS: usize = 4;
    const EACH: usize = 250;
    let gateway = Gateway::start(&config(&["quota: 100/300d, algorithm: fixed_window"]));
    let start = Barrier::new(CLIENTS + 1);
    let (admitted, left) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (gateway, start) = (&gateway, &start);
                scope.spawn(move || {
                    let mut connection = Connection::open(gateway.address());
                    let request = "GET /0 HTTP/1.1\r\nHost: a\r\nx-key: a\r\n\r\n";
                    start.wait();
                    let answers = (0..EACH).map(|_| connection.exchange(request).status);
                    answers.filter(|status| *status == 200).count()
                })
            })
            .collect();
        start.wait();
        // Each grant replaces the one before: what that had left is not spent.
        let mut unspent = 0;
        for _ in 0..5 {
            let api = AdminClient::writer(&gateway);
            let body = json!({ "policy": "p0", "key": "a", "units": 50, "until": *UNTIL });
            let changed = answer(&api.post("/v1/keys/grant", &body));
            unspent += changed["before"]["granted"]["units"].as_u64().unwrap_or(0) as usize;
        }
        let admitted: usize = clients
            .into_iter()
            .map(|client| client.join().expect("no panic"))
            .sum();
        let state = lookup(&gateway, "p0", "a");
        unspent += state["granted"]["units"].as_u64().expect("units") as usize;
        assert_eq!(state["used"], 100);
        (admitted, unspent)
    });
    // Units that a request takes between the state before and the grant that replaces it are spent
    // and counted as left: at most one for each client and grant.
    let all = 100 + 5 * 50;
    assert!(
        (all..=all + 5 * CLIENTS).contains(&(admitted + left)),
        "{admitted} {left}"
    );
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let gateway = Gateway::start(&config(&["quota: 5/300d"]));
    assert_eq!(admitted(&gateway, "/0", "a"), 5);
    let before = lookup(&gateway, "p0", "a");
    for (action, more, field, value) in [
        ("reset", json!({}), "used", json!(0)),
        (
            "grant",
            json!({ "units": 3, "until": *UNTIL }),
            "allowed",
            json!(true),
        ),
        ("ban", json!({ "for": "1h" }), "allowed", json!(false)),
        ("unban", json!({}), "ban", json!(null)),
    ] {
        let mut more = more;
        more["dry_run"] = json!(true);
        assert_eq!(
            steer(&gateway, action, "p0", more)[field],
            value,
            "{action}"
        );
        let mut after = lookup(&gateway, "p0", "a");
        for time in ["reset_s", "retry_after_s", "cell"] {
            after[time] = before[time].clone();
        }
        for time in ["counted_s", "first_s", "last_s"] {
            after["limited"][time] = before["limited"][time].clone();
        }
        assert_eq!(after, before, "{action}");
    }
    assert_eq!(ask(&gateway, "/0", "a").status, 429);
    let operations = "sluicegate_limit_operations_total{policy=\"p0\",action=\"ban\"}";
    assert_eq!(gateway.metric(operations).unwrap_or(0.0), 0.0);
    // A dry run that fails says why, and a change that is made has another word.
    let api = AdminClient::writer(&gateway);
    let ended = json!({
        "policy": "p0", "key": "a", "units": 3, "until": "2026-01-01T00:00:00Z", "dry_run": true
    });
    problem(&api.post("/v1/keys/grant", &ended), 422);
    steer(&gateway, "unban", "p0", json!({}));
    gateway.wait_for_log("result=\"applied\"");
    let log = gateway.log();
    let audited: Vec<_> = log.lines().filter(|line| line.contains("audit")).collect();
    assert_eq!(audited.len(), 6, "{audited:?}");
    for line in &audited[..4] {
        assert!(line.contains("dry_run=true result=\"dry_run\""), "{line}");
    }
    assert!(audited[4].contains("dry_run=true result=\""), "{audited:?}");
    assert!(!audited[4].contains("result=\"dry_run\""), "{audited:?}");
    assert!(
        audited[5].contains("dry_run=false result=\"applied\""),
        "{audited:?}"
    );
}

#[test]
fn keys_are_named_as_requests_name_them() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}client_ip: {{ trusted_proxies: [127.0.0.0/8] }}
policies:
  both: {{ key: [client_ip, \"header:x-key\"], quota: 5/300d }}
  fallback: {{ key: \"header:x-key\", quota: 5/300d, overrides: [{{ value: vip, quota: 9/300d }}], exempt: [{{ value: free }}] }}
  shared: {{ key: \"header:x-key\", on_missing_key: shared, quota: 5/300d }}
  all: {{ key: constant, quota: 5/300d }}
routes: [{{ upstream: echo, limits: [both, fallback, shared, all] }}]
"
    ));
    let api = AdminClient::new(&gateway, READER);
    let state = |policy: &str, key: Value| {
        let body = json!({ "policy": policy, "key": key });
        answer(&api.post("/v1/keys/lookup", &body))
    };
    let used = |policy, key| state(policy, key)["used"].as_u64().expect("units");
    let send = |headers: &str| assert_eq!(get_with(gateway.address(), "/", headers).status, 200);
    send("x-forwarded-for: 2001:db8::1:2:3:4\r\nx-key: a\r\n");
    assert_eq!(used("both", json!(["2001:db8::9", "a"])), 1);
    assert_eq!(used("fallback", json!("a")), 1);
    send("x-forwarded-for: 203.0.113.9\r\n");
    assert_eq!(used("fallback", json!([{ "client_ip": "203.0.113.9" }])), 1);
    assert_eq!(used("shared", json!([null])), 1);
    assert_eq!(
        answer(&api.post("/v1/keys/lookup", &json!({ "policy": "all" })))["used"],
        2
    );
    let vip = state("fallback", json!("vip"));
    assert_eq!(
        (&vip["limit"], &vip["quota"]),
        (&json!(9), &json!("9/300d"))
    );
    assert_eq!(vip["override"], "value ***", "its value is a client's");
    let free = state("fallback", json!("free"));
    assert_eq!(
        (&free["exempt"], &free["allowed"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn bad_input_gets_a_clear_answer_and_changes_nothing() {
    let gateway = Gateway::start(&config(&[
        "quota: 5/300d",
        "algorithm: concurrency, max: 2",
        "quota: 5/1s, algorithm: leaky_bucket, queue: 3",
        "quota: 5/300d, exempt: [{ value: a }]",
    ]));
    let api = AdminClient::writer(&gateway);
    let refused = |path: &str, body: Value, status| {
        problem(&api.post(&format!("/v1/keys/{path}"), &body), status)
    };
    let until = UNTIL.as_str();
    let key = |policy: &str| json!({ "policy": policy, "key": "a" });
    assert!(refused("lookup", key("p9"), 404).contains("did you mean"));
    let two = json!({ "policy": "p0", "key": ["a", "b"] });
    assert!(refused("lookup", two, 422).contains("one part [header:x-key], not 2"));
    for key in [json!(7), json!([7]), json!({ "client_ip": "::1" })] {
        let detail = refused("lookup", json!({ "policy": "p0", "key": key }), 400);
        assert!(detail.starts_with("`key` is a text, or a list"), "{detail}");
    }
    for body in [json!({ "key": "a" }), json!([])] {
        refused("lookup", body, 400);
    }
    assert!(refused("reset", key("p1"), 422).contains("nothing to reset"));
    let grant = |policy: &str, units: i64, until: &str| json!({ "policy": policy, "key": "a", "units": units, "until": until });
    assert!(refused("grant", grant("p1", 1, until), 422).contains("raise `max`"));
    assert!(refused("grant", grant("p2", 1, until), 422).contains("leaky_bucket"));
    assert!(refused("grant", grant("p3", 1, until), 422).contains("exempt"));
    assert!(refused("grant", grant("p0", 1, "tomorrow"), 422).contains("RFC 3339"));
    assert!(refused("grant", grant("p0", 1, "2001-01-01T00:00:00Z"), 422).contains("in the past"));
    assert!(refused("grant", grant("p0", 1, "1969-01-01T00:00:00Z"), 422).contains("in the past"));
    for late in [
        "2999-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-08:00",
    ] {
        assert!(
            refused("grant", grant("p0", 1, late), 422).contains("366 days"),
            "{late}"
        );
    }
    for wrong in ["9999-12-31", "9999-12-31T23:59:59", "9999-13-31T23:59:59Z"] {
        assert!(
            refused("grant", grant("p0", 1, wrong), 422).contains("RFC 3339"),
            "{wrong}"
        );
    }
    refused("grant", grant("p0", -1, until), 400);
    refused("grant", grant("p0", 1 << 40, until), 400);
    let ban = |length: &str| json!({ "policy": "p0", "key": "a", "for": length });
    for length in ["", "soon", "-1h", "0s", "2y"] {
        refused("ban", ban(length), 422);
    }
    let long = json!({ "policy": "p0", "key": "a", "reason": "ü".repeat(201) });
    assert!(refused("reset", long, 400).contains("200 characters"));
    let reader = AdminClient::new(&gateway, READER);
    problem(&reader.post("/v1/keys/reset", &key("p0")), 403);
    assert_eq!(lookup(&gateway, "p0", "a")["ban"], Value::Null);
    assert_eq!(lookup(&gateway, "p0", "a")["granted"], Value::Null);
}

#[test]
fn changes_are_in_the_audit_log_and_keys_are_not() {
    let gateway = Gateway::start(&config(&["quota: 5/300d"]));
    let api = AdminClient::writer(&gateway);
    let key = "secret-of-a-customer";
    let body = json!({ "policy": "p0", "key": key, "for": "1h", "reason": "ticket 7" });
    let changed = answer(&api.post("/v1/keys/ban", &body));
    let key_id = changed["after"]["key_id"].as_str().expect("a name");
    let line = gateway.wait_for_log("audit");
    for part in ["ban", "p0", key_id, "write#1", "ticket 7", "applied"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!gateway.log().contains(key) && !changed.to_string().contains(key));
}
