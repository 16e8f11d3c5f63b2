//! Terminal clients of the admin API before listeners that are none: each says what is wrong, and
//! prints nothing that disturbs a terminal.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::json;

use crate::support::DEADLINE;
use crate::support::client::Output;

const STATUS: &[&str] = &["status"];
const RESET: &[&str] = &["keys", "reset", "per-key", "alice"];
const TOP: &[&str] = &["top", "--once"];

/// A listener that answers each connection with these bytes.
fn answering(bytes: impl Into<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let bytes = bytes.into();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let deadline = client.set_read_timeout(Some(DEADLINE));
            deadline.expect("a deadline is set");
            let _ = client.read(&mut [0; 4096]).expect("a request");
            client.write_all(&bytes).expect("the client reads");
        }
    });
    address
}

fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn run(arguments: &[&str], address: SocketAddr, token: &str) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(arguments)
        .args(["--admin", &address.to_string()])
        .env("SLUICEGATE_ADMIN_TOKEN", token)
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts");
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

/// What a command says on stderr that has nothing to print.
#[track_caller]
fn fails(arguments: &[&str], address: SocketAddr) -> String {
    let output = run(arguments, address, "token");
    assert_eq!(output.code, Some(1), "{output}");
    assert_eq!(output.stdout, "", "{output}");
    output.stderr
}

#[test]
fn an_answer_of_another_server_is_no_answer() {
    for command in [STATUS, RESET, TOP, &["status", "--json"]] {
        for body in ["hello", "[]", "{}", "{\"before\":{},\"problems\":null}"] {
            let address = answering(response("200 OK", body));
            let told = fails(command, address);
            let expected = format!("http://{address} is not the admin listener of sluicegate: ");
            assert!(told.starts_with(&expected), "{body}: {told}");
            assert!(told.contains("--admin"), "{told}");
            assert_eq!(told.contains("isn't JSON"), body == "hello", "{told}");
        }
    }
}

#[test]
fn causes_are_told_apart() {
    let told = fails(STATUS, answering("SSH-2.0-OpenSSH_9.9\r\n"));
    assert!(told.contains("does not speak HTTP"), "{told}");
    let told = fails(STATUS, answering(""));
    assert!(told.contains("gives no whole answer"), "{told}");
    let told = fails(STATUS, answering(response("502 Bad Gateway", "")));
    assert!(
        told.contains("is not the admin listener") && told.contains("502 Bad Gateway"),
        "{told}"
    );
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("a bound socket");
    let told = fails(STATUS, address);
    assert!(told.contains("does not answer within 10 s"), "{told}");
    drop(silent);
    let told = fails(STATUS, address);
    assert!(told.contains("nothing answers at"), "{told}");
    let broken = run(STATUS, address, "to\nken");
    assert_eq!(broken.code, Some(1), "{broken}");
    let told = "the token of $SLUICEGATE_ADMIN_TOKEN has a line break";
    assert!(broken.stderr.contains(told), "{broken}");
}

/// Characters that clear a screen, break a line and reverse letters.
const HARMFUL: &str = "a\u{1b}[2J\u{9b}2J\n\u{202e}b";

#[track_caller]
fn assert_harmless(text: &str) {
    let harmful = ['\u{1b}', '\u{9b}', '\u{202e}'];
    assert!(!text.contains(harmful), "{text:?}");
    assert!(text.contains("a\\u001b[2J"), "{text:?}");
}

#[test]
fn texts_of_a_server_do_not_disturb_the_terminal() {
    let problem = json!({
        "type": "about:blank", "title": "Unprocessable Content", "status": 422, "detail": HARMFUL,
    });
    let problem = problem.to_string();
    for command in [STATUS, RESET, TOP] {
        let told = fails(command, answering(response("422 Unprocessable", &problem)));
        assert_harmless(&told);
        assert_eq!(told.lines().count(), 1, "{told:?}");
    }
    let status = json!({
        "version": HARMFUL, "revision": "0", "pid": 1, "started_at": "2026-11-24T18:00:00Z",
        "phase": "ready", "uptime_s": 1, "workers": 1,
        "ruleset": { "hash": "0", "loaded_at": "2026-11-24T18:00:00Z" }, "last_reload": null,
        "stores": [{ "name": HARMFUL, "state": "down", "detail": HARMFUL }],
        "connections": { "open": 0, "max": 1 }, "problems": [HARMFUL], "notes": [HARMFUL],
        "problem_details": [{
            "kind": HARMFUL, "severity": "critical", "since": "2026-11-24T18:00:00Z", "labels": {}, "text": HARMFUL,
            "remedy": HARMFUL,
        }],
    });
    let mut all = status.as_object().expect("an object").clone();
    let status = response("200 OK", &status.to_string());
    let printed = run(STATUS, answering(&*status), "token");
    assert_eq!(printed.code, Some(1), "a problem: {printed}");
    assert_harmless(&printed.stdout);
    let json = run(&["status", "--json"], answering(&*status), "token");
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(json["version"], HARMFUL, "scripts get what was sent");

    let state = json!({
        "policy": "per-key", "quota": "1/1h", "key_id": "k", "unit": "requests", "limit": 1,
        "used": 0, "remaining": 1, "reset_s": 0, "retry_after_s": null, "allowed": true,
        "mode": HARMFUL, "stored": true, "override": HARMFUL, "exempt": false,
        "store": "memory", "sync_s": null, "algorithm": HARMFUL, "granted": null, "debt": 0,
        "in_flight": 0,
        "ban": { "until": "never", "for_s": 1, "number": null, "actor": null, "reason": HARMFUL },
        "cell": {
            "algorithm": "gcra", "tat_in_ms": 0, "tau_ms": 0, "interval_ms": 0, "burst_units": 1,
        },
    });
    let changed = json!({ "before": state, "after": state, "note": HARMFUL, "also": [] });
    let changed = changed.to_string();
    let printed = run(RESET, answering(response("200 OK", &changed)), "token");
    assert_eq!(printed.code, Some(0), "{printed}");
    assert_harmless(&printed.stdout);
    let top = json!({
        "by": "limited", "window": "1m", "counted_s": 1e308, "keys": "readable",
        "items": [{
            "rank": 1, "policy": "p", "key_id": "k", "key": [{ HARMFUL: "x" }], "limited": 1,
            "requests": null, "units": null, "error_bound": 0, "client": HARMFUL,
        }],
        "now": "2026-11-24T18:00:00Z", "step_s": 10, "steps": [], "policies": [],
        "upstreams": [{ "name": HARMFUL, "endpoints": [], "recent": null }],
    });
    // It reads its part of each answer.
    all.extend(top.as_object().expect("an object").clone());
    let top = serde_json::Value::from(all).to_string();
    let printed = run(TOP, answering(response("200 OK", &top)), "token");
    assert_eq!(printed.code, Some(0), "{printed}");
    assert_harmless(&printed.stdout);
}
