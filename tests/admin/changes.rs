//! Changes of what runs: modes and draining, their audit lines, and callers that may not.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json, problem};
use crate::support::client::{Connection, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ok, refusing_address};
use crate::support::steering::UNTIL;
use crate::support::{DEADLINE, wait_for};

const CONFIG: &str = "policies: { spam: { quota: 0/1h } }
routes: [{ upstream: echo, limits: [spam] }]
";
const MODE: &str = "/v1/policies/spam/mode";

#[test]
fn a_mode_holds_until_the_configuration_changes() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let client = AdminClient::writer(&gateway);
    let status = || get(gateway.address(), "/").status;
    let set =
        |mode: &str| json(&client.post(MODE, &json!({ "mode": mode, "reason": "a \"try\"" })));
    assert_eq!(status(), 429);
    let answer = set("shadow");
    assert_eq!(answer["before"], "enforce");
    assert_eq!(answer["mode"]["current"], "shadow");
    assert_eq!(answer["mode"]["configured"], "enforce");
    assert_eq!(status(), 200);
    let shadowed = client.read("/v1/policies/spam")["decisions"]["shadowed"].clone();
    assert_eq!(shadowed, 1);
    set("disabled");
    assert_eq!(status(), 200);
    assert_eq!(
        client.read("/v1/policies/spam")["decisions"]["shadowed"],
        shadowed
    );
    set("configured");
    assert_eq!(status(), 429);
    set("shadow");
    let reloads = gateway.reloads("success");
    gateway.signal(Signal::HUP);
    wait_for("the reload", || {
        (gateway.reloads("success") > reloads).then_some(())
    });
    assert_eq!(status(), 200, "the same text keeps the mode");
    gateway.reload(&format!("{TOKENS}{CONFIG}# again\n"));
    assert_eq!(status(), 429);
    let line = gateway.wait_for_log("action=\"mode\"");
    for part in [
        "audit",
        "policy=\"spam\"",
        "peer=127.0.0.1:",
        r#"reason="a \"try\"""#,
        "dry_run=false",
        "result=\"enforce to shadow\"",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
}

#[test]
fn a_reader_and_a_foreign_page_change_nothing() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let body = json!({ "mode": "shadow" });
    problem(&AdminClient::new(&gateway, READER).post(MODE, &body), 403);
    let client = AdminClient::writer(&gateway);
    let body = body.to_string();
    let send = |headers: &str, body: &str| client.send("POST", MODE, headers, Some(body));
    let json = "Content-Type: application/json\r\n";
    problem(
        &send(&format!("{json}Origin: http://evil.example\r\n"), &body),
        403,
    );
    problem(&send("", &body), 415);
    problem(&send("Content-Type: text/plain\r\n", &body), 415);
    problem(&send(json, "{"), 400);
    problem(
        &send(
            json,
            &format!("{{\"mode\":\"shadow\",\"reason\":\"{}\"}}", "x".repeat(201)),
        ),
        400,
    );
    problem(&send(json, &" ".repeat(65 * 1024)), 413);
    assert_eq!(get(gateway.address(), "/").status, 429);
    let own = format!("{json}Origin: http://{}\r\n", gateway.admin);
    assert_eq!(send(&own, &body).status, 200);
}

