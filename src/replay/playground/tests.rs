//! Decisions on virtual time, and what is refused to be decided.

use serde_json::{Value, json};

use super::*;

fn played(request: &Value) -> Value {
    let answer = play(request.to_string().as_bytes()).expect("a sound request");
    serde_json::to_value(answer).expect("JSON")
}

fn refused(request: &Value) -> String {
    let refusal = play(request.to_string().as_bytes()).expect_err("an unsound request");
    match refusal {
        PlayError::Policies(report) => report.to_string(),
        other => other.to_string(),
    }
}

/// A field of all decisions of the first policy.
fn column(answer: &Value, field: &str) -> Vec<Value> {
    let decisions = answer["policies"][0]["decisions"].as_array();
    let decisions = decisions.expect("a list").iter();
    decisions.map(|row| row[field].clone()).collect()
}

#[test]
fn policies_decide_by_themselves_about_the_same_arrivals() {
    let answer = played(&json!({
        "policies": [
            { "name": "some-bucket", "algorithm": "token_bucket", "quota": "2/10s" },
            { "name": "a-window", "algorithm": "fixed_window", "quota": "3/10s" },
        ],
        "arrivals": [{ "at_ms": 9_000, "count": 4 }, { "at_ms": 11_000 }],
    }));
    let decisions = |policy: usize| {
        let rows = answer["policies"][policy]["decisions"].as_array();
        let words = rows
            .expect("a list")
            .iter()
            .map(|row| row["decision"].clone());
        words.collect::<Vec<_>>()
    };
    assert_eq!(answer["policies"][0]["name"], "some-bucket");
    assert_eq!(answer["policies"][1]["limit_units"], 3);
    assert_eq!(answer["policies"][1]["window_ms"], 10_000);
    assert_eq!(answer["arrivals"], 5);
    let words = ["allowed", "allowed", "limited", "limited", "limited"];
    assert_eq!(decisions(0), words);
    let words = ["allowed", "allowed", "allowed", "limited", "allowed"];
    assert_eq!(decisions(1), words);
    assert_eq!(column(&answer, "retry_after_ms")[4], json!(3_000));
}

#[test]
fn a_decision_shows_the_bucket_after_it() {
    let answer = played(&json!({
        "policies": [{ "algorithm": "token_bucket", "quota": "10/10s" }],
        "arrivals": [{ "at_ms": 0, "cost": 4 }, { "at_ms": 500, "cost": 2 }],
    }));
    let cells = column(&answer, "cell");
    let tokens = cells.iter().map(|cell| cell["tokens"].as_f64());
    assert_eq!(tokens.collect::<Vec<_>>(), [Some(6.0), Some(4.5)]);
    assert_eq!(answer["policies"][0]["new_cell"]["tokens"], json!(10.0));
}

#[test]
fn clients_have_buckets_of_their_own() {
    let answer = played(&json!({
        "policies": [{ "quota": "1/1m" }],
        "arrivals": [
            { "at_ms": 0, "key": "a" }, { "at_ms": 1, "key": "b" }, { "at_ms": 2, "key": "a" },
        ],
    }));
    assert_eq!(
        column(&answer, "decision"),
        ["allowed", "allowed", "limited"]
    );
}

#[test]
fn units_in_use_return_when_requests_end() {
    let answer = played(&json!({
        "policies": [{ "algorithm": "concurrency", "max": 1 }],
        "arrivals": [{ "at_ms": 0, "for_ms": 100, "count": 3, "every_ms": 50 }],
    }));
    assert_eq!(
        column(&answer, "decision"),
        ["allowed", "limited", "allowed"]
    );
    let in_use = column(&answer, "cell");
    assert!(
        in_use.iter().all(|cell| cell["in_use_units"] == 1),
        "{in_use:?}"
    );
}