#[test]
fn changes_and_attempts_are_audit_lines() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let client = AdminClient::writer(&gateway);
    let key = |more: Value| {
        let mut body = json!({ "policy": "spam", "key": "192.0.2.1" });
        let fields = more.as_object().expect("fields").clone();
        body.as_object_mut().expect("an object").extend(fields);
        body
    };
    let until = UNTIL.as_str();
    let granted = format!("policy=\"spam\" units=5 until={until:?} result=\"applied\"");
    let grant = |until: &str| key(json!({ "units": 5, "until": until }));
    let mode = json!({ "mode": "shadow" });
    for (path, body, status, parts) in [
        ("/v1/keys/grant", grant(until), 200, granted.as_str()),
        (
            "/v1/keys/ban",
            key(json!({ "for": "15m" })),
            200,
            "policy=\"spam\" until=\"20 for_s=900.0 result=\"applied\"",
        ),
        (
            "/v1/keys/ban",
            key(json!({ "for": "400d" })),
            422,
            "policy=\"spam\" for_s=34560000.0 result=\"a",
        ),
        (
            "/v1/keys/grant",
            grant("soon"),
            422,
            "path=\"/v1/keys/grant\" result=\"422",
        ),
        (
            "/v1/keys/unban",
            key(json!({ "key": 5 })),
            400,
            "path=\"/v1/keys/unban\" result=\"400",
        ),
        (
            "/v1/keys/reset",
            json!({ "policy": "ham" }),
            404,
            "path=\"/v1/keys/reset\" result=\"404",
        ),
        (
            "/v1/policies/ham/mode",
            mode,
            404,
            "path=\"/v1/policies/ham/mode\" result=\"404",
        ),
        (
            "/v1/upstreams/a/endpoints/b/drain",
            json!({ "drain": true }),
            404,
            "path=\"/v1/upstreams/a/endpoints/b/drain\" action=\"drain\"",
        ),
    ] {
        assert_eq!(client.post(path, &body).status, status, "{path}");
        let is_it = |line: &str| {
            let mut parts =
                parts
                    .split(' ')
                    .chain(["audit", "actor=\"write#1\"", "peer=127.0.0.1:"]);
            parts.all(|part| line.contains(part))
        };
        gateway.wait_for_line(parts, is_it);
    }
    assert!(!gateway.log().contains("192.0.2.1"), "keys are not logged");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the log is throttled by the time of the machine"
)]
fn a_flood_of_callers_that_may_change_nothing_is_a_line_a_second() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let body = json!({ "mode": "shadow" });
    let began = Instant::now();
    for _ in 0..50 {
        problem(&AdminClient::new(&gateway, READER).post(MODE, &body), 403);
    }
    // More guesses from one address would be throttled.
    for _ in 0..5 {
        problem(
            &AdminClient::new(&gateway, "unknown").post(MODE, &body),
            401,
        );
    }
    let seconds = began.elapsed().as_secs() as usize;
    gateway.wait_for_log("result=\"forbidden\"");
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains("action=\"mode\""));
    let lines = lines.count();
    assert!(lines <= seconds + 2, "{lines} lines in {seconds} s: {log}");
    let counted = "sluicegate_admin_requests_refused_total{reason=\"forbidden\"}";
    assert_eq!(gateway.metric(counted), Some(50.0));
}

#[test]
fn a_slow_body_is_given_up() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let mut slow = Connection::open(gateway.admin);
    slow.send(format!(
        "POST {MODE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer writer-0123456789\r\n\
         Content-Type: application/json\r\nContent-Length: 30\r\n\r\n{{\"mode\":"
    ));
    // Other callers are served meanwhile.
    assert_eq!(get(gateway.admin, "/livez").status, 200);
    let response = slow.try_receive().expect("a whole response");
    problem(&response.expect("an answer"), 408);
    assert_eq!(get(gateway.address(), "/").status, 429);
}