#[test]
fn a_queue_delays() {
    let answer = played(&json!({
        "policies": [{ "algorithm": "leaky_bucket", "quota": "2/1s", "queue": 2 }],
        "arrivals": [{ "at_ms": 0, "count": 4 }],
    }));
    let words = ["allowed", "delayed", "delayed", "limited"];
    assert_eq!(column(&answer, "decision"), words);
    assert_eq!(column(&answer, "delay_ms")[2], json!(1_000));
}

#[test]
fn only_later_decisions_are_told_and_only_the_last_cells() {
    let mut request = json!({
        "policies": [{ "quota": "10/1s" }],
        "arrivals": [{ "at_ms": 0, "count": 3_000, "every_ms": 10 }],
    });
    let all = played(&request);
    request["from"] = json!(2_999);
    let last = played(&request);
    assert_eq!(column(&last, "cell"), column(&all, "cell")[2_999..]);
    let cells = column(&all, "cell");
    assert!(cells[999].is_null() && !cells[1_000].is_null());
}

#[test]
fn the_policies_of_a_text_decide() {
    const TEXT: &str = "
policies: { a: { key: 'header:x-api-key', quota: 1/1m, when: { method: [POST] } } }
routes: [{ upstream: 'http://127.0.0.1:1', limits: [a, { quota: 2/1m }] }]
";
    let answer = played(&json!({
        "text": TEXT,
        "arrivals": [{ "at_ms": 0, "count": 3 }],
    }));
    assert_eq!(answer["settings"]["a"]["quota"], "1/1m");
    assert_eq!(answer["policies"][1]["name"], "any#1");
    assert_eq!(
        column(&answer, "decision"),
        ["allowed", "limited", "limited"]
    );
}

#[test]
fn what_cannot_be_decided_is_refused_with_the_reason() {
    let policy = json!({ "quota": "1/1m" });
    for (request, reason) in [
        (
            json!({ "policies": [], "arrivals": [] }),
            "there are 0 policies",
        ),
        (
            json!({ "policies": vec![&policy; 9], "arrivals": [] }),
            "there are 9 policies",
        ),
        (json!({ "arrivals": [] }), "either `policies` or a `text`"),
        (
            json!({ "policies": [&policy], "arrivals": [{ "at_ms": 0, "count": 20_001 }] }),
            "20000",
        ),
        (
            json!({ "policies": [&policy], "arrivals": [{ "at_ms": u64::MAX }] }),
            "366 days",
        ),
        (
            json!({ "policies": [&policy], "arrivals": [{ "at_ms": 0, "count": 2, "every_ms": u64::MAX }] }),
            "366 days",
        ),
        (
            json!({ "policies": [&policy], "arrivals": [{ "at_ms": 0, "cost": 0 }] }),
            "1 to 1000",
        ),
        (
            json!({ "policies": [&policy], "arrivals": [{ "at_ms": 0, "key": "ä" }] }),
            "ASCII",
        ),
        (
            json!({ "policies": [{ "qota": "1/1m" }], "arrivals": [] }),
            "qota",
        ),
        (
            json!({ "policies": [{ "algorithm": "concurrency", "max": 1, "queue": 1 }], "arrivals": [] }),
            "leave `queue` out",
        ),
        (
            json!({ "policies": [&policy], "arrival": [] }),
            "unknown field `arrival`",
        ),
        (json!({ "text": "routes: [", "arrivals": [] }), ""),
        (
            json!({ "text": "policies: { a: { quota: '${HOME}' } }", "arrivals": [] }),
            "HOME",
        ),
    ] {
        let refused = refused(&request);
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
}

#[test]
fn soft_limits_answer_before_the_quota_is_used() {
    let answer = played(&json!({
        "policies": [{
            "algorithm": "token_bucket", "quota": "4/1h",
            "soft_limits": [{ "above": 1, "on_limit": { "status": 420 } }],
        }],
        "arrivals": [{ "at_ms": 0, "count": 3 }],
    }));
    let words = ["allowed", "limited", "limited"];
    assert_eq!(column(&answer, "decision"), words);
}