#[test]
fn a_draining_endpoint_gets_no_new_requests_and_ends_those_in_flight() {
    let (go, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let slow = Origin::start(move |request| {
        if request.target == "/slow" {
            let gate = gate.lock().expect("no holder panics");
            gate.recv_timeout(DEADLINE).expect("the test goes on");
        }
        ok("slow")
    });
    let other = Origin::start(|_| ok("other"));
    let config = format!(
        "{TOKENS}workers: 1
upstreams: {{ pool: {{ endpoints: [\"{}\", \"{}\"] }} }}
routes: [{{ upstream: pool }}]
",
        slow.url(),
        other.url()
    );
    let gateway = Gateway::start(&config);
    let client = AdminClient::writer(&gateway);
    let endpoint = slow.address();
    let drain = |drain: bool| {
        let path = format!("/v1/upstreams/pool/endpoints/{endpoint}/drain");
        json(&client.post(&path, &json!({ "drain": drain, "reason": "update" })))
    };
    let state = || client.read("/v1/upstreams")["upstreams"][0]["endpoints"][0].clone();
    let series = format!(
        "sluicegate_upstream_endpoint_draining{{upstream=\"pool\",endpoint=\"{endpoint}\"}}"
    );

    // Round robin: one of two requests waits at the slow origin.
    let address = gateway.address();
    let waiting: Vec<_> = (0..2)
        .map(|_| thread::spawn(move || get(address, "/slow").text()))
        .collect();
    wait_for("a request in flight", || {
        (state()["hosts"][0]["in_flight"] == 1).then_some(())
    });
    wait_for("it at the origin", || {
        (slow.requests().len() == 1).then_some(())
    });
    assert_eq!(drain(true)["changed"], true);
    assert_eq!(drain(true)["changed"], false);
    assert_eq!(state()["draining"], true);
    assert_eq!(state()["hosts"][0]["state"], "draining");
    assert_eq!(gateway.metric(&series), Some(1.0));
    let before = slow.requests().len();
    for _ in 0..10 {
        assert_eq!(get(address, "/").text(), "other");
    }
    go.send(()).expect("the origin waits");
    let mut answers: Vec<_> = waiting
        .into_iter()
        .map(|one| one.join().expect("an answer"))
        .collect();
    answers.sort();
    assert_eq!(answers, ["other", "slow"]);

    gateway.reload(&format!("{config}# again\n"));
    assert_eq!(state()["draining"], true);
    for _ in 0..10 {
        assert_eq!(get(address, "/").text(), "other");
    }
    assert_eq!(slow.requests().len(), before);
    assert_eq!(drain(false)["changed"], true);
    wait_for("the endpoint to be used", || {
        (get(address, "/").text() == "slow").then_some(())
    });
    assert_eq!(gateway.metric(&series), Some(0.0));
}

#[test]
fn an_upstream_whose_endpoints_all_drain_is_unavailable() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "{TOKENS}upstreams: {{ one: {{ endpoints: [\"{}\"] }} }}\nroutes: [{{ upstream: one }}]\n",
        origin.url()
    ));
    let client = AdminClient::writer(&gateway);
    let path = format!("/v1/upstreams/one/endpoints/{}/drain", origin.address());
    client.post(&path, &json!({ "drain": true }));
    assert_eq!(get(gateway.address(), "/").status, 503);
    client.post(&path, &json!({ "drain": false }));
    assert_eq!(get(gateway.address(), "/").status, 200);
}

#[test]
fn dry_runs_of_modes_and_endpoints_say_what_they_mean_and_change_nothing() {
    let (origin, dead) = (Origin::plain(), refusing_address());
    let gateway = Gateway::start(&format!(
        "{TOKENS}upstreams: {{ two: {{ endpoints: [\"{}\", \"http://{dead}\"], ejection: {{ for: 5m }} }} }}
policies: {{ spam: {{ quota: 0/1h }} }}
routes: [{{ match: {{ path: /spam }}, upstream: two, limits: [spam] }}, {{ upstream: two }}]
",
        origin.url()
    ));
    let client = AdminClient::writer(&gateway);
    let post = |path: &str, body: Value| json(&client.post(path, &body));
    let spam = || client.read("/v1/policies/spam");
    wait_for("the second step", || {
        assert_eq!(get(gateway.address(), "/spam").status, 429);
        (!spam()["recent"].is_null()).then_some(())
    });
    let tried = post(MODE, json!({ "mode": "shadow", "dry_run": true }));
    assert_eq!(
        (&tried["before"], &tried["mode"]["current"]),
        (&json!("enforce"), &json!("shadow"))
    );
    let effect = tried["effect"][0].as_str().expect("a sentence");
    assert!(
        effect.ends_with("that were limited would have passed"),
        "{effect}"
    );
    assert_eq!(spam()["mode"]["current"], "enforce");
    assert_eq!(get(gateway.address(), "/spam").status, 429);
    let line = gateway.wait_for_log("action=\"mode\"");
    assert!(
        line.contains("dry_run=true result=\"enforce to shadow\""),
        "{line}"
    );

    let path =
        |endpoint: &str, action: &str| format!("/v1/upstreams/two/endpoints/{endpoint}/{action}");
    let states = || {
        let upstreams = client.read("/v1/upstreams");
        let endpoints = upstreams["upstreams"][0]["endpoints"].as_array().cloned();
        let endpoints = endpoints.expect("a list").into_iter();
        endpoints
            .map(|one| one["hosts"][0]["state"].clone())
            .collect::<Vec<_>>()
    };
    wait_for("an ejection", || {
        get(gateway.address(), "/");
        (states()[1] == "ejected").then_some(())
    });
    let dead = dead.to_string();
    let before = states();
    let tried = post(&path(&dead, "readmit"), json!({ "dry_run": true }));
    assert_eq!(tried["readmitted"], json!([dead]));
    assert_eq!(
        tried["effect"],
        json!([format!("{dead} gets requests again")])
    );
    let first = origin.address().to_string();
    let tried = post(
        &path(&first, "drain"),
        json!({ "drain": true, "dry_run": true }),
    );
    assert_eq!(
        (&tried["draining"], &tried["changed"]),
        (&json!(true), &json!(true))
    );
    let left = json!([
        "0 requests in flight end there",
        "no other endpoint works: all requests get 503"
    ]);
    assert_eq!(tried["effect"], left);
    assert_eq!(states(), before);
    gateway.wait_for_line("a dry run", |line| {
        line.contains("action=\"drain\"") && line.contains("dry_run=true result=\"dry_run\"")
    });
    // A dry run tells what the change then does.
    let made = post(&path(&dead, "readmit"), json!({}));
    assert_eq!(made["readmitted"], json!([dead]));
    assert_eq!(states(), ["available", "available"]);
    // An ejection is over at the end of a drain, too.
    wait_for("another ejection", || {
        get(gateway.address(), "/");
        (states()[1] == "ejected").then_some(())
    });
    post(&path(&dead, "drain"), json!({ "drain": true }));
    let tried = post(&path(&dead, "readmit"), json!({ "dry_run": true }));
    let made = post(&path(&dead, "readmit"), json!({}));
    assert_eq!(tried["readmitted"], made["readmitted"]);
    assert_eq!(states()[1], "draining");
}

#[test]
fn a_dry_run_counts_the_requests_that_wait() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies: {{ slow: {{ key: \"header:x-key\", quota: 1/60s, on_limit: {{ action: wait, max_wait: 5m }} }} }}
routes: [{{ upstream: echo, limits: [slow] }}]
"
    ));
    let client = AdminClient::writer(&gateway);
    let body = |more: Value| {
        let mut body = json!({ "policy": "slow", "key": "alice" });
        let fields = more.as_object().expect("fields").clone();
        body.as_object_mut().expect("an object").extend(fields);
        body
    };
    let address = gateway.address();
    let ask = move || get_with(address, "/", "x-key: alice\r\n").status;
    assert_eq!(ask(), 200);
    let waiting: Vec<_> = (0..3).map(|_| thread::spawn(ask)).collect();
    let lookup = || json(&client.post("/v1/keys/lookup", &body(json!({}))));
    wait_for("three requests that wait", || {
        (lookup()["waiting"] == 3).then_some(())
    });
    let effect = |action: &str, more: Value| {
        let changed = client.post(&format!("/v1/keys/{action}"), &body(more));
        json(&changed)["effect"].clone()
    };
    let dry = json!({ "dry_run": true });
    assert_eq!(
        effect("reset", dry),
        json!(["1 of 3 waiting requests pass"])
    );
    let ban = json!({ "for": "1m", "dry_run": true });
    assert_eq!(
        effect("ban", ban),
        json!(["3 waiting requests are limited"])
    );
    assert_eq!(lookup()["waiting"], 3);
    let grant = json!({ "units": 5, "for": "1m" });
    assert_eq!(
        effect("grant", grant),
        json!(["3 of 3 waiting requests pass"])
    );
    for request in waiting {
        assert_eq!(request.join().expect("an answer"), 200);
    }
}
